package holdfast_test

import (
	"path/filepath"
	"slices"
	"testing"

	"holdfast"
)

// These are the tests of the API that are read beside it. All others are in test/engine.

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

// openNew opens a new database without flushes, with pages of pageSize bytes.
func openNew(t testing.TB, pageSize int) *holdfast.DB {
	t.Helper()
	return open(t, tempPath(t), &holdfast.Options{NoSync: true, PageSize: pageSize})
}

func update(t testing.TB, db *holdfast.DB, fn func(tx *holdfast.Tx)) {
	t.Helper()
	must(t, db.Update(func(tx *holdfast.Tx) error { fn(tx); return nil }))
}

func view(t testing.TB, db *holdfast.DB, fn func(tx *holdfast.Tx)) {
	t.Helper()
	must(t, db.View(func(tx *holdfast.Tx) error { fn(tx); return nil }))
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
