package holdfast

import (
	"context"
	"encoding/hex"
	"errors"

	"holdfast/internal/check"
	"holdfast/internal/page"
	"holdfast/internal/pager"
)

// CheckOption is an option of DB.Verify and Tx.Check.
type CheckOption func(options *checkConfig)

type checkConfig struct {
	kvStringer KVStringer
	pageID     uint64
	progress   func(done, total uint64)
	seals      *SealCounts
	gaps       bool
	anySum     bool // what the seals add up to is not compared
}

// WithKVStringer has keys in messages written by kvStringer.
func WithKVStringer(kvStringer KVStringer) CheckOption {
	return func(c *checkConfig) { c.kvStringer = kvStringer }
}

// WithPageId checks only page pageId and what lies below it.
func WithPageId(pageId uint64) CheckOption {
	return func(c *checkConfig) { c.pageID = pageId }
}

// WithProgress has fn called on the caller's goroutine, mostly once a page, so it
// should be quick: with the number of pages of trees that have been looked at, and
// that of all pages of the database. Free pages are not looked at, so done ends
// below total.
func WithProgress(fn func(done, total uint64)) CheckOption {
	return func(c *checkConfig) { c.progress = fn }
}

// SealCounts counts pages by their seals. A page counts once with its overflow
// pages. Pages of trees have seals, and the freelist page; those of Holdfast's
// records of free pages have checksums of another kind and are not counted.
type SealCounts struct {
	Sealed   uint64 // the seal fits the content
	Unsealed uint64 // no seal: bbolt wrote the page, or its content leaves no room
	Wrong    uint64 // the seal does not fit: each is a fault
}

// WithSealCounts sets counts, when the check ends, to the number of the pages that
// it has looked at. They are zero if the database was opened with NoSeals.
func WithSealCounts(counts *SealCounts) CheckOption {
	return func(c *checkConfig) { c.seals = counts }
}

// KVStringer turns keys and values into text for messages.
type KVStringer interface {
	KeyToString([]byte) string
	ValueToString([]byte) string
}

type hexStringer struct{}

func (hexStringer) KeyToString(k []byte) string   { return hex.EncodeToString(k) }
func (hexStringer) ValueToString(v []byte) string { return hex.EncodeToString(v) }

// HexKVStringer writes keys and values in hexadecimal.
func HexKVStringer() KVStringer { return hexStringer{} }

// maxFaults bounds the faults that one Check returns.
const maxFaults = 10_000

// Check looks at every page of the database as the transaction began with it
// and returns all faults that it finds, up to 10,000, in a closed channel. Each
// is a *CorruptError. It is safe while others write; if one has committed since the
// transaction began, which pages are free is not checked. On a read-only
// database opened without PreLoadFreelist it finds the free pages first; on one from OpenShared it does
// not check them.
func (tx *Tx) Check(options ...CheckOption) <-chan error {
	faults, err := tx.verify(context.Background(), options)
	ch := make(chan error, len(faults)+1)
	if err != nil {
		ch <- err
	}
	for _, err := range faults {
		ch <- err
	}
	close(ch)
	return ch
}

// Verify looks at every page of the database as it is now and returns all
// faults that it finds, up to 10,000, none if the database is sound. It holds
// up neither readers nor writers; if another commits meanwhile, which pages are
// free is not checked. The error says why it could not look: the cause of ctx's
// end, in which case the faults are those found until then, or that the database
// is not open. On a read-only database opened without PreLoadFreelist
// it finds the free pages first; on one from OpenShared it does not check them.
func (db *DB) Verify(ctx context.Context, options ...CheckOption) ([]*CorruptError, error) {
	tx, err := db.beginRead()
	if err != nil {
		return nil, err
	}
	defer tx.rollback()
	return tx.verify(ctx, options)
}

func (tx *Tx) verify(ctx context.Context, options []CheckOption) ([]*CorruptError, error) {
	if err := tx.usable(); err != nil {
		return nil, err
	}
	if err := tx.waitForBase(); err != nil {
		return nil, err
	}
	config := checkConfig{kvStringer: HexKVStringer()}
	for _, o := range options {
		o(&config)
	}
	in := check.Input{
		Image: tx.state.Image(),
		Meta:  tx.state.Meta,
		Start: page.ID(config.pageID),
		Key:   config.kvStringer.KeyToString,
	}
	if in.Gaps = config.gaps; !config.anySum {
		in.Sum = tx.state.Sum
	}
	var seals check.Seals
	if !tx.db.noSeals {
		in.Seals = &seals
	}
	if config.seals != nil {
		defer func() { *config.seals = SealCounts(seals) }()
	}
	var faults []*CorruptError
	damage, err := tx.accountFor(&in)
	if err != nil {
		return nil, err
	}
	done, cancelled := uint64(0), false
	in.Progress = func(pages uint64) bool {
		done += pages
		if config.progress != nil {
			config.progress(done, uint64(in.Meta.HighWater))
		}
		cancelled = ctx.Err() != nil || tx.foreign != nil && tx.foreign.Live() != nil
		return !cancelled
	}
	check.Run(in, func(damage *page.CorruptError) bool {
		faults = append(faults, damage)
		return len(faults) < maxFaults
	})
	if gone := tx.confirmed(); gone != nil {
		return nil, gone // what looked like faults may be what another process writes
	}
	if cancelled {
		return faults, context.Cause(ctx)
	}
	if len(faults) == 0 && damage != nil {
		faults = append(faults, damage)
	}
	return faults, nil
}

// accountFor tells a check of the whole file which pages are free. damage is what it met in finding that out.
func (tx *Tx) accountFor(in *check.Input) (damage *CorruptError, err error) {
	if in.Start != 0 || tx.foreign != nil { // of another process's database nothing is known but what the trees use
		return nil, nil
	}
	free, err := tx.account()
	switch {
	case errors.As(err, &damage):
		if in.Meta.Freelist != page.NoFreelist {
			in.Freelist = in.Meta.Freelist // whose faults are looked for one by one
		} // else it was met by a scan, as it will be by the check
		return damage, nil
	case err != nil:
		return nil, err
	}
	if in.Accounted = free.Exact; free.Exact { // else they are those of a newer state
		in.Free, in.Reserved, in.Listed, in.Records = free.Free, free.Reserved, free.List, free.Records
	}
	return nil, nil
}

// whole is the first fault of a state that is not open yet; nil if it has none.
func (db *DB) whole(s *pager.State, a pager.Accounting) (fault error) {
	in := check.Input{
		Image: s.Image(), Meta: s.Meta, Sum: s.Sum, Gaps: true, PassDamaged: !db.noSeals,
		Accounted: true, Free: a.Free, Reserved: a.Reserved, Listed: a.List, Records: a.Records,
		Key: HexKVStringer().KeyToString,
	}
	check.Run(in, func(damage *page.CorruptError) bool {
		fault = damage
		return false
	})
	return fault
}

func (tx *Tx) account() (pager.Accounting, error) {
	if tx.db.readOnly {
		if err := tx.db.pager.LoadFree(tx.state); err != nil {
			return pager.Accounting{}, err
		}
	}
	return tx.db.pager.Account(tx.state)
}
