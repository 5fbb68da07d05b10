package holdfast

import (
	"cmp"
	"context"
	"time"

	"holdfast/internal/bucket"
	"holdfast/internal/page"
	"holdfast/internal/vfs"
)

// LookForVacuum has the automatic vacuum look now, as its timer would, and tells whether it is to look again.
func (db *DB) LookForVacuum() (again bool) {
	db.auto.look()
	db.auto.mu.Lock()
	defer db.auto.mu.Unlock()
	return db.auto.wound
}

// WarnAfter has a writer that waits that long for the writer lock tell the log.
func (db *DB) WarnAfter(d time.Duration) { db.waits.after = d }

// FireAfterWait has the timer of a writer look once its wait has ended, as it does that had begun to before,
// and tells whether it is to look again.
func (db *DB) FireAfterWait(meanwhile func()) (again bool) {
	one := db.newWait()
	meanwhile()
	one.end()
	return one.look()
}

// HasSum tells whether the file says what the seals of the transaction's state add up to.
func HasSum(tx *Tx) bool { return tx.state.Sum.Known }

// ResealVFS is Reseal of file, which it takes over.
func ResealVFS(ctx context.Context, file vfs.File, options ResealOptions) (Resealed, error) {
	db, err := openFile(file, resealOptions(options), false)
	if err != nil {
		return Resealed{}, err
	}
	return reseal(ctx, db, options)
}

// ForgetSum makes the database in file, which it takes over, one that does not say what its seals add up to.
func ForgetSum(file vfs.File) error {
	db, err := openFile(file, resealOptions(ResealOptions{}), false)
	if err != nil {
		return err
	}
	return cmp.Or(db.pager.RecordSum(page.Sum{}), db.Close())
}

// RunsOf are the page runs in the trees of the transaction's state.
func RunsOf(tx *Tx) (runs []page.Extent, err error) {
	err = bucket.EachRun(tx.state, tx.state.Meta.Root, func(e page.Extent) error {
		runs = append(runs, e)
		return nil
	})
	return runs, err
}
