package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdfast"
)

// sparse is a database of which four of five keys were deleted.
func sparse(t *testing.T, options holdfast.Options, n, size int) *holdfast.DB {
	t.Helper()
	options.NoSync = true
	db := openSized(t, tempPath(t), &options)
	rng := rand.New(rand.NewPCG(3, 4))
	fillAndDelete(t, db, "b", n, size, func(int) bool { return rng.IntN(5) == 0 })
	return db
}

// dense fails the test unless the file is about as short as a compacted copy.
func dense(t *testing.T, db *holdfast.DB) {
	t.Helper()
	if size, compacted := length(t, db), compactSize(t, db); float64(size) > 1.1*float64(compacted)+64<<10 {
		t.Errorf("the file has %d bytes, a compacted copy %d", size, compacted)
	}
}

// A vacuum that is cancelled after any of its steps has changed nothing that anybody
// sees, and another one finishes the work.
func TestVacuumCancelled(t *testing.T) {
	for at := 0; ; at++ {
		db := sparse(t, holdfast.Options{PageSize: 512}, 1200, 100)
		want, before := content(t, db), readFile(t, db.Path())
		ctx, cancel := context.WithCancel(context.Background())
		if at == 0 {
			cancel()
		}
		calls := 0
		_, err := db.Vacuum(ctx, holdfast.VacuumOptions{StepPages: 4, Progress: func(holdfast.VacuumProgress) {
			if calls++; calls == at {
				cancel()
			}
		}})
		cancel()
		if at > 0 && calls < at {
			must(t, err)
			if at < 10 {
				t.Errorf("%d pauses: the test tests little", calls)
			}
			return
		}
		if err != nil && !errors.Is(err, context.Canceled) || err == nil && at < calls {
			t.Fatalf("cancelled in pause %d of %d: %v", at, calls, err)
		}
		if at == 0 && !bytes.Equal(readFile(t, db.Path()), before) {
			t.Error("cancelled before it began, it has written")
		}
		if content(t, db) != want {
			t.Fatalf("cancelled in pause %d: the content is another", at)
		}
		checkDB(t, db)
		_, err = db.Vacuum(context.Background(), holdfast.VacuumOptions{})
		must(t, err)
		if content(t, db) != want {
			t.Fatalf("cancelled in pause %d, and done: the content is another", at)
		}
		checkDB(t, db)
		dense(t, db)
		must(t, db.Close())
	}
}

// A reader that does not end sees and copies what it saw, and costs a few steps of
// room; the result names it. When it has ended the rest is given back.
func TestVacuumBesideAReader(t *testing.T) {
	const steps = 16
	db := sparse(t, holdfast.Options{PageSize: 1024}, 5000, 200)
	reader := begin(t, db, false)
	want := hashOf(reader)
	update(t, db, func(tx *holdfast.Tx) { put(t, tx.Bucket([]byte("b")), "new", "value") })
	now := content(t, db)
	before := length(t, db)
	var r holdfast.VacuumResult
	look := func(holdfast.VacuumProgress) {
		if hashOf(reader) != want {
			t.Error("the reader sees something else")
		}
	}
	for range 3 {
		var err error
		must(t, within(t, "vacuum", func() error {
			r, err = db.Vacuum(context.Background(), holdfast.VacuumOptions{StepPages: steps, Progress: look})
			return err
		}))
		if r.Reader.Tx != uint64(reader.ID()) || r.Reader.Behind < 1 || r.Pinned == 0 {
			t.Errorf("the result has %d bytes pinned by %+v, the reader is of %d", r.Pinned, r.Reader, reader.ID())
		}
	}
	if size := length(t, db); size > before+8*steps*1024+64<<10 {
		t.Errorf("the file has grown from %d to %d bytes", before, size)
	}
	copied := filepath.Join(t.TempDir(), "copy")
	must(t, reader.CopyFile(copied, 0o600))
	other := open(t, copied, nil)
	checkDB(t, other)
	if content(t, db) != now {
		t.Error("the content is another")
	}
	checkDB(t, db)
	must(t, reader.Rollback())
	r, err := db.Vacuum(context.Background(), holdfast.VacuumOptions{})
	must(t, err)
	if r.Reader.Tx != 0 || r.Pinned != 0 {
		t.Errorf("no reader is open, and the result has %+v", r)
	}
	dense(t, db)
	if content(t, db) != now {
		t.Error("the content is another")
	}
}

// The database is closed in each of the pauses, and at any time.
func TestVacuumAndClose(t *testing.T) {
	ended := func(db *holdfast.DB, path, want string, err error) {
		t.Helper()
		if err != nil && err != holdfast.ErrDatabaseNotOpen {
			t.Fatalf("vacuum of a database that was closed: %v", err)
		}
		if _, err := db.Vacuum(context.Background(), holdfast.VacuumOptions{}); err != holdfast.ErrDatabaseNotOpen {
			t.Fatalf("vacuum of a closed database: %v", err)
		}
		db = open(t, path, nil)
		if content(t, db) != want {
			t.Fatal("the content is another")
		}
		checkDB(t, db)
		must(t, db.Close())
	}
	for at := 1; at < 14; at += 2 {
		db := sparse(t, holdfast.Options{PageSize: 512}, 1200, 100)
		path, want, calls := db.Path(), content(t, db), 0
		_, err := db.Vacuum(context.Background(), holdfast.VacuumOptions{StepPages: 4, Progress: func(holdfast.VacuumProgress) {
			if calls++; calls == at {
				must(t, within(t, "close in a pause", db.Close))
			}
		}})
		if err == nil {
			t.Errorf("closed in pause %d, it succeeds", at)
		}
		ended(db, path, want, err)
	}
	for n := range 20 {
		db := sparse(t, holdfast.Options{PageSize: 512}, 400, 100)
		path, want := db.Path(), content(t, db)
		done := make(chan error, 1)
		go func() {
			_, err := db.Vacuum(context.Background(), holdfast.VacuumOptions{StepPages: 4})
			done <- err
		}()
		time.Sleep(time.Duration(n) * 200 * time.Microsecond)
		must(t, within(t, "close", db.Close))
		ended(db, path, want, within(t, "vacuum", func() error { return <-done }))
	}
}

// Of two at once both succeed; one that waits can be cancelled.
func TestVacuumTwice(t *testing.T) {
	db := sparse(t, holdfast.Options{PageSize: 1024}, 3000, 200)
	want := content(t, db)
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if _, err := db.Vacuum(context.Background(), holdfast.VacuumOptions{StepPages: 8}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	once := false
	_, err := db.Vacuum(context.Background(), holdfast.VacuumOptions{Progress: func(holdfast.VacuumProgress) {
		if once {
			return
		}
		once = true
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		if _, err := db.Vacuum(ctx, holdfast.VacuumOptions{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("one that waits for another: %v", err)
		}
	}})
	must(t, err)
	if content(t, db) != want {
		t.Error("the content is another")
	}
	checkDB(t, db)
	dense(t, db)
}

// A file that is dense is not written, or hardly.
func TestVacuumOfADenseFile(t *testing.T) {
	db := sparse(t, holdfast.Options{}, 20_000, 100)
	first, err := db.Vacuum(context.Background(), holdfast.VacuumOptions{})
	must(t, err)
	for range 5 {
		size := length(t, db)
		r, err := db.Vacuum(context.Background(), holdfast.VacuumOptions{})
		must(t, err)
		if r.PagesWritten > 32 || length(t, db) > size {
			t.Errorf("%+v, after one of %d pages", r, first.PagesWritten)
		}
	}
	if first.PagesWritten < 100 {
		t.Errorf("the first one has written %d pages: the test tests little", first.PagesWritten)
	}
}

// Page sizes from the smallest to the largest, buckets in buckets with and without pages
// of their own, empty ones, long values.
func TestVacuumOfAllKinds(t *testing.T) {
	for size := 512; size <= 65536; size *= 2 {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			db := open(t, tempPath(t), &holdfast.Options{PageSize: size, NoSync: true})
			fillAndDelete(t, db, "flat", 3000, size/20, func(i int) bool { return i%7 == 0 })
			fillAndDelete(t, db, "long", 60, 5*size, func(i int) bool { return i%3 == 0 })
			update(t, db, func(tx *holdfast.Tx) {
				createBucket(t, tx, "empty")
				in := createBucket(t, tx, "deep")
				for depth := range 40 {
					createBucket(t, in, "none")
					put(t, createBucket(t, in, "inline"), "k", "v")
					for i := range 20 * (depth % 3) {
						put(t, in, fmt.Sprint(i), string(make([]byte, size/10)))
					}
					in = createBucket(t, in, "in")
				}
			})
			update(t, db, func(tx *holdfast.Tx) {
				for in := tx.Bucket([]byte("deep")); in != nil; in = in.Bucket([]byte("in")) {
					for i := range 36 {
						must(t, in.Delete([]byte(fmt.Sprint(i))))
					}
				}
			})
			want := content(t, db)
			for _, pages := range []int{3, 0} {
				_, err := db.Vacuum(context.Background(), holdfast.VacuumOptions{StepPages: pages})
				must(t, err)
				if content(t, db) != want {
					t.Fatal("the content is another")
				}
				checkDB(t, db)
			}
			if file, compacted := length(t, db), compactSize(t, db); float64(file) > 1.1*float64(compacted)+max(64<<10, 24*float64(size)) {
				t.Errorf("the file has %d bytes, a compacted copy %d", file, compacted)
			}
		})
	}
}

// Four writers and four readers work beside vacuums; nothing that was committed is lost,
// and no goroutine stays behind.
func TestVacuumBesideWriters(t *testing.T) {
	before := runtime.NumGoroutine()
	path := filepath.Join(t.TempDir(), "db")
	db, err := holdfast.Open(path, 0o600, &holdfast.Options{PageSize: 1024, NoSync: true})
	must(t, err)
	const writers, rounds, enough = 4, 60, 3
	var busy, all sync.WaitGroup
	var vacuums atomic.Int64
	var done [writers]int // rounds
	for w := range writers {
		name := fmt.Appendf(nil, "w%d", w)
		busy.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 9))
			for round := 1; round <= rounds || vacuums.Load() < enough; round++ {
				done[w] = round
				err := db.Update(func(tx *holdfast.Tx) error {
					b, err := tx.CreateBucketIfNotExists(name)
					for range 20 {
						key := fmt.Appendf(nil, "%03d", rng.IntN(300))
						if err == nil {
							err = b.Put(key, make([]byte, rng.IntN(600)))
						}
						if err == nil && rng.IntN(2) == 0 {
							err = b.Delete(fmt.Appendf(nil, "%03d", rng.IntN(300)))
						}
					}
					return errors.Join(err, b.SetSequence(uint64(round)))
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	ctx, cancel := context.WithCancel(context.Background())
	for range 4 {
		all.Go(func() {
			for ctx.Err() == nil {
				err := db.View(func(tx *holdfast.Tx) error {
					first := hashOf(tx)
					runtime.Gosched()
					if hashOf(tx) != first {
						return errors.New("a reader sees two things")
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Go(func() {
		for ; ctx.Err() == nil; vacuums.Add(1) {
			if _, err := db.Vacuum(context.Background(), holdfast.VacuumOptions{StepPages: int(1 + vacuums.Load()%16), Hurry: vacuums.Load() != 2}); err != nil {
				t.Error(err)
			}
		}
	})
	busy.Wait()
	cancel()
	all.Wait()
	view(t, db, func(tx *holdfast.Tx) {
		checkTx(t, tx)
		for w := range writers {
			if n := tx.Bucket(fmt.Appendf(nil, "w%d", w)).Sequence(); n != uint64(done[w]) {
				t.Errorf("writer %d has committed %d times, and %d is found", w, done[w], n)
			}
		}
	})
	must(t, db.Close())
	for end := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d goroutines, before there were %d", runtime.NumGoroutine(), before)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Size() == 0 {
		t.Error(info, err)
	}
}

// What has no place before it, because a reader holds that, is not moved to free pages
// after it.
func TestVacuumMovesNothingBack(t *testing.T) {
	db := open(t, tempPath(t), &holdfast.Options{PageSize: 1024, NoSync: true})
	all := func(int) bool { return true }
	fillAndDelete(t, db, "b", 2000, 200, all)
	_, err := db.Vacuum(context.Background(), holdfast.VacuumOptions{})
	must(t, err)
	reader := begin(t, db, false)
	fillAndDelete(t, db, "b", 2000, 200, all)
	fillAndDelete(t, db, "end", 2000, 200, func(i int) bool { return i > 1990 })
	for range 2 {
		r, err := db.Vacuum(context.Background(), holdfast.VacuumOptions{})
		must(t, err)
		if r.PagesWritten > 40 || r.SizeAfter < 3*r.Expected/2 {
			t.Errorf("%+v", r)
		}
	}
	must(t, reader.Rollback())
	_, err = db.Vacuum(context.Background(), holdfast.VacuumOptions{})
	must(t, err)
	dense(t, db)
}
