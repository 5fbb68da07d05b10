package vfs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// mountExt4 makes a new file system and gives the directory where it is mounted.
func mountExt4(t *testing.T, options ...string) (dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts a file system")
	}
	image := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 16<<20); err != nil {
		t.Fatal(err)
	}
	mkfs := append(append([]string{"-q", "-F"}, options...), image)
	if out, err := exec.Command("mkfs.ext4", mkfs...).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4: %v: %s", err, out)
	}
	dir = t.TempDir()
	if out, err := exec.Command("mount", "-o", "loop", image, dir).CombinedOutput(); err != nil {
		t.Fatalf("mount: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return dir
}

// On ext4 without a journal a power cut took back pages of acknowledged commits: they read
// as zeros. Kernels do not write the inode there, in which the extent becomes a written
// one, unless the inode itself is dirty. TestMachinePowerCut cuts the power; this test sees
// that Sync makes the inode dirty there, and only there, and
// that one of a process that wrote nothing changes nothing.
func TestSyncWritesInode(t *testing.T) {
	for _, c := range []struct {
		name    string
		options []string
		touches bool
	}{
		{"ext4", nil, false},
		{"without journal", []string{"-O", "^has_journal"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := mountExt4(t, c.options...)
			path := filepath.Join(dir, "file")
			touched := func(flag int, write bool) bool {
				f, err := OpenOS(path, flag, 0o600, nil)
				if err != nil {
					t.Fatal(err)
				}
				if write {
					if _, err := f.WriteAt([]byte("x"), 0); err != nil {
						t.Fatal(err)
					}
				}
				old := time.Unix(1_000_000, 0)
				if err := os.Chtimes(path, old, old); err != nil {
					t.Fatal(err)
				}
				if err := f.Sync(); err != nil {
					t.Fatal(err)
				}
				if err := f.Close(); err != nil {
					t.Fatal(err)
				}
				s, err := os.Stat(path)
				if err != nil {
					t.Fatal(err)
				}
				return !s.ModTime().Equal(old)
			}
			for name, got := range map[string]bool{
				"written": touched(os.O_RDWR|os.O_CREATE, true) == c.touches, "opened": !touched(os.O_RDWR, false),
				"opened for reading": !touched(os.O_RDONLY, false),
			} {
				if !got {
					t.Errorf("the times of a file that was %s are not as they should be", name)
				}
			}
		})
	}
}

// A reader flushed the whole file system, and was given the failed writes of others as its own.
// What a process that was killed left dirty is flushed with the times that the file has.
func TestSyncOfWhatIsLeft(t *testing.T) {
	path := filepath.Join(mountExt4(t, "-O", "^has_journal"), "file")
	stat := func() (s unix.Stat_t) {
		if err := unix.Stat(path, &s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	flags, tries := []int{os.O_RDWR, os.O_RDONLY}, 0
	for len(flags) > 0 {
		flag := flags[0]
		path = fmt.Sprint(path, len(flags)) // ext4 writes a file that is replaced by itself
		if err := os.WriteFile(path, []byte("left"), 0o600); err != nil {
			t.Fatal(err)
		}
		before := stat()
		time.Sleep(20 * time.Millisecond) // a time of the file is coarser than the clock
		f, err := OpenOS(path, flag, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		flags = flags[1:]
		for _, changed := range []bool{true, false} { // then nothing is dirty, where the kernel tells
			if err := f.Sync(); err != nil {
				t.Fatal(err)
			}
			after := stat()
			if after.Mtim != before.Mtim || after.Atim != before.Atim {
				t.Errorf("opened with %#x: the times are %v and %v, were %v and %v", flag, after.Atim, after.Mtim, before.Atim, before.Mtim)
			}
			if tries++; cachestatKnown() && changed && after.Ctim == before.Ctim && tries < 10 {
				flags = append(flags, flag) // another's sync, of all file systems, was sooner
				break
			}
			if cachestatKnown() && (after.Ctim != before.Ctim) != changed {
				t.Errorf("opened with %#x: the inode was made dirty: %v, want %v", flag, !changed, changed)
			}
			before = after
			time.Sleep(20 * time.Millisecond)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// cachestatKnown tells whether the kernel has cachestat.
func cachestatKnown() bool {
	return unix.Cachestat(^uint(0), &unix.CachestatRange{}, &unix.Cachestat_t{}, 0) != unix.ENOSYS
}

// On ext4 without a journal each flush failed, so that no database could be opened for writing,
// if the process was not the owner of the file, though it might write it: "utimensat: operation
// not permitted". That one time is to stay as it is only the owner may say.
func TestSyncOfAnothersFile(t *testing.T) {
	dir := mountExt4(t, "-O", "^has_journal")
	for _, c := range []struct {
		name    string
		mode    os.FileMode
		flag    int
		touches bool
	}{
		{"may be written by all", 0o666, os.O_RDWR, true},
		{"could be written when it was opened", 0o600, os.O_RDWR, false},
		{"may be read by all", 0o644, os.O_RDONLY, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(dir, t.Name()[len("TestSyncOfAnothersFile/"):])
			if err := os.WriteFile(path, []byte("content"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, c.mode); err != nil {
				t.Fatal(err)
			}
			old := time.Unix(1_000_000, 0)
			if err := os.Chtimes(path, old, old); err != nil {
				t.Fatal(err)
			}
			f, err := OpenOS(path, c.flag, 0, nil)
			if err != nil {
				t.Fatal(err)
			}
			if c.flag == os.O_RDWR {
				if _, err := f.WriteAt([]byte("CONTENT"), 0); err != nil {
					t.Fatal(err)
				}
				if err := os.Chtimes(path, old, old); err != nil {
					t.Fatal(err)
				}
			}
			asNobody(t, func() { err = f.Sync() })
			if err != nil {
				t.Error(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			s, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if got := !s.ModTime().Equal(old); got != c.touches {
				t.Errorf("Sync touches the file: %v, want %v", got, c.touches)
			}
		})
	}
}

// asNobody calls fn in a thread that has the rights of no user in particular.
func asNobody(t *testing.T, fn func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		const nobody = 65534
		if _, err := unix.SetfsuidRetUid(nobody); err != nil {
			done <- err
			return
		}
		fn()
		done <- nil
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// A process that had no descriptor left when it flushed a file for the first time took ext4
// without a journal for one with a journal from then on.
func TestNoJournalWithoutDescriptors(t *testing.T) {
	f, err := os.Create(filepath.Join(mountExt4(t, "-O", "^has_journal"), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var taken []*os.File
	defer func() {
		for _, f := range taken {
			f.Close()
		}
	}()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Error(err)
		}
	}()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: min(64, limit.Cur), Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	for {
		n, err := os.Open(os.DevNull)
		if err != nil {
			break
		}
		taken = append(taken, n)
	}
	if !noJournal(f.Fd()) {
		t.Error("with no descriptor left it is said to have a journal")
	}
}
