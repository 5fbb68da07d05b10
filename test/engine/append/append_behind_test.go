package append

import (
	"bytes"
	"runtime"
	"syscall"
	"testing"
	"time"

	"holdfast"
	"holdfast/internal/bridge"
	"holdfast/internal/vfs"
	"holdfast/test/hook"
)

// gate is a file whose writes of pages wait while it is closed.
type gate struct {
	closed  bool
	open    chan struct{}
	arrived chan struct{} // a write waits
	err     error         // of that write
}

func gatedDB(t *testing.T) (*holdfast.DB, *gate) {
	t.Helper()
	g := &gate{open: make(chan struct{}), arrived: make(chan struct{}, 1)}
	db, err := bridge.Open(vfs.NewInject(vfs.NewMem("mem").Open(), func(op vfs.Op) error {
		if op.Kind != vfs.KindWrite || !g.closed {
			return nil
		}
		g.closed = false
		g.arrived <- struct{}{}
		<-g.open
		return g.err
	}), &holdfast.Options{SettleDelay: -1})
	if err != nil {
		t.Fatal(err)
	}
	hook.WriteEarly(db, 64<<10, 1)
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db, g
}

// inFlight appends until a write waits, and gives the bucket and how many values it has.
func inFlight(t *testing.T, tx *holdfast.Tx, g *gate) (*holdfast.Bucket, int) {
	t.Helper()
	b, err := tx.CreateBucket([]byte("b"))
	if err != nil {
		t.Fatal(err)
	}
	g.closed = true
	for i := 0; ; i++ {
		if err := b.Append(appendKey(i), flown(i)); err != nil {
			t.Fatal(err)
		}
		if i*len(flown(i)) < 64<<10 {
			continue
		}
		<-g.arrived
		return b, i + 1
	}
}

func flown(i int) []byte { return bytes.Repeat([]byte{byte(i)}, 20000) }

// The caller goes on while what it has appended is written; it waits when it reads of that,
// and what it reads is right.
func TestAppendGoesOn(t *testing.T) {
	db, g := gatedDB(t)
	soundUpdate(t, db, func(tx *holdfast.Tx) error {
		b, n := inFlight(t, tx, g)
		if err := b.Append(appendKey(n), flown(n)); err != nil { // while nothing can be written
			return err
		}
		if v := b.Get(appendKey(n)); !bytes.Equal(v, flown(n)) {
			t.Error("what is not in flight cannot be read")
		}
		go func() {
			// Time for a Get that does not wait to be seen; one that does needs none of it.
			for range 100 {
				runtime.Gosched()
			}
			time.Sleep(10 * time.Millisecond)
			close(g.open)
		}()
		for i := range n {
			if !bytes.Equal(b.Get(appendKey(i)), flown(i)) {
				t.Fatalf("value %d is wrong", i)
			}
		}
		return nil
	})
}

// What was read before it was written stays as it is while it is written, and behind that.
func TestAppendLentInFlight(t *testing.T) {
	db, g := gatedDB(t)
	close(g.open)
	soundUpdate(t, db, func(tx *holdfast.Tx) error {
		b, err := tx.CreateBucket([]byte("b"))
		if err != nil {
			return err
		}
		var values [][]byte
		for i := range 100 {
			if err := b.Append(appendKey(i), flown(i)); err != nil {
				return err
			}
			values = append(values, b.Get(appendKey(i)))
		}
		for i, v := range values {
			if !bytes.Equal(v, flown(i)) {
				t.Fatalf("value %d has changed", i)
			}
		}
		return nil
	})
}

// The memory of a flight is not used again before all of it is written.
func TestAppendFlightKeepsItsMemory(t *testing.T) {
	db, g := gatedDB(t)
	var n int
	soundUpdate(t, db, func(tx *holdfast.Tx) error {
		b, first := inFlight(t, tx, g)
		for n = first; n < first+3; n++ { // fewer than are written
			if err := b.Append(appendKey(n), flown(n)); err != nil {
				return err
			}
		}
		close(g.open)
		return nil
	})
	err := db.View(func(tx *holdfast.Tx) error {
		for i := range n {
			if !bytes.Equal(tx.Bucket([]byte("b")).Get(appendKey(i)), flown(i)) {
				t.Fatalf("value %d is wrong", i)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A write that fails behind the caller fails the transaction: at the next call that needs it,
// or else when it commits.
func TestAppendFlightFails(t *testing.T) {
	for _, end := range []string{"read", "commit", "rollback"} {
		t.Run(end, func(t *testing.T) {
			db, g := gatedDB(t)
			g.err = syscall.ENOSPC
			tx, err := db.Begin(true)
			if err != nil {
				t.Fatal(err)
			}
			b, _ := inFlight(t, tx, g)
			close(g.open)
			if end == "read" {
				if b.Get(appendKey(0)) != nil {
					t.Error("it can be read")
				}
				if err := tx.Err(); err == nil {
					t.Error("nobody knows why nothing is there")
				}
			}
			if end == "rollback" {
				err = tx.Rollback()
			} else if err = tx.Commit(); err == nil {
				t.Error("it commits")
			}
			if end == "rollback" && err != nil {
				t.Error(err)
			}
			soundUpdate(t, db, func(tx *holdfast.Tx) error {
				if tx.Bucket([]byte("b")) != nil {
					t.Error("it is there")
				}
				b, err := tx.CreateBucket([]byte("c"))
				for i := 0; i < 100 && err == nil; i++ {
					err = b.Append(appendKey(i), flown(i))
				}
				return err
			})
		})
	}
}
