package stores

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"

	"holdfast/bench/age"
)

// stocks are bbolt, with several sets of options.
var stocks = []age.Peer{
	{Name: "stock", Note: "bbolt as it is", Open: stock(bbolt.Options{}, false)},
	{
		Name: "stock NoFreelistSync+map", Note: "bbolt with the options that are recommended for large files",
		Open: stock(bbolt.Options{NoFreelistSync: true, FreelistType: bbolt.FreelistMapType}, false),
	},
	{
		Name: "stock compacted nightly", Note: "bbolt as it is; at the end of each day it is closed, copied with bbolt.Compact, and opened anew",
		Open: stock(bbolt.Options{}, true),
	},
}

type bboltStore = nested[*bbolt.DB, *bbolt.Tx, *bbolt.Bucket, *bbolt.Cursor]

func stock(o bbolt.Options, nightly bool) func(dir string, noSync bool) (age.Store, error) {
	return func(dir string, noSync bool) (age.Store, error) {
		own := o
		own.NoSync = noSync
		db, err := bbolt.Open(file(dir), 0o600, &own)
		if err != nil {
			return nil, err
		}
		if nightly {
			return &compacted{bboltStore{db}, dir, &own}, nil
		}
		return &bboltStore{db}, nil
	}
}

// file is the database of a store that is one file.
func file(dir string) string { return filepath.Join(dir, "db") }

// compacted is bbolt with an operator who compacts its file when nothing runs.
type compacted struct {
	bboltStore
	dir     string
	options *bbolt.Options
}

// Night does what an operator does with `bbolt compact`, whose transactions it has. They are
// flushed together in the end, as with its --no-sync.
func (s *compacted) Night() error {
	if err := s.db.Close(); err != nil {
		return err
	}
	compact := file(s.dir) + ".compact"
	if err := s.compact(compact); err != nil {
		_ = os.Remove(compact)
		return fmt.Errorf("compacting %s: %w", file(s.dir), err)
	}
	if err := os.Rename(compact, file(s.dir)); err != nil {
		return err
	}
	db, err := bbolt.Open(file(s.dir), 0o600, s.options)
	s.db = db
	return err
}

func (s *compacted) compact(dst string) error {
	const txBytes = 64 << 10 // as bbolt compact has it
	from, err := bbolt.Open(file(s.dir), 0o400, &bbolt.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := bbolt.Open(dst, 0o600, &bbolt.Options{NoSync: true})
	if err != nil {
		return err
	}
	if err = bbolt.Compact(to, from, txBytes); err == nil {
		err = to.Sync()
	}
	return errors.Join(err, to.Close())
}
