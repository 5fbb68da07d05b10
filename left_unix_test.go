//go:build unix

package holdfast

import (
	"errors"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"

	"golang.org/x/sys/unix"
)

// A transaction with an Append that a panic had left could be committed after another call, and leaked pages.
func TestLeftByAPanic(t *testing.T) {
	db, err := Open(filepath.Join(t.TempDir(), "db"), 0o600, &Options{PageSize: 4096})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	f, _ := os.Create(filepath.Join(t.TempDir(), "f"))
	f.Truncate(1 << 20)
	mem, err := unix.Mmap(int(f.Fd()), 0, 1<<20, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	tx, err := db.Begin(true)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := tx.CreateBucket([]byte("b"))
	f.Truncate(0)
	func() {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		defer func() { t.Log("panic:", recover()) }()
		t.Log(b.Append([]byte("a"), mem[:30000]))
	}()
	if err := b.Put([]byte("c"), []byte("v")); err != nil {
		t.Log(err)
	}
	err = tx.Commit()
	t.Log("commit:", err)
	if err == nil {
		t.Error("committed behind a call that a panic has left")
	}
	db.View(func(tx *Tx) error {
		var errs []error
		for err := range tx.Check() {
			errs = append(errs, err)
		}
		if len(errs) > 0 {
			t.Error(errors.Join(errs...))
		}
		return nil
	})
}
