// Package bridge is what this repository's other packages use of the engine beside its
// public API: it opens files of a caller's own making, and reads values for package blob,
// which verifies their bytes itself.
package bridge

import (
	"runtime/debug"

	"holdfast"
	"holdfast/internal/hooks"
	"holdfast/internal/page"
	"holdfast/internal/tree"
	"holdfast/internal/vfs"
)

// Open opens the database in file, which it takes over. It does not read the environment
// variables that holdfast.Open reads. nil options are holdfast.DefaultOptions.
func Open(file vfs.File, options *holdfast.Options) (*holdfast.DB, error) {
	db, err := hooks.Open(file, options)
	if err != nil {
		return nil, err
	}
	return db.(*holdfast.DB), nil
}

// GetUnsealed is Get for a caller that verifies the value in a stronger way than its page
// checksum does, as by a cryptographic hash, and would otherwise have its bytes read twice.
// In a read transaction it does not verify the checksum of a run of more than 8 pages, which
// holds long values: the value may be damaged. Everything else is checked as by Get. The
// run does not count as verified: a later Get, in any transaction, looks at its checksum.
//
// Damage is the error, and is not kept in Tx.Err: the caller may have asked for a value
// that it need not have. If there is any, or the value turns out to be wrong, Get says what
// is wrong with its page. The error is holdfast.ErrTxClosed after the end of the transaction.
//
// The value probably has length bytes, alone on its pages, and all of it is going to be read: with the first page of the run the
// system begins to read so many more. A length of 0 is not known.
func GetUnsealed(b *holdfast.Bucket, key []byte, length int) (value []byte, err error) {
	tx := b.Tx()
	state, err := hooks.State(tx)
	if err != nil {
		return nil, err
	}
	if tx.Writable() { // what is read may go into pages that get a right checksum
		value = b.Get(key)
		return value, tx.Err()
	}
	defer state.Image().CatchFault(debug.SetPanicOnFault(true), &err)
	var ahead func(page.ID)
	if length > 0 && state.Remembers() {
		ahead = func(id page.ID) { state.Ahead(id, length) }
	}
	value, flags, ok, err := hooks.Bucket(b).LookupUnsealed(key, ahead)
	if err != nil {
		return nil, hooks.Named(tx, err)
	}
	if !ok || flags&page.BucketFlag != 0 {
		return nil, nil
	}
	return value, nil
}

// Find is Get for a caller that looks for the value elsewhere if it is not there: damage is the error, and is not kept in
// Tx.Err, and no panic. If the value is nowhere, Get notes it. found is false if key is a bucket. In a transaction that
// writes, value is valid until the next call on it: Tx.Spill may have its page written again.
func Find(b *holdfast.Bucket, key []byte) (value []byte, found bool, err error) {
	tx := b.Tx()
	if _, err := hooks.State(tx); err != nil {
		return nil, false, err
	}
	defer recovered(tx, debug.SetPanicOnFault(true), &err)
	value, flags, ok, err := hooks.Bucket(b).Lookup(key)
	if err != nil {
		return nil, false, hooks.Named(tx, err)
	}
	return value, ok && flags&page.BucketFlag == 0, nil
}

// recovered is deferred, with debug.SetPanicOnFault(true): it sets err to a fault in the transaction's pages, which is not kept.
func recovered(tx *holdfast.Tx, before bool, err *error) {
	debug.SetPanicOnFault(before)
	if r := recover(); r != nil {
		if *err = hooks.Fault(tx, r); *err == nil {
			panic(r)
		}
	}
}

// Scan is Bucket.Scan for a caller that goes on elsewhere where the bucket is damaged: the error is not kept in Tx.Err.
// What fn was called with before counts.
func Scan(b *holdfast.Bucket, from []byte, fn func(k, v []byte) bool) (err error) {
	tx := b.Tx()
	if _, err := hooks.State(tx); err != nil {
		return err
	}
	defer recovered(tx, debug.SetPanicOnFault(true), &err)
	var c tree.Cursor
	c.Init(hooks.Bucket(b).Tree())
	for e, ok, err := c.Seek(from); ; e, ok, err = c.Next() {
		if err != nil || !ok {
			return hooks.Named(tx, err)
		}
		if e.IsBucket() {
			e.Value = nil
		}
		if !fn(e.Key, e.Value) {
			return nil
		}
	}
}

// OnWritten has fn called after the transaction has committed changes: then no memory is needed any more that it was
// given as values. Otherwise than with Tx.OnCommit there is no order with other transactions. fn is not called if the
// transaction is rolled back, or has changed nothing.
func OnWritten(tx *holdfast.Tx, fn func()) { hooks.OnWritten(tx, fn) }

// PageSize is the size of a page of the database.
func PageSize(db *holdfast.DB) int { return hooks.Pager(db).PageSize() }

// SetWide says whether leaves of the bucket get several pages where one would be filled badly: elements of 1 kB fill three quarters
// of a page of 4 KiB. Each change of such a leaf writes all of it. It applies to what is appended, and to pages that a transaction
// writes, while the bucket is open in it. All versions of the engine, and bbolt, read and change such leaves.
func SetWide(b *holdfast.Bucket, wide bool) { hooks.Bucket(b).SetWide(wide) }

// SetTight says that elements of more than a page, too, share pages where SetWide says so, if they are appended: each is copied once
// more, and their pages have a few percent less unused.
func SetTight(b *holdfast.Bucket) { hooks.Bucket(b).SetTight() }

// SetDense says that sorted keys, spread over all of the bucket, are merged into it again and again, as long as it is open: leaves
// that are changed together share what they have, so that pages stay full. Any other change leaves them as it would be without.
func SetDense(b *holdfast.Bucket) { hooks.Bucket(b).SetDense() }

// Prefetch says that value, which the transaction has given, is about to be read as a
// whole, and then perhaps the next ahead bytes of the file, as where appended values
// follow each other. It is a hint: it changes no result, and damage is left to the reads.
// What is in memory is mapped at once. What is not is read from the disk in large pieces
// instead of page by page; the call waits for value, and only begins to read the bytes
// after it. It takes some microseconds, so it is for values of many pages that have not
// been read before.
func Prefetch(tx *holdfast.Tx, value []byte, ahead int) {
	if state, err := hooks.State(tx); err == nil {
		state.Prefetch(value, ahead)
	}
}

// Mark is a place for what was found out about a value.
type Mark = page.Mark

// MarkOf gives the place for what is to be, or was, found out about a value that tx has given, as found says in at most 40
// bytes: a mark for the same bytes in the same place of the file, and the same found, in whatever transaction since the
// database was opened, until the page on which value begins is written again. The place is obtained before value is looked
// at. Marks can be forgotten at any time. tx is one for which Remembers says yes.
func MarkOf(tx *holdfast.Tx, value, found []byte) Mark {
	state, err := hooks.State(tx)
	if err != nil {
		return Mark{}
	}
	return state.Mark(value, found)
}

// Remembers tells whether marks are kept of what tx reads: not if it writes, nor on the database of another process.
func Remembers(tx *holdfast.Tx) bool {
	state, err := hooks.State(tx)
	return err == nil && !tx.Writable() && state.Remembers()
}

// LeaveFreelist has Close leave a freelist page though nothing is committed before.
func LeaveFreelist(db *holdfast.DB) { hooks.Pager(db).LeaveFreelist() }

// Probe runs fn and returns the damage that it met: in calls on the transaction that have
// no error to return, such as Get and those of a Cursor, and where it read keys and values
// itself. It is for a caller that names damage and goes on after it. Of a read transaction,
// neither Err nor View has that damage afterwards, and it causes no panic; one that writes
// cannot be committed. No other goroutine may use the transaction meanwhile. The error is
// holdfast.ErrTxClosed if it has ended.
func Probe(tx *holdfast.Tx, fn func()) (err error) {
	p, err := hooks.BeginProbe(tx)
	if err != nil {
		return err
	}
	defer func() { err = hooks.EndProbe(tx, p, recover()) }()
	fn()
	return nil
}
