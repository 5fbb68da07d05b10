package share

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/internal/vfs"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wants sees that err is, or wraps, what is wanted.
func wants(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: %v, and not: %v", what, err, want)
	}
}

// database is a file that stands for one, and the directory of its share.
type database struct {
	path, dir string
	id        Identity
}

func newDatabase(t testing.TB) *database {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	must(t, os.WriteFile(path, make([]byte, pagesBytes), 0o600))
	d, err := databaseAt(path)
	must(t, err)
	return d
}

func databaseAt(path string) (*database, error) {
	d := &database{path: path, dir: filepath.Join(filepath.Dir(path), "share")}
	f, err := d.open(os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	d.id.PageSize = 4096
	d.id.Dev, d.id.Ino, err = f.Inode()
	return d, err
}

func (d *database) open(flag int) (*vfs.OSFile, error) {
	f, err := vfs.OpenOS(d.path, flag, 0, nil)
	if err != nil {
		return nil, err
	}
	return f.(*vfs.OSFile), nil
}

// opened is the database's file, open until the test ends.
func (d *database) opened(t testing.TB, flag int) *vfs.OSFile {
	t.Helper()
	f, err := d.open(flag)
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// owner shares state 1 until the test ends, or the owner is closed.
func (d *database) owner(t testing.TB) *Owner {
	t.Helper()
	o, err := Create(d.dir, d.id, d.opened(t, os.O_RDWR), State{Tx: 1}, Options{})
	must(t, err)
	t.Cleanup(func() {
		if o.words.Len() > 0 {
			_ = o.Close()
		}
	})
	return o
}

func (d *database) reader(t testing.TB) *Reader {
	t.Helper()
	r, err := Open(d.dir, d.id, d.opened(t, os.O_RDONLY))
	must(t, err)
	t.Cleanup(func() {
		if r.words.Len() > 0 {
			_ = r.Close()
		}
	})
	return r
}

func begin(t testing.TB, r *Reader) State {
	t.Helper()
	s, err := r.Begin()
	must(t, err)
	return s
}

// ends ends a reader, seen from any side of the share.
func ends(t testing.TB, v *view, r *Reader) {
	t.Helper()
	list, err := v.Readers()
	must(t, err)
	for _, i := range list {
		if i.Slot == r.Slot() {
			did, err := v.EndReader(i)
			if must(t, err); did {
				return
			}
		}
	}
	t.Fatalf("the reader in slot %d was not ended: %+v", r.Slot(), list)
}

// pins sees which transactions are held.
func pins(t testing.TB, o *Owner, want ...uint64) {
	t.Helper()
	got, err := o.Pins(nil)
	must(t, err)
	if !slices.Equal(got, want) {
		t.Fatalf("the slots hold %d, and not %d", got, want)
	}
}

// dies ends a reader as a killed process does: its locks go, and what it wrote stays.
func dies(t testing.TB, r *Reader) {
	t.Helper()
	must(t, r.release())
}

// at calls do once, when a protocol comes to the step with the name.
func at(name string, do func()) func(string) {
	done := false
	return func(step string) {
		if step == name && !done {
			done = true
			do()
		}
	}
}

// path is that of the share.
func (d *database) share() string { return filepath.Join(d.dir, d.id.name()) }

// impatient makes what waits for a whole state give up soon.
func impatient(t testing.TB) {
	before := tries
	tries = 3
	t.Cleanup(func() { tries = before })
}

// flock tries to take the lock of an open database.
func flock(f *os.File) bool { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil }
