package exporter

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"holdfast"
	"holdfast/internal/share"
)

// Bounds on what is read of a directory, to which others may be able to write.
const (
	maxEntries  = 10_000 // files of any kind
	maxShares   = 1_000
	maxParallel = 256 // a share that is never whole takes a second
	maxLabel    = 4096
)

// reading is what a share shows.
type reading struct {
	name string // of the share's file
	holdfast.Snapshot
	others int // readers of other processes that are in a transaction
	owned  bool
	err    error // why it is left out
}

// readAll reads all shares in a directory, in the order of their names. The error is of the directory; passed is how many
// files were not looked at.
func readAll(dir string) (all []reading, passed int, err error) {
	names, passed, err := shareNames(dir)
	all = make([]reading, len(names))
	slots := make(chan struct{}, maxParallel)
	var done sync.WaitGroup
	for i, name := range names {
		slots <- struct{}{}
		done.Go(func() {
			defer func() { <-slots }()
			all[i] = readShare(dir, name)
		})
	}
	done.Wait()
	return all, passed, err
}

// shareNames are the names of files that can be shares.
func shareNames(dir string) (names []string, passed int, err error) {
	d, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) { // the first program that shares a database makes it
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	defer d.Close()
	entries, err := d.ReadDir(maxEntries)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if len(entries) == maxEntries {
		passed = 1 // at least
	}
	for _, entry := range entries {
		if _, ok := share.ParseName(entry.Name()); ok {
			names = append(names, entry.Name())
		}
	}
	slices.Sort(names)
	if over := len(names) - maxShares; over > 0 {
		names, passed = names[:maxShares], passed+over
	}
	return names, passed, err
}

// readShare reads a share. One without an owner has owned false and no error.
func readShare(dir, name string) reading {
	r := reading{name: name}
	id, _ := share.ParseName(name)
	v, err := share.Attach(dir, id)
	if errors.Is(err, share.ErrNoOwner) {
		return r
	}
	if err != nil {
		r.err = err
		return r
	}
	r.err = r.read(v)
	if errors.Is(r.err, share.ErrOwnerGone) {
		r.err = nil
	} else {
		r.owned = r.err == nil
	}
	if err := v.Close(); r.err == nil && err != nil {
		r.err = err
	}
	return r
}

func (r *reading) read(v *share.View) error {
	document, err := v.Figures()
	if err != nil {
		return err
	}
	if err := r.decode(document); err != nil {
		return fmt.Errorf("its figures are not those of a database: %w", err)
	}
	readers, err := v.Readers()
	for _, reader := range readers {
		if reader.Holds {
			r.others++
		}
	}
	return err
}

// decode takes the figures from a document that another process wrote, and refuses what no database shows.
func (r *reading) decode(document []byte) error {
	if err := json.Unmarshal(document, &r.Snapshot); err != nil {
		return err
	}
	for _, label := range []struct{ what, text string }{{"path", r.Path}, {"program", r.Program}} {
		bad := func(c rune) bool { return unicode.IsControl(c) || c == utf8.RuneError }
		if label.text == "" || len(label.text) > maxLabel || strings.ContainsFunc(label.text, bad) {
			return fmt.Errorf("the %s is empty, too long, or has characters that are not to be shown", label.what)
		}
	}
	if !filepath.IsAbs(r.Path) {
		return fmt.Errorf("the path %q is not absolute", r.Path)
	}
	s := &r.Stats
	counts := append(s.CommitLatency.Buckets[:], int64(r.PageSize), r.FileSize,
		int64(s.Commits), int64(s.CommitGroups), int64(s.Flushes), int64(s.WriteCalls), s.PagesWritten, s.BytesWritten,
		int64(s.FreePageN), int64(s.PendingPageN), int64(s.TxN), int64(s.OpenTxN),
		int64(s.OldestReader.Behind), int64(s.OldestReader.Age), int64(s.Vacuum.Runs), s.Vacuum.Freed)
	if slices.Min(counts) < 0 {
		return errors.New("a count is negative")
	}
	if s.CommitLatency.Count() < 0 || slices.ContainsFunc(s.CommitLatency.Buckets[:], func(n int64) bool { return n > 1<<56 }) {
		return errors.New("there are more commits than there can be")
	}
	return nil
}
