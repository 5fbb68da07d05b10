package peers

import (
	"database/sql"
	"errors"
	"net/url"

	_ "github.com/mattn/go-sqlite3" // the driver "sqlite3"

	"holdfast/bench/suite"
)

type sqliteStore struct {
	db  *sql.DB
	put *sql.Stmt
}

// openSQLite uses a write-ahead log and one connection, for which writers queue
// in this process: with more they would poll for SQLite's lock.
func openSQLite(path string, durable bool) (suite.CommitStore, error) {
	pragmas := url.Values{"_journal_mode": {"WAL"}, "_synchronous": {"OFF"}}
	if durable {
		pragmas.Set("_synchronous", "FULL")
	}
	db, err := sql.Open("sqlite3", "file:"+(&url.URL{Path: path}).EscapedPath()+"?"+pragmas.Encode())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	s := &sqliteStore{db: db}
	if _, err = db.Exec("CREATE TABLE IF NOT EXISTS keys (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID"); err == nil {
		s.put, err = db.Prepare("INSERT OR REPLACE INTO keys VALUES (?, ?)")
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

// Commit is a statement that is a transaction by itself.
func (s *sqliteStore) Commit(key, value []byte) error {
	_, err := s.put.Exec(key, value)
	return err
}

func (s *sqliteStore) Close() error { return errors.Join(s.put.Close(), s.db.Close()) }
