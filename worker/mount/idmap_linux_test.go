package mount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/idmap"

	"holdfast/worker/internal/mountinfo"
)

// testIDs are what ids are mapped to in tests.
var testIDs = idmap.Map{Base: 0x70000000, Count: 65536}

// mapped is a spec with the option.
func mapped(spec Spec) Spec {
	spec.Options = append(slices.Clone(spec.Options), fmt.Sprintf("idmap=%d:%d", testIDs.Base, testIDs.Count))
	return spec
}

// needMaps leaves a test out where the kernel cannot map ids in mounts that are not attached (before Linux 6.15).
func (s *stand) needMaps() {
	s.Helper()
	if err := s.kernel.canMap(&plan{kind: "overlay", ids: testIDs}); err != nil {
		s.Skip("left out: ", err)
	}
}

// owner fails unless a file has an owner and group.
func (s *stand) owner(path string, want uint32) {
	s.Helper()
	var st unix.Stat_t
	must(s, unix.Lstat(path, &st))
	if st.Uid != want || st.Gid != want {
		s.Errorf("%s belongs to %d:%d, and not to %d", path, st.Uid, st.Gid, want)
	}
}

// Root in a step was root of the machine, since the files of its base belong to that. A mapped overlay shows them as
// those of an unprivileged user, and writes what that makes as root's again.
func TestMappedOverlay(t *testing.T) {
	s := newStand(t, Options{})
	s.needMaps()
	below := filepath.Join(s.dir, "elsewhere")
	must(t, os.Mkdir(below, 0o755))
	must(t, unix.Mount("elsewhere", below, "tmpfs", 0, ""))
	t.Cleanup(func() { must(t, unix.Unmount(below, 0)) })
	a, b, c := s.layer("a"), s.layer("elsewhere/b"), s.layer("c")
	must(t, os.Symlink(filepath.Base(c), filepath.Join(s.dir, "link")))
	must(t, os.Chown(a+"/who", 1000, 1000))
	must(t, os.Chown(c+"/c", 70000, 70000))
	upper, options := s.work("u")
	image := s.image(filepath.Join(s.dir, "image"), "image")
	spec := overlay([]string{a, b, filepath.Join(s.dir, "link")}, options...)
	spec.Lowers = []Spec{erofs(image), bind(s.layer("d"))}
	h := s.get(mapped(spec))
	for name, want := range map[string]uint32{
		"": 0, "who": 0 /* of the image */, "a": 0, "b": 0, "d": 0, "c": 65534 - testIDs.Base,
	} {
		s.owner(h.Path()+"/"+name, testIDs.Base+want)
	}
	if err := os.Mkdir(h.Path()+"/mine", 0o755); !errors.Is(err, unix.EOVERFLOW) {
		t.Errorf("the root of the machine makes a directory: %v", err)
	}
	must(t, testIDs.Do(func() error {
		return errors.Join(os.Mkdir(h.Path()+"/made", 0o755), os.WriteFile(h.Path()+"/b", []byte("changed"), 0o600), os.Remove(h.Path()+"/a"),
			os.WriteFile(h.Path()+"/made/file", nil, 0o644), os.Lchown(h.Path()+"/made/file", int(testIDs.Base)+1000, int(testIDs.Base)+1000))
	}))
	s.owner(h.Path()+"/made", testIDs.Base)
	s.owner(h.Path()+"/made/file", testIDs.Base+1000)
	s.free(h)
	for name, want := range map[string]uint32{"": 0, "made": 0, "made/file": 1000, "b": 0, "a": 0} {
		s.owner(filepath.Join(upper, name), want)
	}
	// The same layers without a map, from the same manager.
	plain := s.get(spec)
	s.owner(plain.Path()+"/made/file", 1000)
	s.owner(plain.Path()+"/c", 70000)
	if _, err := os.Lstat(plain.Path() + "/a"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was removed is there: %v", err)
	}
	s.free(plain)
}

// The mounts through which an overlay has found its layers are closed in the background. Whoever has waited until the
// overlay is gone can unmount what its layers are on.
func TestLayersLeave(t *testing.T) {
	s := newStand(t, Options{})
	s.needMaps()
	disk := filepath.Join(s.dir, "disk")
	must(t, os.Mkdir(disk, 0o755))
	for range 20 {
		must(t, unix.Mount("disk", disk, "tmpfs", 0, ""))
		_, options := s.work("disk/u")
		h := s.get(mapped(overlay([]string{s.layer("disk/a"), s.layer("disk/b")}, options...)))
		s.free(h)
		if err := unix.Unmount(disk, 0); err != nil {
			must(t, unix.Unmount(disk, unix.MNT_DETACH))
			t.Fatal(err)
		}
	}
}

// Without a mount above, all layers are below.
func TestMappedBelow(t *testing.T) {
	s := newStand(t, Options{})
	s.needMaps()
	spec := overlay([]string{s.layer("a"), s.layer("b")})
	one, plain := s.get(mapped(spec)), s.get(spec)
	s.owner(one.Path()+"/b", testIDs.Base)
	s.owner(plain.Path()+"/b", 0)
	if again := s.get(mapped(spec)); again.FD() != one.FD() {
		t.Error("two mounts of one spec")
	}
}

func TestMappedBind(t *testing.T) {
	s := newStand(t, Options{})
	s.needMaps()
	a := s.layer("a")
	must(t, os.Chown(a+"/a", 7, 7))
	must(t, os.Mkdir(a+"/below", 0o755))
	must(t, unix.Mount("below", a+"/below", "tmpfs", 0, ""))
	t.Cleanup(func() { must(t, unix.Unmount(a+"/below", 0)) })
	h := s.get(mapped(bind(a, "rbind", "nodev")))
	s.owner(h.Path()+"/who", testIDs.Base)
	s.owner(h.Path()+"/a", testIDs.Base+7)
	s.owner(h.Path()+"/below", testIDs.Base)
	must(t, testIDs.Do(func() error { return os.WriteFile(h.Path()+"/new", nil, 0o644) }))
	s.owner(a+"/new", 0)
	s.owner(s.get(bind(a)).Path()+"/a", 7)
	memory := Spec{Mount: Mount{Type: "tmpfs"}}
	s.owner(s.get(mapped(memory)).Path()+"/.", testIDs.Base)
	s.owner(s.get(mapped(erofs(s.image(filepath.Join(s.dir, "image"), "image")))).Path()+"/who", testIDs.Base)
}

// What a file system or the kernel cannot do is said as such, and leaves nothing: the caller goes without.
func TestMapRefused(t *testing.T) {
	s := newStand(t, Options{})
	s.needMaps()
	a := s.layer("a")
	at := filepath.Join(s.dir, "at")
	must(t, os.Mkdir(at, 0o755))
	// An overlay cannot show other ids itself.
	must(t, unix.Mount("over", at, "overlay", 0, "lowerdir="+a+":"+s.layer("b")))
	t.Cleanup(func() { must(t, unix.Unmount(at, 0)) })
	over, proc := bind(at), bind("/proc")
	inside := Spec{Mount: Mount{Type: "overlay", Options: []string{"lowerdir=" + a}}, Lowers: []Spec{over}}
	for name, spec := range map[string]Spec{"overlay": over, "proc": proc, "lower layer": inside, "lower directory": overlay([]string{at, a})} {
		if _, err := s.Acquire(s.ctx, mapped(spec)); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
	upper, work := filepath.Join(s.dir, "u"), filepath.Join(s.dir, "u/below/work")
	must(t, os.MkdirAll(upper+"/below", 0o755))
	must(t, unix.Mount("below", upper+"/below", "tmpfs", 0, ""))
	t.Cleanup(func() { must(t, unix.Unmount(upper+"/below", 0)) })
	must(t, os.Mkdir(work, 0o755))
	if _, err := s.Acquire(s.ctx, mapped(overlay([]string{a}, "upperdir="+upper, "workdir="+work))); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("upper and work directory on two file systems: %v", err)
	}
	must(t, s.DropIdle(s.ctx))
	if st := s.Stats(); st.Held+st.Idle+st.Pending > 0 {
		t.Errorf("left: %+v", st)
	}
	for _, feature := range []Feature{FeatureLayerFD, FeatureCloneDetached} {
		old := newStand(t, Options{Without: []Feature{feature}})
		if _, err := old.Acquire(old.ctx, mapped(overlay([]string{old.layer("a")}))); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("without %s: %v", feature, err)
		}
	}
}

func TestMapOption(t *testing.T) {
	for _, value := range []string{"", "1", "1:", ":1", "0:1", "1:0", "-1:1", "4294967295:1", "1:2:3", "x:1", "1:4294967296"} {
		spec := bind("/a", "idmap="+value)
		if _, err := parse(&spec); err == nil || !strings.Contains(err.Error(), "BASE:COUNT") {
			t.Errorf("%q: %v", value, err)
		}
	}
	spec := mapped(bind("/a"))
	if p, err := parse(&spec); err != nil || p.ids != testIDs {
		t.Errorf("%+v %v", p, err)
	}
}

// A namespace has its ids, for users and groups, and nothing that runs in it.
func TestNamespaceOfIDs(t *testing.T) {
	s := newStand(t, Options{})
	s.needMaps()
	f, err := s.UserNamespace(testIDs.Base, testIDs.Count)
	must(t, err)
	again, err := s.UserNamespace(testIDs.Base, testIDs.Count)
	must(t, err)
	if f != again {
		t.Error("a second namespace with the same ids")
	}
	left, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	must(t, err)
	all, _ := filepath.Glob("/proc/[0-9]*/ns/user")
	for _, p := range all {
		if in, _ := os.Readlink(p); in == left {
			t.Errorf("%s is in it", p)
		}
	}
}

// The thread is what it was before, whatever the function does.
func TestAsMapped(t *testing.T) {
	needRoot(t)
	failure := errors.New("a failure")
	file := filepath.Join(t.TempDir(), "file")
	if err := testIDs.Do(func() error { return errors.Join(os.WriteFile(file, nil, 0o600), failure) }); !errors.Is(err, failure) {
		t.Error(err)
	}
	s := &stand{TB: t}
	s.owner(file, testIDs.Base)
	for range 100 {
		must(t, os.Remove(file))
		must(t, os.WriteFile(file, nil, 0o600))
		s.owner(file, 0)
	}
}

// Layers are shown in mountinfo by their paths on their file system, by which top knows whose an overlay is, and
// recovery with damaged records: a clone of a directory alone would show them as if that were the root.
func TestMappedPaths(t *testing.T) {
	s := newStand(t, Options{})
	s.needMaps()
	at := filepath.Join(s.dir, "at")
	must(t, os.Mkdir(at, 0o755))
	must(t, unix.Mount("at", at, "tmpfs", 0, ""))
	t.Cleanup(func() { must(t, unix.Unmount(at, unix.MNT_DETACH)) })
	for name, lead := range map[string]string{"u": s.dir, "at/u": at} {
		s.layer(name + "/below")
		upper, options := s.work(name)
		h := s.get(mapped(overlay([]string{filepath.Join(s.dir, name, "below")}, options...)))
		point, err := h.Attach(s.kernel.host, "")
		must(t, err)
		shown := ""
		must(t, eachMount(point, func(m *mountinfo.Mount) {
			if m.Point == point {
				shown = m.Option("upperdir")
			}
		}))
		if !strings.HasSuffix(upper, shown) || !strings.HasSuffix(shown, "/u/fs") || layerPath(shown, []string{"/not/there", lead}) != upper {
			t.Errorf("%s is shown as %s, which is taken for %s", upper, shown, layerPath(shown, []string{lead}))
		}
		s.free(h)
	}
	for _, shown := range []string{"/elsewhere/fs", "", "/"} {
		if got := layerPath(shown, []string{s.dir}); got != shown {
			t.Errorf("%q is taken for %q", shown, got)
		}
	}
}
