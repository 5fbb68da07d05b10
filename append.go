package holdfast

import (
	"runtime/debug"

	"holdfast/internal/pager"
)

// appending is what a transaction has that has appended.
type appending struct {
	stream *pager.Stream
	opts   pager.CommitOptions // with which the transaction is committed
	err    error               // why it cannot be
	lent   bool                // Get or a Cursor has given what may lie in a page that was written early
	kept   int64               // bytes that the last Spill left in memory
}

// Append puts key, with value, after all other keys of the bucket. It is for much data
// that comes in the order of its keys: a transaction of any size holds some MiB of it
// in memory, because what is complete is written to free pages of the file before the
// commit: by another goroutine, if GOMAXPROCS is more than 1. A value of a page or more gets a
// run of pages of its own, unless that left more than an eighth of them empty; others fill pages together. One
// that is longer than 64 KiB, or any where GOMAXPROCS is 1, is written at once and straight from value.
//
// Neither key nor value is kept: the caller may use both again when Append has returned.
// (Put keeps value until the end of the transaction.) What was appended is in the bucket for
// all calls of the transaction, can be changed and deleted, and is durable and visible
// to others with the commit. What Get and Cursor return stays valid until the transaction
// ends.
//
// The first Append of a transaction waits until what was committed before is durable, unless
// commits are not flushed (Durability None, NoSync); the durability that is set then
// is that of the commit. The commit is flushed twice if some of it was written before.
//
// Errors: ErrUnordered if key is not after the last key of the bucket, ErrKeyRequired,
// ErrKeyTooLarge, ErrValueTooLarge, ErrTxNotWritable, after which nothing has changed. After
// any other, as of a full disk, ErrMaxSizeReached, or ErrStopped, the transaction can only be
// rolled back: all later calls on it, and Commit, return that error or nothing.
func (b *Bucket) Append(key, value []byte) (err error) {
	tx := b.tx
	if err := tx.usable(); err != nil {
		return err
	}
	if !tx.managed {
		defer tx.caught(debug.SetPanicOnFault(true), &err)
	}
	tx.change()
	if tx.w != nil && tx.w.appending.stream == nil {
		tx.beginAppending()
	}
	err = tx.keep(b.core.Append(key, value))
	if err != nil && tx.w != nil && tx.w.appending.stream.Err() != nil {
		err = tx.db.corrupt(err)
		tx.w.appending.err = err
	}
	tx.changed()
	b.log("Appending key", key, err)
	return err
}

// beginAppending makes the stream of the transaction.
func (tx *Tx) beginAppending() {
	opts := tx.db.commitOptions()
	tx.beginStream(tx.w.w.EarlyAppender(opts), opts)
}

// beginStream has what the transaction appends written to the stream, which it commits with opts.
func (tx *Tx) beginStream(s *pager.Stream, opts pager.CommitOptions) {
	tx.w.appending.stream, tx.w.appending.opts = s, opts
	tx.buckets.Appender = s
}

// commitOptions are those with which the transaction is committed.
func (tx *Tx) commitOptions() pager.CommitOptions {
	if a := &tx.w.appending; a.stream != nil {
		return a.opts
	}
	return tx.db.commitOptions()
}

// doomed is why the transaction can only be rolled back.
func (tx *Tx) doomed() error {
	if tx.w == nil {
		return nil
	}
	a := &tx.w.appending
	if a.err == nil && a.stream != nil && a.stream.Err() != nil { // of a write in the background
		a.err = tx.db.corrupt(a.stream.Err())
	}
	return a.err
}

// pages is a number that no walk through the transaction's pages exceeds.
func (tx *Tx) pages() uint64 {
	if tx.w != nil {
		return uint64(tx.w.w.HighWater())
	}
	return uint64(tx.state.Meta.HighWater)
}
