package damage

import (
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"testing"
	"time"

	"holdfast"
	"holdfast/internal/bridge"
	"holdfast/internal/vfs"
)

// recipe makes choices from the bytes of a fuzzer, zeros behind their end.
type recipe struct{ b []byte }

func (r *recipe) IntN(n int) int {
	var word [4]byte
	r.b = r.b[copy(word[:take(n)], r.b):]
	return int(uint64(binary.LittleEndian.Uint32(word[:])) % uint64(n))
}

// take is the number of bytes that choose one of n.
func take(n int) int {
	switch {
	case n <= 1<<8:
		return 1
	case n <= 1<<16:
		return 2
	}
	return 4
}

// FuzzRealFile has Holdfast use a file that it or bbolt made, mutated as the
// bytes of the recipe say: no panic, no fault, no hang, nothing allocated out of
// proportion, no error but damage; and a file in which nothing was noticed must
// not be made worse by writing.
func FuzzRealFile(f *testing.F) {
	for which := range firstBig {
		for m := range mutators { // 1: not several
			f.Add(byte(which), []byte{1, byte(m), byte(37 * m), 3, 1, byte(which), 5, byte(m), 9})
		}
		f.Add(byte(which), []byte{0, 3, 7, 1, 2, 200, 8, 4, 1, 1, 9, 3, 2, 30, 11, 5, 1, 7, 3, 13, 2, 1, 4})
	}
	f.Fuzz(func(t *testing.T, which byte, choices []byte) {
		s, err := samples[which%firstBig]()
		if err != nil {
			t.Fatal(err)
		}
		data, m := s.mutate(&recipe{choices})
		mem := vfs.NewMem("mem")
		if _, err := mem.Open().WriteAt(data, 0); err != nil {
			t.Fatal(err)
		}
		r := ends(t, func() result {
			r := memEngine(mem, int64(len(data))).use()
			if err := onlyRead(data); err != nil && r.strange == nil {
				r.strange = err
			}
			return r
		})
		switch {
		case m.must && !r.detected():
			t.Errorf("file of %v: %s: %s: nobody noticed", s.kind, m.kind, m.text)
		case r.Worse != "":
			t.Errorf("file of %v: %s: %s: writing made it worse: %s", s.kind, m.kind, m.text, r.Worse)
		case r.Alloc > memLimit(int64(len(data))):
			t.Errorf("file of %v: %s: %s: %d bytes allocated for a file of %d", s.kind, m.kind, m.text, r.Alloc, len(data))
		case r.strange != nil:
			t.Errorf("file of %v: %s: %s: %v", s.kind, m.kind, m.text, r.strange)
		}
	})
}

// memLimit is allocLimit for a file in memory, where each growth and each
// mapping is a copy of the file.
func memLimit(n int64) uint64 { return allocLimit(n) + 24*uint64(n) }

// ends fails the test if use does not come to an end.
func ends(t *testing.T, use func() result) result {
	done := make(chan result, 1)
	go func() { done <- use() }()
	timer := time.NewTimer(ownTimeout)
	defer timer.Stop()
	select {
	case r := <-done:
		return r
	case <-timer.C:
		stack := make([]byte, 1<<20)
		t.Fatalf("still not done\n%s", stack[:runtime.Stack(stack, true)])
		return result{}
	}
}

// onlyRead opens a file for reading and does what use does not: figures, pages,
// copies. It returns an error that damage does not explain.
func onlyRead(data []byte) error {
	mem := vfs.NewMem("mem")
	if _, err := mem.Open().WriteAt(data, 0); err != nil {
		return err
	}
	e := engine[*holdfast.DB, *holdfast.Tx, *holdfast.Bucket, *holdfast.Cursor]{expects: damaged}
	db, err := bridge.Open(exactFile{mem.Open()}, &holdfast.Options{ReadOnly: true})
	if err != nil {
		return e.strange(err)
	}
	err = db.View(func(tx *holdfast.Tx) error {
		for range tx.Check() {
		}
		for id := 0; int64(id) < tx.Size()>>9 && id < 1000; id++ {
			if _, err := tx.Page(id); err != nil && err != holdfast.ErrFreePagesNotLoaded && !damaged(err) {
				return err
			}
		}
		tx.Inspect()
		err := tx.ForEach(func(_ []byte, b *holdfast.Bucket) error {
			if b != nil {
				b.Stats()
			}
			return nil
		})
		return errors.Join(err, tx.Copy(io.Discard))
	})
	dst, errDst := bridge.Open(exactFile{vfs.NewMem("copy").Open()}, &holdfast.Options{NoSync: true})
	if errDst != nil {
		return errDst
	}
	_ = holdfast.Compact(dst, db, 100_000) // may meet keys that nobody can put
	return errors.Join(e.strange(err), dst.Close(), db.Close())
}

type memory = engine[*holdfast.DB, *holdfast.Tx, *holdfast.Bucket, *holdfast.Cursor]

// exactFile is mapped without room ahead, which in memory would cost as much as
// a file.
type exactFile struct{ vfs.File }

func (exactFile) MapBeyondEnd() bool { return false }

// memEngine uses a file in memory.
func memEngine(mem *vfs.Mem, size int64) *memory {
	return &memory{
		open: func() (*holdfast.DB, error) {
			db, err := bridge.Open(exactFile{mem.Open()}, &holdfast.Options{NoSync: true})
			if err == nil {
				db.AllocSize = 64 << 10
			}
			return db, err
		},
		check:   func(tx *holdfast.Tx) <-chan error { return tx.Check() },
		size:    size,
		expects: damaged,
	}
}

// damaged tells whether an error of Holdfast can come from a damaged file: it is
// damage, or the file has a key that nobody can put again, or own names.
func damaged(err error) bool {
	var damage *holdfast.CorruptError
	if errors.As(err, &damage) {
		return true
	}
	for _, of := range []error{
		holdfast.ErrInvalid, holdfast.ErrVersionMismatch, holdfast.ErrChecksum,
		holdfast.ErrKeyRequired, holdfast.ErrKeyTooLarge, holdfast.ErrIncompatibleValue, holdfast.ErrBucketNotFound,
	} {
		if errors.Is(err, of) {
			return true
		}
	}
	return false
}
