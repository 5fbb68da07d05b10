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
	db, err := pebble.Open(path, &pebble.Options{Logger: errorsOnly{}})
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

// errorsOnly leaves out what Pebble tells about its work.
type errorsOnly struct{}

func (errorsOnly) Infof(string, ...any) {}

func (errorsOnly) Errorf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "pebble: "+format+"\n", args...)
}

func (errorsOnly) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf("pebble: "+format, args...))
}
