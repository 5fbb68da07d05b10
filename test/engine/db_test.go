package engine

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdfast"
	"holdfast/internal/page"
)

// fill puts n keys with values of size bytes into bucket "b".
func fill(t testing.TB, db *holdfast.DB, n, size int) {
	t.Helper()
	update(t, db, func(tx *holdfast.Tx) {
		b, err := tx.CreateBucketIfNotExists([]byte("b"))
		must(t, err)
		for i := range n {
			must(t, b.Put(fmt.Appendf(nil, "%08d", i), make([]byte, size)))
		}
	})
}

func keys(t testing.TB, db *holdfast.DB) (n int) {
	t.Helper()
	view(t, db, func(tx *holdfast.Tx) {
		for range tx.Bucket([]byte("b")).All() {
			n++
		}
	})
	return n
}

// Close waits for the transactions that are open, refuses new ones meanwhile,
// and may be called again.
func TestCloseWaits(t *testing.T) {
	for _, writable := range []bool{false, true} {
		t.Run(fmt.Sprint("writable ", writable), func(t *testing.T) {
			db := openNew(t, 0)
			fill(t, db, 10, 10)
			tx := begin(t, db, writable)
			var ended atomic.Bool
			closed := make(chan error)
			go func() {
				err := db.Close()
				if !ended.Load() {
					t.Error("Close did not wait")
				}
				closed <- err
			}()
			if !writable {
				// Once Close has begun, no transaction begins any more.
				must(t, within(t, "a reader refused", func() error {
					for {
						other, err := db.Begin(false)
						if err == holdfast.ErrDatabaseNotOpen {
							return nil
						}
						must(t, err)
						must(t, other.Rollback())
						runtime.Gosched()
					}
				}))
			}
			if v := tx.Bucket([]byte("b")).Get([]byte("00000003")); len(v) != 10 {
				t.Error("the open transaction reads nothing")
			}
			ended.Store(true)
			must(t, tx.Rollback())
			must(t, within(t, "Close", func() error { return <-closed }))
			must(t, db.Close())
			if db.Path() != "" {
				t.Error("a closed database has a path")
			}
		})
	}
}

// Several calls of Close at once: all return, when it is closed.
func TestCloseConcurrently(t *testing.T) {
	db := openNew(t, 0)
	fill(t, db, 10, 10)
	must(t, within(t, "Close", func() error {
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if err := db.Close(); err != nil {
					t.Error(err)
				}
				if _, err := db.Begin(false); err != holdfast.ErrDatabaseNotOpen {
					t.Errorf("Begin after Close: %v", err)
				}
			})
		}
		wg.Wait()
		return nil
	}))
}

// One process cannot open a file twice for writing; several can read it.
func TestOpenTwice(t *testing.T) {
	path := tempPath(t)
	db := open(t, path, nil)
	fill(t, db, 10, 10)
	for _, readOnly := range []bool{false, true} {
		if _, err := holdfast.Open(path, 0o600, &holdfast.Options{Timeout: time.Millisecond, ReadOnly: readOnly}); err != holdfast.ErrTimeout {
			t.Errorf("read-only %t: %v, want ErrTimeout", readOnly, err)
		}
	}
	waited := make(chan error)
	go func() {
		db, err := holdfast.Open(path, 0o600, nil) // without a timeout
		if err == nil {
			err = db.Close()
		}
		waited <- err
	}()
	must(t, db.Close())
	must(t, within(t, "Open that waits", func() error { return <-waited }))
	one := open(t, path, &holdfast.Options{ReadOnly: true})
	two := open(t, path, &holdfast.Options{ReadOnly: true})
	if !one.IsReadOnly() || keys(t, one) != 10 || keys(t, two) != 10 {
		t.Error("two readers do not see the same")
	}
}

// NoFreelistSync leaves no freelist page, without it Close leaves one; either
// file opens and is sound, and the free pages are the same.
func TestNoFreelistSync(t *testing.T) {
	path := tempPath(t)
	named := func() bool {
		data := readFile(t, path)
		slots := page.DecodeSlots(data, data[os.Getpagesize():])
		best, err := slots.Best()
		must(t, err)
		return slots.Meta[best].Freelist != page.NoFreelist
	}
	for i, none := range []bool{false, true, true, false, false, true} {
		db := open(t, path, &holdfast.Options{NoFreelistSync: none})
		fill(t, db, 500*(i%3+1), 100)
		update(t, db, func(tx *holdfast.Tx) { must(t, tx.DeleteBucket([]byte("b"))) })
		fill(t, db, 100, 50)
		checkDB(t, db)
		var free, size int
		view(t, db, func(tx *holdfast.Tx) { size = int(tx.Size()) })
		free = db.Stats().FreePageN + db.Stats().PendingPageN
		must(t, db.Close())
		if named() == none {
			t.Errorf("round %d: NoFreelistSync %t, and a freelist page is named: %t", i, none, named())
		}
		db = open(t, path, &holdfast.Options{ReadOnly: true, PreLoadFreelist: true})
		checkDB(t, db)
		if got := db.Stats().FreePageN; got > free || got < free-1 {
			t.Errorf("round %d: %d free pages after opening again, %d before (of %d bytes)", i, got, free, size)
		}
		must(t, db.Close())
	}
}

// The file does not grow beyond MaxSize; what does not fit is undone and the
// database goes on.
func TestMaxSize(t *testing.T) {
	path := tempPath(t)
	const limit = 256 << 10
	db := open(t, path, &holdfast.Options{NoSync: true, MaxSize: limit})
	fill(t, db, 10, 10)
	full := false
	for i := range 1000 {
		err := db.Update(func(tx *holdfast.Tx) error {
			return tx.Bucket([]byte("b")).Put(fmt.Appendf(nil, "big%d", i), make([]byte, 10_000))
		})
		if full = err == holdfast.ErrMaxSizeReached; full {
			break
		}
		must(t, err)
	}
	if !full {
		t.Fatal("no limit was met")
	}
	if info, err := os.Stat(path); err != nil || info.Size() > limit {
		t.Errorf("file of %d bytes, %v; limit %d", info.Size(), err, limit)
	}
	checkDB(t, db)
	update(t, db, func(tx *holdfast.Tx) { must(t, tx.Bucket([]byte("b")).Delete([]byte("big0"))) })
	fill(t, db, 20, 10)
	must(t, db.Close())
	db = open(t, path, nil)
	checkDB(t, db)
	fill(t, db, 10_000, 100) // no limit any more
}

// StrictMode checks after each commit, and panics on damage.
func TestStrictMode(t *testing.T) {
	db := openNew(t, 0)
	db.StrictMode = true
	fill(t, db, 1000, 100)
	must(t, db.Close())

	s := newSample(t)
	setFreelist(s, func(ids []page.ID) []page.ID { return ids[1:] }) // a leaked page
	path := tempPath(t)
	must(t, os.WriteFile(path, s.data, 0o600))
	db = open(t, path, nil)
	db.StrictMode = true
	got := mustPanic(t, func() {
		_ = db.Update(func(tx *holdfast.Tx) error { return small(tx).Put([]byte("k"), []byte("v")) })
	})
	if text := fmt.Sprint(got); !strings.Contains(text, path) || !strings.Contains(text, "unreachable unfreed") {
		t.Errorf("panicked with %s", text)
	}
}

// Pages may have any size from 512 bytes to 64 KiB; the file remembers it.
func TestPageSizes(t *testing.T) {
	for ps := 512; ps <= 64<<10; ps *= 2 {
		t.Run(fmt.Sprint(ps), func(t *testing.T) {
			path := tempPath(t)
			db := openSized(t, path, &holdfast.Options{PageSize: ps, NoSync: true})
			for i := range 5 {
				fill(t, db, 300*(i+1), 60)
			}
			checkDB(t, db)
			if got := db.Info().PageSize; got != ps || db.Info().Data == 0 {
				t.Errorf("Info gives a page size of %d", got)
			}
			must(t, db.Close())
			db = open(t, path, nil)
			if got := db.Info().PageSize; got != ps {
				t.Errorf("page size %d after opening again", got)
			}
			if n := keys(t, db); n != 1500 {
				t.Errorf("%d keys, want 1500", n)
			}
			checkDB(t, db)
		})
	}
}

// OpenFile opens the file in place of os.OpenFile, with the same arguments.
func TestOpenFileOption(t *testing.T) {
	path := tempPath(t)
	var calls []string
	options := &holdfast.Options{OpenFile: func(name string, flag int, mode os.FileMode) (*os.File, error) {
		calls = append(calls, fmt.Sprint(name == path, flag == os.O_RDWR|os.O_CREATE, flag == os.O_RDONLY, mode))
		return os.OpenFile(name, flag, mode)
	}}
	db, err := holdfast.Open(path, 0o640, options)
	must(t, err)
	must(t, db.Close())
	options.ReadOnly = true
	db, err = holdfast.Open(path, 0o640, options)
	must(t, err)
	must(t, db.Close())
	if got, want := fmt.Sprint(calls), "[true true false -rw-r----- true false true -rw-r-----]"; got != want {
		t.Errorf("called with %s, want %s", got, want)
	}
	options.OpenFile = func(string, int, os.FileMode) (*os.File, error) { return nil, errAgain }
	if _, err := holdfast.Open(path, 0o600, options); err != errAgain {
		t.Errorf("got %v, want the error of OpenFile", err)
	}
}

// InitialMmapSize, Mlock and MmapFlags have no influence on what is stored.
func TestMappingOptions(t *testing.T) {
	for name, options := range map[string]holdfast.Options{
		"small map":  {InitialMmapSize: 1},
		"large map":  {InitialMmapSize: 256 << 20},
		"locked":     {Mlock: true},
		"locked all": {Mlock: true, InitialMmapSize: 64 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			if options.Mlock && runtime.GOOS != "linux" {
				t.Skip("memory cannot be locked everywhere")
			}
			options.NoSync = true
			path := tempPath(t)
			for i := range 3 {
				db, err := holdfast.Open(path, 0o600, &options)
				if options.Mlock && err != nil {
					t.Skipf("memory cannot be locked here: %v", err)
				}
				must(t, err)
				fill(t, db, 100*(i+1), 100)
				checkDB(t, db)
				must(t, db.Close())
			}
		})
	}
}

// Options print what is set in one line; nil ones too.
func TestOptionsString(t *testing.T) {
	o := &holdfast.Options{Timeout: time.Second, PageSize: 4096, MaxSize: 7, NoSync: true}
	text := o.String()
	for _, want := range []string{"Timeout: 1s", "PageSize: 4096", "MaxSize: 7", "NoSync: true"} {
		if !strings.Contains(text, want) {
			t.Errorf("%s does not contain %s", text, want)
		}
	}
	if got := (*holdfast.Options)(nil).String(); got != "{}" {
		t.Errorf("nil options are %s", got)
	}
	db := openNew(t, 0)
	if want := fmt.Sprintf("DB<%q>", db.Path()); db.String() != want {
		t.Errorf("String gives %s, want %s", db.String(), want)
	}
	if !strings.Contains(db.GoString(), fmt.Sprintf("%q", db.Path())) {
		t.Errorf("GoString gives %s", db.GoString())
	}
}

// The fields of an open database are those of the options.
func TestOptionsReachTheDatabase(t *testing.T) {
	o := &holdfast.Options{NoSync: true, NoFreelistSync: true, NoGrowSync: true, MaxSize: 1 << 30, FreelistType: holdfast.FreelistMapType, PreLoadFreelist: true}
	db := open(t, tempPath(t), o)
	if !db.NoSync || !db.NoFreelistSync || !db.NoGrowSync || db.MaxSize != o.MaxSize || db.FreelistType != o.FreelistType || !db.PreLoadFreelist || db.Mlock {
		t.Errorf("fields %+v", db)
	}
	if db.MaxBatchSize != holdfast.DefaultMaxBatchSize || db.MaxBatchDelay != holdfast.DefaultMaxBatchDelay || db.AllocSize != holdfast.DefaultAllocSize {
		t.Error("other defaults than those documented")
	}
	must(t, db.Sync())
	if got := mustPanic(t, func() { new(holdfast.DB).Info() }); got != holdfast.ErrDatabaseNotOpen {
		t.Errorf("Info of a zero DB panics with %v", got)
	}
	must(t, db.Close())
	mustPanic(t, func() { db.Info() })
	db, err := holdfast.Open(tempPath(t), 0o600, nil) // nil options are the default ones
	must(t, err)
	must(t, db.Close())
}

// A database made with Options.PageSize of 512 was lost to bbolt when its first meta was torn:
// bbolt looks for the second one at 1,024 bytes, or twice, four times, ... as many. So new databases
// get such pages, and those that have others keep them.
func TestNewPageSize(t *testing.T) {
	for asked, want := range map[int]int{512: 1024, 513: 1024, 1000: 1024, 1024: 1024, 1025: 2048, 3000: 4096, 4096: 4096, 16 << 20: 16 << 20} {
		db := open(t, tempPath(t), &holdfast.Options{PageSize: asked, NoSync: true})
		if got := db.Info().PageSize; got != want {
			t.Errorf("asked for pages of %d bytes, a new database has %d", asked, got)
		}
		update(t, db, func(tx *holdfast.Tx) { put(t, createBucket(t, tx, "b"), "k", fmt.Sprint(asked)) })
		checkDB(t, db)
		must(t, db.Close())
	}
	path := tempPath(t)
	must(t, openSized(t, path, &holdfast.Options{PageSize: 512}).Close())
	for range 3 {
		db := open(t, path, &holdfast.Options{PageSize: 4096})
		if got := db.Info().PageSize; got != 512 {
			t.Fatalf("a database with pages of 512 bytes is opened with %d", got)
		}
		update(t, db, func(tx *holdfast.Tx) {
			_, err := tx.CreateBucketIfNotExists([]byte("b"))
			must(t, err)
		})
		checkDB(t, db)
		must(t, db.Close())
	}
}
