package bridge

import (
	"cmp"
	"context"
	"errors"
	"runtime/debug"

	"holdfast"
	"holdfast/internal/delta"
	"holdfast/internal/hooks"
)

// ErrNotForeign is returned by Newest for a transaction on a database that this process has open itself.
var ErrNotForeign = errors.New("the database was not opened with OpenShared")

// Newest is the number of the newest transaction of the process through which tx reads, and that of the newest one that is
// known to be durable. The other process need not live any more: the Err of tx tells that. It fails once tx has ended.
func Newest(tx *holdfast.Tx) (newest, durable int, err error) {
	f := hooks.Foreign(tx)
	if f == nil {
		return 0, 0, ErrNotForeign
	}
	n, d, err := f.Newest()
	return int(n), int(d), err
}

// Compare compares the pages of the states of two read transactions on one database; see delta.Compare. It can be called
// while other goroutines use the transactions. If the database was opened with OpenShared, what it returns was confirmed.
func Compare(ctx context.Context, before, after *holdfast.Tx) (c *delta.Comparison, err error) {
	err = compare(before, after, func(a, b delta.State) (err error) {
		c, err = delta.Compare(ctx, a, b)
		return err
	})
	return c, err
}

// CompareKeys calls visit with each key that differs between the states of two read transactions on one database; see
// delta.Keys. If the database was opened with OpenShared, what visit was told counts once CompareKeys has returned nil.
func CompareKeys(ctx context.Context, before, after *holdfast.Tx, values bool, visit func(*delta.Change) error) error {
	return compare(before, after, func(a, b delta.State) error { return delta.Keys(ctx, a, b, values, visit) })
}

// compare calls fn with the states of two transactions, ready for faults.
func compare(before, after *holdfast.Tx, fn func(a, b delta.State) error) error {
	a, err := stateOf(before)
	if err != nil {
		return err
	}
	b, err := stateOf(after)
	if err != nil {
		return err
	}
	err = caught(before, func() error { return caught(after, func() error { return fn(a, b) }) })
	if err != nil {
		err = hooks.Named(after, err)
	}
	return cmp.Or(before.Err(), after.Err(), err)
}

func stateOf(tx *holdfast.Tx) (delta.State, error) {
	s, err := hooks.State(tx)
	if err != nil {
		return delta.State{}, err
	}
	if tx.Writable() {
		return delta.State{}, errors.New("a transaction that writes cannot be compared")
	}
	return delta.State{Source: hooks.Source(tx), Root: s.Meta.Root, HighWater: s.Meta.HighWater}, nil
}

// caught calls fn, and makes an error of a fault in the pages of tx.
func caught(tx *holdfast.Tx, fn func() error) (err error) {
	s, err := hooks.State(tx)
	if err != nil {
		return err
	}
	defer s.Image().CatchFault(debug.SetPanicOnFault(true), &err)
	return fn()
}
