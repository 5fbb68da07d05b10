package command

import (
	"errors"
	"fmt"
	"holdfast/command/internal/hook"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"holdfast"
	"holdfast/command/cli"
	"holdfast/internal/page"
	"holdfast/internal/vfs"
)

// database is an open database with what the command knows of its file.
type database struct {
	*holdfast.DB
	path string
	file *os.File // the same open file as the database's
	size int64    // when it was opened
	mode fs.FileMode
}

// look finds out whether path can be a database at all.
func (a *app) look(path string) (fs.FileInfo, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, &fileError{file: path, what: "no such file", next: similarFile(path), err: err}
	case err != nil:
		return nil, a.explain(path, err)
	case info.IsDir():
		return nil, &fileError{file: path, what: "is a directory", next: databasesIn(path), err: errNotAFile}
	case !info.Mode().IsRegular():
		return nil, &fileError{file: path, what: "is not a regular file", err: errNotAFile}
	case info.Size() == 0:
		return nil, &fileError{file: path, what: "empty: not a bbolt database", next: "if it held one, restore a copy before a program opens it; if not, " + a.createHint(), err: holdfast.ErrInvalid}
	}
	return info, nil
}

var errNotAFile = errors.New("not a regular file")

func (a *app) createHint() string {
	return fmt.Sprintf("%s put --create makes a database", a.name())
}

// read opens the database at path for reading. freePages says that the free
// pages have to be known, which takes a scan if they are not stored.
func (a *app) read(path string, freePages bool) (*database, error) {
	info, err := a.look(path)
	if err != nil {
		return nil, err
	}
	return a.open(path, info, &holdfast.Options{ReadOnly: true, PreLoadFreelist: freePages})
}

// open opens the database with options, to which it adds what all have in common.
func (a *app) open(path string, info fs.FileInfo, options *holdfast.Options) (*database, error) {
	d := &database{path: path, mode: 0o600}
	if info != nil {
		d.size, d.mode = info.Size(), info.Mode().Perm()
	}
	options.ReadAhead = true                  // most commands go through the file
	options.OnDamage = holdfast.DamageIsError // all of them ask for it
	options.OpenFile = d.openFile
	err := a.awaitLock(path, func(timeout time.Duration) (err error) {
		options.Timeout = timeout
		d.DB, err = hook.OpenDatabase(path, d.mode, options)
		return err
	})
	if err != nil {
		return nil, a.explain(path, err)
	}
	return d, nil
}

// openMade opens the database at path, which a command is making under a name that no other process
// knows: of what the environment says only whether there are seals counts, as that is how
// the finished file is to be. The rest is about a program that has a database open: its
// figures would be shown, and its messages told, of a file that is gone soon, and how it is
// made durable is the command's matter. Errors are for explain with the name that the file is
// to have.
func (a *app) openMade(path string, options *holdfast.Options) (*database, error) {
	for _, v := range holdfast.Environment() {
		value := os.Getenv(v.Name)
		if err := v.Check(value); err != nil {
			return nil, err
		}
		if v.Name == "HOLDFAST_SEALS" {
			options.NoSeals = v.Canonical(value) == "off"
		}
	}
	d := &database{path: path, mode: 0o600}
	options.Timeout, options.ReadAhead, options.OnDamage = a.timeout, true, holdfast.DamageIsError
	file, err := vfs.OpenOS(path, os.O_RDWR, 0, d.openFile)
	if err != nil {
		return nil, err
	}
	if d.DB, err = holdfast.OpenVFS(file, options); err != nil {
		return nil, err
	}
	return d, nil
}

// openFile opens the file of d.
func (d *database) openFile(name string, flag int, mode os.FileMode) (file *os.File, err error) {
	d.file, err = os.OpenFile(name, flag, mode)
	return d.file, err
}

// isDatabase is an error if no state of the file at path, which is not empty, can be opened. Opening
// it for writing would make a database of one that holds nothing but zeros.
func (a *app) isDatabase(path string) error {
	if hasMeta(path) {
		return nil
	}
	d, err := a.read(path, false)
	if err != nil {
		return err
	}
	return a.explain(path, d.Close())
}

// view opens the database at path for reading and calls fn with it and a
// transaction on it.
func (a *app) view(path string, freePages bool, fn func(*database, *holdfast.Tx) error) error {
	return a.viewWith(path, &holdfast.Options{PreLoadFreelist: freePages}, fn)
}

// viewWith is view with further options.
func (a *app) viewWith(path string, options *holdfast.Options, fn func(*database, *holdfast.Tx) error) error {
	info, err := a.look(path)
	if err != nil {
		return err
	}
	options.ReadOnly = true
	d, err := a.open(path, info, options)
	if err != nil {
		return err
	}
	err = d.View(func(tx *holdfast.Tx) error {
		if err := fn(d, tx); err != nil {
			return err
		}
		return tx.Err()
	})
	return a.explain(path, errors.Join(err, d.Close()))
}

// metas reads both meta pages of the open file.
func (d *database) metas() (page.Slots, error) { return readMetas(d.file, d.Info().PageSize) }

func readMetas(file io.ReaderAt, pageSize int) (page.Slots, error) {
	metas, errs := page.ReadMetas(file, int64(pageSize), page.ExtensionOffset)
	if err := errors.Join(errs[:]...); err != nil {
		return page.Slots{}, err
	}
	return page.DecodeSlots(metas[0], metas[1]), nil
}

// Bounds on what is looked at to help with a wrong file name.
const (
	maxEntries = 200
	maxNamed   = 3
)

// databasesIn is advice for somebody who gave a directory: the databases in it.
func databasesIn(dir string) string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "give a file"
	}
	var found []string
	for _, e := range entries[:min(len(entries), maxEntries)] {
		path := filepath.Join(dir, e.Name())
		if e.Type().IsRegular() && hasMeta(path) && len(found) < maxNamed {
			found = append(found, cli.OneLine(path))
		}
	}
	if len(found) == 0 {
		return "give a file; none of those in it looks like a database"
	}
	return "give a file, for example " + strings.Join(found, " or ")
}

// hasMeta tells whether the file at path begins like a database.
func hasMeta(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var buf [page.ExtensionOffset]byte
	if _, err := io.ReadFull(f, buf[:]); err != nil {
		return false
	}
	_, err = page.DecodeMeta(buf[:])
	return err == nil
}

// similarFile is advice for somebody who gave a file that is not there.
func similarFile(path string) string {
	dir := filepath.Dir(path)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return ""
	}
	var names []string
	for _, e := range entries[:min(len(entries), maxEntries)] {
		if !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	var found []string
	for _, name := range similar(filepath.Base(path), names) {
		found = append(found, cli.OneLine(filepath.Join(dir, name)))
	}
	if len(found) == 0 {
		return ""
	}
	return thereIs(found)
}
