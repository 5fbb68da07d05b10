package holdfast

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"
)

// How figures print: String is a line for people, of which what is zero and needs no word is left out, and
// LogValue is a group of them for log/slog, with the names of "holdfast top --json". %#v prints all fields.

// words joins what is to be said.
type words []string

// add adds a text unless n is zero.
func (w *words) add(n int64, format string, args ...any) {
	if n != 0 {
		*w = append(*w, fmt.Sprintf(format, args...))
	}
}

func (w words) String() string {
	if len(w) == 0 {
		return "nothing"
	}
	return strings.Join(w, ", ")
}

// number is n things; things ends in s.
func number[T int | int64](n T, things string) string {
	if n == 1 {
		if things = strings.TrimSuffix(things, "s"); strings.HasSuffix(things, "she") {
			things = strings.TrimSuffix(things, "e")
		}
	}
	return fmt.Sprintf("%d %s", n, things)
}

// byteText writes a number of bytes with a unit.
func byteText[T int | int64](n T) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	f, i := float64(n)/1024, 0
	for f >= 1024 {
		f /= 1024
		i++
	}
	return strconv.FormatFloat(f, 'f', 1, 64) + " " + units[i:i+1] + "iB"
}

// partOf writes part of whole.
func partOf(part, whole int) string {
	return fmt.Sprintf("%.0f%%", 100*float64(part)/float64(max(whole, 1)))
}

// String is a line for people.
func (s Stats) String() string {
	var w words
	w.add(1, "%s in %s", number(s.Commits, "commits"), number(s.CommitGroups, "groups"))
	w.add(s.CommitLatency.Count(), "latency %s", s.CommitLatency)
	w.add(1, "%s", number(s.Flushes, "flushes"))
	w.add(s.BytesWritten, "%s written in %s", byteText(s.BytesWritten), number(s.WriteCalls, "calls"))
	w.add(1, "%s free and %d when readers end (%s)", number(s.FreePageN, "pages"), s.PendingPageN, byteText(s.FreeAlloc))
	w.add(1, "%s open of %d", number(s.OpenTxN, "readers"), s.TxN)
	w.add(int64(s.OldestReader.Behind), "%s", s.OldestReader)
	w.add(int64(len(s.OpenPath)), "opened by %s", s.OpenPath)
	w.add(int64(s.Vacuum.Runs+len(s.Vacuum.Waits)), "%s", s.Vacuum)
	return w.String()
}

// LogValue is a group for log/slog.
func (s Stats) LogValue() slog.Value {
	return slog.GroupValue(
		slog.Int("commits", s.Commits), slog.Int("commit_groups", s.CommitGroups), slog.Any("commit_latency", s.CommitLatency),
		slog.Int("flushes", s.Flushes), slog.Int64("bytes_written", s.BytesWritten), slog.Int("write_calls", s.WriteCalls),
		slog.Int("free_pages", s.FreePageN), slog.Int("pending_pages", s.PendingPageN),
		slog.Int("readers_open", s.OpenTxN), slog.Int("readers", s.TxN), slog.Any("oldest_reader", s.OldestReader),
		slog.String("open_path", string(s.OpenPath)), slog.Any("tx", s.TxStats), slog.Any("vacuum", s.Vacuum))
}

// String is a line for people.
func (s TxStats) String() string {
	var w words
	w.add(s.PageCount, "%s allocated (%s)", number(s.PageCount, "pages"), byteText(s.PageAlloc))
	w.add(s.CursorCount, "%s", number(s.CursorCount, "cursors"))
	w.add(s.NodeCount, "%s read to be edited", number(s.NodeCount, "pages"))
	w.add(s.Rebalance, "%d looked at because of deletions", s.Rebalance)
	w.add(s.Split, "%d added by splitting", s.Split)
	w.add(s.Spill, "%d made in %s", s.Spill, rounded(s.SpillTime))
	w.add(s.Write, "%s in %s", number(s.Write, "write calls"), rounded(s.WriteTime))
	return w.String()
}

// LogValue is a group for log/slog.
func (s TxStats) LogValue() slog.Value {
	return slog.GroupValue(
		slog.Int64("pages", s.PageCount), slog.Int64("page_bytes", s.PageAlloc), slog.Int64("cursors", s.CursorCount),
		slog.Int64("nodes", s.NodeCount), slog.Int64("rebalanced", s.Rebalance), slog.Int64("split", s.Split),
		slog.Int64("spilled", s.Spill), slog.Duration("spill_time", s.SpillTime),
		slog.Int64("writes", s.Write), slog.Duration("write_time", s.WriteTime))
}

// String is a line for people.
func (s BucketStats) String() string {
	var w words
	buckets := number(s.BucketN, "buckets")
	if s.InlineBucketN > 0 {
		buckets += fmt.Sprintf(" (%d inline)", s.InlineBucketN)
	}
	w.add(1, "%s in %s, depth %d", number(s.KeyN, "keys"), buckets, s.Depth)
	pages := func(kind string, n, overflow, inuse, alloc int) {
		w.add(int64(n), "%s and %d overflow: %s, %s of it filled", number(n, kind+" pages"), overflow, byteText(alloc), partOf(inuse, alloc))
	}
	pages("branch", s.BranchPageN, s.BranchOverflowN, s.BranchInuse, s.BranchAlloc)
	pages("leaf", s.LeafPageN, s.LeafOverflowN, s.LeafInuse, s.LeafAlloc)
	return w.String()
}

// LogValue is a group for log/slog.
func (s BucketStats) LogValue() slog.Value {
	return slog.GroupValue(
		slog.Int("keys", s.KeyN), slog.Int("depth", s.Depth), slog.Int("buckets", s.BucketN), slog.Int("inline_buckets", s.InlineBucketN),
		slog.Int("branch_pages", s.BranchPageN), slog.Int("branch_overflow", s.BranchOverflowN),
		slog.Int("branch_bytes", s.BranchAlloc), slog.Int("branch_used", s.BranchInuse),
		slog.Int("leaf_pages", s.LeafPageN), slog.Int("leaf_overflow", s.LeafOverflowN),
		slog.Int("leaf_bytes", s.LeafAlloc), slog.Int("leaf_used", s.LeafInuse))
}

// Quantiles that are told of a Histogram.
const (
	median = 0.50
	tail   = 0.99
)

// String gives the number of durations and bounds of half and of 99% of them.
func (h Histogram) String() string {
	if h.Count() == 0 {
		return "of none"
	}
	return fmt.Sprintf("p50 under %s, p99 under %s", h.Quantile(median), h.Quantile(tail))
}

// LogValue is a group for log/slog.
func (h Histogram) LogValue() slog.Value {
	return slog.GroupValue(slog.Int64("count", h.Count()), slog.Duration("p50", h.Quantile(median)), slog.Duration("p99", h.Quantile(tail)))
}

// String is a line for people.
func (r OldReader) String() string {
	if r.Behind == 0 && r.Tx == 0 {
		return "no old reader"
	}
	return fmt.Sprintf("the oldest reader sees transaction %d, %d before the newest, for longer than %s", r.Tx, r.Behind, rounded(r.Age))
}

// LogValue is a group for log/slog.
func (r OldReader) LogValue() slog.Value {
	return slog.GroupValue(slog.Uint64("tx", r.Tx), slog.Int("behind", r.Behind), slog.Duration("age", r.Age))
}

// String is a line for people.
func (s VacuumStats) String() string {
	text := fmt.Sprintf("%s, %s given back", number(s.Runs, "automatic vacuums"), byteText(s.Freed))
	if s.Running {
		text += ", one is running"
	}
	if s.Waits != "" {
		text += ", the next waits for the " + s.Waits
	}
	return text
}

// LogValue is a group for log/slog.
func (s VacuumStats) LogValue() slog.Value {
	return slog.GroupValue(slog.Bool("running", s.Running), slog.Int("runs", s.Runs), slog.Int64("freed_bytes", s.Freed), slog.String("waits", s.Waits))
}

// rounded leaves out of a duration what says nothing to people.
func rounded(d time.Duration) time.Duration {
	for unit := time.Nanosecond; unit <= time.Second; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit)
		}
	}
	return d.Round(time.Second)
}
