package peers

import (
	"fmt"
	"os"

	"github.com/cockroachdb/pebble/v2"

	"holdfast/bench/suite"
)

type pebbleStore struct {
	db    *pebble.DB
	write *pebble.WriteOptions
}

func openPebble(path string, durable bool) (suite.CommitStore, error) {
	db, err := pebble.Open(path, &pebble.Options{Logger: PebbleErrors{}})
	if err != nil {
		return nil, err
	}
	s := &pebbleStore{db, pebble.NoSync}
	if durable {
		s.write = pebble.Sync
	}
	return s, nil
}

// Commit is a batch of one.
func (s *pebbleStore) Commit(key, value []byte) error { return s.db.Set(key, value, s.write) }

func (s *pebbleStore) Close() error { return s.db.Close() }

// PebbleErrors is a logger that leaves out what Pebble tells about its work.
type PebbleErrors struct{}

// Infof prints nothing.
func (PebbleErrors) Infof(string, ...any) {}

// Errorf prints an error.
func (PebbleErrors) Errorf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "pebble: "+format+"\n", args...)
}

// Fatalf panics with an error.
func (PebbleErrors) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf("pebble: "+format, args...))
}
