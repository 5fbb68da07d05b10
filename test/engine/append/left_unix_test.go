//go:build unix

package append

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"

	"golang.org/x/sys/unix"
)

// A transaction with an Append that a panic had left could be committed after another call, and
// leaked pages.
func TestLeftByAPanic(t *testing.T) {
	db := appendDB(t, nil)
	path := filepath.Join(t.TempDir(), "value")
	if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	value, err := unix.Mmap(int(f.Fd()), 0, 1<<20, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Munmap(value); err != nil {
			t.Error(err)
		}
	}()
	tx, err := db.Begin(true)
	if err != nil {
		t.Fatal(err)
	}
	b, err := tx.CreateBucket([]byte("b"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	left := false
	func() {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		defer func() { left = recover() != nil }()
		if err := b.Append([]byte("a"), value[:30000]); err == nil {
			t.Error("a value was appended that is not there")
		}
	}()
	if !left {
		t.Fatal("no panic has left the call")
	}
	if err := b.Put([]byte("c"), []byte("v")); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err == nil {
		t.Error("it was committed")
	}
	mustBeSound(t, db)
}
