//go:build unix

package blob

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"holdfast"
)

// A value of another database is written to a blob while somebody cuts that database's file off.
// What a goroutine beside reads then is an error of the Writer, which gives up the blob, and the
// program goes on: the next blob is stored, and nothing of the first.
func TestHashingAShortenedFile(t *testing.T) {
	for i, digest := range []bool{false, true, false, true} {
		compression := Compression(i / 2)
		for _, leaves := range []int{0, 5, 40} {
			t.Run(fmt.Sprint(digest, compression, leaves), func(t *testing.T) {
				src := newShortened(t)
				db := newStore(t, Options{Compression: compression})
				var ref Ref
				must(t, db.Update(func(tx *holdfast.Tx) error {
					s := openIn(tx)
					w := s.Writer()
					w.Concurrent(true)
					w.Digest(digest)
					before := leaves * s.Options().LeafSize
					if _, err := w.Write(src.mapped[:before]); err != nil {
						return err
					}
					src.cut()
					if _, err := w.Write(src.mapped[before:]); !errors.Is(err, holdfast.ErrUnreadable) {
						t.Errorf("Write: %v", err)
					}
					if _, err := w.Commit(); !errors.Is(err, holdfast.ErrUnreadable) {
						t.Errorf("Commit: %v", err)
					}
					if _, err := w.Write(src.data); err != nil {
						return err
					}
					var err error
					ref, err = w.Commit()
					return err
				}))
				only(t, db, ref)
				view(t, db, func(s *Store) {
					if !bytes.Equal(readAll(t, s, ref), src.data) {
						t.Error("other content")
					}
				})
			})
		}
	}
}

// What the caller's own goroutine meets while others hash is a panic that the View of the shortened file makes its
// error. The others are left behind then with memory that may go away, and must not end the program.
func TestHashingLeftBehind(t *testing.T) {
	for range 20 {
		src := newShortened(t)
		db := newStore(t, Options{})
		err := src.db.View(func(rx *holdfast.Tx) error {
			mapped := rx.Bucket(storeName).Get([]byte("k"))
			return db.Update(func(tx *holdfast.Tx) error {
				w := openIn(tx).Writer()
				w.Digest(true) // beside; addresses not
				src.cut()
				_, err := w.Write(mapped)
				return err
			})
		})
		if !errors.Is(err, holdfast.ErrUnreadable) {
			t.Fatal(err)
		}
		src.close()
		view(t, db, func(s *Store) {
			if n := checkStore(t, s); n != 0 {
				t.Errorf("%d chunks", n)
			}
		})
	}
}

// shortened is a database with a long value, whose file can be cut off.
type shortened struct {
	db           *holdfast.DB
	data, mapped []byte
	cut, close   func()
}

func newShortened(t *testing.T) *shortened {
	path := filepath.Join(t.TempDir(), "src")
	s := &shortened{data: random(1, 4<<20)}
	s.db = must2(holdfast.Open(path, 0o600, &holdfast.Options{NoSync: true, PageSize: 4096}))
	must(t, s.db.Update(func(tx *holdfast.Tx) error {
		return must2(tx.CreateBucket(storeName)).Put([]byte("k"), s.data)
	}))
	must(t, s.db.Sync())
	reader := must2(s.db.Begin(false))
	s.mapped = reader.Bucket(storeName).Get([]byte("k"))
	s.cut = func() { must(t, os.Truncate(path, 8192)) }
	s.close = sync.OnceFunc(func() {
		_ = reader.Rollback()
		_ = s.db.Close() // which may fail: the file is damaged
	})
	t.Cleanup(s.close)
	return s
}

// A panic of what runs beside is the panic of whoever waits for it.
func TestPanicBeside(t *testing.T) {
	l := newLane(func(*task) { panic("on purpose") })
	var tk task
	l.start(&tk, []byte("x"))
	defer func() {
		if r := recover(); r != "on purpose" {
			t.Errorf("recovered %v", r)
		}
	}()
	t.Errorf("%v", tk.wait())
}
