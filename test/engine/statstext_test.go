package engine

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"holdfast"
)

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
