package engine

import (
	"bytes"
	"fmt"
	"log/slog"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"holdfast"
)

// Bucket.Stats counts what is there: known content, in a page of known size.
func TestBucketStats(t *testing.T) {
	db := openNew(t, 4096)
	update(t, db, func(tx *holdfast.Tx) {
		createBucket(t, tx, "empty")
		put(t, createBucket(t, tx, "inline"), "key", "value")
		put(t, createBucket(t, tx, "leaf"), "key", string(make([]byte, 2000)))
		put(t, createBucket(t, tx, "overflow"), "key", string(make([]byte, 10_000)))
		outer := createBucket(t, tx, "outer")
		put(t, outer, "k", "v")
		put(t, createBucket(t, outer, "in"), "k", "v")
	})
	fill(t, db, 1000, 100)
	const header, element = 16, 16
	view(t, db, func(tx *holdfast.Tx) {
		for name, want := range map[string]holdfast.BucketStats{
			"empty":  {BucketN: 1, InlineBucketN: 1, Depth: 1, InlineBucketInuse: header},
			"inline": {BucketN: 1, InlineBucketN: 1, Depth: 1, KeyN: 1, InlineBucketInuse: header + element + 3 + 5},
			"leaf":   {BucketN: 1, Depth: 1, KeyN: 1, LeafPageN: 1, LeafAlloc: 4096, LeafInuse: header + element + 3 + 2000},
			"overflow": {BucketN: 1, Depth: 1, KeyN: 1, LeafPageN: 1, LeafOverflowN: 2, LeafAlloc: 3 * 4096,
				LeafInuse: header + element + 3 + 10_000},
			// A nested bucket counts as a key; its level adds to the depth; its
			// value is a bucket header with an inline page.
			"outer": {BucketN: 2, InlineBucketN: 1, Depth: 2, KeyN: 3, LeafPageN: 1, LeafAlloc: 4096,
				LeafInuse: header + 2*element + 1 + 1 + 2 + 16 + header + element + 2, InlineBucketInuse: header + element + 2},
		} {
			if got := tx.Bucket([]byte(name)).Stats(); got != want {
				t.Errorf("%s:\n got %+v\nwant %+v", name, got, want)
			}
		}
		s := tx.Bucket([]byte("b")).Stats()
		if s.KeyN != 1000 || s.Depth != 2 || s.BranchPageN != 1 || s.BranchOverflowN != 0 || s.LeafPageN < 31 {
			t.Errorf("thousand keys: %+v", s)
		}
		if want := s.LeafPageN*header + 1000*(element+8+100); s.LeafInuse != want {
			t.Errorf("thousand keys use %d bytes of leaves, want %d", s.LeafInuse, want)
		}
		if want := header + s.LeafPageN*(element+8); s.BranchInuse != want || s.BranchAlloc != 4096 {
			t.Errorf("branch uses %d bytes of %d, want %d of 4096", s.BranchInuse, s.BranchAlloc, want)
		}
		var sum holdfast.BucketStats
		sum.Add(holdfast.BucketStats{KeyN: 1, Depth: 3, LeafPageN: 2})
		sum.Add(holdfast.BucketStats{KeyN: 2, Depth: 1, LeafPageN: 5})
		if want := (holdfast.BucketStats{KeyN: 3, Depth: 3, LeafPageN: 7}); sum != want {
			t.Errorf("sum %+v, want %+v", sum, want)
		}
	})
}

// Stats of a bucket in a writing transaction counts what is not committed yet,
// which has no pages so far.
func TestBucketStatsUncommitted(t *testing.T) {
	db := openNew(t, 4096)
	fill(t, db, 1000, 100)
	update(t, db, func(tx *holdfast.Tx) {
		b := tx.Bucket([]byte("b"))
		before := b.Stats()
		for i := range 100 {
			must(t, b.Delete(fmt.Appendf(nil, "%08d", i)))
		}
		put(t, b, "new", "value")
		createBucket(t, b, "nested")
		after := b.Stats()
		if after.KeyN != before.KeyN-100+2 || after.BucketN != 2 || after.LeafInuse >= before.LeafInuse {
			t.Errorf("before %+v, after %+v", before, after)
		}
	})
}

// Inspect gives names and numbers of keys, also of what is not committed yet.
func TestInspect(t *testing.T) {
	db := openNew(t, 0)
	type structure = holdfast.BucketStructure
	want := structure{Name: "root", Children: []structure{
		{Name: "a", KeyN: 2, Children: []structure{{Name: "in", KeyN: 1}, {Name: "none"}}},
		{Name: "b"},
	}}
	look := func(tx *holdfast.Tx) {
		if got := tx.Inspect(); !reflect.DeepEqual(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		inner := want.Children[0]
		inner.Name = "root"
		if got := tx.Bucket([]byte("a")).Inspect(); !reflect.DeepEqual(got, inner) {
			t.Errorf("of a bucket: got %v, want %v", got, inner)
		}
	}
	update(t, db, func(tx *holdfast.Tx) {
		a := createBucket(t, tx, "a")
		put(t, a, "1", "")
		put(t, a, "2", "x")
		put(t, createBucket(t, a, "in"), "k", "v")
		createBucket(t, a, "none")
		createBucket(t, tx, "b")
		look(tx)
	})
	view(t, db, look)
}

// DB.Stats counts readers, free pages and what transactions did.
func TestDBStats(t *testing.T) {
	db := openNew(t, 4096)
	fill(t, db, 2000, 100)
	before := db.Stats()
	var open []*holdfast.Tx
	for i := range 5 {
		tx := begin(t, db, false)
		tx.Cursor()
		open = append(open, tx)
		if got := db.Stats(); got.OpenTxN != i+1 || got.TxN-before.TxN != i+1 {
			t.Errorf("%d readers open, %d begun; want %d", got.OpenTxN, got.TxN-before.TxN, i+1)
		}
	}
	update(t, db, func(tx *holdfast.Tx) { must(t, tx.DeleteBucket([]byte("b"))) })
	held := db.Stats()
	if held.PendingPageN < 50 {
		t.Errorf("%d pages pending while readers see them", held.PendingPageN)
	}
	for _, tx := range open {
		must(t, tx.Rollback())
	}
	for range 2 { // the next writer notices that the readers have gone
		update(t, db, func(tx *holdfast.Tx) { _, err := tx.CreateBucketIfNotExists([]byte("c")); must(t, err) })
	}
	after := db.Stats()
	if after.OpenTxN != 0 || after.FreePageN < held.PendingPageN-5 || after.PendingPageN > 10 {
		t.Errorf("after the readers have gone: %+v", after)
	}
	if after.FreeAlloc != (after.FreePageN+after.PendingPageN)*4096 || after.FreelistInuse < 8*(after.FreePageN+after.PendingPageN) {
		t.Errorf("sizes do not fit to the numbers: %+v", after)
	}
	if after.TxStats.CursorCount-before.TxStats.CursorCount < 5 || after.TxStats.PageCount <= before.TxStats.PageCount {
		t.Errorf("transactions were not added up: %+v", after.TxStats)
	}
	diff := after.Sub(&before)
	if diff.TxN != after.TxN-before.TxN || diff.FreePageN != after.FreePageN || diff.TxStats.Write != after.TxStats.Write-before.TxStats.Write {
		t.Errorf("difference %+v", diff)
	}
	if got := after.Sub(nil); !reflect.DeepEqual(got, after) {
		t.Error("the difference to nothing is not all")
	}
}

// A transaction counts its own work.
func TestTxStats(t *testing.T) {
	db := openNew(t, 4096)
	fill(t, db, 2000, 100)
	tx := begin(t, db, true)
	b := tx.Bucket([]byte("b"))
	b.Cursor()
	for i := range 1000 {
		must(t, b.Put(fmt.Appendf(nil, "%08d", i), make([]byte, 500)))
	}
	for i := 1000; i < 1500; i++ {
		must(t, b.Delete(fmt.Appendf(nil, "%08d", i)))
	}
	must(t, tx.Commit())
	s := tx.Stats()
	for name, n := range map[string]int64{
		"PageCount": s.GetPageCount(), "CursorCount": s.GetCursorCount(), "NodeCount": s.GetNodeCount(),
		"Rebalance": s.GetRebalance(), "Split": s.GetSplit(), "Spill": s.GetSpill(), "Write": s.GetWrite(),
		"WriteTime": int64(s.GetWriteTime()), "SpillTime": int64(s.GetSpillTime()),
	} {
		if n == 0 && strings.HasSuffix(name, "Time") && runtime.GOOS == "windows" {
			continue // the clock of Go programs there advances in steps of up to 15 ms
		}
		if n <= 0 {
			t.Errorf("%s is %d", name, n)
		}
	}
	if s.PageAlloc != s.PageCount*4096 {
		t.Errorf("%d pages of %d bytes", s.PageCount, s.PageAlloc)
	}
}

// The atomic accessors of TxStats read and change the field that they name.
func TestTxStatsAccessors(t *testing.T) {
	var s holdfast.TxStats
	v := reflect.ValueOf(&s)
	fields := reflect.TypeFor[holdfast.TxStats]()
	for i := range fields.NumField() {
		name := fields.Field(i).Name
		inc, get := v.MethodByName("Inc"+name), v.MethodByName("Get"+name)
		delta := reflect.ValueOf(int64(i + 1)).Convert(fields.Field(i).Type)
		for range 2 {
			inc.Call([]reflect.Value{delta})
		}
		if got := get.Call(nil)[0].Int(); got != int64(2*(i+1)) || v.Elem().Field(i).Int() != got {
			t.Errorf("%s is %d, want %d", name, got, 2*(i+1))
		}
	}
	if diff := s.Sub(&holdfast.TxStats{PageCount: 1}); diff.PageCount != s.PageCount-1 || diff.Write != s.Write {
		t.Errorf("difference %+v", diff)
	}
}

// NoStatistics makes DB.Stats zero.
func TestNoStatistics(t *testing.T) {
	db := open(t, tempPath(t), &holdfast.Options{NoStatistics: true, NoSync: true})
	fill(t, db, 100, 100)
	if got := db.Stats(); got != (holdfast.Stats{}) {
		t.Errorf("got %+v", got)
	}
	if got := new(holdfast.DB).Stats(); got != (holdfast.Stats{}) {
		t.Errorf("of a zero DB: %+v", got)
	}
}

// fmt.Println(db.Stats()) printed eighty bare numbers.
func TestStatsPrint(t *testing.T) {
	latency := holdfast.Histogram{}
	latency.Buckets[6], latency.Buckets[10] = 90, 10
	for _, c := range []struct {
		figures any
		want    string
	}{
		{holdfast.Stats{}, "0 commits in 0 groups, 0 flushes, 0 pages free and 0 when readers end (0 B), 0 readers open of 0"},
		{holdfast.Stats{Commits: 1, CommitGroups: 1, Flushes: 1, FreePageN: 1, FreeAlloc: 4096, OpenTxN: 1, TxN: 1},
			"1 commit in 1 group, 1 flush, 1 page free and 0 when readers end (4.0 KiB), 1 reader open of 1"},
		{holdfast.Stats{
			Commits: 1204, CommitGroups: 300, Flushes: 301, CommitLatency: latency, BytesWritten: 4_500_000, WriteCalls: 600,
			FreePageN: 12, PendingPageN: 3, FreeAlloc: 15 * 4096, OpenTxN: 2, TxN: 1400, OpenPath: holdfast.OpenedByScan,
			OldestReader: holdfast.OldReader{Tx: 7, Behind: 20, Age: 61*time.Second + 345*time.Millisecond},
			Vacuum:       holdfast.VacuumStats{Runs: 2, Freed: 1 << 30, Waits: holdfast.WaitsForReader},
		}, "1204 commits in 300 groups, latency p50 under 64µs, p99 under 1.024ms, 301 flushes, 4.3 MiB written in 600 calls, " +
			"12 pages free and 3 when readers end (60.0 KiB), 2 readers open of 1400, " +
			"the oldest reader sees transaction 7, 20 before the newest, for longer than 1m1.3s, opened by scan, " +
			"2 automatic vacuums, 1.0 GiB given back, the next waits for the reader"},
		{holdfast.TxStats{}, "nothing"},
		{holdfast.TxStats{PageCount: 3, PageAlloc: 12288, CursorCount: 1, NodeCount: 2, Rebalance: 4, Split: 1, Spill: 3, SpillTime: 1234567, Write: 2, WriteTime: 98765432},
			"3 pages allocated (12.0 KiB), 1 cursor, 2 pages read to be edited, 4 looked at because of deletions, 1 added by splitting, 3 made in 1.23ms, 2 write calls in 98.8ms"},
		{holdfast.BucketStats{KeyN: 1000, Depth: 2, BucketN: 3, InlineBucketN: 1, BranchPageN: 1, BranchAlloc: 4096, BranchInuse: 1024, LeafPageN: 9, LeafOverflowN: 2, LeafAlloc: 45056, LeafInuse: 40000},
			"1000 keys in 3 buckets (1 inline), depth 2, 1 branch page and 0 overflow: 4.0 KiB, 25% of it filled, 9 leaf pages and 2 overflow: 44.0 KiB, 89% of it filled"},
		{holdfast.Histogram{}, "of none"},
		{holdfast.OldReader{}, "no old reader"},
		{holdfast.VacuumStats{Runs: 1, Freed: 5, Running: true}, "1 automatic vacuum, 5 B given back, one is running"},
	} {
		if got := fmt.Sprint(c.figures); got != c.want {
			t.Errorf("%#v:\n got %s\nwant %s", c.figures, got, c.want)
		}
	}
}

// slog printed one unreadable text for all of them.
func TestStatsLogged(t *testing.T) {
	db := openNew(t, 0)
	fill(t, db, 10, 10)
	var b bytes.Buffer
	stats := db.Stats()
	log := slog.New(slog.NewTextHandler(&b, nil))
	log.Info("figures", "db", stats)
	log.Info("same", "db", &stats)
	view(t, db, func(tx *holdfast.Tx) { log.Info("bucket", "b", tx.Cursor().Bucket().Stats()) })
	for _, want := range []string{"db.commits=1 ", " db.commit_latency.count=1 ", " db.oldest_reader.behind=0 ", " db.vacuum.running=false", " db.tx.pages=", "b.keys="} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in %s", want, b.String())
		}
	}
	if first, second, _ := strings.Cut(b.String(), "\n"); !strings.Contains(second, first[strings.Index(first, "db.commits"):]) {
		t.Errorf("a pointer to them prints otherwise: %s", b.String())
	}
}
