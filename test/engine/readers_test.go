package engine

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"os"
	"runtime"
	"sync/atomic"
	"testing"

	"holdfast"
	"holdfast/internal/bridge"
	"holdfast/internal/vfs"
)

// onBoth runs a test on a real file and on one in memory.
func onBoth(t *testing.T, test func(t *testing.T, db *holdfast.DB, size func() int64)) {
	t.Run("file", func(t *testing.T) {
		file, err := vfs.OpenOS(tempPath(t), os.O_RDWR|os.O_CREATE, 0o600, nil)
		must(t, err)
		db, err := bridge.Open(file, &holdfast.Options{NoSync: true, PageSize: 4096})
		must(t, err)
		t.Cleanup(func() { db.Close() })
		test(t, db, func() int64 { return sizeOf(t, file) })
	})
	t.Run("memory", func(t *testing.T) {
		mem := vfs.NewMem("mem")
		db, err := bridge.Open(mem.Open(), &holdfast.Options{PageSize: 4096})
		must(t, err)
		t.Cleanup(func() { db.Close() })
		look := mem.Open()
		defer look.Close()
		test(t, db, func() int64 { return sizeOf(t, look) })
	})
}

func sizeOf(t *testing.T, file vfs.File) int64 {
	size, err := file.Size()
	must(t, err)
	return size
}

var hashSeed = maphash.MakeSeed()

// hashOf is a hash of all keys and values that a transaction sees.
func hashOf(tx *holdfast.Tx) uint64 {
	var h maphash.Hash
	h.SetSeed(hashSeed)
	var walk func(b *holdfast.Bucket)
	walk = func(b *holdfast.Bucket) {
		for k, v := range b.All() {
			_, _ = h.Write(k)
			_ = h.WriteByte(0)
			if v == nil {
				walk(b.Bucket(k))
			}
			_, _ = h.Write(v)
			_ = h.WriteByte(1)
		}
	}
	c := tx.Cursor()
	for k, _ := c.First(); k != nil; k, _ = c.Next() {
		_, _ = h.Write(k)
		walk(tx.Bucket(k))
	}
	return h.Sum64()
}

// A writer makes the file outgrow its mapping, several times, while a reader is
// open: it does not wait for that reader, nor does a reader that begins
// meanwhile, and each goes on to see its own state.
func TestGrowingPastTheMapping(t *testing.T) {
	onBoth(t, func(t *testing.T, db *holdfast.DB, size func() int64) {
		fill(t, db, 100, 1000)
		first := begin(t, db, false)
		defer first.Rollback()
		b := first.Bucket([]byte("b"))
		value := b.Get([]byte("00000042"))
		want := hashOf(first)
		mapping := db.Info().Data
		moved := 0
		var held []*holdfast.Tx
		var hashes []uint64
		chunk := make([]byte, 4<<20)
		for i := 0; moved < 2 || size() < 32<<20; i++ {
			if i == 100 {
				t.Fatal("the file does not outgrow its mapping")
			}
			must(t, within(t, "a writer that grows the file", func() error {
				return db.Update(func(tx *holdfast.Tx) error {
					chunk[0] = byte(i)
					return tx.Bucket([]byte("b")).Put(fmt.Appendf(nil, "big%d", i), chunk)
				})
			}))
			if now := db.Info().Data; now != mapping {
				mapping = now
				moved++
				must(t, within(t, "a reader that begins", func() error {
					tx, err := db.Begin(false)
					held, hashes = append(held, tx), append(hashes, hashOf(tx))
					return err
				}))
			}
		}
		if len(value) != 1000 || len(b.Get([]byte("00000043"))) != 1000 || b.Get([]byte("big0")) != nil || hashOf(first) != want {
			t.Error("the first reader sees something else")
		}
		for i, tx := range held {
			if hashOf(tx) != hashes[i] {
				t.Errorf("reader %d sees something else", i)
			}
			must(t, tx.Rollback())
		}
		if size() < 32<<20 {
			t.Errorf("the file has only %d bytes", size())
		}
		checkDB(t, db)
	})
}

// A reader that begins while a writer is in the middle of its transaction sees
// the state before; one that begins after the commit sees it.
func TestReadersSeeWholeStates(t *testing.T) {
	onBoth(t, func(t *testing.T, db *holdfast.DB, _ func() int64) {
		fill(t, db, 500, 100)
		w := begin(t, db, true)
		defer w.Rollback()
		b := w.Bucket([]byte("b"))
		before := hashOfView(t, db)
		for i := range 500 {
			must(t, b.Put(fmt.Appendf(nil, "%08d", i), []byte("changed")))
			if i%100 == 0 && hashOfView(t, db) != before {
				t.Fatal("a reader sees what is not committed")
			}
		}
		old := begin(t, db, false)
		defer old.Rollback()
		must(t, w.Commit())
		if hashOf(old) != before {
			t.Error("a reader's state changed under it")
		}
		if hashOfView(t, db) == before {
			t.Error("a new reader does not see the commit")
		}
	})
}

func hashOfView(t *testing.T, db *holdfast.DB) (h uint64) {
	t.Helper()
	view(t, db, func(tx *holdfast.Tx) { h = hashOf(tx) })
	return h
}

// churn changes, deletes and adds keys, values of a page run, and buckets.
func churn(tx *holdfast.Tx, rng *rand.Rand) error {
	b, err := tx.CreateBucketIfNotExists([]byte("b"))
	if err != nil {
		return err
	}
	for range 30 {
		k := fmt.Appendf(nil, "%08d", rng.IntN(400))
		if rng.IntN(4) == 0 {
			err = b.Delete(k)
		} else {
			err = b.Put(k, randomBytes(rng, rng.IntN(1200)))
		}
		if err != nil {
			return err
		}
	}
	if err := b.Put([]byte("big"), randomBytes(rng, rng.IntN(30_000))); err != nil {
		return err
	}
	name := fmt.Appendf(nil, "bucket%d", rng.IntN(5))
	if tx.Bucket(name) != nil && rng.IntN(2) == 0 {
		return tx.DeleteBucket(name)
	}
	n, err := tx.CreateBucketIfNotExists(name)
	if err != nil {
		return err
	}
	return n.Put(randomBytes(rng, 10), randomBytes(rng, rng.IntN(3000)))
}

// Readers held at many states, released in any order: what each of them sees is
// never overwritten, however much is written meanwhile.
func TestHeldStatesStay(t *testing.T) {
	onBoth(t, func(t *testing.T, db *holdfast.DB, _ func() int64) {
		rng := random(t)
		type reader struct {
			tx   *holdfast.Tx
			hash uint64
		}
		var held []reader
		drop := func(i int) {
			r := held[i]
			if r.hash != hashOf(r.tx) {
				t.Fatalf("the state %d was overwritten", r.tx.ID())
			}
			must(t, r.tx.Rollback())
			held = append(held[:i], held[i+1:]...)
		}
		for round := range 200 {
			err := db.Update(func(tx *holdfast.Tx) error {
				err := churn(tx, rng)
				if err == nil && rng.IntN(10) == 0 {
					return errAgain
				}
				return err
			})
			if err != errAgain {
				must(t, err)
			}
			if rng.IntN(3) == 0 {
				tx := begin(t, db, false)
				held = append(held, reader{tx, hashOf(tx)})
			}
			if len(held) > 0 && rng.IntN(4) == 0 {
				drop(rng.IntN(len(held)))
			}
			if round%20 == 0 {
				checkDB(t, db)
				for _, r := range held {
					if hashOf(r.tx) != r.hash {
						t.Fatalf("round %d: the state %d was overwritten", round, r.tx.ID())
					}
				}
			}
		}
		for len(held) > 0 {
			drop(0)
		}
		checkDB(t, db)
	})
}

// Once readers have gone, what they held is used again: the file stops growing.
// While one is held only what it can see is kept, not all that was freed since.
func TestPagesAreUsedAgain(t *testing.T) {
	onBoth(t, func(t *testing.T, db *holdfast.DB, size func() int64) {
		rng := random(t)
		work := func(n int) {
			for range n {
				update(t, db, func(tx *holdfast.Tx) { must(t, churn(tx, rng)) })
			}
		}
		highWater := func() (n int64) {
			view(t, db, func(tx *holdfast.Tx) { n = tx.Size() })
			return n
		}
		work(150)
		settled := highWater()
		tx := begin(t, db, false)
		kept := hashOf(tx)
		work(150)
		withReader := highWater()
		if limit := 3 * settled; withReader > limit {
			t.Errorf("one reader: %d bytes, %d before", withReader, settled)
		}
		if hashOf(tx) != kept {
			t.Error("the reader's state was overwritten")
		}
		must(t, tx.Rollback())
		work(60)
		freed, before := highWater(), size()
		work(150)
		if now := highWater(); now > freed+freed/4 {
			t.Errorf("the database grew from %d to %d bytes with no reader", freed, now)
		}
		if size() > 2*before {
			t.Errorf("the file grew from %d to %d bytes", before, size())
		}
		checkDB(t, db)
	})
}

// Readers come and go in other goroutines while a writer works; each sees a
// state that some commit made: the same sum under every key. (For the race
// detector, too.)
func TestReadersBesideWriter(t *testing.T) {
	onBoth(t, func(t *testing.T, db *holdfast.DB, _ func() int64) {
		const accounts = 200
		update(t, db, func(tx *holdfast.Tx) {
			b := createBucket(t, tx, "b")
			for i := range accounts {
				put(t, b, fmt.Sprintf("%03d", i), "0000")
			}
		})
		var stop atomic.Bool
		var reads atomic.Int64
		done := make(chan error, 4)
		for range cap(done) {
			go func() {
				for !stop.Load() {
					err := db.View(func(tx *holdfast.Tx) error {
						n, first := 0, ""
						for k, v := range tx.Bucket([]byte("b")).All() {
							if n == 0 {
								first = string(v)
							}
							if string(v) != first {
								return fmt.Errorf("%s has %s, the first key %s", k, v, first)
							}
							n++
						}
						if n != accounts {
							return fmt.Errorf("%d keys", n)
						}
						return nil
					})
					if err != nil {
						done <- err
						return
					}
					reads.Add(1)
				}
				done <- nil
			}()
		}
		for round := 1; round <= 50 || reads.Load() < 50 && round < 500; round++ {
			update(t, db, func(tx *holdfast.Tx) {
				b := tx.Bucket([]byte("b"))
				for i := range accounts {
					put(t, b, fmt.Sprintf("%03d", i), fmt.Sprintf("%04d", round))
				}
			})
			runtime.Gosched()
		}
		stop.Store(true)
		for range cap(done) {
			must(t, <-done)
		}
		checkDB(t, db)
	})
}
