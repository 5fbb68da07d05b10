package differential

import (
	"fmt"
	"path/filepath"
	"testing"

	"holdfast"
	"holdfast/test/soak"
	"holdfast/test/stock/ops"
)

// TestShortestLeak is the shortest history in which bbolt v1.5.0 with a synced
// freelist loses a page: a bucket that gets a second nested bucket, with a
// value, is deleted in the same transaction. The first nested bucket is a
// little too large to be inline. Holdfast must not lose it.
func TestShortestLeak(t *testing.T) {
	top := func(kind ops.Kind, key string) ops.Op { return ops.Op{Kind: kind, Tx: 1, Key: []byte(key)} }
	in := func(kind ops.Kind, key string, size int, path ...string) ops.Op {
		return ops.Op{Kind: kind, Tx: 1, Path: path, Key: []byte(key), Value: bytesOfNoise[:size]}
	}
	begin, commit := ops.Op{Kind: ops.Begin, Tx: 1, Writable: true}, ops.Op{Kind: ops.Commit, Tx: 1}
	script := []ops.Op{
		begin, top(ops.CreateBucket, "b1"), in(ops.CreateBucket, "n1", 0, "b1"), in(ops.Put, "k", 1927, "b1", "n1"), commit,
		begin, in(ops.CreateBucket, "n0", 0, "b1"), in(ops.Put, "k", 10, "b1", "n0"), top(ops.DeleteBucket, "b1"), commit,
	}
	for _, f := range []*Follower{Stock(), Holdfast()} {
		file := filepath.Join(t.TempDir(), "db")
		run := func(op ops.Op) ops.Result {
			got := f.Do(op)
			if got.Err != "" {
				t.Fatalf("%s: %s: %s", f.Name, describe(op), got.Err)
			}
			return got
		}
		run(ops.Op{Kind: ops.Open, File: file, Options: ops.Options{PageSize: 4096}})
		for _, op := range script {
			run(op)
		}
		run(ops.Op{Kind: ops.Close})
		for _, checker := range []*Follower{Stock(), Holdfast()} {
			lines := checkFile(t, checker, file)
			if f.Stock {
				t.Logf("the file that %s wrote, checked by %s: %q", f.Name, checker.Name, lines)
			} else if len(lines) > 0 {
				t.Errorf("the file that %s wrote, checked by %s: %q", f.Name, checker.Name, lines)
			}
		}
	}
}

func checkFile(t *testing.T, f *Follower, file string) []string {
	t.Helper()
	var lines []string
	for _, op := range []ops.Op{
		{Kind: ops.Open, File: file, Options: ops.Options{ReadOnly: true, PreLoadFreelist: true}},
		{Kind: ops.Begin, Tx: 1}, {Kind: ops.Check, Tx: 1}, {Kind: ops.Rollback, Tx: 1}, {Kind: ops.Close},
	} {
		got := f.Do(op)
		if got.Err != "" {
			t.Fatalf("%s: %s: %s", f.Name, describe(op), got.Err)
		}
		lines = append(lines, got.Lines...)
	}
	return lines
}

// TestBucketChurn creates, nests, fills, deletes and rolls back buckets. After
// each transaction every page is used, free or pending, in memory as on disk.
func TestBucketChurn(t *testing.T) {
	for _, pageSize := range churnPageSizes {
		t.Run(fmt.Sprint(pageSize), func(t *testing.T) { histories(t, churnKind(pageSize)) })
	}
}

var churnPageSizes = []int{1024, 4096, 16384}

func churnKind(pageSize int) kind {
	return kind{fmt.Sprintf("bucket churn %d", pageSize), 20, func(t *testing.T, seed uint64, tally *soak.Tally) {
		h := New(seed, pageSize)
		h.bulk, h.universe, h.large = 30, 60, 20
		r := newRun(t, h, tally)
		file := filepath.Join(t.TempDir(), "db")
		r.follow(Holdfast(), file)
		for range 3 {
			o := h.options()
			r.do(ops.Op{Kind: ops.Open, Options: o})
			for range 15 {
				r.churn()
				r.check()
			}
			r.do(ops.Op{Kind: ops.Close})
			if synced := syncedFreelist(t, file, pageSize); synced == o.NoFreelistSync {
				t.Fatalf("seed %d: NoFreelistSync %v, but the closed file has a freelist page: %v", seed, o.NoFreelistSync, synced)
			}
			for _, checker := range []*Follower{Stock(), Holdfast()} {
				if leaks := r.inspect(checker, file); len(leaks) > 0 {
					t.Fatalf("seed %d: %s finds lost pages %v", seed, checker.Name, leaks)
				}
			}
		}
	}}
}

// churn is a transaction that mostly changes buckets.
func (r *run) churn() {
	h := r.h
	begin := h.begin(true)
	r.do(begin)
	t := h.model.txs[begin.Tx]
	for n := 1 + h.rand.IntN(30); n > 0 || len(h.queue) > 0; n-- {
		if len(h.queue) > 0 {
			r.do(h.next(begin.Tx))
			continue
		}
		path, b := h.path(t.root)
		op := ops.Op{Tx: begin.Tx, Path: path}
		if len(path) > 0 && h.chance(3) {
			r.do(h.putMany(op))
			continue
		}
		r.do(h.changeBuckets(op, t, b))
	}
	r.do(h.endWriter())
}

// TestFreePages opens and closes a database over and over; its free pages do
// not change and its size does not grow.
func TestFreePages(t *testing.T) {
	file := filepath.Join(t.TempDir(), "db")
	var want int
	for i := range 12 {
		db, err := holdfast.Open(file, 0o600, &holdfast.Options{NoSync: true, NoFreelistSync: i%3 == 1})
		if err != nil {
			t.Fatal(err)
		}
		err = db.Update(func(tx *holdfast.Tx) error {
			if i == 0 {
				_, err := tx.CreateBucket([]byte("b"))
				return err
			}
			b := tx.Bucket([]byte("b"))
			for k := range 200 {
				if err := b.Put(fmt.Append(nil, k), bytesOfNoise[i:i+100]); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		for _, checker := range []*Follower{Stock(), Holdfast()} {
			if lines := checkFile(t, checker, file); len(lines) > 0 {
				t.Fatalf("round %d: %s: %q", i, checker.Name, lines)
			}
		}
		pages := pagesOf(t, file)
		if i == 3 {
			want = pages
		}
		if i > 3 && pages > want {
			t.Fatalf("round %d: the file uses %d pages, in round 3 it was %d", i, pages, want)
		}
	}
}

// pagesOf is the number of pages up to the end of the database.
func pagesOf(t *testing.T, file string) int {
	t.Helper()
	db, err := holdfast.Open(file, 0o600, &holdfast.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	pages := 0
	err = db.View(func(tx *holdfast.Tx) error {
		pages = int(tx.Size()) / db.Info().PageSize
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages
}
