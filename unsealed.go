package holdfast

import (
	"runtime/debug"

	"holdfast/internal/page"
)

// GetUnsealed is Get for a caller who verifies the value in a stronger way than a seal
// does, as by a cryptographic hash, and would otherwise have its bytes read twice. In a
// reading transaction the seal of a run of more than 8 pages, which holds long values, is not
// looked at: the value may be damaged. All else is checked as by Get. It does
// not count as verified: a later Get, of whomever, looks at the seal.
//
// Damage that is met is the error, and is not kept in Tx.Err: the caller may have asked for
// a value that it need not have. If there is any, or the value turns out to be wrong, Get tells what is wrong with
// its page. ErrTxClosed after the end of the transaction.
func (b *Bucket) GetUnsealed(key []byte) (value []byte, err error) {
	tx := b.tx
	if err := tx.usable(); err != nil {
		return nil, err
	}
	if tx.w != nil { // what is read here may go into pages that get a right seal
		value = b.Get(key)
		return value, tx.Err()
	}
	defer tx.state.Image().CatchFault(debug.SetPanicOnFault(true), &err)
	value, flags, ok, err := b.core.LookupUnsealed(key)
	if err != nil {
		return nil, tx.db.corrupt(err)
	}
	if !ok || flags&page.BucketFlag != 0 {
		return nil, nil
	}
	return value, nil
}

// Prefetch says that value, which the transaction has given, is about to be read as a
// whole, and then perhaps the next ahead bytes of the file, as where values follow each
// other that were appended. It is a hint: it changes no result, and damage is left to
// the reader of it. What is in memory is mapped at once; what is not is read
// from the disk in large pieces in place of page by page, and the call waits for it, though not
// for as many bytes after it, whose reading it begins if ahead is not 0. It takes some microseconds, so it
// is for values of many pages, before they are read for the first time.
func (tx *Tx) Prefetch(value []byte, ahead int) {
	if tx.usable() == nil {
		tx.state.Prefetch(value, ahead)
	}
}
