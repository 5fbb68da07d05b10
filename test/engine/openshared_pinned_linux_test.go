package engine

import (
	"encoding/binary"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"

	"holdfast"
)

// A state that is begun in the very moment in which it is replaced is held: an owner that looks at the slots first, and publishes the
// next state then, misses it. No other test met that moment. The value says by which transaction it was written.
func TestOpenSharedReplaced(t *testing.T) {
	path := tempPath(t)
	owner := openOwner(t, path, holdfast.Options{NoSync: true})
	write := func() error {
		return owner.Update(func(tx *holdfast.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte("b"))
			if err != nil {
				return err
			}
			return b.Put([]byte("k"), binary.BigEndian.AppendUint64(nil, uint64(tx.ID())))
		})
	}
	must(t, write())
	reader := openReader(t, path, holdfast.Options{OnDamage: holdfast.DamageIsError})
	var commits atomic.Int64
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			if err := write(); err != nil {
				commits.Store(1 << 40)
				stopped <- err
				return
			}
			commits.Add(1)
		}
	}()
	for range 3000 {
		err := reader.View(func(tx *holdfast.Tx) error {
			for until := commits.Load() + 4; commits.Load() < until; {
				runtime.Gosched()
			}
			b := tx.Bucket([]byte("b"))
			if b == nil {
				return errors.Join(errors.New("no bucket"), tx.Err())
			}
			v := b.Get([]byte("k"))
			if len(v) != 8 || binary.BigEndian.Uint64(v) != uint64(tx.ID()) {
				t.Errorf("transaction %d reads %x", tx.ID(), v)
			}
			return tx.Err()
		})
		if err != nil {
			t.Error(err)
		}
		if t.Failed() {
			break
		}
	}
	close(stop)
	must(t, <-stopped)
}
