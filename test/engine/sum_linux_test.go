package engine

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"holdfast"
	"holdfast/internal/bridge"
	"holdfast/internal/vfs"
	"holdfast/test/hook"
)

// mappedFile is a file whose newest mapping a test may look at.
type mappedFile struct {
	vfs.File
	mapped []byte
}

func (f *mappedFile) Map(n int64, options vfs.MapOptions) (vfs.Mapping, error) {
	m, err := f.File.Map(n, options)
	if err == nil {
		f.mapped = m.Data()
	}
	return m, err
}

// A bucket with a value whose last page could not be read could not be deleted any more: the seal sum wants the end of
// each run that is given up. Without it the sum is not recorded, and that is all.
func TestDeletingWhatCannotBeRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	size := os.Getpagesize()
	db, err := holdfast.Open(path, 0o600, nil)
	must(t, err)
	update(t, db, func(tx *holdfast.Tx) {
		b := createBucket(t, tx, "b")
		put(t, b, "a", string(bytes.Repeat([]byte{'v'}, 40*size)))
		put(t, b, "b", string(bytes.Repeat([]byte{'w'}, 40*size)))
		createBucket(t, tx, "other")
	})
	must(t, db.Close())
	if !sumOfNewest(t, path) {
		t.Error("there is no sum before")
	}
	end := bytes.LastIndexByte(readFile(t, path), 'v') / size * size
	file, err := vfs.OpenOS(path, os.O_RDWR, 0, nil)
	must(t, err)
	unreadable := &mappedFile{File: file}
	db, err = bridge.Open(unreadable, nil)
	must(t, err)
	must(t, syscall.Mprotect(unreadable.mapped[end:end+size], syscall.PROT_NONE))
	update(t, db, func(tx *holdfast.Tx) { must(t, tx.DeleteBucket([]byte("b"))) })
	must(t, db.Close())
	if sumOfNewest(t, path) {
		t.Error("there is a sum")
	}
	if _, faults := looksOf(t, readFile(t, path)); len(faults) > 0 {
		t.Error(faults)
	}
}

// sumOfNewest tells whether the file says what its pages add up to.
func sumOfNewest(t *testing.T, path string) bool {
	t.Helper()
	db, err := holdfast.Open(path, 0, &holdfast.Options{ReadOnly: true})
	must(t, err)
	defer func() { must(t, db.Close()) }()
	tx := begin(t, db, false)
	defer func() { must(t, tx.Rollback()) }()
	return hook.HasSum(tx)
}
