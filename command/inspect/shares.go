package inspect

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"holdfast"
	"holdfast/command/cli"
	"holdfast/internal/share"
)

// toShare says how a program is started so that it shares its databases in dir.
func toShare(dir string) string {
	if _, err := share.Attach(dir, share.Identity{}); errors.Is(err, errors.ErrUnsupported) {
		return "HOLDFAST_STATS=" + cli.ShellWord(dir) + " in its environment"
	}
	if dir == holdfast.DefaultShareDir() {
		return "HOLDFAST_SHARE=on in its environment"
	}
	if abs, err := filepath.Abs(dir); err == nil { // as the variable has to be
		dir = abs
	}
	return "HOLDFAST_SHARE=" + cli.ShellWord(dir) + " in its environment"
}

// shareError explains an error of the share of what, a file or a process, in dir.
func shareError(c *cli.Call, dir, what string, err error) error {
	e := &cli.FileError{File: what, Err: err}
	switch {
	case errors.Is(err, share.ErrOwnerDied):
		e.What = "no program has it open and shares it: the one that did ended without closing it, or can share it no more"
	case errors.Is(err, share.ErrOwnerGone):
		e.What = "the program that had it open has closed it, or has ended"
	case errors.Is(err, share.ErrNoOwner), errors.Is(err, fs.ErrNotExist), errors.Is(err, errors.ErrUnsupported):
		e.What = "not shared in " + cli.OneLine(dir) + " by a program that has it open"
		e.Next = "start that program with " + toShare(dir) + ", or say with --dir where it shares it"
	case errors.Is(err, fs.ErrPermission):
		e.What = "no permission to open its share in " + cli.OneLine(dir)
		e.Next = "run the command as a user who may, for example with sudo"
	case errors.Is(err, share.ErrForeign), errors.Is(err, share.ErrBusy), errors.Is(err, errNoFigures):
		e.What = "its share cannot be used: " + cli.OneLine(c.Plain(err))
	default:
		return c.Explain(what, err)
	}
	return e
}

// place is where the figures of an open database are: in its share, or in a file.
type place struct {
	dir  string
	id   share.Identity
	file string // "": in a share
}

// seen is what is seen of an open database at one time.
type seen struct {
	*holdfast.Snapshot
	others []reader
	place
}

// look looks at the database. Errors wrap those of the package share, or for a file fs.ErrNotExist.
func (p place) look() (s seen, err error) {
	if p.file != "" {
		s.place = p
		s.Snapshot, err = readFigures(p.file)
		return s, err
	}
	if s, err = p.lookAtShare(); errors.Is(err, share.ErrNoOwner) || errors.Is(err, share.ErrOwnerGone) {
		return p.lookAtShare() // another program may have opened it while this looked
	}
	return s, err
}

func (p place) lookAtShare() (s seen, err error) {
	v, err := share.Attach(p.dir, p.id)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	document, err := v.Figures()
	if err != nil {
		return s, err
	}
	s.place = p
	if s.Snapshot, err = parseFigures(document); err != nil {
		return s, err
	}
	s.others, err = readersOf(v)
	return s, err
}

// errNoFigures is the error of what holds something else.
var errNoFigures = errors.New("it does not hold figures of a database")

func parseFigures(document []byte) (*holdfast.Snapshot, error) {
	s := &holdfast.Snapshot{}
	if err := json.Unmarshal(document, s); err != nil || s.Path == "" {
		return nil, errNoFigures
	}
	return s, nil
}

// reader is a reader in another process than the one that has the database open. All but Slot and Behind is as that process says.
type reader struct {
	Slot        int       `json:"slot"`
	PID         uint64    `json:"pid"`
	Program     string    `json:"program"`     // "" if the system does not tell
	Opened      time.Time `json:"opened"`      // the share, by this reader
	Reading     bool      `json:"reading"`     // it holds a state
	Transaction uint64    `json:"transaction"` // whose state it holds; 0: none
	AgeMS       int64     `json:"age_ms"`      // for how long
	Behind      uint64    `json:"behind"`      // transactions that are newer
	Ended       bool      `json:"ended"`       // by readers --end
}

// readersOf are the readers of the share in other processes.
func readersOf(v *share.View) ([]reader, error) {
	list, err := v.Readers()
	if err != nil {
		return nil, err
	}
	newest, err := v.State()
	// With ErrBusy the owner is stopped: its readers are known, but not how many transactions are newer than what they read.
	if err != nil && !errors.Is(err, share.ErrBusy) {
		return nil, err
	}
	readers := []reader{}
	for _, r := range list {
		entry := reader{Slot: r.Slot, PID: r.PID, Program: programName(r.PID), Opened: r.Opened, Reading: r.Holds, Ended: r.Ended}
		if r.Holds {
			entry.Transaction, entry.AgeMS = r.Tx, max(time.Since(r.Since).Milliseconds(), 0)
			if newest.Tx > r.Tx {
				entry.Behind = newest.Tx - r.Tx
			}
		}
		readers = append(readers, entry)
	}
	return readers, nil
}

// programName is cli.Program of a number that may be any.
func programName(pid uint64) string {
	if pid == 0 || pid > math.MaxInt32 {
		return ""
	}
	return cli.Program(int(pid))
}

// process names the process for people.
func (r *reader) process() string {
	if r.Program == "" {
		return fmt.Sprintf("process %d", r.PID)
	}
	return fmt.Sprintf("process %d (%s)", r.PID, cli.Quoted(r.Program))
}

// state says for people which state it reads.
func (r *reader) state() string {
	return fmt.Sprintf("a state of %s ago, %s behind", briefAge(r.AgeMS), cli.Plural(r.Behind, "transaction"))
}

func briefAge(ms int64) string {
	return (min(time.Duration(ms), math.MaxInt64/time.Millisecond) * time.Millisecond).Round(100 * time.Millisecond).String()
}

// reading is how many of the readers hold a state, and the one that holds the oldest; nil if none does.
func reading(readers []reader) (n int, oldest *reader) {
	for i := range readers {
		r := &readers[i]
		if !r.Reading {
			continue
		}
		n++
		if oldest == nil || r.Transaction < oldest.Transaction || r.Transaction == oldest.Transaction && r.AgeMS > oldest.AgeMS {
			oldest = r
		}
	}
	return n, oldest
}

// allIn is what is seen of all databases that are shown in dir: of each in its share, or where it has none in a file. What cannot be
// read is left out, and problems has a line for each.
func allIn(dir string) (all []seen, problems error, err error) {
	files, err := allFigures(dir) // first: that tells whether there is such a directory
	if err != nil {
		return nil, nil, err
	}
	list, problems := share.List(dir)
	if errors.Is(problems, errors.ErrUnsupported) {
		problems = nil
	}
	for _, info := range list {
		s, err := place{dir: dir, id: info.Identity}.look()
		switch {
		case err == nil:
			all = append(all, s)
		case !errors.Is(err, share.ErrNoOwner) && !errors.Is(err, share.ErrOwnerGone):
			problems = errors.Join(problems, fmt.Errorf("the share of process %d, inode %d: %w", info.PID, info.Ino, err))
		}
	}
	for _, s := range files {
		if !slices.ContainsFunc(all, func(other seen) bool { return other.Path == s.Path }) {
			all = append(all, s)
		}
	}
	return all, problems, nil
}

// seenIn is allIn for a command: what cannot be read is noted, and an error if nothing else is there and another user may read it.
func seenIn(c *cli.Call, dir string) ([]seen, error) {
	all, problems, err := allIn(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, &cli.FileError{File: dir, What: "no such directory", Err: err,
			Next: "a program that is started with " + toShare(dir) + " makes it, where that one runs"}
	case err != nil:
		return nil, c.Explain(dir, err)
	case len(all) == 0 && errors.Is(problems, fs.ErrPermission):
		return nil, &cli.FileError{File: dir, What: "no permission to open the shares in it", Err: problems,
			Next: "run the command as a user who may, for example with sudo"}
	case problems != nil:
		lines := strings.Split(problems.Error(), "\n")
		for _, line := range lines[:min(len(lines), cli.MaxNamed)] {
			c.Note(dir, "passed over: "+cli.OneLine(line))
		}
	}
	return all, nil
}

// placeOf is where the figures of a file are; ok is false if there is no such file, and no program shows one of that name.
func placeOf(c *cli.Call, dir, file string) (p place, ok bool, err error) {
	id, err := identityOf(file)
	switch {
	case err == nil:
		p = place{dir: dir, id: id}
		if _, err := p.look(); errors.Is(err, share.ErrNoOwner) && !errors.Is(err, share.ErrOwnerDied) || errors.Is(err, errors.ErrUnsupported) {
			if p.file, err = holdfast.StatsFile(dir, file); err != nil {
				return p, false, c.Explain(file, err)
			}
			if _, err := os.Stat(p.file); err != nil {
				p.file = "" // and not in a file either
			}
		}
		return p, true, nil
	case !errors.Is(err, fs.ErrNotExist):
		return p, false, c.Explain(file, err)
	}
	all, _, _ := allIn(dir) // the caller tells what is wrong with it
	for _, s := range all {
		if s.Path == file { // it was removed since, or only its program sees it
			return s.place, true, nil
		}
	}
	return p, false, nil
}

// maxFigures bounds the bytes of a file with figures that are read, and maxInDir the
// files in a directory.
const (
	maxFigures = 1 << 20
	maxInDir   = 10_000
)

// readFigures reads those in a file, as programs have them where databases cannot be shared.
func readFigures(path string) (*holdfast.Snapshot, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFigures {
		return nil, fmt.Errorf("%s: %w", path, errNoFigures)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s, err := parseFigures(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// allFigures are those that are in files in dir, in the order of the files. Other files are
// passed over.
func allFigures(dir string) ([]seen, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []seen
	for _, e := range entries[:min(len(entries), maxInDir)] {
		if filepath.Ext(e.Name()) != ".json" {
			continue
		}
		p := place{file: filepath.Join(dir, e.Name())}
		if s, err := p.look(); err == nil {
			all = append(all, s)
		}
	}
	return all, nil
}
