package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"holdfast"
	"holdfast/internal/bridge"
	"holdfast/internal/vfs"
)

// heldFlushes is a file in memory whose flushes wait to be let through once hold is set.
type heldFlushes struct {
	hold    atomic.Bool
	arrived chan struct{}
	pass    chan error
	file    vfs.File
}

func newHeldFlushes() *heldFlushes {
	h := &heldFlushes{arrived: make(chan struct{}, 16), pass: make(chan error)}
	h.file = vfs.NewInject(vfs.NewMem("held").Open(), func(op vfs.Op) error {
		if op.Kind != vfs.KindSync || !h.hold.Load() {
			return nil
		}
		h.arrived <- struct{}{}
		return <-h.pass
	})
	return h
}

// waitsForBase tells whether a goroutine waits in Begin for what is not durable.
func waitsForBase() bool {
	stacks := make([]byte, 1<<20)
	return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "(*Pipeline[...]).WaitHeld(")
}

func countIn(tx *holdfast.Tx) uint64 {
	if b := tx.Bucket([]byte("b")); b != nil {
		if v := b.Get([]byte("n")); v != nil {
			return binary.BigEndian.Uint64(v)
		}
	}
	return 0
}

func countUp(tx *holdfast.Tx) error {
	n := countIn(tx)
	b, err := tx.CreateBucketIfNotExists([]byte("b"))
	if err != nil {
		return err
	}
	return b.Put([]byte("n"), binary.BigEndian.AppendUint64(nil, n+1))
}

// A function of Update ran on top of a commit whose flush then failed. Both failed, but the file
// that the function had deleted, as the other commit said it might, was gone.
func TestDurableBase(t *testing.T) {
	for _, failed := range []error{nil, syscall.EIO} {
		for name, options := range map[string]holdfast.Options{
			"DurableBase": {DurableBase: true}, "StrictCompat": {StrictCompat: true}, "neither": {},
		} {
			held := newHeldFlushes()
			options.SettleDelay = -1
			db, err := bridge.Open(held.file, &options)
			must(t, err)
			must(t, db.Update(countUp))
			held.hold.Store(true)

			first, second := make(chan error, 1), make(chan error, 1)
			go func() { first <- db.Update(countUp) }()
			<-held.arrived
			var durable, ran atomic.Bool
			go func() {
				second <- db.Update(func(tx *holdfast.Tx) error {
					ran.Store(true)
					if n := countIn(tx); n != 2 {
						return fmt.Errorf("the transaction stands on commit %d", n)
					}
					must(t, db.View(func(inner *holdfast.Tx) error {
						if n := countIn(inner); name != "neither" && n != 2 {
							t.Errorf("%s: a View in Update sees commit %d, and that stands on 2", name, n)
						}
						return nil
					}))
					if name != "neither" && (!durable.Load() || failed != nil) {
						t.Errorf("%s: the function runs on what is not durable", name)
					}
					return countUp(tx)
				})
			}()
			must(t, within(t, name, func() error {
				for !ran.Load() && !waitsForBase() {
					runtime.Gosched()
				}
				held.hold.Store(false)
				durable.Store(failed == nil)
				held.pass <- failed
				for _, done := range []chan error{first, second} {
					err := <-done
					if failed == nil && err != nil || failed != nil && !errors.Is(err, holdfast.ErrStopped) {
						return fmt.Errorf("%s, flush %v: %w", name, failed, err)
					}
				}
				return nil
			}))
			if name == "neither" && !ran.Load() { // so that commits share flushes
				t.Error("without the option Update waits")
			}
			_ = db.Close()
		}
	}
}

// A View begun within an Update saw a state older than that on which the Update stood, in 1,416 of
// 1,600 tries; with DurableBase it never does.
func TestViewInUpdateIsNotOlder(t *testing.T) {
	for _, options := range []holdfast.Options{{DurableBase: true}, {StrictCompat: true}, {DurableBase: true, NoSync: true}} {
		db := open(t, tempPath(t), &options)
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				for range 25 {
					err := db.Update(func(tx *holdfast.Tx) error {
						base := countIn(tx)
						if err := db.View(func(inner *holdfast.Tx) error {
							if n := countIn(inner); n != base {
								return fmt.Errorf("the View sees %d, the Update stands on %d", n, base)
							}
							return nil
						}); err != nil {
							return err
						}
						return countUp(tx)
					})
					if err != nil {
						t.Errorf("%+v: %v", options, err)
					}
				}
			})
		}
		wg.Wait()
		view(t, db, func(tx *holdfast.Tx) {
			if n := countIn(tx); n != 400 {
				t.Errorf("%d of 400 commits", n)
			}
		})
	}
}

// What was committed without a flush is not durable: once NoSync is off, the next transaction
// begins after one.
func TestDurableBaseAfterNoSync(t *testing.T) {
	held := newHeldFlushes()
	db, err := bridge.Open(held.file, &holdfast.Options{DurableBase: true, NoSync: true, SettleDelay: -1})
	must(t, err)
	must(t, db.Update(countUp))
	flushes := db.Stats().Flushes
	must(t, db.Update(countUp))
	if n := db.Stats().Flushes; n != flushes {
		t.Errorf("%d flushes with NoSync", n-flushes)
	}
	db.NoSync = false
	must(t, db.Update(func(tx *holdfast.Tx) error {
		if n := db.Stats().Flushes; n != flushes+1 {
			t.Errorf("%d flushes before the function", n-flushes)
		}
		return nil
	}))
	must(t, db.Close())
}

// Programs load with NoSync, switch it off, and call Update with a function that changes
// nothing, by which bbolt flushes. Here it returned, and nothing of the load was on the disk.
func TestEmptyUpdateAfterNoSync(t *testing.T) {
	for name, commit := range map[string]func(db *holdfast.DB) error{
		"Update": func(db *holdfast.DB) error { return db.Update(func(*holdfast.Tx) error { return nil }) },
		"Batch":  func(db *holdfast.DB) error { return db.Batch(func(*holdfast.Tx) error { return nil }) },
		"Commit": func(db *holdfast.DB) error {
			tx, err := db.Begin(true)
			if err != nil {
				return err
			}
			return tx.Commit()
		},
	} {
		t.Run(name, func(t *testing.T) {
			held := newHeldFlushes()
			db, err := bridge.Open(held.file, &holdfast.Options{NoSync: true, SettleDelay: -1})
			must(t, err)
			for range 20 {
				must(t, db.Update(countUp))
			}
			must(t, commit(db))
			flushes := db.Stats().Flushes
			db.NoSync = false
			must(t, commit(db))
			if n := db.Stats().Flushes; n == flushes {
				t.Error("nothing was flushed")
			}
			flushes = db.Stats().Flushes
			must(t, commit(db))
			if n := db.Stats().Flushes; n != flushes {
				t.Errorf("%d flushes though all is durable", n-flushes)
			}
			must(t, db.Close())
		})
	}
}

// What happened: an Update that switched NoSync off and changed nothing began while a commit without a flush was being written. It
// had seen that commit, and returned when it was visible: nothing was flushed.
func TestEmptyUpdateAfterWhatIsBeingWritten(t *testing.T) {
	for range 3 {
		db := open(t, tempPath(t), &holdfast.Options{NoSync: true, SettleDelay: -1})
		began, ended := make(chan struct{}), make(chan error, 1)
		go func() {
			ended <- db.Update(func(tx *holdfast.Tx) error {
				close(began)
				b, err := tx.CreateBucket([]byte("b"))
				for i := 0; i < 2000 && err == nil; i++ { // long to write
					err = b.Put(binary.BigEndian.AppendUint32(nil, uint32(i)), make([]byte, 32<<10))
				}
				return err
			})
		}()
		<-began
		saw, flushes := false, 0
		must(t, db.Update(func(tx *holdfast.Tx) error {
			db.NoSync = false
			saw, flushes = tx.Bucket([]byte("b")) != nil, db.Stats().Flushes
			return nil
		}))
		if after := db.Stats().Flushes; saw && after == flushes {
			t.Error("it has seen a commit, and returned before any flush")
		}
		must(t, <-ended)
		must(t, db.Close())
	}
}

// HOLDFAST_DURABLE_BASE=on is Options.DurableBase.
func TestEnvironmentDurableBase(t *testing.T) {
	for value, want := range map[string]bool{"on": true, "off": false, "": false} {
		t.Setenv("HOLDFAST_DURABLE_BASE", value)
		t.Setenv("HOLDFAST_DURABILITY", "periodic")
		db, err := holdfast.Open(tempPath(t), 0o600, nil)
		if refused := err != nil; refused != want {
			t.Errorf("%q with periodic: %v", value, err)
		}
		if err == nil {
			must(t, db.Close())
		}
	}
}

// What happened: with NoFreelistSync, an Update that changed nothing left the meta that names a freelist page, where bbolt
// writes one that names none. BuildKit's tests of its own database look for that.
func TestEmptyUpdateDropsFreelist(t *testing.T) {
	for _, noSync := range []bool{false, true} {
		path := tempPath(t)
		db := open(t, path, nil)
		fill(t, db, 100, 10)
		must(t, db.Close())
		if !namesFreelist(t, path) {
			t.Fatal("Close has left no freelist page")
		}
		options := &holdfast.Options{NoFreelistSync: true, NoSync: noSync}
		db = open(t, path, options)
		update(t, db, func(*holdfast.Tx) {})
		if namesFreelist(t, path) {
			t.Errorf("NoSync %v: an empty Update leaves the freelist page", noSync)
		}
		id := func() (id int) {
			view(t, db, func(tx *holdfast.Tx) { id = tx.ID() })
			return id
		}
		before := id()
		update(t, db, func(*holdfast.Tx) {})
		if after := id(); after != before {
			t.Errorf("NoSync %v: a second empty Update is transaction %d after %d", noSync, after, before)
		}
		checkDB(t, db)
		must(t, db.Close())
		if namesFreelist(t, path) {
			t.Errorf("NoSync %v: Close with NoFreelistSync leaves a freelist page", noSync)
		}
	}
}

// namesFreelist tells whether the meta that bbolt opens names a freelist page.
func namesFreelist(t *testing.T, path string) bool {
	t.Helper()
	data := readFile(t, path)
	pageSize := binary.NativeEndian.Uint32(data[24:])
	newest, list := uint64(0), uint64(0)
	for slot := range uint32(2) {
		meta := data[slot*pageSize+16:]
		if id := binary.NativeEndian.Uint64(meta[48:]); slot == 0 || id > newest {
			newest, list = id, binary.NativeEndian.Uint64(meta[32:])
		}
	}
	return list != math.MaxUint64
}
