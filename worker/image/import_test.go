package image_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"holdfast/worker/image"
	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/drivertest"
)

// rich are layers with everything that can be in one: the second hides and replaces what the first has, and leaves
// directories out that lead to what it has.
func rich(t testing.TB) []layer {
	mode := func(m int64) func(*tar.Header) { return func(h *tar.Header) { h.Mode = m } }
	first := archive(t,
		dir("./").with(mode(0o751)),
		dir("bin/"), file("bin/tool", "#!/bin/sh\n").with(mode(0o4755)), link("bin/other", "bin/tool"), symlink("sbin", "bin"),
		dir("data").with(mode(0o1777)), file("data/a", "a"), file("data/b", "b"), dir("data/sub"), file("data/sub/x", "x"),
		dir("gone"), file("gone/1", "1"), dir("gone/deep"), file("gone/deep/2", "2"),
		dir("kept").with(mode(0o500)).with(xattr("user.kept", "yes")), file("kept/1", "1"), file("kept/2", "2"),
		dir("opaque"), file("opaque/old", "old"), dir("opaque/dir"), file("opaque/dir/old", "old"),
		dir("was-dir"), file("was-dir/x", "x"), file("was-file", "x"), symlink("was-link", "data"),
		file("single", "old"), entry{Header: header(tar.TypeFifo, "pipe", 0o640)},
		file("zeros", string(make([]byte, 100_000))+"end"+string(make([]byte, 50_000))),
		file("empty", ""), file("implied/below/f", "f"), file("attributed", "x").with(xattr("user.name", "value\x00with a NUL")),
		file("hölzern\n", "a name"), file(".wh.unused", ""),
	)
	second := archive(t,
		file("data/.wh.a", ""), file("data/c", "c"), file("data/sub/.wh.x", ""), // data itself is left out
		file(".wh.gone", ""),
		file("kept/.wh.1", ""), file("kept/.wh.nothing", ""), file("not/there/.wh.x", ""),
		file("opaque/new", "new"), file("opaque/.wh..wh..opq", ""), file("opaque/dir/new", "new"),
		file("was-dir", "now a file"), dir("was-file"), file("was-file/x", "x"), dir("was-link"), file("was-link/y", "y"),
		file("single", "new"), file("single", "newest"), link("another", "bin/tool"), file(".wh..wh.aufs", ""),
		file("implied/below/g", "g"),
	)
	third := archive(t,
		dir("gone"), file("gone/3", "3"), file(".wh.gone", ""), // hides what is below only, which is nothing any more
		file(".wh.was-dir", ""), file(".wh.data", ""), file("data/new", "new"), // data is made anew, and hides
		dir("opaque").with(mode(0o711)), link("opaque/link", "another"), file("kept/.wh.2", ""), file("kept/.wh..wh..opq", ""),
		file("implied/below/.wh.f", ""), file("implied/.wh..wh..opq", ""), file("implied/below/i", "i"),
	)
	return []layer{gz(first), {v1.MediaTypeImageLayerZstd, second}, {v1.MediaTypeImageLayer, third}}
}

// see mounts a snapshot for reading and lists its content.
func see(t testing.TB, namespace *snapshot.Namespace, name string) map[string]string {
	t.Helper()
	key := "see " + name
	if os.Geteuid() != 0 { // without a mount, which works where there is one directory
		info, err := namespace.Stat(ctx, name)
		must(t, err)
		return drivertest.List(t, filepath.Join(namespace.Store().Root(), "snapshots", info.ID.String(), "fs"))
	}
	mounts, err := namespace.View(ctx, key, name)
	must(t, err)
	at, unmount := drivertest.Mount(t, mounts)
	list := drivertest.List(t, at)
	unmount()
	must(t, namespace.Remove(ctx, key))
	return list
}

func TestRich(t *testing.T) {
	namespace := store(t, "", nil)
	l := simple(t, rich(t)...)
	r, err := image.Import(ctx, namespace, l.dir, image.Options{})
	must(t, err)
	if len(r.Layers) != 3 || r.Existed || r.LeftOut != (image.LeftOut{}) {
		t.Errorf("%+v", r)
	}
	got := see(t, namespace, r.Snapshot)
	var names []string
	for name := range got {
		names = append(names, name)
	}
	slices.Sort(names)
	want := []string{".", "another", "attributed", "bin", "bin/other", "bin/tool", "data", "data/new", "empty", "gone", "gone/3", "hölzern\n",
		"implied", "implied/below", "implied/below/i", "kept", "opaque", "opaque/dir", "opaque/dir/new", "opaque/link", "opaque/new",
		"pipe", "sbin", "single", "was-file", "was-file/x", "was-link", "was-link/y", "zeros"}
	if !slices.Equal(names, want) {
		t.Errorf("there are %q\nand should be %q", names, want)
	}
	info, err := namespace.Stat(ctx, r.Snapshot)
	must(t, err)
	root := filepath.Join(namespace.Store().Root(), "snapshots", info.ID.String(), "fs")
	for name, mode := range map[string]fs.FileMode{
		".": fs.ModeDir | 0o751, "bin/tool": fs.ModeSetuid | 0o755, "kept": fs.ModeDir | 0o500, "opaque": fs.ModeDir | 0o711, "pipe": fs.ModeNamedPipe | 0o640,
		"data": fs.ModeDir | 0o755, "implied": fs.ModeDir | 0o755,
	} {
		info, err := os.Lstat(filepath.Join(root, name))
		if err != nil || info.Mode() != mode {
			t.Errorf("%s is %v, %v, and should be %v", name, info.Mode(), err, mode)
		}
		if !info.ModTime().Equal(stamp) && name != "data" { // made anew without an entry
			t.Errorf("%s is of %v", name, info.ModTime())
		}
	}
	for name, content := range map[string]string{"single": "newest", "another": "#!/bin/sh\n", "zeros": string(make([]byte, 100_000)) + "end" + string(make([]byte, 50_000))} {
		if b, err := os.ReadFile(filepath.Join(root, name)); err != nil || string(b) != content {
			t.Errorf("%s has other content, %v", name, err)
		}
	}
	for _, names := range [][2]string{{"bin/tool", "bin/other"}, {"another", "bin/tool"}, {"opaque/link", "another"}} {
		one, err1 := os.Stat(filepath.Join(root, names[0]))
		two, err2 := os.Stat(filepath.Join(root, names[1]))
		if err := errors.Join(err1, err2); err != nil || !os.SameFile(one, two) {
			t.Errorf("%s are not one file: %v", names, err)
		}
	}
	if problems, err := namespace.Store().Check(ctx); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}

// TestAgain: a second import does nothing, and layers are shared.
func TestAgain(t *testing.T) {
	namespace := store(t, "", nil)
	layers := rich(t)
	l := newLayout(t)
	l.add(l.image(nil, layers[:2]...), "two")
	l.add(l.image(nil, layers...), "three")
	first, err := image.Import(ctx, namespace, l.dir, image.Options{Ref: "two", Name: "debian"})
	must(t, err)
	again, err := image.Import(ctx, namespace, l.dir, image.Options{Ref: "two", Name: "debian"})
	must(t, err)
	if !again.Existed || again.Snapshot != first.Snapshot || !again.Layers[0].Existed || !again.Layers[1].Existed {
		t.Errorf("again: %+v", again)
	}
	more, err := image.Import(ctx, namespace, l.dir, image.Options{Ref: "three"})
	must(t, err)
	if more.Existed || !more.Layers[0].Existed || !more.Layers[1].Existed || more.Layers[2].Existed {
		t.Errorf("with a layer more: %+v", more)
	}
	if totals, err := namespace.Store().Totals(ctx); err != nil || totals.Committed != 3 || totals.Snapshots != 4 {
		t.Errorf("%+v, %v", totals, err)
	}
	// Chain ids, as the OCI specification has them.
	diff := digest.FromBytes(layers[1].tar)
	if want := digest.FromString(first.Layers[0].Snapshot + " " + diff.String()).String(); first.Snapshot != want || first.Layers[0].Snapshot != digest.FromBytes(layers[0].tar).String() {
		t.Errorf("%s on %s, and should be %s", first.Snapshot, first.Layers[0].Snapshot, want)
	}
	info, err := image.Resolve(ctx, namespace, "debian")
	if err != nil || info.Name != first.Snapshot || info.Kind != snapshot.Committed {
		t.Errorf("resolved: %+v, %v", info, err)
	}
	if _, err := image.Import(ctx, namespace, l.dir, image.Options{Ref: "three", Name: "debian"}); !errors.Is(err, snapshot.ErrExists) {
		t.Errorf("another of the same name: %v", err)
	}
	if _, err := image.Import(ctx, namespace, l.dir, image.Options{Ref: "three", Name: "debian", Replace: true}); err != nil {
		t.Error(err)
	}
	if info, err := image.Resolve(ctx, namespace, "debian"); err != nil || info.Name != more.Snapshot {
		t.Errorf("replaced: %+v, %v", info, err)
	}
	if _, err := image.Import(ctx, namespace, l.dir, image.Options{}); !errors.Is(err, image.ErrChoice) {
		t.Errorf("one of two: %v", err)
	}
	leases := 0
	must(t, namespace.Walk(ctx, func(i snapshot.Info) error {
		held, err := namespace.Leases(ctx, i.Name)
		leases += len(held)
		return err
	}))
	if leases > 0 {
		t.Errorf("%d leases are left", leases)
	}
}

// TestConfig: what the image runs is on its name, and on the topmost snapshot without one.
func TestConfig(t *testing.T) {
	namespace := store(t, "", nil)
	l := newLayout(t)
	want := image.Config{Env: []string{"PATH=/bin", "A=\"b,\n"}, Cmd: []string{"sh", "-c", ""}, Entrypoint: []string{"/init"}, Workdir: "/work", User: "1:2"}
	l.add(l.image(func(_ *v1.Manifest, c *v1.Image) {
		c.Config = v1.ImageConfig{Env: want.Env, Cmd: want.Cmd, Entrypoint: want.Entrypoint, WorkingDir: want.Workdir, User: want.User}
	}, onto(t)), "x")
	named, err := image.Import(ctx, namespace, l.dir, image.Options{Name: "n"})
	must(t, err)
	for _, name := range []string{"n", named.Snapshot} {
		if name != "n" {
			_, err := image.Import(ctx, namespace, l.dir, image.Options{})
			must(t, err)
		}
		info, err := namespace.Stat(ctx, name)
		must(t, err)
		got, err := image.ConfigOf(info)
		if err != nil || fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) || info.Labels[image.LabelRef] != "x" || info.Labels[image.LabelBase] != "image" {
			t.Errorf("%s: %q, %v, %q", name, got, err, info.Labels)
		}
	}
	if _, err := image.Import(ctx, namespace, l.dir, image.Options{Name: "bare", NoConfig: true}); err != nil {
		t.Fatal(err)
	}
	info, err := namespace.Stat(ctx, "bare")
	must(t, err)
	if got, err := image.ConfigOf(info); err != nil || fmt.Sprint(got) != fmt.Sprint(image.Config{}) {
		t.Errorf("without: %q, %v", got, err)
	}
}

// An image that was imported without a name had the user of another with the same layers, and parts of its
// environment: what the second did not say stayed as the first had said it.
func TestSameLayers(t *testing.T) {
	namespace := store(t, "", nil)
	layers := rich(t)
	for i, config := range []v1.ImageConfig{{User: "nobody", WorkingDir: "/w", Env: []string{"A=1"}, Cmd: []string{"x"}}, {Env: []string{"B=2"}}, {}} {
		l := newLayout(t)
		l.add(l.image(func(_ *v1.Manifest, c *v1.Image) { c.Config = config }, layers...), "")
		r, err := image.Import(ctx, namespace, l.dir, image.Options{})
		must(t, err)
		info, err := namespace.Stat(ctx, r.Snapshot)
		must(t, err)
		got, err := image.ConfigOf(info)
		if want := r.Config; err != nil || fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) || info.Labels[snapshot.LabelContent] == "" {
			t.Errorf("image %d: %q, %v, and not %q; %v", i, got, err, want, info.Labels)
		}
	}
}

// TestArchives: plain and compressed, from a file and from a stream, are one snapshot.
func TestArchives(t *testing.T) {
	namespace := store(t, "", nil)
	plain := archive(t, dir("d"), file("d/f", "x"), file("oci-layout.txt", ""))
	want := digest.FromBytes(plain).String()
	for i, b := range [][]byte{plain, gzipped(t, plain), zstded(t, plain)} {
		path := filepath.Join(t.TempDir(), "base.tar")
		must(t, os.WriteFile(path, b, 0o600))
		var progress image.Progress
		r, err := image.Import(ctx, namespace, path, image.Options{Progress: &progress})
		if err != nil || r.Snapshot != want || r.Existed != (i > 0) {
			t.Errorf("file %d: %+v, %v", i, r, err)
		}
		if done, total := progress.Read(); done != total || total != 2*int64(len(b)) {
			t.Errorf("file %d: progress %d of %d", i, done, total)
		}
		r, err = image.ImportArchive(ctx, namespace, bytes.NewReader(b), image.Options{})
		if err != nil || r.Snapshot != want || !r.Existed {
			t.Errorf("stream %d: %+v, %v", i, r, err)
		}
	}
	if totals, err := namespace.Store().Totals(ctx); err != nil || totals.Snapshots != 1 {
		t.Errorf("%+v, %v", totals, err)
	}
}

// TestSkippableFrame: a zstd stream that begins with a frame to be skipped, as pzstd writes them, was taken for a tar
// archive that is not compressed, and refused as malformed.
func TestSkippableFrame(t *testing.T) {
	plain := archive(t, file("f", "x"))
	want := digest.FromBytes(plain).String()
	for magic := byte(0x50); magic <= 0x5f; magic++ {
		skipped := []byte{magic, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4}
		b := append(append(bytes.Clone(skipped), zstded(t, plain)...), skipped...)
		r, err := image.ImportArchive(ctx, store(t, "", nil), bytes.NewReader(b), image.Options{})
		if err != nil || r.Snapshot != want {
			t.Errorf("%#x: %+v, %v", magic, r, err)
		}
		for _, bad := range [][]byte{skipped, skipped[:6], append(bytes.Clone(skipped), plain...)} {
			if r, err := image.ImportArchive(ctx, store(t, "", nil), bytes.NewReader(bad), image.Options{}); !errors.Is(err, image.ErrFormat) {
				t.Errorf("%#x, and no archive: %+v, %v", magic, r, err)
			}
		}
	}
}

// TestLayoutTar: an image layout in a tar archive.
func TestLayoutTar(t *testing.T) {
	l := simple(t, rich(t)...)
	path := filepath.Join(t.TempDir(), "image.tar")
	if out, err := exec.Command("tar", "-C", l.dir, "-cf", path, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	inDir, err := image.Import(ctx, store(t, "", nil), l.dir, image.Options{})
	must(t, err)
	namespace := store(t, "", nil)
	r, err := image.Import(ctx, namespace, path, image.Options{})
	if err != nil || r.Snapshot != inDir.Snapshot || r.Image != inDir.Image {
		t.Fatalf("%+v, %v", r, err)
	}
	asFiles, err := image.Import(ctx, namespace, path, image.Options{Format: image.FormatTar})
	must(t, err)
	if list := see(t, namespace, asFiles.Snapshot); list["oci-layout"] == "" {
		t.Errorf("as files: %q", list)
	}
	other := filepath.Join(t.TempDir(), "files.tar")
	must(t, os.WriteFile(other, archive(t, file("f", "x")), 0o600))
	if _, err := image.Import(ctx, namespace, other, image.Options{Format: image.FormatOCI}); err == nil {
		t.Error("files as a layout: no error")
	}
	if _, err := image.Import(ctx, namespace, t.TempDir(), image.Options{}); !errors.Is(err, image.ErrFormat) {
		t.Errorf("an empty directory: %v", err)
	}
}

// TestTogether: many imports of the same at once make it once.
func TestTogether(t *testing.T) {
	namespace := store(t, "", nil)
	l := simple(t, rich(t)...)
	var wg sync.WaitGroup
	made := make(chan int, 8)
	for range cap(made) {
		wg.Go(func() {
			r, err := image.Import(ctx, namespace, l.dir, image.Options{})
			if err != nil {
				t.Error(err)
				return
			}
			n := 0
			for _, l := range r.Layers {
				if !l.Existed {
					n++
				}
			}
			made <- n
		})
	}
	wg.Wait()
	close(made)
	sum := 0
	for n := range made {
		sum += n
	}
	if sum != 3 {
		t.Errorf("%d layers were made, of 3", sum)
	}
}

// TestLeftOver: what a killed process has left does not hinder.
func TestLeftOver(t *testing.T) {
	namespace := store(t, "", nil)
	l := simple(t, onto(t))
	key := "importing " + digest.FromBytes(onto(t).tar).String()
	_, err := namespace.Prepare(ctx, key, "")
	must(t, err)
	_, err = image.Import(ctx, namespace, l.dir, image.Options{})
	must(t, err)
	if _, err := namespace.Stat(ctx, key); !errors.Is(err, snapshot.ErrNotFound) {
		t.Errorf("%s: %v", key, err)
	}
}

// TestLeftOverStream: what a process left that was killed while it imported an archive whose digest it did not know yet
// was never removed: it had a name that no import has again.
func TestLeftOverStream(t *testing.T) {
	namespace := store(t, "", nil)
	_, err := namespace.Prepare(ctx, "importing SOMETHINGRANDOM", "")
	must(t, err)
	_, err = namespace.Prepare(ctx, "importance", "")
	must(t, err)
	// One that is under way is not.
	pipe, writer := io.Pipe()
	done := make(chan error)
	go func() {
		_, err := image.ImportArchive(ctx, namespace, pipe, image.Options{})
		done <- err
	}()
	b := archive(t, file("f", long(200_000)))
	_, err = writer.Write(b[:150_000])
	must(t, err)
	if _, err := image.Import(ctx, namespace, simple(t, onto(t)).dir, image.Options{}); err != nil {
		t.Error(err)
	}
	if _, err := namespace.Stat(ctx, "importing SOMETHINGRANDOM"); !errors.Is(err, snapshot.ErrNotFound) {
		t.Errorf("it is there: %v", err)
	}
	if _, err := namespace.Stat(ctx, "importance"); err != nil {
		t.Error(err)
	}
	_, err = writer.Write(b[150_000:])
	must(t, errors.Join(err, writer.Close(), <-done))
	if _, err := image.Import(ctx, namespace, simple(t, onto(t)).dir, image.Options{Name: "importing x"}); !errors.Is(err, snapshot.ErrInvalid) {
		t.Errorf("a name of imports: %v", err)
	}
}
