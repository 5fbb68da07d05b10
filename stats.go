package holdfast

import (
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/internal/bucket"
	"holdfast/internal/page"
	"holdfast/internal/pager"
)

// Stats are figures of a database since it was opened.
type Stats struct {
	// TxStats are the sums over all transactions that have ended.
	TxStats TxStats

	FreePageN     int // pages that can be allocated
	PendingPageN  int // pages that are free as soon as no reader sees them
	FreeAlloc     int // bytes of both
	FreelistInuse int // bytes that a freelist page naming both takes

	TxN     int // reading transactions ever begun
	OpenTxN int // reading transactions open now

	SealsVerified int // seals of pages that were looked at

	// OpenPath is how the free pages were found when the database was opened.
	OpenPath OpenPath

	// What was written since the database was opened.
	Commits      int   // transactions that changed something
	CommitGroups int   // groups in which they were written: transactions of a group share a flush
	GroupSize    int   // transactions of the newest group
	Flushes      int   // flushes, of other causes too
	WriteCalls   int   // calls
	PagesWritten int64 // by these, metas included
	BytesWritten int64

	// OldestReader is the oldest state that an open transaction reads: pages that it sees
	// and no later one are not used again before its end.
	OldestReader OldReader

	// Vacuum is what AutoVacuum does.
	Vacuum VacuumStats

	// CommitLatency is how long Commit took, of the transactions that changed
	// something.
	CommitLatency Histogram
}

// OpenPath is a way in which free pages are found.
type OpenPath = pager.OpenPath

// Ways in which free pages are found. The first reads at most a bit for each page of the
// file and a short log; a freelist page takes time in proportion to the free pages, a scan in
// proportion to the file.
const (
	OpenedByRecord   = pager.OpenedByRecord   // as Holdfast's last commit recorded them
	OpenedByFreelist = pager.OpenedByFreelist // from a freelist page, as bbolt leaves it
	OpenedByScan     = pager.OpenedByScan     // by looking which pages are in use
)

// Sub gives the figures of the time between other and s.
func (s *Stats) Sub(other *Stats) Stats {
	if other == nil {
		return *s
	}
	d := *s // gauges are those of s
	d.TxN = s.TxN - other.TxN
	d.SealsVerified = s.SealsVerified - other.SealsVerified
	d.TxStats = s.TxStats.Sub(&other.TxStats)
	d.Commits -= other.Commits
	d.CommitGroups -= other.CommitGroups
	d.Flushes -= other.Flushes
	d.WriteCalls -= other.WriteCalls
	d.PagesWritten -= other.PagesWritten
	d.BytesWritten -= other.BytesWritten
	d.CommitLatency = s.CommitLatency.Sub(&other.CommitLatency)
	return d
}

// TxStats are figures of one transaction, or sums over many. The fields are to
// be read and changed through the methods where several goroutines do so.
type TxStats struct {
	PageCount int64 // pages allocated
	PageAlloc int64 // their bytes

	CursorCount int64 // cursors created

	NodeCount int64 // pages read for being edited
	NodeDeref int64 // always 0: keys and values are not copied before a new mapping

	Rebalance     int64         // nodes that were looked at because something was removed
	RebalanceTime time.Duration // always 0: it is part of SpillTime

	Split     int64         // pages added by splitting nodes
	Spill     int64         // nodes written
	SpillTime time.Duration // time taken to turn changes into pages

	Write     int64         // write calls
	WriteTime time.Duration // time taken to write and flush
}

// add adds o to s. No other goroutine uses either meanwhile, so nothing is atomic:
// they lie in larger structs, where 32-bit machines do not align them for it.
func (s *TxStats) add(o *TxStats) {
	s.PageCount += o.PageCount
	s.PageAlloc += o.PageAlloc
	s.CursorCount += o.CursorCount
	s.NodeCount += o.NodeCount
	s.NodeDeref += o.NodeDeref
	s.Rebalance += o.Rebalance
	s.RebalanceTime += o.RebalanceTime
	s.Split += o.Split
	s.Spill += o.Spill
	s.SpillTime += o.SpillTime
	s.Write += o.Write
	s.WriteTime += o.WriteTime
}

// Sub gives the figures of the time between other and s.
func (s *TxStats) Sub(other *TxStats) TxStats {
	return TxStats{
		PageCount:     s.GetPageCount() - other.GetPageCount(),
		PageAlloc:     s.GetPageAlloc() - other.GetPageAlloc(),
		CursorCount:   s.GetCursorCount() - other.GetCursorCount(),
		NodeCount:     s.GetNodeCount() - other.GetNodeCount(),
		NodeDeref:     s.GetNodeDeref() - other.GetNodeDeref(),
		Rebalance:     s.GetRebalance() - other.GetRebalance(),
		RebalanceTime: s.GetRebalanceTime() - other.GetRebalanceTime(),
		Split:         s.GetSplit() - other.GetSplit(),
		Spill:         s.GetSpill() - other.GetSpill(),
		SpillTime:     s.GetSpillTime() - other.GetSpillTime(),
		Write:         s.GetWrite() - other.GetWrite(),
		WriteTime:     s.GetWriteTime() - other.GetWriteTime(),
	}
}

func loadTime(p *time.Duration) time.Duration {
	return time.Duration(atomic.LoadInt64((*int64)(p)))
}

func addTime(p *time.Duration, d time.Duration) time.Duration {
	return time.Duration(atomic.AddInt64((*int64)(p), int64(d)))
}

// GetPageCount returns PageCount atomically.
func (s *TxStats) GetPageCount() int64 { return atomic.LoadInt64(&s.PageCount) }

// IncPageCount adds to PageCount atomically and returns the sum.
func (s *TxStats) IncPageCount(delta int64) int64 { return atomic.AddInt64(&s.PageCount, delta) }

// GetPageAlloc returns PageAlloc atomically.
func (s *TxStats) GetPageAlloc() int64 { return atomic.LoadInt64(&s.PageAlloc) }

// IncPageAlloc adds to PageAlloc atomically and returns the sum.
func (s *TxStats) IncPageAlloc(delta int64) int64 { return atomic.AddInt64(&s.PageAlloc, delta) }

// GetCursorCount returns CursorCount atomically.
func (s *TxStats) GetCursorCount() int64 { return atomic.LoadInt64(&s.CursorCount) }

// IncCursorCount adds to CursorCount atomically and returns the sum.
func (s *TxStats) IncCursorCount(delta int64) int64 { return atomic.AddInt64(&s.CursorCount, delta) }

// GetNodeCount returns NodeCount atomically.
func (s *TxStats) GetNodeCount() int64 { return atomic.LoadInt64(&s.NodeCount) }

// IncNodeCount adds to NodeCount atomically and returns the sum.
func (s *TxStats) IncNodeCount(delta int64) int64 { return atomic.AddInt64(&s.NodeCount, delta) }

// GetNodeDeref returns NodeDeref atomically.
func (s *TxStats) GetNodeDeref() int64 { return atomic.LoadInt64(&s.NodeDeref) }

// IncNodeDeref adds to NodeDeref atomically and returns the sum.
func (s *TxStats) IncNodeDeref(delta int64) int64 { return atomic.AddInt64(&s.NodeDeref, delta) }

// GetRebalance returns Rebalance atomically.
func (s *TxStats) GetRebalance() int64 { return atomic.LoadInt64(&s.Rebalance) }

// IncRebalance adds to Rebalance atomically and returns the sum.
func (s *TxStats) IncRebalance(delta int64) int64 { return atomic.AddInt64(&s.Rebalance, delta) }

// GetRebalanceTime returns RebalanceTime atomically.
func (s *TxStats) GetRebalanceTime() time.Duration { return loadTime(&s.RebalanceTime) }

// IncRebalanceTime adds to RebalanceTime atomically and returns the sum.
func (s *TxStats) IncRebalanceTime(delta time.Duration) time.Duration {
	return addTime(&s.RebalanceTime, delta)
}

// GetSplit returns Split atomically.
func (s *TxStats) GetSplit() int64 { return atomic.LoadInt64(&s.Split) }

// IncSplit adds to Split atomically and returns the sum.
func (s *TxStats) IncSplit(delta int64) int64 { return atomic.AddInt64(&s.Split, delta) }

// GetSpill returns Spill atomically.
func (s *TxStats) GetSpill() int64 { return atomic.LoadInt64(&s.Spill) }

// IncSpill adds to Spill atomically and returns the sum.
func (s *TxStats) IncSpill(delta int64) int64 { return atomic.AddInt64(&s.Spill, delta) }

// GetSpillTime returns SpillTime atomically.
func (s *TxStats) GetSpillTime() time.Duration { return loadTime(&s.SpillTime) }

// IncSpillTime adds to SpillTime atomically and returns the sum.
func (s *TxStats) IncSpillTime(delta time.Duration) time.Duration {
	return addTime(&s.SpillTime, delta)
}

// GetWrite returns Write atomically.
func (s *TxStats) GetWrite() int64 { return atomic.LoadInt64(&s.Write) }

// IncWrite adds to Write atomically and returns the sum.
func (s *TxStats) IncWrite(delta int64) int64 { return atomic.AddInt64(&s.Write, delta) }

// GetWriteTime returns WriteTime atomically.
func (s *TxStats) GetWriteTime() time.Duration { return loadTime(&s.WriteTime) }

// IncWriteTime adds to WriteTime atomically and returns the sum.
func (s *TxStats) IncWriteTime(delta time.Duration) time.Duration {
	return addTime(&s.WriteTime, delta)
}

// txTotals are the sums over ended transactions. Writing ones are added under
// the lock; reading ones only ever have cursors to add, most not even that.
type txTotals struct {
	latency liveHistogram
	mu      sync.Mutex
	sum     TxStats
	cursors atomic.Int64
}

// count adds an ending transaction to the totals.
func (tx *Tx) count() {
	if tx.db.noStats {
		return
	}
	t := &tx.db.stats
	if n := tx.cursors.Load(); n != 0 {
		t.cursors.Add(n)
	}
	if tx.w != nil {
		t.mu.Lock()
		t.sum.add(&tx.w.stats)
		t.mu.Unlock()
	}
}

// Stats are the transaction's own figures. Those of a writing transaction are
// complete after its end.
func (tx *Tx) Stats() TxStats {
	var s TxStats
	if tx.w != nil {
		s = tx.w.stats
	}
	s.CursorCount = tx.cursors.Load()
	return s
}

// Stats are the figures of the database. All zero if it was opened with
// NoStatistics.
func (db *DB) Stats() Stats {
	if db.pager == nil || db.noStats {
		return Stats{}
	}
	return db.figures()
}

// figures are those that are shown of a database that is shared, also with NoStatistics, which containerd sets.
func (db *DB) figures() Stats {
	c := db.pager.Counts()
	free, pending := int(c.FreePages.Load()), int(c.PendingPages.Load())
	now, ever := db.pager.Readers()
	s := Stats{
		FreePageN:     free,
		PendingPageN:  pending,
		FreeAlloc:     (free + pending) * db.pager.PageSize(),
		FreelistInuse: freelistBytes(free + pending),
		TxN:           int(ever),
		OpenTxN:       int(now),
		SealsVerified: int(c.SealsVerified.Load()),
		OpenPath:      db.pager.OpenPath(),
		Commits:       int(c.Commits.Load()),
		CommitGroups:  int(c.Groups.Load()),
		GroupSize:     int(c.Group.Load()),
		Flushes:       int(c.Flushes.Load()),
		WriteCalls:    int(c.Writes.Load()),
		PagesWritten:  c.BytesWritten.Load() / int64(db.pager.PageSize()),
		BytesWritten:  c.BytesWritten.Load(),
		CommitLatency: db.stats.latency.read(),
		OldestReader:  oldReader(db.pager.OldestReader()),
		Vacuum:        vacuumStats(db.auto),
	}
	db.stats.mu.Lock()
	s.TxStats = db.stats.sum
	db.stats.mu.Unlock()
	s.TxStats.CursorCount = db.stats.cursors.Load()
	return s
}

// BucketStats are the figures of a bucket with all buckets in it.
type BucketStats struct {
	// Pages.
	BranchPageN     int // branch pages, without overflow
	BranchOverflowN int // overflow pages of branches
	LeafPageN       int // leaf pages, without overflow
	LeafOverflowN   int // overflow pages of leaves

	// Tree.
	KeyN  int // keys
	Depth int // levels, those of nested buckets included

	// Bytes.
	BranchAlloc int // of the branch pages
	BranchInuse int // used in them
	LeafAlloc   int // of the leaf pages
	LeafInuse   int // used in them

	// Buckets.
	BucketN           int // buckets, this one included
	InlineBucketN     int // those of them that are inline
	InlineBucketInuse int // bytes of the inline ones, part of LeafInuse
}

// Add adds other to s. Depth becomes the larger of the two.
func (s *BucketStats) Add(other BucketStats) {
	(*bucket.Stats)(s).Add(bucket.Stats(other))
}

// Stats walks the bucket and all buckets in it. It takes time in proportion to
// their pages.
func (b *Bucket) Stats() BucketStats {
	if b.tx.usable() != nil {
		return BucketStats{}
	}
	if !b.tx.managed {
		defer b.lost(debug.SetPanicOnFault(true))
	}
	s, err := b.core.Stats(b.tx.db.pager.PageSize(), b.tx.pages())
	b.tx.unsaid(b.tx.keep(err), b.keeps)
	return BucketStats(s)
}

// BucketStructure is what a bucket holds, by names and numbers.
type BucketStructure struct {
	Name     string            `json:"name"`              // name of the bucket
	KeyN     int               `json:"keyN"`              // number of keys, nested buckets not counted
	Children []BucketStructure `json:"buckets,omitempty"` // nested buckets
}

// Inspect gives the structure of the whole database, beginning with its root
// bucket.
func (tx *Tx) Inspect() BucketStructure {
	root, err := tx.root()
	if err != nil {
		return BucketStructure{}
	}
	return root.Inspect()
}

// Inspect gives the structure of the bucket, which is called "root" in it: its
// own name is not known to it.
func (b *Bucket) Inspect() BucketStructure {
	met := &inspection{roots: make(map[Pgid]struct{}), left: b.tx.Size()}
	s := b.inspect("root", met)
	b.tx.unsaid(met.damage, b.keeps)
	return s
}

// inspection is what Inspect has met. On a damaged page names of buckets may share bytes.
type inspection struct {
	roots map[Pgid]struct{}
	left  int64 // that names can have, as the file has no more
	// damage is what ended it, as opposed to what another call of the transaction has met.
	damage error
}

// circular is the damage of a bucket that is met where it cannot be.
func (b *Bucket) circular() error {
	return b.tx.keep(page.Corruptf(b.Root(), "buckets contain each other, or more than fits into the file"))
}

// inspect is Inspect of a bucket called name.
func (b *Bucket) inspect(name string, met *inspection) BucketStructure {
	s := BucketStructure{Name: name}
	if root := b.Root(); root != 0 {
		if _, again := met.roots[root]; again {
			met.damage = b.circular()
			return s
		}
		met.roots[root] = struct{}{}
	}
	err := b.forEach(func(k, v []byte) error {
		if v != nil {
			s.KeyN++
			return nil
		}
		if met.left -= int64(len(k)); met.left < 0 && !b.Writable() { // else of what is not in the file yet
			return b.circular()
		}
		child, err := b.open(k)
		if err != nil || child == nil {
			return err
		}
		s.Children = append(s.Children, child.inspect(string(k), met))
		return met.damage // of buckets that contain each other there is no end
	}, true)
	if met.damage == nil {
		met.damage = err
	}
	return s
}

// freelistBytes is the size of a freelist page that names n pages.
func freelistBytes(n int) int { return int(page.FreelistSize(uint64(n))) }
