package engine

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"holdfast"
	"holdfast/internal/bridge"
	"holdfast/internal/vfs"
	"holdfast/test/hook"
)

// sumRun is a file that several writers at once work on, through some openings.
type sumRun struct {
	t    *testing.T
	mem  *vfs.Mem
	last sync.Mutex // guards key
	key  int        // that was appended last
}

// errGivenUp ends a transaction that is rolled back.
var errGivenUp = errors.New("given up")

// The sum is right whatever commits at the same time, whatever fails, and however the file was opened: with
// seals and without, in all modes, after a kill, on a full disk, beside a vacuum. A sound file for which
// Check, or the opening of a copy of one point in time, said otherwise would be taken for damaged.
func TestSumOfAnyHistory(t *testing.T) {
	rng := random(t)
	begin := time.Now()
	for n := 0; n < 40 && (n < 4 || time.Since(begin) < 3*time.Second); n++ {
		r := &sumRun{t: t, mem: vfs.NewMem("db")}
		for range 4 {
			if r.session(rng); t.Failed() {
				return
			}
		}
	}
}

// session opens the file, works on it, looks at it all the time, and closes it or leaves it as a kill does.
func (r *sumRun) session(rng *rand.Rand) {
	modes := []holdfast.Options{{}, {StrictCompat: true}, {NoSync: true}, {Durability: holdfast.Periodic, PeriodicDelay: time.Hour}}
	options := modes[rng.IntN(len(modes))]
	options.PageSize, options.SettleDelay = 1024, -1
	options.NoSeals, options.NoFreelistSync = rng.IntN(4) == 0, rng.IntN(2) == 0
	full := false
	faults := rand.New(rand.NewPCG(rng.Uint64(), 0))
	var lock sync.Mutex
	file := vfs.NewInject(r.mem.Open(), func(op vfs.Op) error {
		lock.Lock()
		defer lock.Unlock()
		if full && (op.Kind == vfs.KindWrite && op.Off >= 2048 || op.Kind == vfs.KindGrow) && faults.IntN(15) == 0 {
			return syscall.ENOSPC
		}
		return nil
	})
	db, err := bridge.Open(fileNumber{file, 1}, &options)
	must(r.t, err)
	hook.WriteEarly(db, 4<<10, 0)
	db.AllocSize = 1 << 10
	full = rng.IntN(3) == 0
	for range 6 {
		var wg sync.WaitGroup
		for range 1 + rng.IntN(4) {
			own := rand.New(rand.NewPCG(rng.Uint64(), 0))
			wg.Go(func() { r.write(db, own) })
		}
		if rng.IntN(4) == 0 {
			wg.Go(func() {
				if _, err := db.Vacuum(r.t.Context(), holdfast.VacuumOptions{StepPages: 8, Hurry: true}); err != nil && !vfs.IsFull(err) {
					r.t.Error(err)
				}
			})
		}
		wg.Wait()
		checkDB(r.t, db)
		r.copied(rng)
	}
	data := r.mem.Bytes()
	lock.Lock()
	full = false
	lock.Unlock()
	must(r.t, db.Close())
	if rng.IntN(2) == 0 {
		r.mem = vfs.NewMem("db")
		_, err := r.mem.Open().WriteAt(data, 0)
		must(r.t, err)
	}
}

// copied opens a copy of the file as it is, which is to have a sum.
func (r *sumRun) copied(rng *rand.Rand) {
	mem := vfs.NewMem("copy")
	_, err := mem.Open().WriteAt(r.mem.Bytes(), 0)
	must(r.t, err)
	db, err := bridge.Open(fileNumber{mem.Open(), 2}, &holdfast.Options{ReadOnly: rng.IntN(2) == 0, SettleDelay: -1})
	must(r.t, err)
	checkDB(r.t, db)
	must(r.t, db.View(func(tx *holdfast.Tx) error {
		if tx.ID() > 1 && !hook.HasSum(tx) {
			r.t.Errorf("transaction %d has no sum", tx.ID())
		}
		return nil
	}))
	must(r.t, db.Close())
}

// write does some transactions, of which some are given up.
func (r *sumRun) write(db *holdfast.DB, rng *rand.Rand) {
	for range 6 {
		err := db.Update(func(tx *holdfast.Tx) error {
			for range 1 + rng.IntN(12) {
				if err := r.change(tx, rng); err != nil {
					return err
				}
			}
			if rng.IntN(8) == 0 {
				return errGivenUp
			}
			return nil
		})
		if err != nil && !errors.Is(err, errGivenUp) && !vfs.IsFull(err) {
			r.t.Error(err)
		}
	}
}

// change makes one change.
func (r *sumRun) change(tx *holdfast.Tx, rng *rand.Rand) error {
	b, err := tx.CreateBucketIfNotExists([]byte{byte('a' + rng.IntN(3))})
	if err == nil && rng.IntN(3) == 0 {
		b, err = b.CreateBucketIfNotExists([]byte("in it"))
	}
	if err != nil {
		return err
	}
	key := fmt.Appendf(nil, "%03d", rng.IntN(200))
	switch rng.IntN(8) {
	case 0: // a value that leaves no room for a seal, or just enough
		return b.Put(key, bytes.Repeat(key, 3000)[:(1+rng.IntN(4))*1024-16-16-len(key)-rng.IntN(12)])
	case 1, 2:
		return b.Put(key, bytes.Repeat(key, rng.IntN(200)))
	case 3:
		return b.Delete(key)
	case 4:
		if err := tx.DeleteBucket([]byte{byte('a' + rng.IntN(4))}); err != nil && !errors.Is(err, holdfast.ErrBucketNotFound) {
			return err
		}
		return nil
	case 5:
		_, err := tx.Spill(int64(rng.IntN(4 << 10)))
		return err
	default:
		return r.add(tx, rng)
	}
}

// add appends to bucket d.
func (r *sumRun) add(tx *holdfast.Tx, rng *rand.Rand) error {
	b, err := tx.CreateBucketIfNotExists([]byte("d"))
	for i := 0; err == nil && i < rng.IntN(20); i++ {
		r.last.Lock()
		r.key++
		key := fmt.Appendf(nil, "%08d", r.key)
		r.last.Unlock()
		if err = b.Append(key, bytes.Repeat(key, rng.IntN(400))); err == nil && rng.IntN(8) == 0 {
			err = b.Delete(key)
		}
	}
	return err
}
