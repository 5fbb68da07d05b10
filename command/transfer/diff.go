package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/command/cli"
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
	cli.Naming
	format string
	quiet  bool
	full   bool // do not abbreviate
}

func newDiff(a *cli.App) *cobra.Command {
	var f diffFlags
	cmd := &cobra.Command{
		Use:   "diff A B [BUCKET...]",
		Short: "Compare what two databases hold",
		Long:  diffHelp,
		Args:  cobra.MinimumNArgs(2),
		RunE:  a.Comparison(func(c *cli.Call) (bool, error) { return runDiff(c, f) }),
	}
	cmd.Flags().StringVarP(&f.format, "format", "f", "auto", "how to print, in full: "+strings.Join(cli.OutputFormats, "|"))
	cmd.Flags().BoolVar(&f.full, "full", false, "print long keys and values whole")
	cmd.Flags().BoolVarP(&f.quiet, "quiet", "q", false, "print nothing and end at the first difference")
	f.AddBucketFlag(cmd)
	return cmd
}

// diffReport is what a comparison has found. In JSON the differences stand before it.
type diffReport struct {
	OnlyInA   cli.Contents `json:"only_in_a"`
	OnlyInB   cli.Contents `json:"only_in_b"`
	Same      cli.Contents `json:"same"`      // buckets that are in both, and keys with the same value
	Values    uint64       `json:"values"`    // that differ
	Sequences uint64       `json:"sequences"` // that differ
	Kinds     uint64       `json:"kinds"`     // keys in the one, buckets in the other
	Equal     bool         `json:"equal"`
}

// side is one of the two databases.
type side struct {
	*cli.Walk
	file string
	err  func(string, error) error // names the file in an error
}

// differ goes through two databases at once.
type differ struct {
	*cli.Call
	f     diffFlags
	a, b  *side
	print diffPrinter
	r     diffReport
}

// errEnough ends a walk of which no more is wanted.
var errEnough = errors.New("enough")

// runDiff tells whether the databases hold the same.
func runDiff(c *cli.Call, f diffFlags) (same bool, err error) {
	if err := cli.CheckFormat("format", f.format, cli.OutputFormats); err != nil {
		return false, err
	}
	path, err := f.Buckets(c.Args[2:])
	if err != nil {
		return false, err
	}
	f.full = f.full || c.Cmd.Flags().Changed("format")
	d := &differ{Call: c, f: f}
	d.print = diffPrinter{differ: d}
	if f.quiet || !cli.IsTerminal(c.Cmd.OutOrStdout()) { // where it would stand between the lines
		stop := c.Progress("comparing", 0, nil)
		defer stop()
	}
	err = openSide(c, c.Args[0], func(a *side) error {
		return openSide(c, c.Args[1], func(b *side) error {
			d.a, d.b = a, b
			return d.compare(path)
		})
	})
	if err != nil && !errors.Is(err, errEnough) {
		return false, err
	}
	return err == nil && d.r.Equal, nil
}

// openSide opens the file for reading and calls fn with it.
func openSide(c *cli.Call, file string, fn func(*side) error) error {
	return c.View(file, false, func(_ *cli.Database, tx *holdfast.Tx) error {
		return fn(&side{Walk: cli.NewWalk(c.Ctx, tx), file: file, err: c.Explain})
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
	a, errA := d.f.Find(d.App, d.a.file, d.a.Tx, &path)
	if errors.Is(errA, cli.ErrNoBucket) || cli.IsUsage(errA) { // B may have it
		var err error
		if path, err = d.f.SingleNames(d.App, d.b.Tx, given); err != nil {
			return err
		}
		a, errA = d.Locate(d.a.file, d.a.Tx, path)
	}
	b, errB := d.Locate(d.b.file, d.b.Tx, path)
	missingA, missingB := errors.Is(errA, cli.ErrNoBucket), errors.Is(errB, cli.ErrNoBucket)
	var both *cli.FileError
	if missingA && missingB && d.a.file != d.b.file && errors.As(errA, &both) {
		both.What += fmt.Sprintf(", and none in %s", d.b.file)
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
	r.Equal = r.OnlyInA == cli.Contents{} && r.OnlyInB == cli.Contents{} && r.Values+r.Sequences+r.Kinds == 0
	return d.print.end()
}

// onlyBucket reports the bucket at path, which only a or only b has.
func (d *differ) onlyBucket(path [][]byte, a, b cli.Container, onlyA bool) error {
	last := len(path) - 1
	if onlyA {
		return d.only(d.a, &d.r.OnlyInA, a, path[:last], path[last], nil)
	}
	return d.only(d.b, &d.r.OnlyInB, b, path[:last], path[last], nil)
}

// containers compares two buckets, or the top levels, at path. The paths of all levels share
// their memory: each is that of the level above, and a name more.
func (d *differ) containers(a, b cli.Container, path [][]byte) error {
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
	in   cli.Container
	c    *holdfast.Cursor
	k, v []byte
}

func (c *cursorAt) first() error {
	c.c = c.in.NewCursor()
	c.k, c.v = c.c.First()
	return c.arrived()
}

func (c *cursorAt) next() error {
	c.k, c.v = c.c.Next()
	return c.arrived()
}

func (c *cursorAt) arrived() error {
	err := c.Met(c.k, c.v)
	if err == nil && c.k != nil && c.in.Bucket == nil && c.v != nil {
		err = cli.TopLevelKey(c.k)
	}
	return c.named(err)
}

// open opens the bucket where the cursor stands.
func (c *cursorAt) open() (cli.Container, error) {
	child, err := c.Child(c.in, c.k)
	return child, c.named(err)
}

// onlyAt reports what stands at the cursor, and goes on.
func (d *differ) onlyAt(c *cursorAt, sum *cli.Contents, path [][]byte) error {
	var in cli.Container
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
func (d *differ) only(s *side, sum *cli.Contents, in cli.Container, path [][]byte, key, value []byte) error {
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
		if e.holds, err = s.Count(in); err != nil {
			return s.named(err)
		}
	}
	sum.Buckets++
	sum.Add(e.holds)
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
