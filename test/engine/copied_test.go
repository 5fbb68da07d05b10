package engine

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"holdfast"
	"holdfast/internal/bridge"
	"holdfast/internal/vfs"
)

// counted commits are numbered: the n-th adds the key n, and says so in a bucket of
// its own.
func countedCommit(db *holdfast.DB, begun *atomic.Uint64) (n uint64, err error) {
	err = db.Update(func(tx *holdfast.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte("keys"))
		if err != nil {
			return err
		}
		last, err := tx.CreateBucketIfNotExists([]byte("last"))
		if err != nil {
			return err
		}
		if v := last.Get([]byte("n")); v != nil {
			n = binary.BigEndian.Uint64(v)
		}
		n++
		begun.Store(n)
		number := binary.BigEndian.AppendUint64(nil, n)
		if err := last.Put([]byte("n"), number); err != nil {
			return err
		}
		return b.Put(number, make([]byte, n*911%1500))
	})
	return n, err
}

// counted is the number of the last commit, all of whose predecessors are there.
func counted(t *testing.T, db *holdfast.DB) (n uint64) {
	t.Helper()
	view(t, db, func(tx *holdfast.Tx) {
		if b := tx.Bucket([]byte("last")); b != nil {
			n = binary.BigEndian.Uint64(b.Get([]byte("n")))
		}
		keys := uint64(0)
		if b := tx.Bucket([]byte("keys")); b != nil {
			must(t, b.ForEach(func(k, v []byte) error {
				if keys++; binary.BigEndian.Uint64(k) != keys || len(v) != int(keys*911%1500) {
					t.Errorf("key %x with %d bytes is the %d.", k, len(v), keys)
				}
				return nil
			}))
		}
		if keys != n {
			t.Errorf("after commit %d there are %d keys", n, keys)
		}
	})
	return n
}

// A file that is copied at one point in time, while any number of writers commit, opens at
// one committed state, at or behind the last that was acknowledged.
func TestCopiedAtAnyMoment(t *testing.T) {
	for _, c := range []struct {
		writers int
		strict  bool
	}{{1, false}, {8, false}, {8, true}} {
		t.Run(fmt.Sprintf("%d writers, strict %v", c.writers, c.strict), func(t *testing.T) {
			var acked, begun atomic.Uint64
			type copied struct {
				data        []byte
				least, most uint64
			}
			var mu sync.Mutex
			var copies []copied
			calls := 0
			mem := vfs.NewMem("mem")
			take := func() {
				least := acked.Load()
				data := slices.Clone(mem.Bytes())
				copies = append(copies, copied{data, least, begun.Load()})
			}
			file := vfs.NewInject(mem.Open(), func(op vfs.Op) error {
				mu.Lock()
				defer mu.Unlock()
				if calls++; calls%3 == 0 && len(copies) < 150 {
					take()
				}
				return nil
			})
			db, err := bridge.Open(file, &holdfast.Options{PageSize: 1024, StrictCompat: c.strict})
			must(t, err)
			copies = nil // of a file that is being created
			var wg sync.WaitGroup
			for range c.writers {
				wg.Go(func() {
					for range 160 / c.writers {
						n, err := countedCommit(db, &begun)
						if err != nil {
							t.Error(err)
							return
						}
						for old := acked.Load(); n > old && !acked.CompareAndSwap(old, n); old = acked.Load() {
						}
					}
				})
			}
			wg.Wait()
			must(t, db.Close())
			newer := 0
			for _, c := range copies {
				next := vfs.NewMem("copy")
				_, err := next.Open().WriteAt(c.data, 0)
				must(t, err)
				db, err := bridge.Open(next.Open(), nil)
				must(t, err)
				n := counted(t, db)
				if n < c.least || n > c.most {
					t.Errorf("a copy is at commit %d, want %d to %d", n, c.least, c.most)
				}
				if n > c.least {
					newer++
				}
				checkDB(t, db)
				must(t, db.Close())
			}
			if len(copies) < 50 || newer == 0 {
				t.Errorf("%d copies, %d with a commit that was not acknowledged: the test tests little", len(copies), newer)
			}
		})
	}
}

// A file that is copied piece by piece while others commit is whole for as long as
// a reader has the state that its metas name: no page of that is written.
func TestCopiedWhileRead(t *testing.T) {
	mem := vfs.NewMem("mem")
	db, err := bridge.Open(mem.Open(), &holdfast.Options{PageSize: 1024, SettleDelay: -1})
	must(t, err)
	var begun atomic.Uint64
	commit := func(times int) {
		for range times {
			_, err := countedCommit(db, &begun)
			must(t, err)
		}
	}
	commit(100)
	for round := range 20 {
		reader := begin(t, db, false)
		want := dumpDB(t, db)
		data := slices.Clone(mem.Bytes())
		for at := 2 * 1024; at < len(data); at += 16 << 10 {
			commit(1)
			now := mem.Bytes()
			to := min(at+16<<10, len(data))
			copy(data[at:to], now[at:])
		}
		next := vfs.NewMem("copy")
		_, err := next.Open().WriteAt(data, 0)
		must(t, err)
		copied, err := bridge.Open(next.Open(), nil)
		must(t, err)
		if got := dumpDB(t, copied); !reflect.DeepEqual(got, want) {
			t.Errorf("round %d: the copy is at commit %d, not that of the reader", round, counted(t, copied))
		}
		checkDB(t, copied)
		must(t, copied.Close())
		must(t, reader.Rollback())
	}
	must(t, db.Close())
}
