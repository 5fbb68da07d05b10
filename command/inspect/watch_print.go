package inspect

import (
	"fmt"
	"time"

	"github.com/fatih/color"

	"holdfast"
	"holdfast/command/cli"
	"holdfast/internal/delta"
)

// watchPrinter prints a line for each state, and those of its keys.
type watchPrinter struct {
	*cli.Call
	f    watchFlags
	last int // the transaction last printed, or begun with
}

// watchJSON is a state.
type watchJSON struct {
	Transaction  int           `json:"transaction"`
	Time         time.Time     `json:"time"`         // when it was seen
	Transactions int           `json:"transactions"` // since the line before
	New          watchPages    `json:"new"`
	GivenUp      watchPages    `json:"given_up"`
	Keys         *watchCounts  `json:"keys,omitempty"`
	Changes      []watchChange `json:"changes,omitempty"`
}

// watchPages are pages that one of two states has.
type watchPages struct {
	Bytes    uint64 `json:"bytes"`
	Branch   uint64 `json:"branch_pages"`
	Leaf     uint64 `json:"leaf_pages"`
	Overflow uint64 `json:"overflow_pages"`
}

// watchCounts are numbers of keys, with buckets.
type watchCounts struct {
	Added     uint64 `json:"added"`
	Changed   uint64 `json:"changed"`
	Removed   uint64 `json:"removed"`
	NotListed uint64 `json:"not_listed"` // of all these
}

// watchChange is a key. What does not apply is left out.
type watchChange struct {
	Change      string      `json:"change"` // added, changed or removed
	Kind        string      `json:"kind"`   // key or bucket, as in diff; sequence, of the bucket
	Bucket      []string    `json:"bucket"`
	Key         string      `json:"key"`
	KeyEncoding string      `json:"key_encoding"`
	Old         *watchValue `json:"old,omitempty"`
	New         *watchValue `json:"new,omitempty"`
	OldSequence *uint64     `json:"old_sequence,omitempty"`
	NewSequence *uint64     `json:"new_sequence,omitempty"`
}

// watchValue is a value; with --values it is there, as far as maxWatched bytes go.
type watchValue struct {
	Bytes    int     `json:"bytes"`
	Value    *string `json:"value,omitempty"`
	Encoding string  `json:"encoding,omitempty"`
	Cut      bool    `json:"cut,omitempty"`
}

// maxWatched bounds the bytes of a value in JSON.
const maxWatched = 1024

// watchChanges are the keys of a state, as they are to be printed: what they come from is let go before.
type watchChanges struct {
	f      watchFlags
	asJSON bool
	sum    watchCounts
	lines  []watchLine
	list   []watchChange
}

// watchLine is a key for people.
type watchLine struct {
	kind delta.Kind
	text string
}

func newWatchChanges(f watchFlags, asJSON bool) *watchChanges {
	return &watchChanges{f: f, asJSON: asJSON}
}

// Words and signs of changes; the colours are those of diff.
var (
	watchWords   = map[delta.Kind]string{delta.Added: "added", delta.Changed: "changed", delta.Removed: "removed"}
	watchSigns   = map[delta.Kind]string{delta.Added: "+", delta.Changed: "~", delta.Removed: "-"}
	watchColours = map[delta.Kind]color.Attribute{delta.Added: cli.Green, delta.Changed: cli.Yellow, delta.Removed: cli.Red}
)

// add counts a change, and keeps it if there is room.
func (w *watchChanges) add(c *delta.Change) error {
	switch c.Kind {
	case delta.Added:
		w.sum.Added++
	case delta.Changed:
		w.sum.Changed++
	default:
		w.sum.Removed++
	}
	switch {
	case len(w.lines)+len(w.list) >= w.f.maxKeys:
		w.sum.NotListed++
	case w.asJSON:
		w.list = append(w.list, w.entry(c))
	default:
		w.lines = append(w.lines, watchLine{c.Kind, w.text(c)})
	}
	return nil
}

// entry is a change in JSON.
func (w *watchChanges) entry(c *delta.Change) watchChange {
	e := watchChange{Change: watchWords[c.Kind], Kind: "key", Bucket: cli.PathNames(c.Path)}
	e.Key, e.KeyEncoding = cli.EncodeBytes(c.Key, "auto")
	switch {
	case c.Bucket && c.Kind == delta.Changed:
		was, is := c.OldSequence, c.NewSequence
		e.Kind, e.OldSequence, e.NewSequence = "sequence", &was, &is
	case c.Bucket:
		e.Kind = "bucket"
	default:
		if c.Kind != delta.Added {
			e.Old = w.value(c.Old, c.OldBytes)
		}
		if c.Kind != delta.Removed {
			e.New = w.value(c.New, c.NewBytes)
		}
	}
	return e
}

func (w *watchChanges) value(b []byte, n int) *watchValue {
	v := &watchValue{Bytes: n}
	if w.f.values {
		text, encoding := cli.EncodeBytes(b[:min(n, maxWatched)], "auto")
		v.Value, v.Encoding, v.Cut = &text, encoding, n > maxWatched
	}
	return v
}

// text is a change for people.
func (w *watchChanges) text(c *delta.Change) string {
	name := ""
	if len(c.Path) > 0 {
		name = cli.BriefPath(c.Path) + "/"
	}
	switch {
	case c.Bucket && c.Kind == delta.Changed:
		return fmt.Sprintf("%s%s/: sequence %d -> %d", name, cli.BriefName(c.Key), c.OldSequence, c.NewSequence)
	case c.Bucket:
		return name + cli.BriefName(c.Key) + "/: a bucket"
	}
	name += briefly(c.Key)
	before, after := cli.Plural(c.OldBytes, "byte"), cli.Plural(c.NewBytes, "byte")
	if w.f.values {
		before, after = briefly(c.Old), briefly(c.New)
	}
	switch c.Kind {
	case delta.Added:
		return name + ": " + after
	case delta.Removed:
		return name + ": " + before
	}
	return name + ": " + before + " -> " + after
}

// briefly writes bytes for people, also where there are none.
func briefly(b []byte) string {
	if len(b) == 0 {
		return "(empty)"
	}
	return cli.Brief(b)
}

func newWatchPages(p delta.Pages, pageSize int) watchPages {
	return watchPages{Bytes: p.Total() * uint64(pageSize), Branch: p.Branch, Leaf: p.Leaf, Overflow: p.Overflow}
}

// text is what there is of pages, for people.
func (p watchPages) text() string {
	return fmt.Sprintf("%s (%d branch, %d leaf, %d overflow)", cli.Size(int64(p.Bytes)), p.Branch, p.Leaf, p.Overflow)
}

// state prints the line of a state, with its keys.
func (p *watchPrinter) state(tx *holdfast.Tx, pageSize, since int, c *delta.Comparison, changes *watchChanges) error {
	p.last = tx.ID()
	j := watchJSON{
		Transaction: tx.ID(), Time: time.Now(), Transactions: since,
		New: newWatchPages(c.New, pageSize), GivenUp: newWatchPages(c.Gone, pageSize), Changes: changes.list,
	}
	if p.f.keys {
		j.Keys = &changes.sum
	}
	if p.JSON {
		line, err := cli.CompactJSON(j)
		if err == nil {
			_, err = fmt.Fprintln(p.Out, line)
		}
		return err
	}
	fmt.Fprintf(p.Out, "%s  transaction %d  +%d  new %s  given up %s%s\n",
		j.Time.Format("15:04:05.000"), j.Transaction, since, j.New.text(), j.GivenUp.text(), p.keys(j.Keys))
	for _, l := range changes.lines {
		fmt.Fprintf(p.Out, "  %s %s\n", p.Paint(watchColours[l.kind], watchSigns[l.kind]), l.text)
	}
	if n := changes.sum.NotListed; n > 0 {
		fmt.Fprintf(p.Out, "  ... and %s more; --max-keys shows more\n", cli.Count(n))
	}
	return nil // an error shows when the output is flushed
}

// keys is what a line says of keys.
func (p *watchPrinter) keys(sum *watchCounts) string {
	if sum == nil {
		return ""
	}
	return fmt.Sprintf("  keys +%d ~%d -%d", sum.Added, sum.Changed, sum.Removed)
}
