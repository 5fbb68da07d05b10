package holdfast

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"holdfast/internal/pager"
	"holdfast/internal/share"
	"holdfast/internal/vfs"
)

// Errors of databases opened with OpenShared. They come wrapped.
var (
	// ErrNotShared is wrapped when no process has the database open and shares it.
	ErrNotShared = share.ErrNoOwner
	// ErrOwnerGone is wrapped when the process that has the database open has closed it, or has ended: what the
	// transaction has read may be wrong. Open the database again, with Open if no process shares it.
	ErrOwnerGone = share.ErrOwnerGone
	// ErrReaderEnded is wrapped when the reader was ended from outside ("holdfast readers --end"): what the transaction
	// has read may be wrong. The next transaction is not affected.
	ErrReaderEnded = share.ErrEnded
	// ErrTooManyReaders is wrapped when as many transactions of other processes read the database as can: 126, with the
	// places that each DB from OpenShared keeps until Close for its next transactions: one at first, four at most.
	ErrTooManyReaders = share.ErrNoSlot
)

// DefaultShareDir is the directory that Options.Share "on" stands for.
func DefaultShareDir() string { return share.DefaultDir() }

// OpenShared opens a database for reading that another process has open with Options.Share. Neither waits for the other: its
// transactions see consistent states, as those within the other process do, and hold their pages until they end. With
// Durability Periodic and None such a state may not be durable yet.
//
// What a transaction has read counts only once its end, View or Rollback, has returned nil, or Tx.Err has since it was read: the other
// process may end at any time, and what the next one writes may be among what was read. Calls that
// read pages look for that every 50 ms at least. Then, and when the reader was ended, they fail with an error
// that wraps ErrOwnerGone or ErrReaderEnded; it is kept by the transaction as damage is (Tx.Err), and is no panic. Those without an
// error to return give nothing: Get nil, and Bucket nil, too. If
// the other process could not make durable what was read, the error wraps ErrStopped. The DB itself
// stays usable: the next transaction reads through the process that shares the database then, or fails with ErrNotShared.
//
// Of options, which may be nil, Share is where to look (with "" in DefaultShareDir), and OpenFile, NoSeals, OnDamage, ReadAhead, MmapFlags,
// Mlock, Logger and NoStatistics are as for Open; the others do not count. The environment variables HOLDFAST_* add to them. The directory,
// and the file in it, which the other process makes for the user and group of the database, have to be writable by
// this process, and the database readable. It is for Linux; elsewhere the error wraps errors.ErrUnsupported.
func OpenShared(path string, options *Options) (*DB, error) {
	options, err := withEnvironment(options, path)
	if err != nil {
		return nil, err
	}
	options.ReadOnly = true
	dir, err := options.shareDir()
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	if options.Share == "off" {
		return nil, fmt.Errorf("open %s: Share is off: %w", path, ErrNotShared)
	}
	if dir == "" {
		dir = DefaultShareDir()
	}
	file, err := vfs.OpenOS(path, os.O_RDONLY, 0, options.OpenFile)
	if err != nil {
		return nil, err
	}
	db := newDB(file.Name(), options)
	p, err := pager.OpenForeign(file, dir, db.pagerOptions(options, false))
	if err != nil {
		return nil, db.corrupt(err)
	}
	db.pager, db.waits.Lock, db.foreign = p, p, true
	db.logger.Infof("Reading db file (%s) through the process that has it open", db.path)
	return db, nil
}

// SharedBy is the process that has the database open, by its number in its own pid namespace, if the database was
// opened with OpenShared: the one of the newest transaction.
func (db *DB) SharedBy() (pid int, shared bool) {
	if !db.foreign {
		return 0, false
	}
	return db.pager.SharedBy(), true
}

// errShareDir is the error of an Options.Share that is neither a word nor a directory for all processes.
var errShareDir = errors.New(`a Share that is not "on", "off" or an absolute path`)

// shareDir is the directory in which the database is to be shared; "": in none.
func (o *Options) shareDir() (string, error) {
	switch o.Share {
	case "on":
		return DefaultShareDir(), nil
	case "":
		if o.StatsDir == "" {
			return "", nil
		}
		return filepath.Abs(o.StatsDir)
	case "off":
		return "", nil
	}
	if !filepath.IsAbs(o.Share) {
		return "", fmt.Errorf("%w: %q", errShareDir, o.Share)
	}
	return o.Share, nil
}

// share shares the database, with its figures. A database that cannot be shared is used all the same: where the
// system cannot, figures alone are shown in StatsDir.
func (db *DB) share(options *Options) {
	dir, err := options.shareDir()
	if dir == "" {
		return
	}
	if err == nil {
		err = db.pager.Share(dir, func(err error) { db.logger.Warningf("%s: %v", db.path, err) })
	}
	switch {
	case err == nil:
		db.show(db.pager.ShareFigures, func() error { return nil })
	case options.StatsDir != "" && errors.Is(err, errors.ErrUnsupported):
		db.showFile(options.StatsDir)
	default:
		db.logger.Warningf("%s is not shared with other processes in %s: %v", db.path, dir, err)
	}
}
