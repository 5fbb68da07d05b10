package inspect

import (
	"testing"
	"time"

	"holdfast"
)

// Rates are what happened between two looks; a database that was opened anew in between
// begins anew, and figures that are not newer give none.
func TestRates(t *testing.T) {
	opened := time.Now().Add(-time.Minute)
	at := func(seconds int, commits int) *holdfast.Snapshot {
		s := &holdfast.Snapshot{Path: "db", Opened: opened, Taken: opened.Add(time.Duration(seconds) * time.Second), PageSize: 4096, FileSize: 1 << 20}
		s.Stats.Commits, s.Stats.Flushes, s.Stats.TxN, s.Stats.BytesWritten = commits, 2*commits, 3*commits, int64(100*commits)
		s.Stats.CommitLatency.Buckets[5] = int64(commits)
		s.Stats.FreePageN, s.Stats.PendingPageN = 7, 2
		return s
	}
	r := newRates(at(2, 100), at(4, 400))
	if r.Seconds != 2 || r.Commits != 150 || r.Flushes != 300 || r.Begun != 450 || r.Written != 15000 || r.CommitP50 != 32 || r.CommitP99 != 32 ||
		r.FreeBytes != 7*4096 || r.PendingBytes != 2*4096 || r.FileBytes != 1<<20 || r.UptimeSeconds != 4 {
		t.Errorf("%+v", r)
	}
	if r := newRates(at(4, 400), at(4, 400)); r.Seconds != 0 || r.Commits != 0 || r.FreeBytes == 0 {
		t.Errorf("of the same moment: %+v", r)
	}
	again := at(10, 50)
	again.Opened = opened.Add(5 * time.Second)
	if r := newRates(at(4, 400), again); r.Seconds != 5 || r.Commits != 10 {
		t.Errorf("opened anew: %+v", r)
	}
	old := at(0, 0)
	old.Taken = time.Now().Add(-2 * staleAfter)
	if !newRates(old, old).Stale || newRates(old, at(60, 1)).Stale {
		t.Error("wrong about which figures are old")
	}
}
