package stores

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"holdfast/bench/age"
	"holdfast/bench/age/trace"
	"holdfast/bench/peers"
)

type pebbleStore struct {
	db    *pebble.DB
	write *pebble.WriteOptions
}

func openPebble(dir string, noSync bool) (age.Store, error) {
	db, err := pebble.Open(file(dir), &pebble.Options{Logger: peers.PebbleErrors{}, FormatMajorVersion: pebble.FormatNewest})
	if err != nil {
		return nil, err
	}
	s := &pebbleStore{db, pebble.Sync}
	if noSync {
		s.write = pebble.NoSync
	}
	return s, nil
}

func (s *pebbleStore) Apply(tx []age.Op) error {
	b := s.db.NewBatch()
	for i := range tx {
		if err := put(b, &tx[i]); err != nil {
			return errors.Join(err, b.Close())
		}
	}
	return errors.Join(b.Commit(s.write), b.Close())
}

func put(b *pebble.Batch, op *age.Op) error {
	switch op.Do {
	case trace.Put:
		return b.Set(op.Flat, op.Value, nil)
	case trace.Delete:
		return b.Delete(op.Flat, nil)
	case trace.Drop:
		return b.DeleteRange(op.Flat, after(op.Flat), nil)
	case trace.Create:
		return nil
	}
	return fmt.Errorf("there is no operation %q", op.Do)
}

func (s *pebbleStore) Get(name *age.Op) (int, error) {
	value, closer, err := s.db.Get(name.Flat)
	if errors.Is(err, pebble.ErrNotFound) {
		return 0, age.ErrNoKey
	}
	if err != nil {
		return 0, err
	}
	return len(value), closer.Close()
}

func (s *pebbleStore) Scan() (n int, err error) {
	err = s.Walk(func(_, _ []byte) error {
		n++
		return nil
	})
	return n, err
}

func (s *pebbleStore) Walk(fn func(flat, value []byte) error) (err error) {
	it, err := s.db.NewIter(nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		if err := fn(it.Key(), value); err != nil {
			return err
		}
	}
	return it.Error()
}

// Sync flushes the log, up to a record that says nothing.
func (s *pebbleStore) Sync() error { return s.db.LogData(nil, pebble.Sync) }

func (s *pebbleStore) Close() error { return s.db.Close() }
