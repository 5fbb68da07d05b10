package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"holdfast"
)

// sentinels are the errors that docs/errors.md names.
var sentinels = map[string]error{
	"ErrDatabaseNotOpen":    holdfast.ErrDatabaseNotOpen,
	"ErrInvalid":            holdfast.ErrInvalid,
	"ErrVersionMismatch":    holdfast.ErrVersionMismatch,
	"ErrChecksum":           holdfast.ErrChecksum,
	"ErrTimeout":            holdfast.ErrTimeout,
	"ErrTxNotWritable":      holdfast.ErrTxNotWritable,
	"ErrTxClosed":           holdfast.ErrTxClosed,
	"ErrDatabaseReadOnly":   holdfast.ErrDatabaseReadOnly,
	"ErrFreePagesNotLoaded": holdfast.ErrFreePagesNotLoaded,
	"ErrBucketNotFound":     holdfast.ErrBucketNotFound,
	"ErrBucketExists":       holdfast.ErrBucketExists,
	"ErrUnordered":          holdfast.ErrUnordered,
	"ErrBucketNameRequired": holdfast.ErrBucketNameRequired,
	"ErrKeyRequired":        holdfast.ErrKeyRequired,
	"ErrKeyTooLarge":        holdfast.ErrKeyTooLarge,
	"ErrValueTooLarge":      holdfast.ErrValueTooLarge,
	"ErrMaxSizeReached":     holdfast.ErrMaxSizeReached,
	"ErrIncompatibleValue":  holdfast.ErrIncompatibleValue,
	"ErrSameBuckets":        holdfast.ErrSameBuckets,
	"ErrDifferentDB":        holdfast.ErrDifferentDB,
	"ErrStopped":            holdfast.ErrStopped,
	"ErrUnreadable":         holdfast.ErrUnreadable,
	"ErrTornCopy":           holdfast.ErrTornCopy,
	"ErrNotShared":          holdfast.ErrNotShared,
	"ErrOwnerGone":          holdfast.ErrOwnerGone,
	"ErrReaderEnded":        holdfast.ErrReaderEnded,
	"ErrTooManyReaders":     holdfast.ErrTooManyReaders,
	"EISDIR":                syscall.EISDIR,
	"fs.ErrNotExist":        fs.ErrNotExist,
	"fs.ErrPermission":      fs.ErrPermission,
}

// errorRow is a row of the table while it is run.
type errorRow struct {
	*testing.T
	wantError string // third column
	wantFile  string // fourth column
	tried     int
}

// TestErrorTable protects what docs/errors.md promises for bad input: the error
// of each row, no panic, and that the file stays as it was. Row by row it runs
// the case with the row's id; neither may be without the other.
func TestErrorTable(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "errors.md"))
	must(t, err)
	cases := map[string]func(*errorRow){}
	for _, some := range []map[string]func(*errorRow){openCases, freelistCases, treeCases, keyCases, endedCases, shortenedCases, sharedCases, sealCases, modeCases} {
		for id, c := range some {
			if cases[id] != nil {
				t.Fatalf("two cases %s", id)
			}
			cases[id] = c
		}
	}
	rows := 0
	for line := range strings.Lines(string(doc)) {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		if len(cells) < 2 || len(cells) > 4 {
			t.Fatalf("row with %d columns: %s", len(cells), line)
		}
		cells = append(cells, []string{"", "", "`*CorruptError`", "unchanged"}[len(cells):]...)
		rows++
		id := strings.Trim(cells[0], "`")
		run := cases[id]
		if run == nil {
			t.Errorf("row %s has no case", id)
			continue
		}
		delete(cases, id)
		t.Run(id, func(t *testing.T) {
			if !alone[id] {
				t.Parallel()
			}
			row := &errorRow{T: t, wantError: cells[2], wantFile: cells[3]}
			run(row)
			if row.tried == 0 && !t.Skipped() {
				t.Error("the case tried nothing")
			}
		})
	}
	for id := range cases {
		t.Errorf("case %s has no row", id)
	}
	if rows == 0 {
		t.Error("no table in docs/errors.md")
	}
}

// try puts data into a file (nil: none), makes the call and compares its error
// with the row's third column and the file with the fourth.
func (r *errorRow) try(name string, data []byte, call func(path string) error) {
	r.Helper()
	path := filepath.Join(r.TempDir(), "db")
	if data != nil {
		must(r, os.WriteFile(path, data, 0o600))
	}
	r.tryPath(name, path, call)
}

func (r *errorRow) tryPath(name, path string, call func(path string) error) {
	r.Helper()
	r.tried++
	before := readIfFile(r, path)
	err := within(r, name, func() error { return call(path) })
	if fault := r.wrongError(err, path); fault != "" {
		r.Errorf("%s: %s, got %v", name, fault, err)
	}
	after := readIfFile(r, path)
	switch r.wantFile {
	case "unchanged", "unchanged; none is made":
		if !sameBytes(before, after) {
			r.Errorf("%s: the file has changed", name)
		}
	case "none":
		if after != nil {
			r.Errorf("%s: there is a file now", name)
		}
	case "empty":
		if after == nil || len(after) > 0 {
			r.Errorf("%s: the file is not empty", name)
		}
	}
}

// readIfFile is nil for a directory.
func readIfFile(t testing.TB, path string) []byte {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil
	}
	return readFile(t, path)
}

// wrongError tells what is wrong with err, going by the third column.
func (r *errorRow) wrongError(err error, path string) string {
	var damage *holdfast.CorruptError
	want, wrapped := strings.CutPrefix(r.wantError, "wraps ")
	want = strings.Trim(want, "`")
	switch {
	case want == "none" || want == "nothing":
		if err != nil {
			return "want no error"
		}
	case want == "text":
		if err == nil || errors.As(err, &damage) {
			return "want an error with a text of its own"
		}
	case want == "*CorruptError":
		if !errors.As(err, &damage) {
			return "want a *CorruptError"
		}
		if !strings.HasPrefix(err.Error(), path+" is damaged: page ") {
			return "want the file's name in the error"
		}
	case sentinels[want] == nil:
		return fmt.Sprintf("the table names an unknown error %q", r.wantError)
	case wrapped:
		if !errors.Is(err, sentinels[want]) || err == sentinels[want] {
			return "want an error that " + r.wantError
		}
	case err != sentinels[want]:
		return "want the bare " + want
	}
	return ""
}

// ways of opening a file.
var ways = map[string]holdfast.Options{
	"writable":               {},
	"writable without flush": {NoSync: true, NoFreelistSync: true},
	"read-only":              {ReadOnly: true},
	"read-only, preloaded":   {ReadOnly: true, PreLoadFreelist: true},
}

// tryOpen tries to open data in each way; what can be opened is closed again.
func (r *errorRow) tryOpen(name string, data []byte) {
	r.Helper()
	r.tryUse(name, data, func(db *holdfast.DB) error { return nil })
}

// tryUse is tryOpen with something to do between open and close.
func (r *errorRow) tryUse(name string, data []byte, use func(db *holdfast.DB) error) {
	r.Helper()
	for way, options := range ways {
		r.try(name+", "+way, data, func(path string) error { return openUse(path, options, use) })
	}
}

// openUse is the first error of opening, using and closing a database.
func openUse(path string, options holdfast.Options, use func(db *holdfast.DB) error) error {
	db, err := holdfast.Open(path, 0o600, &options)
	if err != nil {
		return err
	}
	used := use(db)
	if err := db.Close(); used == nil {
		return err
	}
	return used
}
