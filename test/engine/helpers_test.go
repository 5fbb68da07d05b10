package engine

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"holdfast"
	"holdfast/internal/page"
	"holdfast/internal/vfs"
)

// watchdog is how long something may take that must not hang. No test relies on
// anything being fast.
const watchdog = 2 * time.Minute

// must ends the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// tempPath is the path of a file that does not exist yet.
func tempPath(t testing.TB) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "db")
}

// open opens the database at path, which the test's end closes.
func open(t testing.TB, path string, options *holdfast.Options) *holdfast.DB {
	t.Helper()
	db, err := holdfast.Open(path, 0o600, options)
	must(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

// sized is a file for which Options.PageSize is 512: a new database with such pages, as bbolt
// makes it. Holdfast does not, see TestNewPageSize. With another page size it is untouched.
func sized(t testing.TB, file vfs.File, options *holdfast.Options) vfs.File {
	t.Helper()
	if options.PageSize == page.MinPageSize {
		_, err := file.WriteAt(page.NewFile(page.MinPageSize, !options.NoSeals), 0)
		must(t, err)
	}
	return file
}

// openSized opens a new database with any page size.
func openSized(t testing.TB, path string, options *holdfast.Options) *holdfast.DB {
	t.Helper()
	if options.PageSize == page.MinPageSize {
		must(t, os.WriteFile(path, page.NewFile(page.MinPageSize, !options.NoSeals), 0o600))
	}
	return open(t, path, options)
}

// openNew opens a new database without flushes, with pages of pageSize bytes.
func openNew(t testing.TB, pageSize int) *holdfast.DB {
	t.Helper()
	return openSized(t, tempPath(t), &holdfast.Options{NoSync: true, PageSize: pageSize})
}

func update(t testing.TB, db *holdfast.DB, fn func(tx *holdfast.Tx)) {
	t.Helper()
	must(t, db.Update(func(tx *holdfast.Tx) error { fn(tx); return nil }))
}

func view(t testing.TB, db *holdfast.DB, fn func(tx *holdfast.Tx)) {
	t.Helper()
	must(t, db.View(func(tx *holdfast.Tx) error { fn(tx); return nil }))
}

func begin(t testing.TB, db *holdfast.DB, writable bool) *holdfast.Tx {
	t.Helper()
	tx, err := db.Begin(writable)
	must(t, err)
	t.Cleanup(func() { _ = tx.Rollback() }) // or, after a Fatal, Close would wait for it
	return tx
}

func createBucket(t testing.TB, in interface {
	CreateBucket([]byte) (*holdfast.Bucket, error)
}, name string) *holdfast.Bucket {
	t.Helper()
	b, err := in.CreateBucket([]byte(name))
	must(t, err)
	return b
}

func put(t testing.TB, b *holdfast.Bucket, key, value string) {
	t.Helper()
	must(t, b.Put([]byte(key), []byte(value)))
}

// checkTx fails the test if the database is not sound.
func checkTx(t testing.TB, tx *holdfast.Tx) {
	t.Helper()
	for err := range tx.Check() {
		t.Error(err)
	}
	if t.Failed() {
		t.FailNow()
	}
}

func checkDB(t testing.TB, db *holdfast.DB) {
	t.Helper()
	view(t, db, func(tx *holdfast.Tx) { checkTx(t, tx) })
}

// fileSize is the size of the file at path, in bytes.
func fileSize(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	must(t, err)
	return info.Size()
}

// length is the length of the file of db. Windows does not shorten a mapped
// file: there it is what Close leaves of the file.
func length(t *testing.T, db *holdfast.DB) (size int64) {
	t.Helper()
	if runtime.GOOS != "windows" {
		return fileSize(t, db.Path())
	}
	view(t, db, func(tx *holdfast.Tx) { size = max(tx.Size(), 4096) })
	return size
}

// within fails the test if fn has not returned after the watchdog's time. A
// panic in fn is an error of the test, with its stack.
func within(t testing.TB, what string, fn func() error) error {
	t.Helper()
	type result struct {
		err   error
		panic any
		stack []byte
	}
	done := make(chan result, 1)
	go func() {
		r := result{panic: "runtime.Goexit"}
		defer func() {
			if p := recover(); p != nil {
				stack := make([]byte, 8<<10)
				r.panic, r.stack = p, stack[:runtime.Stack(stack, false)]
			}
			done <- r
		}()
		r.err = fn()
		r.panic = nil
	}()
	timer := time.NewTimer(watchdog)
	defer timer.Stop()
	select {
	case r := <-done:
		if r.panic != nil {
			t.Fatalf("%s: panic: %v\n%s", what, r.panic, r.stack)
		}
		return r.err
	case <-timer.C:
		stack := make([]byte, 1<<20)
		t.Fatalf("%s: still not done\n%s", what, stack[:runtime.Stack(stack, true)])
		return nil
	}
}

// exactFile is a file that is mapped without room ahead, as on Windows: each
// growth takes a new mapping. In memory, room ahead costs as much as a file.
type exactFile struct{ vfs.File }

func (exactFile) MapBeyondEnd() bool { return false }

// random is a source of chance whose seed the test prints.
func random(t testing.TB) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("HOLDFAST_SEED"); s != "" {
		_, err := fmt.Sscan(s, &seed)
		must(t, err)
	}
	t.Logf("repeat with HOLDFAST_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

func randomBytes(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// pair is a key with its value; a nested bucket has no value.
type pair struct {
	key, value string
	bucket     bool
}

func collect(seq func(yield func(k, v []byte) bool)) []pair {
	var all []pair
	for k, v := range seq {
		all = append(all, pair{string(k), string(v), v == nil})
	}
	return all
}

func equalPairs(t testing.TB, what string, got, want []pair) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got %v\nwant %v", what, got, want)
	}
}

// readFile reads a file; nil if there is none.
func readFile(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	must(t, err)
	return data
}

func sameBytes(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }
