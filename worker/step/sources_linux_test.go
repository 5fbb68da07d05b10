package step

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/fstree"
	"holdfast/worker/mount"
	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/btrfs"
	"holdfast/worker/snapshot/driver/copy"
	"holdfast/worker/snapshot/driver/erofs"
	"holdfast/worker/snapshot/drivertest"
)

// sees is a step that has a directory of the host.
func sees(dir, script string) Step {
	step := sh("base", script)
	step.Mounts = []Mount{{Source: dir, Target: "/src", ReadOnly: true}}
	return step
}

func write(t testing.TB, path, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(text), 0o644))
}

// TestChangedMeanwhile: what a step saw is not what its ID says if a source is changed between the look at
// it and the end of the command; also if it is then what it was.
func TestChangedMeanwhile(t *testing.T) {
	runtimes(t, func(s *stand) {
		dir := filepath.Join(s.dir, "src")
		write(s, filepath.Join(dir, "file"), "one")
		step := sees(dir, "cat /src/file")
		for p, when := range map[point]string{atPrepared: "before it is mounted", atMounted: "before the command", atEnded: "after the command"} {
			step.Env = append(sh("", "").Env, fmt.Sprint("P=", p))
			s.hook = func(now point, _ ID) {
				if now == p {
					write(s, filepath.Join(dir, "file"), "two")
					write(s, filepath.Join(dir, "file"), "one")
				}
			}
			res := s.ok(step)
			if res.Uncached != "what is at /src was changed meanwhile" {
				s.Errorf("%s: %+v", when, res)
			}
			s.hook = nil
			if _, err := s.Lookup(s.ctx, step); !errors.Is(err, ErrNotFound) {
				s.Errorf("%s: it is a hit: %v", when, err)
			}
			if info, err := s.namespace.Stat(s.ctx, res.Snapshot); err != nil || info.Labels[LabelUncached] != res.Uncached {
				s.Errorf("%s: %+v, %v", when, info, err)
			}
			if res := s.ok(step); res.Hit || res.Uncached != "" || string(res.Output) != "one" {
				s.Errorf("%s: %+v", when, res)
			}
			if res := s.ok(step); !res.Hit {
				s.Errorf("%s: %+v", when, res)
			}
		}
		s.clean()
	})
}

// TestRacilyClean: a file that is changed twice within a tick of the clock, with the same size, has the
// same times. On ramfs, as newer kernels give files of others a time of their own once their times were read.
func TestRacilyClean(t *testing.T) {
	s := newStand(t, Options{})
	file := filepath.Join(s.dir, "src", "file")
	must(t, os.Mkdir(filepath.Dir(file), 0o755))
	must(t, unix.Mount("ram", filepath.Dir(file), "ramfs", 0, ""))
	t.Cleanup(func() { _ = unix.Unmount(filepath.Dir(file), unix.MNT_DETACH) })
	step := sees(filepath.Dir(file), "cat /src/file")
	for i := range 30 {
		want := fmt.Sprintf("%03d", i)
		write(t, file, want)
		// What is known of a content is asked for at once after the change, and the file changed again at once.
		if i%2 == 1 {
			p, err := s.plan(s.ctx, normal(t, step))
			must(t, err)
			if again := fmt.Sprintf("%03d", i+500); p.uncached == "" {
				write(t, file, again)
				q, err := s.plan(s.ctx, normal(t, step))
				must(t, err)
				if q.id == p.id {
					t.Fatalf("%s and %s are the same", want, again)
				}
			}
		}
	}
}

func normal(t testing.TB, s Step) *Step {
	t.Helper()
	n, err := s.normalize()
	must(t, err)
	return &n
}

// TestRemembered: the second look at a source reads no file.
func TestRemembered(t *testing.T) {
	s := newStand(t, Options{})
	dir := filepath.Join(s.dir, "src")
	for i := range 20_000 {
		if i%1000 == 0 {
			must(t, os.MkdirAll(filepath.Join(dir, fmt.Sprint(i/1000)), 0o755))
		}
		f, err := os.Create(filepath.Join(dir, fmt.Sprint(i/1000), fmt.Sprint(i)))
		must(t, err)
		f.Close()
	}
	var begun time.Time
	look := func() (source, time.Duration) {
		begun = time.Now()
		found, err := s.look(s.ctx, dir, false)
		must(t, err)
		if found.unknown != nil || !found.exact || found.stamp.Entries != 20_021 {
			t.Fatalf("%+v", found)
		}
		return found, time.Since(begun)
	}
	first, took := look()
	// If it is told another digest it believes that, so it has read none.
	other := fstree.Sum{1}
	must(t, s.results.putSource(sourceKey(dir, false), first.stamp.Sum, other))
	second, again := look()
	if second.sum != other {
		t.Errorf("%x, and not %x", second.sum, other)
	}
	t.Logf("20,000 files: %v, and the second time %v", took, again)
	// A record that is damaged, or of another stamp, is none.
	for _, bad := range []fstree.Sum{{2}, {}} {
		must(t, s.results.putSource(sourceKey(dir, false), bad, other))
		if found, _ := look(); found.sum != first.sum {
			t.Errorf("%x, and not %x", found.sum, first.sum)
		}
	}
	s.close()
	s.open()
	if found, _ := look(); found.sum != first.sum {
		t.Errorf("%x, and not %x", found.sum, first.sum)
	}
}

// TestKeepsChanging: a source that is written all the time is not read for ever, and fails nothing.
func TestKeepsChanging(t *testing.T) {
	s := newStand(t, Options{})
	dir := filepath.Join(s.dir, "src")
	write(t, filepath.Join(dir, "x"), "")
	stop := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			name := filepath.Join(dir, fmt.Sprint(i%100))
			_ = os.WriteFile(name, []byte("x"), 0o644)
			_ = os.Remove(filepath.Join(dir, fmt.Sprint((i+50)%100)))
			_ = os.RemoveAll(filepath.Join(dir, "d"))
			_ = os.Mkdir(filepath.Join(dir, "d"), 0o755)
		}
	})
	uncached := 0
	for i := 0; i < 100 && uncached < 5; i++ { // on a busy machine the writer may stand still while a step runs, which is a hit then
		res := s.ok(sees(dir, "echo ran"))
		if string(res.Output) != "ran\n" || res.Hit && res.Uncached != "" {
			t.Errorf("%+v", res)
		}
		if res.Uncached != "" {
			uncached++
		}
	}
	if uncached < 5 {
		t.Errorf("%d results are not cached", uncached)
	}
	close(stop)
	writer.Wait()
	s.clean()
}

// TestVanishes: a source that goes away is an error that says so.
func TestVanishes(t *testing.T) {
	s := newStand(t, Options{})
	dir := filepath.Join(s.dir, "src")
	write(t, filepath.Join(dir, "file"), "x")
	s.hook = func(now point, _ ID) {
		if now == atPrepared {
			must(t, os.RemoveAll(dir))
		}
	}
	if _, err := s.Run(s.ctx, sees(dir, "true"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	s.hook = nil
	if _, err := s.Run(s.ctx, sees(dir, "true"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	write(t, filepath.Join(dir, "file"), "x")
	step := sh("base", "true")
	step.Copies = []Copy{{Source: dir, Target: "/src"}}
	s.hook = func(now point, _ ID) {
		if now == atPrepared {
			write(t, filepath.Join(dir, "file"), "y")
		}
	}
	if _, err := s.Run(s.ctx, step, nil); !errors.Is(err, fstree.ErrChanged) || !strings.Contains(err.Error(), "run the step again") {
		t.Error(err)
	}
	s.hook = nil
	s.clean()
}

// TestForeign: of a file system whose times say nothing, content is compared before and after; here it is
// as if all were.
func TestForeign(t *testing.T) {
	s := newStand(t, Options{})
	file := filepath.Join(s.dir, "src", "file")
	write(t, file, "one")
	found := source{path: filepath.Dir(file), dir: true}
	open, err := fstree.OpenSource(found.path)
	must(t, err)
	defer open.Close()
	found.stamp, err = fstree.StampOf(s.ctx, open)
	must(t, err)
	found.sum, err = fstree.DigestSource(s.ctx, open, false)
	must(t, err)
	if changed, err := found.changed(s.ctx, open); changed || err != nil {
		t.Error(changed, err)
	}
	found.sum[0]++
	if changed, err := found.changed(s.ctx, open); !changed || err != nil {
		t.Error(changed, err)
	}
	// Of a file system of the kernel nothing is known: the command runs, and nothing of it was read before.
	for range 2 {
		if res := s.ok(sees("/proc/sys/kernel", "echo ran")); res.Hit || !strings.Contains(res.Uncached, "a file system of the kernel") {
			t.Errorf("%+v", res)
		}
	}
}

// TestCopies: what is copied is part of the result, belongs to root, and goes nowhere else than into the base.
func TestCopies(t *testing.T) {
	runtimes(t, func(s *stand) {
		outside := filepath.Join(s.dir, "outside")
		write(s, filepath.Join(outside, "file"), "outside")
		dir := filepath.Join(s.dir, "src")
		write(s, filepath.Join(dir, "sub/file"), "sub\n")
		write(s, filepath.Join(dir, "top"), "top\n")
		must(s, os.Symlink(outside, filepath.Join(dir, "link")))
		must(s, os.Lchown(filepath.Join(dir, "top"), 1000, 1000))
		hostile := s.ok(sh("base", "ln -s "+outside+" /abs; ln -s ../../../../../../../../"+outside+" /rel; mkdir /w; ln -s "+outside+" /w/sub; ln -s etc /alias"))
		step := sh("base", "cat /into/sub/file /into/top /one /named/top /etc/top; stat -c %u:%g /into/top; readlink /into/link")
		step.Base = hostile.Snapshot
		top := filepath.Join(dir, "top")
		step.Copies = []Copy{{dir, "/into"}, {top, "/one"}, {top, "/named/"}, {top, "/alias/"}, {dir, "/etc/.."}}
		if got := s.text(step); got != "sub\ntop\ntop\ntop\ntop\n0:0\n"+outside {
			s.Errorf("%q", got)
		}
		for _, target := range []string{"/abs/x", "/rel/x", "/abs", "/rel/", "/w"} {
			step.Copies = []Copy{{dir, target}}
			if res, err := s.Run(s.ctx, step, nil); err == nil { // it has made what was missing
				s.Errorf("%s: %+v", target, res)
			}
		}
		step.Copies, step.Command[2] = []Copy{{dir, "/new/deep/dir"}}, "cat /new/deep/dir/top"
		if got := s.text(step); got != "top" {
			s.Errorf("%q", got)
		}
		entries, err := os.ReadDir(outside)
		if err != nil || len(entries) != 1 {
			s.Errorf("made outside: %v, %v", entries, err)
		}
		must(s, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
		if _, err := s.Run(s.ctx, step, nil); !errors.Is(err, fstree.ErrSpecial) {
			s.Error(err)
		}
		s.clean()
	})
}

// TestLabels: what a result carries on.
func TestLabels(t *testing.T) {
	s := newStand(t, Options{})
	step := sh("base", "true")
	step.Labels = map[string]string{"a": "b"}
	res := s.ok(step)
	info, err := s.namespace.Stat(s.ctx, res.Snapshot)
	must(t, err)
	// The base of the tests says nothing of its content, so its result is of this store alone.
	if info.Labels["a"] != "b" || info.Labels[LabelVersion] != "2" || info.Labels[LabelLocal] == "" || info.Labels[LabelUncached] != "" {
		t.Errorf("%v", info.Labels)
	}
	base, err := s.namespace.Stat(s.ctx, "base")
	must(t, err)
	base.Labels = map[string]string{snapshot.LabelContent: "sha256:x"}
	_, err = s.namespace.Update(s.ctx, base)
	must(t, err)
	known := s.ok(step)
	info, err = s.namespace.Stat(s.ctx, known.Snapshot)
	must(t, err)
	if known.ID == res.ID || info.Labels[LabelLocal] != "" {
		t.Errorf("%v", info.Labels)
	}
}

// TestCaches: a cache can be used by many at once, and by who may not write elsewhere, with drivers that
// keep snapshots in different ways.
func TestCaches(t *testing.T) {
	runtimes(t, func(s *stand) {
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				step := sh("base", fmt.Sprintf("echo x >/cache/%d", i))
				step.Mounts, step.User = []Mount{{Cache: "many", Target: "/cache"}}, User{UID: uint32(1000 + i)}
				if _, err := s.Run(s.ctx, step, nil); err != nil {
					s.Error(err)
				}
			})
		}
		wg.Wait()
		step := sh("base", "ls /cache | wc -l; touch /cache/no 2>/dev/null || echo read-only")
		step.Mounts = []Mount{{Cache: "many", Target: "/cache", ReadOnly: true}}
		if got := s.text(step); got != "8\nread-only" {
			s.Errorf("%q", got)
		}
		s.clean()
	})
	s := &stand{TB: t, ctx: contextOf(t), dir: t.TempDir()}
	s.prepare()
	s.driver = copy.New()
	s.open()
	t.Cleanup(s.close)
	s.busybox("base")
	if got := s.cache("copied"); !strings.HasPrefix(got, s.root()) {
		t.Error(got)
	}
	step := sh("base", "echo out >/out")
	step.Mounts = []Mount{{Cache: "copied", Target: "/cache"}}
	to := filepath.Join(s.dir, "to")
	must(t, s.Export(s.ctx, s.ok(step).Snapshot, "/out", to))
	if b, err := os.ReadFile(to); err != nil || string(b) != "out\n" {
		t.Errorf("%q, %v", b, err)
	}
	s.clean()
}

// A cache whose first step could not mount it, or was killed before it had made it writable, was one that
// only root could write, for good.
func TestCacheIsOpened(t *testing.T) {
	needRoot(t)
	s := &stand{TB: t, ctx: contextOf(t), dir: t.TempDir(), mopt: mount.Options{MaxMounts: 2}}
	s.prepare()
	s.open()
	t.Cleanup(s.close)
	s.busybox("base")
	var held []*mount.Handle
	for range 2 {
		h, err := s.mounts.Acquire(s.ctx, mount.Spec{Mount: mount.Mount{Type: "tmpfs"}})
		must(t, err)
		held = append(held, h)
	}
	cache := Mount{Cache: "c", Target: "/cache"}
	if _, _, err := s.acquireCache(s.ctx, &cache, s.way().ids); !errors.Is(err, mount.ErrFull) {
		t.Fatal(err)
	}
	for _, h := range held {
		h.Release()
		must(t, h.Wait(s.ctx))
	}
	h, release, err := s.acquireCache(s.ctx, &cache, s.way().ids)
	must(t, err)
	info, err := os.Stat(h.Path())
	if err != nil || info.Mode().Perm() != 0o777 || info.Mode()&os.ModeSticky == 0 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	must(t, os.Chmod(h.Path(), 0o700)) // by a step, which it stays for
	h.Release()
	must(t, h.Wait(s.ctx))
	release()
	h, release, err = s.acquireCache(s.ctx, &cache, s.way().ids)
	must(t, err)
	if info, err = os.Stat(h.Path()); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	release()
	h.Release()
	must(t, h.Wait(s.ctx))
	s.clean()
}

// TestCachesOfDrivers: a cache keeps what steps leave there, one after the other and at once, whatever keeps it.
func TestCachesOfDrivers(t *testing.T) {
	for name, d := range map[string]snapshot.Driver{"erofs": erofs.New(), "btrfs": btrfs.New()} {
		t.Run(name, func(t *testing.T) {
			needRoot(t)
			s := &stand{TB: t, ctx: contextOf(t), dir: t.TempDir()}
			s.prepare()
			s.driver = d
			must(t, os.Mkdir(s.root(), 0o700))
			if name == "btrfs" {
				drivertest.Filesystem(t, name, s.root())
			}
			s.open()
			t.Cleanup(s.close)
			s.busybox("base")
			var wg sync.WaitGroup
			for i := range 4 {
				wg.Go(func() {
					step := sh("base", fmt.Sprintf("echo %d >/cache/%d", i, i))
					step.Mounts, step.User = []Mount{{Cache: "c", Target: "/cache"}}, User{UID: uint32(1000 + i)}
					if _, err := s.Run(s.ctx, step, nil); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			step := sh("base", "cat /cache/0 /cache/1 /cache/2 /cache/3; touch /cache/no 2>/dev/null || echo read-only")
			step.Mounts = []Mount{{Cache: "c", Target: "/cache", ReadOnly: true}}
			if got := s.text(step); got != "0\n1\n2\n3\nread-only" {
				t.Errorf("%q", got)
			}
			if r, err := s.Check(s.ctx); err != nil || len(r.Problems) > 0 { // not clean, which finds the disk
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}

// TestExportFails: of an output that fails no view and no mount is left.
func TestExportFails(t *testing.T) {
	s := newStand(t, Options{})
	res := s.ok(sh("base", "mkdir /d; for i in $(seq 500); do echo x >/d/$i; done"))
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	if err := s.Export(ctx, res.Snapshot, "/d", filepath.Join(s.dir, "to")); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := s.Export(s.ctx, res.Snapshot, "/nothing", filepath.Join(s.dir, "to")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	must(t, s.Export(s.ctx, res.Snapshot, "/d", filepath.Join(s.dir, "to")))
	if found, err := os.ReadDir(filepath.Join(s.dir, "to")); err != nil || len(found) != 500 {
		t.Error(len(found), err)
	}
	s.clean()
}

// TestWithin: what is the store, is in it, or has it.
func TestWithin(t *testing.T) {
	s := newStand(t, Options{})
	link := filepath.Join(s.dir, "link")
	must(t, os.Symlink(s.root(), link))
	beside := s.root() + "-beside"
	write(t, filepath.Join(beside, "x"), "")
	for path, want := range map[string]error{s.root(): ErrInvalid, link: ErrInvalid, filepath.Join(link, "snapshots"): ErrInvalid, s.dir: ErrInvalid, "/": ErrInvalid,
		filepath.Join(s.root(), "metadata.db"): ErrInvalid, beside: nil, filepath.Join(s.dir, "nothing"): os.ErrNotExist} {
		if err := s.outsideStore(path); !errors.Is(err, want) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
