package holdfast

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"holdfast/internal/bucket"
	"holdfast/internal/page"
)

// ResealOptions say what Reseal does.
type ResealOptions struct {
	// MissingOnly leaves wrong seals as they are and adds missing ones only.
	MissingOnly bool

	// Timeout is how long to wait for the file's lock; 0 waits for ever.
	Timeout time.Duration

	// OpenFile opens the file in place of os.OpenFile.
	OpenFile func(string, int, os.FileMode) (*os.File, error)

	// KVStringer writes keys in errors; nil: in hexadecimal.
	KVStringer KVStringer

	// Progress is called with the number of pages that have been looked at, of
	// total. Each page of a tree is looked at twice. May be nil.
	Progress func(done, total uint64)
}

// Resealed is what Reseal found and did. A page counts once with its overflow
// pages.
type Resealed struct {
	Right    uint64 // seals that were right
	Added    uint64 // seals that were missing
	Replaced []Pgid // pages whose seal was wrong
	NoRoom   uint64 // pages whose content leaves no room for a seal
	Wrong    uint64 // wrong seals that were left, with MissingOnly

	// SumAdded: what the checksums of all pages add up to was not recorded in the file, and is now. SumReplaced: it was
	// recorded, and the pages that were found added up to something else: some were stale.
	SumAdded, SumReplaced bool
}

// Reseal gives the pages of the database at path the seals that belong to their
// content, where they are wrong or missing: after a tool has changed pages in
// place, as "bbolt surgery" does. It changes nothing else, but for the record of what all seals add up to.
//
// A wrong seal says that a page is not what was written. Reseal makes it a right
// one whatever the reason was: keep a copy of the file, and do not use it to
// silence damage. The same goes for a
// wrong sum, which MissingOnly leaves alone.
//
// Reseal takes the file's lock as for writing, and gives up when ctx ends, also while it waits for the
// lock. First it checks the database but for its seals, and for gaps between elements; if there is another
// fault it returns that, a *CorruptError, and has changed nothing. It returns when what it wrote is
// flushed. If it is interrupted, also by the end of the process, each seal is the old or the new one, since
// it lies within a sector, and it can be run again; docs/design.md has what a power failure can do. That
// the recorded sum was wrong is not known any more then. With an error the result is what was done until
// then.
func Reseal(ctx context.Context, path string, options ResealOptions) (Resealed, error) {
	db, err := openWithin(ctx, path, resealOptions(options))
	if err != nil {
		return Resealed{}, err
	}
	return reseal(ctx, db, options)
}

// resealOptions are those of a database that is resealed: Close has nothing to write, since nothing is committed and no
// freelist wanted.
func resealOptions(options ResealOptions) *Options {
	return &Options{Timeout: options.Timeout, OpenFile: options.OpenFile, NoSeals: true, NoFreelistSync: true}
}

// reseal reseals db, which is open for nothing else, and closes it.
func reseal(ctx context.Context, db *DB, options ResealOptions) (done Resealed, err error) {
	r := resealing{db: db, options: options, Resealed: &done}
	err = r.run(ctx)
	return done, cmp.Or(err, db.Close())
}

// lockSlice is how long openWithin waits for a lock before it looks at its context.
const lockSlice = 50 * time.Millisecond

// openWithin is openExisting, and gives up waiting for the lock when ctx ends.
func openWithin(ctx context.Context, path string, options *Options) (*DB, error) {
	forever, left := options.Timeout == 0, options.Timeout
	for {
		if err := context.Cause(ctx); err != nil {
			return nil, fmt.Errorf("waiting for the lock of %s: %w", path, err)
		}
		slice := *options
		if slice.Timeout = lockSlice; !forever {
			slice.Timeout = min(left, lockSlice)
		}
		begin := time.Now()
		db, err := openExisting(path, &slice)
		left -= time.Since(begin)
		if !errors.Is(err, ErrTimeout) || !forever && left <= 0 {
			return db, err
		}
	}
}

// resealing is one Reseal.
type resealing struct {
	*Resealed
	db      *DB
	tx      *Tx
	options ResealOptions
	pages   uint64 // looked at
}

func (r *resealing) run(ctx context.Context) (err error) {
	if r.tx, err = r.db.beginRead(); err != nil {
		return err
	}
	defer r.tx.rollback()
	defer r.tx.caught(debug.SetPanicOnFault(true), &err)
	keys := r.options.KVStringer
	if keys == nil {
		keys = HexKVStringer()
	}
	faults, err := r.tx.verify(ctx, []CheckOption{
		WithKVStringer(keys),
		WithProgress(func(done, _ uint64) { r.progress(done - r.pages) }),
		func(c *checkConfig) { c.gaps, c.anySum = true, true }, // as the surgery leaves them that Reseal is for
	})
	if err != nil {
		return err
	}
	if len(faults) > 0 {
		return fmt.Errorf("%w (faults besides checksums: %d; no checksum was changed)", r.db.corrupt(faults[0]), len(faults))
	}
	meta := r.tx.state.Meta
	runs := func(e page.Extent) error {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		return r.page(e)
	}
	if meta.Freelist != page.NoFreelist {
		h, err := r.tx.state.Image().Header(meta.Freelist)
		if err != nil {
			return err
		}
		if err := runs(page.Extent{Start: meta.Freelist, N: uint64(h.Overflow) + 1}); err != nil {
			return err
		}
	}
	found, sum := page.Sum{Known: true}, page.Sum{Known: true} // before and after
	err = bucket.EachRun(r.tx.state, meta.Root, func(e page.Extent) error {
		run, err := r.tx.state.Image().Run(e.Start, e.N)
		if err != nil {
			return err
		}
		found.Add(page.Fingerprint(run, e.Start))
		if err := runs(e); err != nil {
			return err
		}
		sum.Add(page.Fingerprint(run, e.Start))
		return nil
	})
	if err != nil {
		return err
	}
	return r.record(found, sum)
}

// record records what the seals add up to now, and makes all durable.
func (r *resealing) record(before, now page.Sum) error {
	recorded, changed := r.db.pager.FoundSum(), r.Added > 0 || len(r.Replaced) > 0
	if recorded.Known && r.options.MissingOnly {
		now.N += recorded.N - before.N // a wrong sum stays wrong
	}
	switch {
	case now.Known && (changed || now != recorded):
		r.SumAdded = !recorded.Known
		r.SumReplaced = recorded.Known && !r.options.MissingOnly && before != recorded
		return r.db.pager.RecordSum(now)
	case changed:
		return r.db.Sync()
	}
	return nil
}

func (r *resealing) progress(pages uint64) {
	r.pages += pages
	if r.options.Progress != nil {
		r.options.Progress(r.pages, 2*uint64(r.tx.state.Meta.HighWater))
	}
}

// page gives the run e the seal that it should have.
func (r *resealing) page(e page.Extent) error {
	run, err := r.tx.state.Image().Run(e.Start, e.N)
	if err != nil {
		return err
	}
	defer r.progress(e.N)
	seal, ok := page.SealOf(run, e.Start)
	if !ok {
		r.NoRoom++
		return nil
	}
	state := page.CheckSeal(run, e.Start)
	switch {
	case state == page.Sealed:
		r.Right++
		return nil
	case state == page.WrongSeal && r.options.MissingOnly:
		r.Wrong++
		return nil
	}
	if r.Added == 0 && len(r.Replaced) == 0 {
		// What the seals add up to is recorded, and the hash of the last flush is one of them too.
		if err := r.db.pager.RecordSum(page.Sum{}); err != nil {
			return err
		}
	}
	end := (int64(e.Start) + int64(e.N)) * int64(r.db.pager.PageSize())
	if _, err := r.db.pager.File().WriteAt(seal[:], end-page.SealSize); err != nil {
		return err
	}
	if state == page.WrongSeal {
		r.Replaced = append(r.Replaced, e.Start)
	} else {
		r.Added++
	}
	return nil
}
