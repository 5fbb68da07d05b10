package holdfast

import (
	"cmp"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"holdfast/internal/bucket"
	"holdfast/internal/page"
	"holdfast/internal/pager"
)

// Tx is a transaction. A reading one may be used by several goroutines at
// once, each with cursors of its own, and ended by another; a writing one is
// for one goroutine. Nothing that came from a transaction may be used after
// it has ended.
type Tx struct {
	// WriteFlag is a further flag, such as syscall.O_DIRECT, with which WriteTo
	// opens the file for reading. 0: it reads through the open file.
	WriteFlag int

	db      *DB
	state   *pager.State
	snap    pager.Snapshot // of a reading transaction
	foreign *pager.Foreign // of one on the database of another process, see OpenShared
	w       *writeTx       // of a writing transaction
	buckets bucket.Tx
	managed bool
	panics  bool // see unsaid
	ended   atomic.Bool
	cursors atomic.Int64
	damage  atomic.Pointer[error]
	probing atomic.Int32 // calls of bridge.Probe in progress
}

// writeTx is what only a writing transaction has.
type writeTx struct {
	w            *pager.WriteTx
	root         Bucket
	stats        TxStats
	beforeCommit []func() error
	firstBefore  [1]func() error // its memory, as a rule
	hookFailed   bool            // one of beforeCommit
	onCommit     []func()
	onWritten    []func() // see written
	changing     bool     // in a call that changes something, or it was left by a panic
	left         bool     // an earlier such call was left by a panic
	appending    appending
}

// ID is the transaction's number. A reading transaction has that of the last
// one to commit before it; a writing one the next. Numbers go up by one from
// commit to commit, but may jump, even backwards, where stock bbolt has
// written the file in between: do not store them.
func (tx *Tx) ID() int {
	if tx == nil || tx.db == nil {
		return -1
	}
	if tx.w != nil {
		return int(tx.w.w.ID())
	}
	return int(tx.state.Tx)
}

// DB is the database of the transaction, nil after its end.
func (tx *Tx) DB() *DB {
	if tx.ended.Load() {
		return nil
	}
	return tx.db
}

// Size is the size of the database in bytes as the transaction sees it.
func (tx *Tx) Size() int64 {
	return int64(tx.state.Meta.HighWater) * int64(tx.db.pager.PageSize())
}

// Writable tells whether the transaction can change the database.
func (tx *Tx) Writable() bool { return tx.w != nil }

// change is called at the beginning of a call that changes something, and
// changed when it returns. In between the transaction cannot be committed: if
// a caller recovers from a panic there, what was done is not whole.
func (tx *Tx) change() {
	if tx.w != nil {
		tx.w.left = tx.w.left || tx.w.changing
		tx.w.changing = true
	}
}

func (tx *Tx) changed() {
	if tx.w != nil {
		tx.w.changing = false
	}
}

// usable is the error of a call on a transaction that has ended, or can only be
// rolled back.
func (tx *Tx) usable() error {
	if tx.ended.Load() {
		return ErrTxClosed
	}
	return tx.doomed()
}

func (tx *Tx) root() (*Bucket, error) {
	if err := tx.usable(); err != nil {
		return nil, err
	}
	if tx.w != nil {
		return &tx.w.root, nil
	}
	b := &Bucket{FillPercent: DefaultFillPercent, tx: tx}
	b.core.OpenRoot(&tx.buckets, tx.state.Meta.Root, tx.state.Meta.Sequence)
	return b, nil
}

// Cursor is a cursor over the top-level buckets: its values are all nil.
func (tx *Tx) Cursor() *Cursor {
	root, err := tx.root()
	if err != nil {
		return &Cursor{bucket: &Bucket{tx: tx}}
	}
	return root.Cursor()
}

// Bucket opens a top-level bucket; nil if there is none.
func (tx *Tx) Bucket(name []byte) *Bucket {
	if tx.usable() != nil {
		return nil
	}
	if tx.w != nil {
		return tx.w.root.Bucket(name)
	}
	child := &Bucket{FillPercent: DefaultFillPercent, tx: tx}
	if !tx.managed {
		defer child.lost(debug.SetPanicOnFault(true))
	}
	if ok, err := bucket.OpenTop(&tx.buckets, tx.state.Meta.Root, name, &child.core); err != nil || !ok {
		tx.unsaid(tx.keep(err), false)
		return nil
	}
	return child
}

// CreateBucket creates a top-level bucket. See Bucket.CreateBucket.
func (tx *Tx) CreateBucket(name []byte) (*Bucket, error) {
	root, err := tx.root()
	if err != nil {
		return nil, err
	}
	return root.CreateBucket(name)
}

// CreateBucketIfNotExists opens a top-level bucket and creates it first if
// there is none.
func (tx *Tx) CreateBucketIfNotExists(name []byte) (*Bucket, error) {
	root, err := tx.root()
	if err != nil {
		return nil, err
	}
	return root.CreateBucketIfNotExists(name)
}

// DeleteBucket removes a top-level bucket with everything in it.
func (tx *Tx) DeleteBucket(name []byte) error {
	root, err := tx.root()
	if err != nil {
		return err
	}
	return root.DeleteBucket(name)
}

// MoveBucket moves the bucket child from src to dst; nil stands for the top
// level. See Bucket.MoveBucket.
func (tx *Tx) MoveBucket(child []byte, src *Bucket, dst *Bucket) error {
	root, err := tx.root()
	if err != nil {
		return err
	}
	if src == nil {
		src = root
	}
	if dst == nil {
		dst = root
	}
	return src.MoveBucket(child, dst)
}

// ForEach calls fn for each top-level bucket, in order of their names, until
// it returns an error, which is returned.
func (tx *Tx) ForEach(fn func(name []byte, b *Bucket) error) error {
	root, err := tx.root()
	if err != nil {
		return err
	}
	return root.ForEach(func(k, _ []byte) error {
		b, err := root.open(k)
		if err != nil {
			return cmp.Or(tx.Err(), err)
		}
		return fn(k, b)
	})
}

// Commit makes the changes of the transaction durable and visible and ends it.
// If it returns an error nothing of it happened, with one exception: after an
// error that wraps ErrStopped it is not known whether the file holds the commit,
// and opening the file again finds it there, whole, or not. A transaction that
// changed nothing writes nothing; with Full and without NoSync it makes earlier
// commits durable that are not.
func (tx *Tx) Commit() error {
	if tx.managed {
		panic("managed tx commit not allowed")
	}
	if tx.ended.Load() {
		return ErrTxClosed
	}
	if tx.w == nil {
		return ErrTxNotWritable
	}
	if err := tx.committable(); err != nil {
		return tx.rollbackWith(err)
	}
	if len(tx.w.beforeCommit) > 0 {
		err := tx.runBeforeCommit()
		if err == nil {
			err = tx.committable()
		}
		if err != nil {
			return tx.rollbackWith(err)
		}
	}
	var order *place
	if len(tx.w.onCommit) > 0 {
		order = tx.db.onCommits.join()
		defer order.end()
	}
	if !tx.w.root.core.Changed() && !tx.dropsFreelist() {
		return tx.commitNothing(order)
	}
	begin := time.Now()
	prepared, err := tx.prepare(begin)
	if err != nil {
		return err
	}
	before := tx.db.pager.Counts().Writes.Load()
	tx.ended.Store(true)
	err = prepared.Finish()
	tx.w.stats.Write = tx.db.pager.Counts().Writes.Load() - before
	took := time.Since(begin)
	tx.w.stats.WriteTime = took - tx.w.stats.SpillTime
	tx.count()
	if err != nil {
		return err
	}
	tx.db.stats.latency.add(took)
	tx.db.auto.Arm()
	tx.written()
	if tx.db.StrictMode {
		tx.db.mustCheck()
	}
	tx.committed(order)
	return nil
}

// commitNothing ends a transaction that has changed nothing. As in bbolt, it makes earlier commits durable, while Close
// still waits for it.
func (tx *Tx) commitNothing(order *place) error {
	var err error
	if tx.db.commitOptions().Mode == Full {
		// What it has seen may be prepared without a flush, and not be among what SyncUnflushed counts yet.
		if err = tx.waitForBase(); err == nil {
			err = tx.db.pager.SyncUnflushed()
		}
	}
	if err = tx.rollbackWith(err); err != nil {
		return err
	}
	tx.committed(order)
	return nil
}

// dropsFreelist tells whether the transaction is committed though it changes nothing: the file names a freelist page, and with
// NoFreelistSync no commit of bbolt leaves one. Programs look for that in the file.
func (tx *Tx) dropsFreelist() bool {
	return tx.db.NoFreelistSync && tx.w.w.Base().Meta.Freelist != page.NoFreelist
}

// committable is why the transaction cannot be committed.
func (tx *Tx) committable() error {
	if err := tx.Err(); err != nil {
		return err
	}
	if tx.w.changing || tx.w.left {
		return fmt.Errorf("%s: the transaction cannot be committed: a call that changes it ended in a panic", tx.db.path)
	}
	return nil
}

// prepare brings all changes to pages; Commit began at begin. If it fails the
// transaction is rolled back.
func (tx *Tx) prepare(begin time.Time) (*pager.Prepared, error) {
	spilled := false
	defer func() {
		if !spilled { // a panic; without this the next writer would wait for ever
			_, _ = tx.rollback()
		}
	}()
	root, sequence, err := tx.spill()
	spilled = true
	tx.w.stats.SpillTime = time.Since(begin)
	tx.takeEditStats()
	if err != nil {
		return nil, tx.rollbackWith(tx.keep(err))
	}
	tx.buckets.Edit.Reset(nil)
	prepared, err := tx.w.w.Prepare(root, sequence, tx.commitOptions())
	if err != nil {
		tx.ended.Store(true)
		return nil, tx.db.corrupt(err)
	}
	return prepared, nil
}

// spill writes the changes to the transaction's pages in memory.
func (tx *Tx) spill() (root page.ID, sequence uint64, err error) {
	defer func(before bool) {
		debug.SetPanicOnFault(before)
		if recovered := recover(); recovered != nil {
			fault, _ := tx.pageFault(recovered)
			if fault == nil {
				panic(recovered)
			}
			err = fault
		}
	}(debug.SetPanicOnFault(true))
	if err := tx.w.w.EndEdit(); err != nil {
		return 0, 0, err
	}
	if !tx.w.root.core.Changed() { // see dropsFreelist
		base := tx.w.w.Base().Meta
		return base.Root, base.Sequence, nil
	}
	return tx.w.root.core.Commit()
}

func (tx *Tx) takeEditStats() {
	c := &tx.buckets.Edit.Stats
	s := &tx.w.stats
	s.NodeCount = c.Nodes
	s.Rebalance = c.Rebalances
	s.Split = c.Splits
	s.Spill = c.Spills
	s.PageCount = c.PagesFilled
	s.PageAlloc = c.PagesFilled * int64(tx.db.pager.PageSize())
}

// Rollback ends the transaction; nothing of it happened. Reading transactions
// are ended by it too.
//
// A writing transaction may have begun on top of one that is not durable yet;
// then Rollback, like a Commit that changes nothing, returns when that is, and
// returns its error if it fails: no program is to act on what may vanish. Damage that the
// transaction has met is returned too: see Err.
func (tx *Tx) Rollback() error {
	if tx.managed {
		panic("managed tx rollback not allowed")
	}
	ended, err := tx.rollback()
	if !ended {
		return ErrTxClosed
	}
	return tx.joined(err)
}

// rollback ends the transaction; false if it has ended before. Of several
// calls at once one takes effect. The error is that of what it stood on.
func (tx *Tx) rollback() (ended bool, err error) {
	if !tx.ended.CompareAndSwap(false, true) {
		return false, nil
	}
	if tx.w == nil {
		tx.count()
		return true, tx.db.pager.End(tx.snap)
	}
	tx.takeEditStats()
	tx.buckets.Edit.Reset(nil)
	tx.count()
	return true, tx.w.w.Rollback()
}

// rollbackWith ends the transaction because of err. If what it stood on has
// failed, that is the error that counts. Damage is joined to either.
func (tx *Tx) rollbackWith(err error) error {
	if _, failed := tx.rollback(); failed != nil {
		return tx.joined(failed)
	}
	return tx.joined(err)
}

// waitForBase makes sure that all pages that a transaction sees are in the file.
func (tx *Tx) waitForBase() error {
	if tx.w == nil {
		return nil
	}
	return tx.w.w.WaitForBase()
}

// PageInfo describes a page.
type PageInfo struct {
	ID            int
	Type          string // "branch", "leaf", "meta", "freelist" or "free"
	Count         int    // elements
	OverflowCount int    // pages after it that belong to it
}

// Page describes page id; nil if the file has no such page. It returns
// ErrFreePagesNotLoaded on a read-only database opened without PreLoadFreelist.
func (tx *Tx) Page(id int) (_ *PageInfo, err error) {
	if err := tx.usable(); err != nil {
		return nil, err
	}
	if !tx.managed {
		defer tx.caught(debug.SetPanicOnFault(true), &err)
	}
	if id < 0 || page.ID(id) >= tx.state.Meta.HighWater {
		return nil, nil
	}
	if err := tx.waitForBase(); err != nil {
		return nil, err
	}
	free, err := tx.db.pager.IsFree(page.ID(id))
	if err != nil {
		return nil, err
	}
	h, err := tx.state.Image().Header(page.ID(id))
	if err != nil {
		return nil, tx.keep(err)
	}
	info := &PageInfo{ID: id, Count: int(h.Count), OverflowCount: int(h.Overflow), Type: page.TypeName(h.Flags)}
	if free {
		info.Type = "free"
	}
	return info, nil
}

// mustCheck panics unless the database is sound.
func (db *DB) mustCheck() {
	err := db.View(func(tx *Tx) error {
		var errs []error
		for err := range tx.Check() {
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
	if err != nil {
		panic(fmt.Sprintf("check of %s failed: %v", db.path, err))
	}
}
