// Package trace has what a program did to its database, so that it can be done again, many times over, to any store.
//
// A trace is one cycle of a program's life: what it commits when an image is pulled, a step is built or keys are put (Make), and what
// it commits when that is removed again (Remove). In each cycle that is replayed the names that are new in every cycle, such as digests
// and IDs, are others, of the same length and at the same kind of place among the others; values are random bytes of the recorded size.
package trace

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
)

// Op is what is done to a key.
type Op byte

// The operations of a transaction.
const (
	Put    Op = 'p' // a key in a bucket, whose buckets are made where they are missing
	Delete Op = 'd' // of a key
	Drop   Op = 'x' // of the bucket with all in it
	Create Op = 'c' // of the bucket, which stays empty unless keys follow
)

// Class says how a name differs from cycle to cycle.
type Class byte

// The classes of names.
const (
	Fixed    Class = 'f' // it is the same in each
	Fresh    Class = 'n' // what follows the last colon or slash is another in each
	Revision Class = 'r' // its first eight bytes are a big-endian number that grows, as etcd's revisions do
)

// Name is a key, or the name of a bucket.
type Name struct {
	Class Class
	Text  string // as recorded
}

// Entry is an operation.
type Entry struct {
	Op     Op
	Bucket []Name // from the outermost to the innermost; one at least
	Key    Name   // of Put and Delete
	Size   int    // bytes of the value of Put
}

// Tx are the operations of a transaction, in their order.
type Tx []Entry

// Trace is a cycle of a program.
type Trace struct {
	Program   string // and version
	Revisions uint64 // by how much revisions grow in a cycle
	Make      []Tx
	Remove    []Tx
}

// In appends the name as it is in a cycle to b.
func (t *Trace) In(b []byte, n Name, cycle uint64) []byte {
	switch n.Class {
	case Fresh:
		keep := strings.LastIndexAny(n.Text, ":/") + 1
		b = append(b, n.Text[:keep]...)
		return appendFresh(b, n.Text[keep:], cycle)
	case Revision:
		b = binary.BigEndian.AppendUint64(b, binary.BigEndian.Uint64([]byte(n.Text[:8]))+cycle*t.Revisions)
		return append(b, n.Text[8:]...)
	}
	return append(b, n.Text...)
}

const letters = "ghijklmnopqrstuvwxyz"

// appendFresh appends a text with other letters and digits; hexadecimal digits stay such, and bytes that are no text become any.
func appendFresh(b []byte, text string, cycle uint64) []byte {
	rng := rand.New(rand.NewPCG(cycle, hash(text)))
	for _, c := range []byte(text) {
		r := rng.Uint64()
		switch {
		case '0' <= c && c <= '9', 'a' <= c && c <= 'f':
			c = "0123456789abcdef"[r%16]
		case 'g' <= c && c <= 'z':
			c = letters[r%uint64(len(letters))]
		case c < ' ' || c > '~':
			c = byte(r)
		}
		b = append(b, c)
	}
	return b
}

// hash is FNV-1a.
func hash(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// magic is the first line of a trace.
const magic = "holdfast trace 1"

// Write writes the trace, compressed.
func (t *Trace) Write(w io.Writer) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	var names bytes.Buffer
	known := map[Name]int{}
	id := func(n Name) string {
		i, ok := known[n]
		if !ok {
			i = len(known)
			known[n] = i
			fmt.Fprintf(&names, "%c%s\n", n.Class, hex.EncodeToString([]byte(n.Text)))
		}
		return strconv.Itoa(i)
	}
	var body bytes.Buffer
	for _, part := range [][]Tx{t.Make, t.Remove} {
		fmt.Fprintln(&body, len(part))
		for _, tx := range part {
			fmt.Fprintln(&body, len(tx))
			for _, e := range tx {
				path := make([]string, len(e.Bucket))
				for i, b := range e.Bucket {
					path[i] = id(b)
				}
				key := "-"
				if e.Op == Put || e.Op == Delete {
					key = id(e.Key)
				}
				fmt.Fprintf(&body, "%c %s %s %d\n", e.Op, strings.Join(path, "/"), key, e.Size)
			}
		}
	}
	fmt.Fprintf(z, "%s\n%s\n%d\n%d\n%s%s", magic, t.Program, t.Revisions, len(known), names.Bytes(), body.Bytes())
	return z.Close()
}

var errTrace = errors.New("not a trace")

// maxCount bounds what a trace may have of one kind.
const maxCount = 1 << 22

// Read reads what Write has written.
func Read(r io.Reader) (*Trace, error) {
	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	p := parser{lines: bufio.NewScanner(z)}
	p.lines.Buffer(nil, 1<<20)
	if p.line() != magic {
		return nil, fmt.Errorf("trace: %w", errTrace)
	}
	t := &Trace{Program: p.line(), Revisions: uint64(p.number())}
	for range p.count() {
		p.name()
	}
	t.Make, t.Remove = p.part(), p.part()
	if p.err != nil {
		return nil, fmt.Errorf("trace of %.100q, line %d: %w", t.Program, p.at, p.err)
	}
	return t, nil
}

type parser struct {
	lines *bufio.Scanner
	at    int
	names []Name
	err   error
}

func (p *parser) fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

func (p *parser) line() string {
	if p.err != nil || !p.lines.Scan() {
		p.fail(errors.Join(io.ErrUnexpectedEOF, p.lines.Err()))
		return ""
	}
	p.at++
	return p.lines.Text()
}

func (p *parser) number() int {
	n, err := strconv.Atoi(p.line())
	if err != nil || n < 0 {
		p.fail(errTrace)
		return 0
	}
	return n
}

func (p *parser) count() int {
	n := p.number()
	if n > maxCount {
		p.fail(errTrace)
		return 0
	}
	return n
}

func (p *parser) name() {
	s := p.line()
	if s == "" {
		p.fail(errTrace)
		return
	}
	b, err := hex.DecodeString(s[1:])
	c := Class(s[0])
	if err != nil || len(b) == 0 || c != Fixed && c != Fresh && c != Revision || c == Revision && len(b) < 8 {
		p.fail(errTrace)
	}
	p.names = append(p.names, Name{c, string(b)})
}

func (p *parser) nameOf(s string) Name {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n >= len(p.names) {
		p.fail(errTrace)
		return Name{}
	}
	return p.names[n]
}

func (p *parser) part() []Tx {
	var part []Tx
	for range p.count() {
		var tx Tx
		for range p.count() {
			tx = append(tx, p.entry())
			if p.err != nil {
				return nil
			}
		}
		part = append(part, tx)
	}
	return part
}

func (p *parser) entry() (e Entry) {
	fields := strings.Split(p.line(), " ")
	if len(fields) != 4 || len(fields[0]) != 1 {
		p.fail(errTrace)
		return e
	}
	e.Op = Op(fields[0][0])
	for s := range strings.SplitSeq(fields[1], "/") {
		e.Bucket = append(e.Bucket, p.nameOf(s))
	}
	switch e.Op {
	case Put, Delete:
		e.Key = p.nameOf(fields[2])
	case Drop, Create:
	default:
		p.fail(errTrace)
	}
	size, err := strconv.Atoi(fields[3])
	if err != nil || size < 0 || size > 1<<26 {
		p.fail(errTrace)
	}
	e.Size = size
	return e
}
