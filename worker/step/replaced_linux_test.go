package step

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/fstree"
)

// A step saw the directory that had been at a path some minutes before, since its mount was kept for the
// next time: the ID was of what was there by then, and the result said that it was changed meanwhile. So it
// was with a file that an editor had replaced, with a link that leads elsewhere, and with what was mounted
// below the source.
func TestSourceReplaced(t *testing.T) {
	s := newStand(t, Options{})
	dir := filepath.Join(s.dir, "src")
	write(t, filepath.Join(dir, "tree/file"), "one\n")
	write(t, filepath.Join(dir, "other/file"), "two\n")
	write(t, filepath.Join(dir, "one"), "one\n")
	must(t, os.Symlink("tree", filepath.Join(dir, "link")))
	sources := map[string]string{"tree": "/src/file", "link": "/src/file", "one": "/src"}
	see := func(want string) {
		t.Helper()
		for name, file := range sources {
			if res := s.ok(sees(filepath.Join(dir, name), "cat "+file)); string(res.Output) != want || res.Uncached != "" {
				t.Errorf("%s: %q, not cached: %q; want %q", name, res.Output, res.Uncached, want)
			}
		}
	}
	see("one\n")
	must(t, os.Rename(filepath.Join(dir, "tree"), filepath.Join(dir, "old")))
	must(t, os.Rename(filepath.Join(dir, "other"), filepath.Join(dir, "tree")))
	write(t, filepath.Join(dir, "new"), "two\n")
	must(t, os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "one")))
	see("two\n")
	must(t, unix.Mount("x", filepath.Join(dir, "tree"), "tmpfs", 0, ""))
	t.Cleanup(func() { _ = unix.Unmount(filepath.Join(dir, "tree"), unix.MNT_DETACH) })
	write(t, filepath.Join(dir, "tree/file"), "three\n")
	delete(sources, "one")
	see("three\n")
	// While one step has the old directory another gets the new one.
	step := sees(filepath.Join(dir, "tree"), "echo begun; exec sleep 1000")
	s.during(step, func() {
		must(t, unix.Unmount(filepath.Join(dir, "tree"), unix.MNT_DETACH))
		see("two\n")
	})
	s.clean()
}

// A copy was of another directory than its digest: a link at the source was changed while it was copied,
// and changed back before it was compared. A step that was said to have the one had the other.
func TestCopyOfOneTree(t *testing.T) {
	s := newStand(t, Options{})
	dir := filepath.Join(s.dir, "src")
	link := filepath.Join(dir, "link")
	step := sh("base", "cat /copied/file")
	ids := map[ID]string{}
	for _, name := range []string{"one", "two"} {
		write(t, filepath.Join(dir, name, "file"), name)
		step.Copies = []Copy{{filepath.Join(dir, name), "/copied"}}
		ids[s.ok(step).ID] = name
	}
	step.Copies[0].Source, step.NoCache = link, true
	must(t, os.Symlink("one", link))
	stop := make(chan struct{})
	var changes sync.WaitGroup
	defer func() {
		close(stop)
		changes.Wait()
	}()
	changes.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			_ = os.Symlink([]string{"one", "two"}[i%2], link+".new")
			_ = os.Rename(link+".new", link)
		}
	})
	for range 60 {
		res, err := s.Run(s.ctx, step, nil)
		if err != nil && !errors.Is(err, fstree.ErrChanged) {
			t.Fatal(err)
		}
		if err == nil && ids[res.ID] != string(res.Output) {
			t.Fatalf("the step of %q has copied %q", ids[res.ID], res.Output)
		}
	}
	s.clean()
}

// image makes an image of a file system and has it mounted at a directory, until the function is called
// that it returns.
func (s *stand) image(at string, program ...string) (unmount func()) {
	s.Helper()
	if _, err := exec.LookPath(program[0]); err != nil {
		s.Skipf("left out: Debian's package of %s is not installed", program[0])
	}
	must(s, os.MkdirAll(at, 0o755))
	for _, command := range [][]string{program, {"mount", "-o", "loop", filepath.Join(s.dir, "image"), at}} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			s.Fatalf("%v: %v: %s", command, err, out)
		}
	}
	mounted := true
	unmount = func() {
		if mounted {
			mounted = false
			must(s, unix.Unmount(at, 0))
		}
	}
	s.Cleanup(unmount)
	return unmount
}

// An image of a file system was mounted in place of another with files of the same sizes. Those who build
// such images give them the same times, so that equal content makes equal images; the device and the inodes
// were the same, too, and the step was a hit.
func TestImageReplaced(t *testing.T) {
	s := newStand(t, Options{})
	at := filepath.Join(s.dir, "mounted")
	for _, want := range []string{"one\n", "two\n", "one\n"} {
		write(t, filepath.Join(s.dir, "content/file"), want)
		unmount := s.image(at, "mkfs.erofs", "-T1000000000", filepath.Join(s.dir, "image"), filepath.Join(s.dir, "content"))
		if res := s.ok(sees(at, "cat /src/file")); string(res.Output) != want || res.Uncached != "" {
			t.Errorf("%+v; want %q", res, want)
		}
		if res := s.ok(sees(at, "cat /src/file")); !res.Hit {
			t.Errorf("%+v", res)
		}
		unmount()
	}
	s.clean()
}

// A file system that has whole seconds, mounted below a source on another, was taken for one with a finer
// clock: a file that was changed again in the same second was what it had been.
func TestWholeSecondsBelow(t *testing.T) {
	s := newStand(t, Options{})
	dir := filepath.Join(s.dir, "src")
	write(t, filepath.Join(dir, "fine"), "x")
	file, err := os.Create(filepath.Join(s.dir, "image"))
	must(t, err)
	must(t, errors.Join(file.Truncate(4<<20), file.Close()))
	unmount := s.image(filepath.Join(dir, "coarse"), "mkfs.ext4", "-q", "-I", "128", filepath.Join(s.dir, "image"))
	for range 2 {
		name := filepath.Join(dir, "coarse/file")
		write(t, name, "one")
		found, err := s.look(s.ctx, dir, false)
		looked := time.Now()
		var st unix.Stat_t
		must(t, errors.Join(err, unix.Stat(name, &st)))
		if st.Ctim.Nsec != 0 {
			t.Fatalf("the file system is not one of whole seconds: %+v", st.Ctim)
		}
		if found.exact && !looked.After(time.Unix(st.Ctim.Unix()).Add(time.Second)) {
			t.Errorf("a stamp was trusted in the second of the change: %s, %+v", looked.Format(time.StampMicro), found.stamp)
		}
	}
	unmount()
	s.clean()
}
