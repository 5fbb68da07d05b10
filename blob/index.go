package blob

import "errors"

type batch struct{}

// lookup finds a chunk.
func (s *Store) lookup(k *chunkKey) (entry, bool, error) {
	return entry{}, false, errors.ErrUnsupported
}

// refer adds to the counts of a chunk that exists.
func (s *Store) refer(k *chunkKey, parents, users int64) error { return errors.ErrUnsupported }

// data gives the bytes of a chunk as they are stored.
func (s *Store) data(e *entry) ([]byte, error) { return nil, errors.ErrUnsupported }

// load gives the bytes of a chunk, verified.
func (s *Store) load(k *chunkKey) ([]byte, error) { return nil, errors.ErrUnsupported }

// remove deletes a chunk.
func (s *Store) remove(k *chunkKey, e *entry) error { return errors.ErrUnsupported }

func (s *Store) flush() error { return errors.ErrUnsupported }

func (s *Store) putBytes(p []byte) (Ref, error) { return Ref{}, errors.ErrUnsupported }
