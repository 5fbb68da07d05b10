package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/command/internal/hook"
	"holdfast/internal/bridge"
	"holdfast/internal/page"
	"holdfast/internal/vfs"
)

// Database is an open database with what the command knows of its file.
type Database struct {
	*holdfast.DB
	FilePath string
	File     *os.File // the same open file as the database's
	FileSize int64    // when it was opened
	mode     fs.FileMode
}

// Look finds out whether path can be a database at all.
func (a *App) Look(path string) (fs.FileInfo, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, &FileError{File: path, What: "no such file", Next: SimilarFile(path), Err: err}
	case err != nil:
		return nil, a.Explain(path, err)
	case info.IsDir():
		return nil, &FileError{File: path, What: "is a directory", Next: databasesIn(path), Err: ErrNotAFile}
	case !info.Mode().IsRegular():
		return nil, &FileError{File: path, What: "is not a regular file", Err: ErrNotAFile}
	case info.Size() == 0:
		return nil, &FileError{File: path, What: "empty: not a bbolt database", Next: "if it held one, restore a copy before a program opens it; if not, " + a.createHint(), Err: holdfast.ErrInvalid}
	}
	return info, nil
}

// ErrNotAFile is wrapped by errors of what is not a regular file.
var ErrNotAFile = errors.New("not a regular file")

func (a *App) createHint() string {
	return fmt.Sprintf("%s put --create makes a database", a.Name())
}

// Read opens the database at path for reading. freePages says that the free
// pages have to be known, which takes a scan if they are not stored.
func (a *App) Read(path string, freePages bool) (*Database, error) {
	info, err := a.Look(path)
	if err != nil {
		return nil, err
	}
	return a.Open(path, info, &holdfast.Options{ReadOnly: true, PreLoadFreelist: freePages})
}

// Open opens the database with options, to which it adds what all have in common.
func (a *App) Open(path string, info fs.FileInfo, options *holdfast.Options) (*Database, error) {
	d := &Database{FilePath: path, mode: 0o600}
	if info != nil {
		d.FileSize, d.mode = info.Size(), info.Mode().Perm()
	}
	options.ReadAhead = true                  // most commands go through the file
	options.OnDamage = holdfast.DamageIsError // all of them ask for it
	options.OpenFile = d.openFile
	var notShared error
	if options.ReadOnly {
		if notShared = a.openShared(d, options); notShared == nil {
			return d, nil
		}
	}
	err := a.AwaitLock(path, func(timeout time.Duration) (err error) {
		options.Timeout = timeout
		d.DB, err = hook.OpenDatabase(path, d.mode, options)
		if options.ReadOnly && errors.Is(err, holdfast.ErrTimeout) { // who has it locked may share it by now
			if notShared = a.openShared(d, options); notShared == nil {
				return nil
			}
		}
		return err
	})
	if err != nil {
		return nil, a.Explain(path, a.inUse(path, err, notShared))
	}
	return d, nil
}

// ReadShared opens the database at path for reading through the process that has it open and shares it, and says so. The
// error is not explained.
func (a *App) ReadShared(path string) (*Database, error) {
	d := &Database{FilePath: path}
	err := a.openShared(d, &holdfast.Options{ReadOnly: true, OnDamage: holdfast.DamageIsError, OpenFile: d.openFile})
	if err != nil {
		return nil, err
	}
	return d, nil
}

// openShared opens the database for reading through the process that has it open, if one does and shares it, and says so.
func (a *App) openShared(d *Database, options *holdfast.Options) (err error) {
	opts := *options
	if d.DB, err = holdfast.OpenShared(d.FilePath, &opts); err != nil {
		return err
	}
	pid, _ := d.SharedBy()
	a.Note(d.FilePath, fmt.Sprintf("read through %s, which has it open", Process(pid)))
	return nil
}

// inUse adds to the error of a file that is locked why it could not be read through the process that has it open.
func (a *App) inUse(path string, err, notShared error) error {
	if !errors.Is(err, holdfast.ErrTimeout) || notShared == nil {
		return err
	}
	e := &FileError{File: path, What: fmt.Sprintf("locked by another process for longer than %s%s", a.Timeout, holders(path)), Err: err}
	switch {
	case errors.Is(notShared, errors.ErrUnsupported):
		return err
	case errors.Is(notShared, holdfast.ErrNotShared):
		e.Next = "stop that program, or wait longer with --timeout (a program on Holdfast can be read while it runs if it is started with HOLDFAST_SHARE=on or a directory in its environment, and this command with the same)"
		return e
	}
	if errors.Is(notShared, fs.ErrPermission) {
		e.What += ", and no permission to open its share"
		e.Next = "run the command as a user who may, for example with sudo: the share is for the user and the group of the file, and root"
		return e
	}
	e.What += ", and not to be read through it: " + a.Plain(notShared)
	e.Next = "stop that program, or wait longer with --timeout"
	return e
}

// OpenMade opens the database at temp, which a command is making under a name that no other process
// knows and that is to be path: of what the environment says only whether there are seals counts, as that is how
// the finished file is to be. The rest is about a program that has a database open: its
// figures would be shown, and its messages told, of a file that is gone soon, and how it is
// made durable is the command's matter. Errors are for explain with the name that the file is
// to have.
func (a *App) OpenMade(temp, path string, options *holdfast.Options) (*Database, error) {
	for _, v := range holdfast.Environment() {
		value, err := v.For(os.Getenv(v.Name), path)
		if err != nil {
			return nil, err
		}
		if v.Name == "HOLDFAST_SEALS" {
			options.NoSeals = value == "off"
		}
	}
	d := &Database{FilePath: temp, mode: 0o600}
	options.Timeout, options.ReadAhead, options.OnDamage = a.Timeout, true, holdfast.DamageIsError
	file, err := vfs.OpenOS(temp, os.O_RDWR, 0, d.openFile)
	if err != nil {
		return nil, err
	}
	if d.DB, err = bridge.Open(file, options); err != nil {
		return nil, err
	}
	return d, nil
}

// InUse tells whether another process has the database open and changes it meanwhile.
func (d *Database) InUse() bool {
	_, shared := d.SharedBy()
	return shared
}

// openFile opens the file of d.
func (d *Database) openFile(name string, flag int, mode os.FileMode) (file *os.File, err error) {
	d.File, err = os.OpenFile(name, flag, mode)
	return d.File, err
}

// IsDatabase is an error if no state of the file at path, which is not empty, can be opened. Opening
// it for writing would make a database of one that holds nothing but zeros.
func (a *App) IsDatabase(path string) error {
	if HasMeta(path) {
		return nil
	}
	d, err := a.Read(path, false)
	if err != nil {
		return err
	}
	return a.Explain(path, d.Close())
}

// View opens the database at path for reading and calls fn with it and a
// transaction on it.
func (a *App) View(path string, freePages bool, fn func(*Database, *holdfast.Tx) error) error {
	return a.ViewWith(path, &holdfast.Options{PreLoadFreelist: freePages}, fn)
}

// ViewWith is view with further options.
func (a *App) ViewWith(path string, options *holdfast.Options, fn func(*Database, *holdfast.Tx) error) error {
	info, err := a.Look(path)
	if err != nil {
		return err
	}
	options.ReadOnly = true
	d, err := a.Open(path, info, options)
	if err != nil {
		return err
	}
	err = d.View(func(tx *holdfast.Tx) error {
		if err := fn(d, tx); err != nil {
			return err
		}
		return tx.Err()
	})
	return a.Explain(path, errors.Join(err, d.Close()))
}

// Process names a process.
func Process(pid int) string {
	n := strconv.Itoa(pid)
	return "process " + n + processName(n)
}

// Program is the name of the program that a process runs, as it is: any process can give itself any. "" where the system does not tell.
func Program(pid int) string { return programOf(strconv.Itoa(pid)) }

// Metas reads both meta pages of the open file.
func (d *Database) Metas() (page.Slots, error) { return readMetas(d.File, d.Info().PageSize) }

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
	MaxNamed   = 3
)

// databasesIn is advice for a caller who gave a directory: the databases in it.
func databasesIn(dir string) string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "give a file"
	}
	var found []string
	for _, e := range entries[:min(len(entries), maxEntries)] {
		path := filepath.Join(dir, e.Name())
		if e.Type().IsRegular() && HasMeta(path) && len(found) < MaxNamed {
			found = append(found, OneLine(path))
		}
	}
	if len(found) == 0 {
		return "give a file; none of those in it looks like a database"
	}
	return "give a file, for example " + strings.Join(found, " or ")
}

// HasMeta tells whether the file at path begins like a database.
func HasMeta(path string) bool {
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

// SimilarFile is advice for a caller who gave a file that is not there.
func SimilarFile(path string) string {
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
	for _, name := range Similar(filepath.Base(path), names) {
		found = append(found, OneLine(filepath.Join(dir, name)))
	}
	if len(found) == 0 {
		return ""
	}
	return ThereIs(found)
}

// SizeNow is the size of the open file: when it was opened another process may have been
// waiting for its lock, and then made it longer.
func (d *Database) SizeNow() (int64, error) {
	info, err := d.File.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// MaxPathPages bounds the levels of a tree that are believed.
const MaxPathPages = 64

// AddPageSize adds the flag that says the page size of a file that does not.
func AddPageSize(cmd *cobra.Command, pageSize *int) {
	SizeIntVar(cmd.Flags(), pageSize, "page-size", 0, "page size in bytes, of a file whose meta pages are so damaged that it cannot be told; 0: as the file says")
}

// GoodPageSize is the error of a --page-size that no file can have.
func GoodPageSize(pageSize int) error {
	if pageSize != 0 && (pageSize < page.MinPageSize || pageSize > page.MaxPageSize) {
		return Usagef("--page-size: %d is outside of %d to %d", pageSize, page.MinPageSize, page.MaxPageSize)
	}
	return nil
}
