package engine

import (
	"encoding/binary"
	"sync/atomic"
	"testing"
	"time"

	"holdfast"
)

// What happened: AutoVacuum never began under etcd, which opens its next write transaction right after each commit.
// The time for which one was open was taken for work, so that its writer was always busy; and a step's wait for the
// writer lock was taken for work of the step, which then paused for nine times as long.
func TestAutoVacuumBesideOpenTransactions(t *testing.T) {
	path := tempPath(t)
	db := open(t, path, nil)
	bloat(t, db)
	must(t, db.Close())
	db = open(t, path, &holdfast.Options{AutoVacuum: &holdfast.AutoVacuum{MinBytes: 256 << 10, Interval: 100 * time.Millisecond}})
	var stop atomic.Bool
	ended := make(chan error)
	go func() {
		ended <- func() error {
			for n := uint64(0); !stop.Load(); n++ {
				tx, err := db.Begin(true)
				if err != nil {
					return err
				}
				b, err := tx.CreateBucketIfNotExists([]byte("revisions"))
				if err != nil {
					return err
				}
				if err := b.Put(binary.BigEndian.AppendUint64(nil, n%100), make([]byte, 100)); err != nil {
					return err
				}
				time.Sleep(20 * time.Millisecond) // more puts would come
				if err := tx.Commit(); err != nil {
					return err
				}
			}
			return nil
		}()
	}()
	untilShort(t, db, "vacuum beside a transaction that is always open")
	stop.Store(true)
	must(t, <-ended)
	must(t, db.Close())
}
