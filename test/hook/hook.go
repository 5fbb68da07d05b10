// Package hook gives tests what the engine does not make public: files of a test's own
// making, and a look at, or a change of, what an open database holds.
package hook

import (
	"cmp"
	"context"
	"time"

	"holdfast"
	"holdfast/internal/bucket"
	"holdfast/internal/hooks"
	"holdfast/internal/page"
	"holdfast/internal/pager"
	"holdfast/internal/vfs"
)

// WriteEarly has the transactions of db hold so many bytes of complete pages, 0: as always,
// before they write them, by a goroutine if by is 1, by the caller if it is -1. (A
// transaction holds a MiB otherwise: short ones write nothing early.)
func WriteEarly(db *holdfast.DB, held int64, by int8) {
	hooks.Pager(db).Early = pager.Early{Held: held, By: by}
}

// Pager is that of db.
func Pager(db *holdfast.DB) *pager.Pager { return hooks.Pager(db) }

// Bucket is the engine's own part of b.
func Bucket(b *holdfast.Bucket) *bucket.Bucket { return hooks.Bucket(b) }

// HighWater is the first page after all those of a write transaction.
func HighWater(tx *holdfast.Tx) page.ID { return hooks.Writer(tx).HighWater() }

// LookForVacuum has the automatic vacuum of db look now, as its timer would, and tells whether it is to look again.
func LookForVacuum(db *holdfast.DB) (again bool) {
	auto := hooks.AutoVacuum(db)
	auto.Look()
	return auto.Armed()
}

// WarnAfter has a writer of db that waits that long for the writer lock tell the log.
func WarnAfter(db *holdfast.DB, d time.Duration) { hooks.Waits(db).After = d }

// FireAfterWait has the timer of a writer look once its wait has ended, as one does that
// had begun to before, and tells whether it is to look again.
func FireAfterWait(db *holdfast.DB, meanwhile func()) (again bool) {
	one := hooks.Waits(db).New()
	meanwhile()
	one.End()
	return one.Look()
}

// HasSum tells whether the file says what the page checksums of the transaction's state add up to.
func HasSum(tx *holdfast.Tx) bool {
	state, err := hooks.State(tx)
	return err == nil && state.Sum.Known
}

// Reseal is holdfast.Reseal of file, which it takes over.
func Reseal(ctx context.Context, file vfs.File, options holdfast.ResealOptions) (holdfast.Resealed, error) {
	done, err := hooks.Reseal(ctx, file, options)
	return done.(holdfast.Resealed), err
}

// ForgetSum makes the database in file, which it takes over, one that does not say what its page checksums add up to.
func ForgetSum(file vfs.File) error {
	db, err := hooks.OpenExisting(file)
	if err != nil {
		return err
	}
	return cmp.Or(hooks.Pager(db).RecordSum(page.Sum{}), db.(*holdfast.DB).Close())
}

// RunsOf are the page runs in the trees of the transaction's state.
func RunsOf(tx *holdfast.Tx) (runs []page.Extent, err error) {
	state, err := hooks.State(tx)
	if err != nil {
		return nil, err
	}
	err = bucket.EachRun(state, state.Meta.Root, func(e page.Extent) error {
		runs = append(runs, e)
		return nil
	})
	return runs, err
}
