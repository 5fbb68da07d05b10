//go:build cgo

package stores

import (
	"database/sql"
	"errors"
	"fmt"
	"net/url"

	sqlite3 "github.com/mattn/go-sqlite3" // also the driver of this name

	"holdfast/bench/age"
	"holdfast/bench/age/trace"
)

// The statements of SQLite.
const (
	sqlPut = iota
	sqlDelete
	sqlDrop
	sqlGet
	sqlScan
	statements
)

var sqlTexts = [statements]string{
	sqlPut:    "INSERT INTO keys VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value",
	sqlDelete: "DELETE FROM keys WHERE key = ?",
	sqlDrop:   "DELETE FROM keys WHERE key >= ? AND key < ?",
	sqlGet:    "SELECT value FROM keys WHERE key = ?",
	sqlScan:   "SELECT key, value FROM keys",
}

func init() {
	version, _, _ := sqlite3.Version()
	flats = append(flats, age.Peer{
		Name: "SQLite WAL", Note: "version " + version + ", journal_mode=WAL, synchronous=FULL, a table WITHOUT ROWID, prepared statements",
		Open: openSQLite,
	})
}

type sqliteStore struct {
	db   *sql.DB
	stmt [statements]*sql.Stmt
}

// openSQLite uses a write-ahead log and one connection, as there is one writer.
func openSQLite(dir string, noSync bool) (age.Store, error) {
	pragmas := url.Values{"_journal_mode": {"WAL"}, "_synchronous": {"FULL"}, "_txlock": {"immediate"}}
	if noSync {
		pragmas.Set("_synchronous", "OFF")
	}
	db, err := sql.Open("sqlite3", "file:"+(&url.URL{Path: file(dir)}).EscapedPath()+"?"+pragmas.Encode())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	s := &sqliteStore{db: db}
	_, err = db.Exec("CREATE TABLE IF NOT EXISTS keys (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID")
	for i := 0; i < statements && err == nil; i++ {
		s.stmt[i], err = db.Prepare(sqlTexts[i])
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

func (s *sqliteStore) Apply(tx []age.Op) error {
	t, err := s.db.Begin()
	if err != nil {
		return err
	}
	for i := range tx {
		if err := s.apply(t, &tx[i]); err != nil {
			return errors.Join(err, t.Rollback())
		}
	}
	return t.Commit()
}

func (s *sqliteStore) apply(t *sql.Tx, op *age.Op) (err error) {
	switch op.Do {
	case trace.Put:
		value := op.Value
		if value == nil {
			value = []byte{}
		}
		_, err = t.Stmt(s.stmt[sqlPut]).Exec(op.Flat, value)
	case trace.Delete:
		_, err = t.Stmt(s.stmt[sqlDelete]).Exec(op.Flat)
	case trace.Drop:
		_, err = t.Stmt(s.stmt[sqlDrop]).Exec(op.Flat, after(op.Flat))
	case trace.Create:
	default:
		err = fmt.Errorf("there is no operation %q", op.Do)
	}
	return err
}

func (s *sqliteStore) Get(name *age.Op) (int, error) {
	rows, err := s.stmt[sqlGet].Query(name.Flat)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	var value sql.RawBytes
	if !rows.Next() {
		return 0, errors.Join(age.ErrNoKey, rows.Err())
	}
	err = rows.Scan(&value)
	return len(value), err
}

func (s *sqliteStore) Scan() (n int, err error) {
	err = s.Walk(func(_, _ []byte) error {
		n++
		return nil
	})
	return n, err
}

func (s *sqliteStore) Walk(fn func(flat, value []byte) error) error {
	rows, err := s.stmt[sqlScan].Query()
	if err != nil {
		return err
	}
	defer rows.Close()
	var key, value sql.RawBytes
	for rows.Next() {
		if err := rows.Scan(&key, &value); err != nil {
			return err
		}
		if err := fn(key, value); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Sync moves the log into the file, with a flush.
func (s *sqliteStore) Sync() error {
	if _, err := s.db.Exec("PRAGMA synchronous=FULL"); err != nil {
		return err
	}
	var busy, log, moved int
	if err := s.db.QueryRow("PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &log, &moved); err != nil {
		return err
	}
	if busy != 0 {
		return errors.New("the log of SQLite is in use")
	}
	_, err := s.db.Exec("PRAGMA synchronous=OFF")
	return err
}

func (s *sqliteStore) Close() error {
	var errs []error
	for _, stmt := range s.stmt {
		errs = append(errs, stmt.Close())
	}
	return errors.Join(append(errs, s.db.Close())...)
}
