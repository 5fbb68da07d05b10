package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"holdfast"
)

const diffHelp = `Compare two databases, or a bucket in both: buckets, keys, values and sequences, whatever
pages they lie in. Both are only read.

Each difference is a line:

  - only in A
  + only in B
  ~ in both, but not the same

A bucket that only one of them has is one line, with the number of keys in it. Long keys and
values are cut, with their lengths, unless --full or --format is given; with --json they are whole.

Exit codes, as those of diff: 0 both hold the same, 1 they differ, 2 anything else: an error.`

// diffFlags are the flags of diff.
type diffFlags struct {
	naming
	format string
	quiet  bool
	full   bool // do not abbreviate
}

func (a *app) newDiff() *cobra.Command {
	var f diffFlags
	cmd := &cobra.Command{
		Use:   "diff A B [BUCKET...]",
		Short: "Compare what two databases hold",
		Long:  diffHelp,
		Args:  cobra.MinimumNArgs(2),
		RunE:  a.comparison(func(c *call) (bool, error) { return c.diff(f) }),
	}
	cmd.Flags().StringVarP(&f.format, "format", "f", "auto", "how to print, in full: "+strings.Join(outputFormats, "|"))
	cmd.Flags().BoolVar(&f.full, "full", false, "print long keys and values whole")
	cmd.Flags().BoolVarP(&f.quiet, "quiet", "q", false, "print nothing and end at the first difference")
	f.addBucketFlag(cmd)
	return cmd
}

// comparison is an action that tells whether two things are the same, with the exit codes of diff.
func (a *app) comparison(compare func(*call) (same bool, err error)) func(*cobra.Command, []string) error {
	return a.action(func(c *call) error {
		same, err := compare(c)
		if err == nil {
			err = c.out.Flush()
		}
		switch {
		case err != nil && !isClosedPipe(err):
			return &troubleError{err}
		case err != nil || same:
			return err
		}
		c.cmd.SilenceErrors = true // the lines have said it
		return ErrDifferent
	})
}

// diffReport is what a comparison has found. In JSON the differences stand before it.
type diffReport struct {
	OnlyInA   contents `json:"only_in_a"`
	OnlyInB   contents `json:"only_in_b"`
	Same      contents `json:"same"`      // buckets that are in both, and keys with the same value
	Values    uint64   `json:"values"`    // that differ
	Sequences uint64   `json:"sequences"` // that differ
	Kinds     uint64   `json:"kinds"`     // keys in the one, buckets in the other
	Equal     bool     `json:"equal"`
}

// side is one of the two databases.
type side struct {
	*walk
	file string
	err  func(string, error) error // names the file in an error
}

// differ goes through two databases at once.
type differ struct {
	*call
	f     diffFlags
	a, b  *side
	print diffPrinter
	r     diffReport
}

// errEnough ends a walk of which no more is wanted.
var errEnough = errors.New("enough")

// diff tells whether the databases hold the same.
func (c *call) diff(f diffFlags) (same bool, err error) {
	if err := checkFormat("format", f.format, outputFormats); err != nil {
		return false, err
	}
	path, err := f.buckets(c.args[2:])
	if err != nil {
		return false, err
	}
	f.full = f.full || c.cmd.Flags().Changed("format")
	d := &differ{call: c, f: f}
	d.print = diffPrinter{differ: d}
	if f.quiet || !isTerminal(c.cmd.OutOrStdout()) { // where it would stand between the lines
		stop := c.progress("comparing", 0, nil)
		defer stop()
	}
	err = c.side(c.args[0], func(a *side) error {
		return c.side(c.args[1], func(b *side) error {
			d.a, d.b = a, b
			return d.compare(path)
		})
	})
	if err != nil && !errors.Is(err, errEnough) {
		return false, err
	}
	return err == nil && d.r.Equal, nil
}

// side opens the file for reading and calls fn with it.
func (c *call) side(file string, fn func(*side) error) error {
	return c.view(file, false, func(_ *database, tx *holdfast.Tx) error {
		return fn(&side{walk: newWalk(c.ctx, tx), file: file, err: c.explain})
	})
}

// named is err with the name of the side's file.
func (s *side) named(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	return s.err(s.file, err)
}

// compare compares the buckets at path, and prints what it finds.
func (d *differ) compare(path [][]byte) error {
	given := path
	a, errA := d.f.find(d.app, d.a.file, d.a.tx, &path)
	if errors.Is(errA, errNoBucket) || isUsage(errA) { // B may have it
		var err error
		if path, err = d.f.singleNames(d.app, d.b.tx, given); err != nil {
			return err
		}
		a, errA = d.locate(d.a.file, d.a.tx, path)
	}
	b, errB := d.locate(d.b.file, d.b.tx, path)
	missingA, missingB := errors.Is(errA, errNoBucket), errors.Is(errB, errNoBucket)
	var both *fileError
	if missingA && missingB && d.a.file != d.b.file && errors.As(errA, &both) {
		both.what += fmt.Sprintf(", and none in %s", d.b.file)
	}
	switch {
	case errA != nil && (!missingA || missingB):
		return d.a.named(errA)
	case errB != nil && !missingB:
		return d.b.named(errB)
	}
	d.print.begin(path)
	var err error
	if missingA || missingB {
		err = d.onlyBucket(path, a, b, missingB)
	} else {
		err = d.containers(a, b, path)
	}
	if err != nil {
		return err
	}
	r := &d.r
	r.Equal = r.OnlyInA == contents{} && r.OnlyInB == contents{} && r.Values+r.Sequences+r.Kinds == 0
	return d.print.end()
}

// onlyBucket reports the bucket at path, which only a or only b has.
func (d *differ) onlyBucket(path [][]byte, a, b container, onlyA bool) error {
	last := len(path) - 1
	if onlyA {
		return d.only(d.a, &d.r.OnlyInA, a, path[:last], path[last], nil)
	}
	return d.only(d.b, &d.r.OnlyInB, b, path[:last], path[last], nil)
}

// containers compares two buckets, or the top levels, at path. The paths of all levels share
// their memory: each is that of the level above, and a name more.
func (d *differ) containers(a, b container, path [][]byte) error {
	if a.Bucket != nil {
		d.r.Same.Buckets++
		if was, is := a.Sequence(), b.Sequence(); was != is {
			d.r.Sequences++
			if err := d.report(diffEntry{change: changed, kind: "sequence", path: path, was: was, is: is}); err != nil {
				return err
			}
		}
	}
	ca, cb := cursorAt{side: d.a, in: a}, cursorAt{side: d.b, in: b}
	if err := errors.Join(ca.first(), cb.first()); err != nil {
		return err
	}
	for ca.k != nil || cb.k != nil {
		order := bytes.Compare(ca.k, cb.k)
		var err error
		switch {
		case cb.k == nil || ca.k != nil && order < 0:
			err = d.onlyAt(&ca, &d.r.OnlyInA, path)
		case ca.k == nil || order > 0:
			err = d.onlyAt(&cb, &d.r.OnlyInB, path)
		default:
			if err = d.both(&ca, &cb, path); err == nil {
				err = cb.next()
			}
			if err == nil {
				err = ca.next()
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// cursorAt is a cursor on a side, with the key where it stands; nil at the end.
type cursorAt struct {
	*side
	in   container
	c    *holdfast.Cursor
	k, v []byte
}

func (c *cursorAt) first() error {
	c.c = c.in.cursor()
	c.k, c.v = c.c.First()
	return c.arrived()
}

func (c *cursorAt) next() error {
	c.k, c.v = c.c.Next()
	return c.arrived()
}

func (c *cursorAt) arrived() error {
	err := c.met(c.k, c.v)
	if err == nil && c.k != nil && c.in.Bucket == nil && c.v != nil {
		err = topLevelKey(c.k)
	}
	return c.named(err)
}

// open opens the bucket where the cursor stands.
func (c *cursorAt) open() (container, error) {
	child, err := c.child(c.in, c.k)
	return child, c.named(err)
}

// onlyAt reports what stands at the cursor, and goes on.
func (d *differ) onlyAt(c *cursorAt, sum *contents, path [][]byte) error {
	var in container
	if c.v == nil {
		var err error
		if in, err = c.open(); err != nil {
			return err
		}
	}
	if err := d.only(c.side, sum, in, path, c.k, c.v); err != nil {
		return err
	}
	return c.next()
}

// only reports a key with its value, or a bucket, which only one side has.
func (d *differ) only(s *side, sum *contents, in container, path [][]byte, key, value []byte) error {
	e := diffEntry{change: onlyInA, kind: "key", path: path, key: key, a: value}
	if s == d.b {
		e.change, e.a, e.b = onlyInB, nil, value
	}
	if value != nil {
		sum.Keys++
		return d.report(e)
	}
	var err error
	e.kind = "bucket"
	if !d.f.quiet {
		if e.holds, err = s.count(in); err != nil {
			return s.named(err)
		}
	}
	sum.Buckets++
	sum.add(e.holds)
	return d.report(e)
}

// both compares what two cursors stand on, under the same name.
func (d *differ) both(a, b *cursorAt, path [][]byte) error {
	switch {
	case a.v == nil && b.v == nil:
		inA, err := a.open()
		if err != nil {
			return err
		}
		inB, err := b.open()
		if err != nil {
			return err
		}
		return d.containers(inA, inB, append(path, a.k))
	case (a.v == nil) != (b.v == nil):
		d.r.Kinds++
		return d.report(diffEntry{change: changed, kind: "kind", path: path, key: a.k, a: a.v, b: b.v})
	case !bytes.Equal(a.v, b.v):
		d.r.Values++
		return d.report(diffEntry{change: changed, kind: "key", path: path, key: a.k, a: a.v, b: b.v})
	}
	d.r.Same.Keys++
	return nil
}

// report prints a difference, or ends the comparison if only the result is wanted.
func (d *differ) report(e diffEntry) error {
	if d.f.quiet {
		return errEnough
	}
	return d.print.entry(e)
}

// ErrDifferent is returned by diff when the databases differ.
var ErrDifferent = fmt.Errorf("the databases differ")

// troubleError is an error of diff, which has the exit code 1 for something else.
type troubleError struct{ err error }

func (e *troubleError) Error() string { return e.err.Error() }
func (e *troubleError) Unwrap() error { return e.err }
