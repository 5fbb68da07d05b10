package engine

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"holdfast"
	"holdfast/internal/extension"
)

// openBytes opens a copy of a database and checks it.
func openBytes(t *testing.T, data []byte) *holdfast.DB {
	t.Helper()
	path := tempPath(t)
	must(t, os.WriteFile(path, data, 0o600))
	db := open(t, path, nil)
	checkDB(t, db)
	return db
}

// A copy taken while writers run is the state that its transaction sees, whole
// and sound, and so is the copy of a copy.
func TestWriteToWhileWriting(t *testing.T) {
	db := openNew(t, 1024)
	fill(t, db, 500, 100)
	var stop atomic.Bool
	var commits atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		rng := random(t)
		for round := 0; !stop.Load(); round++ {
			err := db.Update(func(tx *holdfast.Tx) error {
				b := tx.Bucket([]byte("b"))
				for range 20 { // each key holds the number of its round
					k := fmt.Appendf(nil, "%08d", rng.IntN(500))
					if err := b.Put(k, fmt.Appendf(nil, "%0*d", 50+rng.IntN(400), round)); err != nil {
						return err
					}
				}
				return b.SetSequence(uint64(round))
			})
			if err != nil {
				t.Error(err)
				return
			}
			commits.Add(1)
		}
	})
	for i := range 20 {
		for from := commits.Load(); commits.Load() < from+3; {
			runtime.Gosched()
		}
		var buf bytes.Buffer
		view(t, db, func(tx *holdfast.Tx) {
			n, err := tx.WriteTo(&buf)
			must(t, err)
			if n != tx.Size() || n != int64(buf.Len()) {
				t.Errorf("copy %d: %d bytes reported, %d written, Size %d", i, n, buf.Len(), tx.Size())
			}
			copied := openBytes(t, buf.Bytes())
			view(t, copied, func(ctx *holdfast.Tx) {
				a, b := tx.Bucket([]byte("b")), ctx.Bucket([]byte("b"))
				equalPairs(t, "copy", collect(b.All()), collect(a.All()))
				if a.Sequence() != b.Sequence() {
					t.Errorf("sequence %d, want %d", b.Sequence(), a.Sequence())
				}
				var again bytes.Buffer
				_, err := ctx.WriteTo(&again)
				must(t, err)
				openBytes(t, again.Bytes())
			})
			fill(t, copied, 600, 10) // it can be written
			checkDB(t, copied)
		})
	}
	stop.Store(true)
	wg.Wait()
}

// A copy has the state that the reader sees under plain metas of its own, and not
// those of the file: they name newer states, one of them behind the list of a flush,
// whose pages the copy need not have.
func TestCopyHasMetasOfItsOwn(t *testing.T) {
	db := openNew(t, 1024)
	fill(t, db, 50, 100)
	tx := begin(t, db, false)
	want := keys(t, db)
	for i := range 3 { // in both slots
		fill(t, db, 60+10*i, 100)
	}
	var buf bytes.Buffer
	_, err := tx.WriteTo(&buf)
	must(t, err)
	must(t, tx.Rollback())
	for _, torn := range []int{-1, 0, 1} { // no meta, and each in turn
		data := bytes.Clone(buf.Bytes())
		if torn >= 0 {
			clear(data[torn*1024:][:1024])
		}
		switch ext, err := extension.Decode(data[:1024]); {
		case torn == 0:
		case err != nil:
			t.Errorf("slot 0: %v", err)
		case ext.Trailing != nil || ext.Free != nil || ext.File != 0 || !ext.Sum.Known:
			t.Errorf("slot 0 says more than what the pages add up to: %+v", ext)
		}
		if _, err := extension.Decode(data[1024:2048]); !errors.Is(err, extension.ErrNone) {
			t.Errorf("slot 1 has an extension: %v", err)
		}
		if n := keys(t, openBytes(t, data)); n != want {
			t.Errorf("the copy without meta %d has %d keys, the reader sees %d", torn, n, want)
		}
	}
}

// CopyFile makes a file with the mode it is given, overwrites what is there,
// and works in a writing transaction, of which it shows what was before it.
func TestCopyFile(t *testing.T) {
	db := openNew(t, 0)
	fill(t, db, 100, 10)
	path := filepath.Join(t.TempDir(), "copy")
	must(t, os.WriteFile(path, make([]byte, 1<<20), 0o600))
	tx := begin(t, db, true)
	must(t, tx.DeleteBucket([]byte("b")))
	must(t, tx.CopyFile(path, 0o600))
	must(t, tx.CopyFile(path+"2", 0o640))
	must(t, tx.Rollback())
	for _, path := range []string{path, path + "2"} {
		copied := open(t, path, nil)
		checkDB(t, copied)
		if n := keys(t, copied); n != 100 {
			t.Errorf("%s: %d keys, want 100", path, n)
		}
	}
	if info, err := os.Stat(path + "2"); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	view(t, db, func(tx *holdfast.Tx) {
		if err := tx.CopyFile(filepath.Join(t.TempDir(), "no", "copy"), 0o600); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("into a directory that is not there: %v", err)
		}
	})
}

// failingWriter fails after n bytes.
type failingWriter struct{ n int }

func (w *failingWriter) Write(p []byte) (int, error) {
	if len(p) > w.n {
		n := w.n
		w.n = 0
		return n, syscall.ENOSPC
	}
	w.n -= len(p)
	return len(p), nil
}

// The error of the writer comes back, wherever it fails; WriteFlag opens the
// file by itself.
func TestWriteToErrors(t *testing.T) {
	db := openNew(t, 1024)
	fill(t, db, 500, 100)
	view(t, db, func(tx *holdfast.Tx) {
		for _, at := range []int{0, 10, 1024, 1500, 2048, 5000, int(tx.Size()) - 1} {
			n, err := tx.WriteTo(&failingWriter{n: at})
			if !errors.Is(err, syscall.ENOSPC) || n != int64(at) {
				t.Errorf("failing at %d: %d, %v", at, n, err)
			}
		}
		var plain, flagged bytes.Buffer
		must(t, tx.Copy(&plain))
		tx.WriteFlag = syscall.O_SYNC
		must(t, tx.Copy(&flagged))
		if !bytes.Equal(plain.Bytes(), flagged.Bytes()) {
			t.Error("the copies differ")
		}
		if runtime.GOOS == "windows" {
			return // where an open file cannot be removed
		}
		must(t, os.Remove(db.Path()))
		if _, err := tx.WriteTo(io.Discard); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("of a file that is not there any more: %v", err)
		}
	})
}
