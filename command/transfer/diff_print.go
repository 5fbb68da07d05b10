package transfer

import (
	"encoding/json"
	"fmt"

	"github.com/fatih/color"

	"holdfast/command/cli"
)

// change is in which way something differs.
type change string

const (
	onlyInA change = "only_in_a"
	onlyInB change = "only_in_b"
	changed change = "changed"
)

// signs of changes, at the beginning of a line.
var signs = map[change]string{onlyInA: "-", onlyInB: "+", changed: "~"}

var signColours = map[change]color.Attribute{onlyInA: cli.Red, onlyInB: cli.Green, changed: cli.Yellow}

// diffEntry is a difference.
type diffEntry struct {
	change  change
	kind    string       // key, bucket, sequence, or kind: a key in the one, a bucket in the other
	path    [][]byte     // of the bucket in which it is; of a sequence: the bucket itself
	key     []byte       // or the name of a bucket; nil of a sequence
	a, b    []byte       // values; nil where there is none, or a bucket
	holds   cli.Contents // of a bucket
	was, is uint64       // sequences
}

// diffPrinter prints differences one by one, so that there can be any number.
type diffPrinter struct {
	*differ
	n int
}

func (p *diffPrinter) begin(path [][]byte) {
	if !p.JSON || p.f.quiet {
		return
	}
	a, _ := json.Marshal(p.a.file)           // a string
	b, _ := json.Marshal(p.b.file)           // a string
	bucket, _ := json.Marshal(p.names(path)) // strings
	fmt.Fprintf(p.Out, "{\n  \"a\": %s,\n  \"b\": %s,\n  \"bucket\": %s,\n  \"differences\": [", a, b, bucket)
}

// names writes the names of buckets in the format that was asked for.
func (p *diffPrinter) names(path [][]byte) []string {
	names := make([]string, len(path))
	for i, b := range path {
		names[i], _ = cli.EncodeBytes(b, p.f.format)
	}
	return names
}

// diffJSON is a difference in JSON. What does not apply is left out.
type diffJSON struct {
	Change      change        `json:"change"`
	Kind        string        `json:"kind"`
	Bucket      []string      `json:"bucket"`
	Key         *string       `json:"key,omitempty"`
	KeyEncoding string        `json:"key_encoding,omitempty"`
	A           *diffValue    `json:"a,omitempty"`
	B           *diffValue    `json:"b,omitempty"`
	Holds       *cli.Contents `json:"holds,omitempty"`
	SequenceA   *uint64       `json:"sequence_a,omitempty"`
	SequenceB   *uint64       `json:"sequence_b,omitempty"`
}

type diffValue struct {
	Value    string `json:"value"`
	Encoding string `json:"encoding"`
	Bytes    int    `json:"bytes"`
}

func (p *diffPrinter) value(b []byte) *diffValue {
	if b == nil {
		return nil
	}
	v := &diffValue{Bytes: len(b)}
	v.Value, v.Encoding = cli.EncodeBytes(b, p.f.format)
	return v
}

func (p *diffPrinter) entry(e diffEntry) error {
	p.n++
	if !p.JSON {
		_, err := fmt.Fprintf(p.Out, "%s %s\n", p.Paint(signColours[e.change], signs[e.change]), p.line(e))
		return err
	}
	j := diffJSON{Change: e.change, Kind: e.kind, Bucket: p.names(e.path), A: p.value(e.a), B: p.value(e.b)}
	if e.key != nil {
		key, encoding := cli.EncodeBytes(e.key, p.f.format)
		j.Key, j.KeyEncoding = &key, encoding
	}
	switch e.kind {
	case "bucket":
		j.Holds = &e.holds
	case "sequence":
		j.SequenceA, j.SequenceB = &e.was, &e.is
	}
	line, err := json.Marshal(j)
	if err != nil {
		return err
	}
	separator := ",\n    "
	if p.n == 1 {
		separator = "\n    "
	}
	_, err = fmt.Fprintf(p.Out, "%s%s", separator, line)
	return err
}

// line says for people what differs.
func (p *diffPrinter) line(e diffEntry) string {
	name := ""
	for _, b := range e.path {
		name += p.bucket(b) + "/"
	}
	if e.key != nil && e.kind == "bucket" {
		name += p.bucket(e.key)
	} else if e.key != nil {
		name += p.text(e.key)
	}
	switch {
	case e.kind == "sequence":
		return fmt.Sprintf("%s: sequence %d -> %d", name, e.was, e.is)
	case e.kind == "bucket":
		return fmt.Sprintf("%s/: a bucket with %s in it", name, e.holds.Text())
	case e.kind == "kind":
		return fmt.Sprintf("%s: %s -> %s", name, p.kind(e.a), p.kind(e.b))
	case e.change == changed:
		return fmt.Sprintf("%s: %s -> %s%s", name, p.text(e.a), p.text(e.b), p.where(e.a, e.b))
	case e.change == onlyInA:
		return fmt.Sprintf("%s: %s", name, p.text(e.a))
	}
	return fmt.Sprintf("%s: %s", name, p.text(e.b))
}

func (p *diffPrinter) kind(value []byte) string {
	if value == nil {
		return "a bucket"
	}
	return "a value of " + cli.Plural(len(value), "byte")
}

// where says where two values differ that are cut off before that.
func (p *diffPrinter) where(a, b []byte) string {
	at := 0
	for at < min(len(a), len(b)) && a[at] == b[at] {
		at++
	}
	if p.f.full || at < cli.MaxShown/2 || len(a) <= cli.MaxShown && len(b) <= cli.MaxShown {
		return ""
	}
	return fmt.Sprintf(", different from byte %s on", cli.Count(int64(at)))
}

// bucket writes the name of a bucket in a path: a slash in it is none between names.
func (p *diffPrinter) bucket(name []byte) string {
	switch {
	case !p.f.full:
		return cli.BriefName(name)
	case p.f.format == "auto" && cli.Printable(name):
		return cli.PathName(name)
	}
	return p.text(name)
}

// text writes bytes as they are asked for.
func (p *diffPrinter) text(b []byte) string {
	switch {
	case len(b) == 0 && p.f.format != "ascii-encoded" && p.f.format != "redacted":
		return "(empty)"
	case p.f.full:
		return cli.FormatBytes(b, p.f.format)
	}
	return cli.Brief(b)
}

// end prints the sum.
func (p *diffPrinter) end() error {
	if p.f.quiet {
		return nil
	}
	if p.JSON {
		if p.n > 0 {
			fmt.Fprint(p.Out, "\n  ")
		}
		sum, err := json.MarshalIndent(p.r, "", "  ")
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(p.Out, "],\n%s\n", sum[len("{\n"):])
		return err
	}
	if p.r.Equal {
		_, err := fmt.Fprintf(p.Out, "%s and %s hold the same: %s\n", p.a.file, p.b.file, p.r.Same.Total())
		return err
	}
	differ := cli.Plural(p.r.Values, "value")
	if p.r.Sequences > 0 {
		differ += ", " + cli.Plural(p.r.Sequences, "sequence")
	}
	if p.r.Kinds > 0 {
		differ += ", " + cli.Plural(p.r.Kinds, "kind")
	}
	_, err := fmt.Fprintf(p.Out, "only in %s: %s; only in %s: %s; different: %s\n",
		p.a.file, p.r.OnlyInA.Text(), p.b.file, p.r.OnlyInB.Text(), differ)
	return err
}
