package crash

import (
	"bufio"
	"fmt"
	"strconv"
	"strings"

	"holdfast"
)

// Script is a history as data. Any script can be run: what makes no sense where
// it stands, such as closing a closed database, does nothing.
type Script struct {
	PageSize int
	// OnlyLast tries disks in the last step alone, and more of them.
	OnlyLast bool
	// Plain looks at disks and does not commit to them.
	Plain bool
	Steps []Step
}

// Step is a line of a script, with its edits.
type Step struct {
	// Kind is one of
	//
	//	open     a closed database, with the options
	//	close    it
	//	tx       a transaction that does the edits
	//	reader   begins a reading transaction
	//	release  ends the oldest
	//	sync     DB.Sync
	//	nosync   sets DB.NoSync as NoSync says
	//	vacuum   DB.Vacuum, in steps of so many Pages
	//	stock    bbolt opens a closed file, does the edits and closes it
	Kind string

	Seed           uint64 // of the disks that are tried
	NoFreelistSync bool
	NoSync         bool
	Strict         bool // StrictCompat
	Periodic       bool // Durability, unless Strict
	Together       bool // tx: at the same time as its neighbours that say so too
	Rollback       bool // tx
	Ahead          bool // open: the file is mapped beyond its end, and can be cut off
	// During: a tx, reader, release, sync or nosync in one of the pauses of the vacuum
	// before it or, if that is Together, at the same time.
	During bool
	Pages  int // vacuum

	// Where open, close, tx, sync and vacuum are hit, counted in the calls that change the
	// file, from 1; 0: not. Cut: there the history goes on with the Disk-th
	// disk. Kill: with what had been written by then. Fail: the call fails.
	// FailSync: that flush fails, counted in flushes. Die: if a failure stops the
	// writer, the process is killed and does not close the file.
	Die                             bool
	Cut, Disk, Kill, Fail, FailSync int

	Edits []Edit
}

// Edit is a change of the bucket at Path, which is created if it is not there.
type Edit struct {
	Op     string // put, append, del, drop (the bucket), bucket (create it), seq, spill (all)
	Path   string // b0/n1
	Key    int    // first key
	N      int    // keys
	Size   int    // of the values
	Letter byte   // in them
}

func (e Edit) String() string {
	switch e.Op {
	case "put":
		return fmt.Sprintf("put %s k%d n=%d %d%c", e.Path, e.Key, e.N, e.Size, e.Letter)
	case "append":
		return fmt.Sprintf("append %s k%d n=%d %d%c", e.Path, e.Key, e.N, e.Size, e.Letter)
	case "del":
		return fmt.Sprintf("del %s k%d n=%d", e.Path, e.Key, e.N)
	}
	return e.Op + " " + e.Path
}

func (s Step) String() string {
	words := []string{s.Kind}
	for _, n := range []struct {
		name string
		n    uint64
	}{
		{"seed", s.Seed}, {"cut", uint64(s.Cut)}, {"disk", uint64(s.Disk)},
		{"kill", uint64(s.Kill)}, {"fail", uint64(s.Fail)}, {"failsync", uint64(s.FailSync)}, {"pages", uint64(s.Pages)},
	} {
		if n.n != 0 {
			words = append(words, fmt.Sprintf("%s=%d", n.name, n.n))
		}
	}
	for _, f := range s.flags() {
		if *f.on {
			words = append(words, f.name)
		}
	}
	lines := []string{strings.Join(words, " ")}
	for _, e := range s.Edits {
		lines = append(lines, "  "+e.String())
	}
	return strings.Join(lines, "\n")
}

func (s Step) durability() holdfast.Durability {
	if s.Periodic && !s.Strict {
		return holdfast.Periodic
	}
	return holdfast.Full
}

type flag struct {
	name string
	on   *bool
}

func (s *Step) flags() []flag {
	return []flag{
		{"nofreelistsync", &s.NoFreelistSync}, {"nosync", &s.NoSync}, {"strict", &s.Strict}, {"periodic", &s.Periodic},
		{"together", &s.Together}, {"rollback", &s.Rollback}, {"die", &s.Die}, {"ahead", &s.Ahead}, {"during", &s.During},
	}
}

// String is the script as text, which Parse reads.
func (s Script) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "pagesize %d\n", s.PageSize)
	if s.OnlyLast {
		b.WriteString("onlylast\n")
	}
	if s.Plain {
		b.WriteString("plain\n")
	}
	for _, step := range s.Steps {
		b.WriteString(step.String() + "\n")
	}
	return b.String()
}

// Parse reads a script. Empty lines, and those that begin with #, are skipped.
func Parse(text string) (Script, error) {
	var s Script
	lines := bufio.NewScanner(strings.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		if err := s.parseLine(words); err != nil {
			return s, fmt.Errorf("line %d, %q: %w", n, lines.Text(), err)
		}
	}
	if s.PageSize < 512 {
		return s, fmt.Errorf("a page size of %d bytes", s.PageSize)
	}
	return s, lines.Err()
}

func (s *Script) parseLine(words []string) (err error) {
	switch words[0] {
	case "pagesize":
		if len(words) != 2 {
			return fmt.Errorf("want one number")
		}
		s.PageSize, err = strconv.Atoi(words[1])
		return err
	case "onlylast":
		s.OnlyLast = true
		return nil
	case "plain":
		s.Plain = true
		return nil
	case "open", "close", "tx", "reader", "release", "sync", "nosync", "stock", "vacuum":
		step, err := parseStep(words)
		s.Steps = append(s.Steps, step)
		return err
	}
	if len(s.Steps) == 0 {
		return fmt.Errorf("an edit before the first step")
	}
	e, err := parseEdit(words)
	last := &s.Steps[len(s.Steps)-1]
	last.Edits = append(last.Edits, e)
	return err
}

func parseStep(words []string) (Step, error) {
	s := Step{Kind: words[0]}
	numbers := map[string]*int{"cut": &s.Cut, "disk": &s.Disk, "kill": &s.Kill, "fail": &s.Fail, "failsync": &s.FailSync, "pages": &s.Pages}
next:
	for _, w := range words[1:] {
		for _, f := range s.flags() {
			if f.name == w {
				*f.on = true
				continue next
			}
		}
		name, value, _ := strings.Cut(w, "=")
		n, err := strconv.ParseUint(value, 10, 64)
		switch p := numbers[name]; {
		case err != nil:
			return s, fmt.Errorf("what is %s?", w)
		case name == "seed":
			s.Seed = n
		case p != nil:
			*p = int(n)
		default:
			return s, fmt.Errorf("what is %s?", w)
		}
	}
	return s, nil
}

func parseEdit(words []string) (e Edit, err error) {
	line := strings.Join(words, " ")
	e.Op = words[0]
	switch e.Op {
	case "put":
		_, err = fmt.Sscanf(line, "put %s k%d n=%d %d%c", &e.Path, &e.Key, &e.N, &e.Size, &e.Letter)
	case "append":
		_, err = fmt.Sscanf(line, "append %s k%d n=%d %d%c", &e.Path, &e.Key, &e.N, &e.Size, &e.Letter)
	case "del":
		_, err = fmt.Sscanf(line, "del %s k%d n=%d", &e.Path, &e.Key, &e.N)
	case "drop", "bucket", "seq", "spill":
		_, err = fmt.Sscanf(line, e.Op+" %s", &e.Path)
	default:
		err = fmt.Errorf("there is no such step or edit")
	}
	return e, err
}
