package holdfast

import (
	"encoding/hex"

	"holdfast/internal/check"
	"holdfast/internal/page"
	"holdfast/internal/pager"
)

// CheckOption is an option of Tx.Check.
type CheckOption func(options *checkConfig)

type checkConfig struct {
	kvStringer KVStringer
	pageID     uint64
}

// WithKVStringer has keys in messages written by kvStringer.
func WithKVStringer(kvStringer KVStringer) CheckOption {
	return func(c *checkConfig) { c.kvStringer = kvStringer }
}

// WithPageId checks only page pageId and what lies below it.
func WithPageId(pageId uint64) CheckOption {
	return func(c *checkConfig) { c.pageID = pageId }
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
// is a *CorruptError. It is safe beside writers; if one has committed since the
// transaction began, which pages are free is not checked. On a read-only
// database opened without PreLoadFreelist it finds the free pages first.
func (tx *Tx) Check(options ...CheckOption) <-chan error {
	config := checkConfig{kvStringer: HexKVStringer()}
	for _, o := range options {
		o(&config)
	}
	faults := tx.check(config)
	ch := make(chan error, len(faults))
	for _, err := range faults {
		ch <- err
	}
	close(ch)
	return ch
}

func (tx *Tx) check(config checkConfig) []error {
	if err := tx.usable(); err != nil {
		return []error{err}
	}
	var faults []error
	in := check.Input{
		Image: tx.state.Image(),
		Meta:  tx.state.Meta,
		Start: page.ID(config.pageID),
		Key:   config.kvStringer.KeyToString,
	}
	if in.Start == 0 {
		free, err := tx.account()
		if err != nil {
			faults = append(faults, err)
		} else {
			in.Free, in.Reserved, in.Accounted = free.Free, free.Reserved, free.Exact
			if !free.Exact {
				in.Free = nil
			}
		}
	}
	check.Run(in, func(damage *page.CorruptError) bool {
		faults = append(faults, damage)
		return len(faults) < maxFaults
	})
	return faults
}

func (tx *Tx) account() (pager.Accounting, error) {
	if tx.db.readOnly {
		if err := tx.db.pager.LoadFree(tx.state); err != nil {
			return pager.Accounting{}, err
		}
	}
	return tx.db.pager.Account(tx.state)
}
