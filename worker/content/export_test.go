package content

import (
	"context"

	"holdfast"
	"holdfast/blob"
)

// Freed returns when no chunk waits to be freed; the collector frees what it began with itself.
func (s *Store) Freed(ctx context.Context) error {
	for {
		if _, err := blob.Collect(ctx, s.db, blobs, blob.CollectOptions{}); err != nil {
			return err
		}
		if u, err := s.usage(); err != nil || u.Dead == 0 {
			return err
		}
	}
}

// Chunks is how many chunks there are.
func (s *Store) Chunks() (int64, error) {
	u, err := s.usage()
	return u.Leaves + u.Nodes, err
}

func (s *Store) usage() (u blob.Usage, err error) {
	err = s.db.View(func(tx *holdfast.Tx) error {
		b, err := blobs(tx)
		if err == nil {
			u, err = b.Usage()
		}
		return err
	})
	return u, err
}
