package holdfast_test

import (
	"fmt"
	"path/filepath"
	"runtime"
	"testing"

	"holdfast"
)

// An open database took 28 KiB on the heap, where 19 were meant: what opening had found kept both meta pages in memory, twice.
func TestMemoryOfOpenDatabase(t *testing.T) {
	const databases, limit = 50, 24 << 10
	dir := t.TempDir()
	path := func(i int) string { return filepath.Join(dir, fmt.Sprint(i)) }
	options := &holdfast.Options{NoSync: true, PageSize: 4096}
	for i := range databases {
		db, err := holdfast.Open(path(i), 0o600, options)
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Update(func(tx *holdfast.Tx) error {
			_, err := tx.CreateBucket([]byte("bucket"))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	before := heapInUse()
	var open []*holdfast.DB
	for i := range databases {
		db, err := holdfast.Open(path(i), 0o600, options)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		open = append(open, db)
	}
	each := (heapInUse() - before) / databases
	t.Logf("%d bytes for each of %d", each, len(open))
	if each > limit {
		t.Errorf("an open database takes %d bytes on the heap, more than %d", each, limit)
	}
}

// heapInUse is how many bytes of the heap are reachable.
func heapInUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
