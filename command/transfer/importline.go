package transfer

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"holdfast/command/cli"
	"holdfast/command/internal/rows"
)

// lineKind is what a line of an export says.
type lineKind int

const (
	headerLine lineKind = iota
	bucketLine
	keyLine
	endLine
)

// record is a line of an export.
type record struct {
	kind     lineKind
	line     int64    // its number
	path     [][]byte // of the bucket
	key      []byte
	value    []byte
	sequence uint64
	buckets  uint64 // what the last line says
	keys     uint64

	// Of CSV with columns of blobs, in place of the value.
	table  *rows.Table
	fields [][]byte
}

// maxImportDepth is how deep buckets can be created in each other.
const maxImportDepth = 10_000

// Fields of a line.
const (
	hasFormat = 1 << iota
	hasVersion
	hasBucket
	hasSequence
	hasKey
	hasValue
	hasEnd
	hasBuckets
	hasKeys
)

var fieldBits = map[string]int{
	"format": hasFormat, "version": hasVersion, "bucket": hasBucket, "sequence": hasSequence, "key": hasKey,
	"value": hasValue, "end": hasEnd, "buckets": hasBuckets, "keys": hasKeys,
}

// lineParser reads lines of an export: JSON objects, of which it knows all fields. It is strict,
// so that no line can mean something else than is read: no field twice or of another case, no
// text that is not UTF-8.
type lineParser struct {
	line, inner decoder

	format  string
	version uint64

	// The bucket of the line before, which most lines have too.
	pathText []byte
	path     [][]byte
}

// parse reads a line. What it returns does not refer to s.
func (p *lineParser) parse(s []byte) (record, error) {
	d := &p.line
	d.begin(s)
	r, err := p.object(d)
	if err != nil {
		return record{}, err
	}
	if _, err := d.ReadToken(); err != io.EOF {
		return record{}, d.errorf("something follows the object")
	}
	return r, nil
}

func (p *lineParser) object(d *decoder) (r record, err error) {
	has := 0
	err = d.fields(`"{" expected`, func(name string) error {
		bit := fieldBits[name]
		switch {
		case bit == 0:
			return d.errorf("unknown field %q", cli.Shorten(name))
		case has&bit != 0:
			return d.errorf("the field %q is there twice", name)
		}
		has |= bit
		return p.field(d, bit, &r)
	})
	if err != nil {
		return r, err
	}
	switch has {
	case hasFormat | hasVersion:
		r.kind = headerLine
	case hasBucket, hasBucket | hasSequence:
		r.kind = bucketLine
	case hasBucket | hasKey | hasValue:
		r.kind = keyLine
	case hasEnd | hasBuckets | hasKeys:
		r.kind = endLine
	default:
		return r, errors.New("its fields are those of no line of an export: bucket and sequence, or bucket, key and value")
	}
	return r, nil
}

// field reads the value of the field.
func (p *lineParser) field(d *decoder, bit int, r *record) (err error) {
	switch bit {
	case hasFormat:
		var b []byte
		b, err = d.text()
		p.format = string(b)
	case hasVersion:
		p.version, err = d.number()
	case hasBucket:
		r.path, err = p.bucket(d)
	case hasSequence:
		r.sequence, err = d.number()
	case hasKey:
		r.key, err = d.bytes()
	case hasValue:
		r.value, err = d.bytes()
	case hasEnd:
		_, err = d.next('t', "true expected")
	case hasBuckets:
		r.buckets, err = d.number()
	case hasKeys:
		r.keys, err = d.number()
	}
	return err
}

// bucket reads the names of a bucket and of those that it lies in. Lines with the same text
// get the same slice.
func (p *lineParser) bucket(d *decoder) ([][]byte, error) {
	text, err := d.next('[', `"[" expected`)
	if err != nil || p.path != nil && bytes.Equal(text, p.pathText) {
		return p.path, err
	}
	in, from := &p.inner, d.InputOffset()-int64(len(text))
	in.begin(text)
	in.before = from
	_, err = in.ReadToken()
	var path [][]byte
	for err == nil && in.PeekKind() != ']' {
		var name []byte
		if name, err = in.bytes(); err != nil {
			break
		}
		if len(name) == 0 {
			return nil, in.errorf("a bucket without a name")
		}
		if path = append(path, name); len(path) > maxImportDepth {
			return nil, in.errorf("a bucket in more than %s others", cli.Count(maxImportDepth))
		}
	}
	if err == nil && path == nil {
		err = in.errorf("the name of a bucket expected")
	}
	if err != nil {
		return nil, err
	}
	p.pathText, p.path = append(p.pathText[:0], text...), path
	return path, nil
}

// decoder reads JSON that lies in memory.
type decoder struct {
	jsontext.Decoder
	from   bytes.Buffer
	before int64 // bytes of the line before it
}

func (d *decoder) begin(b []byte) {
	d.from, d.before = *bytes.NewBuffer(b), 0
	d.Reset(&d.from, jsontext.AllowDuplicateNames(true)) // who reads an object looks at its names
}

// errorf is an error at what comes next.
func (d *decoder) errorf(format string, args ...any) error {
	rest := d.UnreadBuffer()
	at := d.before + d.InputOffset() + int64(len(rest)-len(bytes.TrimLeft(rest, " \t\r\n:,")))
	return fmt.Errorf("column %d: %s", at+1, fmt.Sprintf(format, args...))
}

// syntax is err, of reading what is not JSON.
func (d *decoder) syntax(err error) error {
	var e *jsontext.SyntacticError
	if errors.As(err, &e) {
		return fmt.Errorf("column %d: %w", d.before+e.ByteOffset+1, e.Err)
	}
	return d.errorf("%s", err)
}

// next reads a value of that kind. It is valid until the next call.
func (d *decoder) next(kind jsontext.Kind, otherwise string) (jsontext.Value, error) {
	if k := d.PeekKind(); k != kind && k > 0 {
		return nil, d.errorf("%s", otherwise)
	}
	value, err := d.ReadValue()
	if err != nil {
		return nil, d.syntax(err)
	}
	return value, nil
}

// fields reads an object and calls fn with each name, to read what it is of.
func (d *decoder) fields(otherwise string, fn func(name string) error) error {
	if d.PeekKind() != '{' {
		return d.errorf("%s", otherwise)
	}
	_, err := d.ReadToken()
	for err == nil {
		var name jsontext.Token
		if name, err = d.ReadToken(); err != nil || name.Kind() == '}' {
			break
		}
		if err := fn(name.String()); err != nil {
			return err
		}
	}
	if err != nil {
		return d.syntax(err)
	}
	return nil
}

// text reads a string.
func (d *decoder) text() ([]byte, error) {
	value, err := d.next('"', "a string expected")
	if err != nil {
		return nil, err
	}
	return jsontext.AppendUnquote([]byte{}, value)
}

// bytes reads bytes: a string, or an object that says how the string in it is encoded.
func (d *decoder) bytes() ([]byte, error) {
	if d.PeekKind() == '"' {
		return d.text()
	}
	const expected = `a string expected, or {"hex":"..."} or {"base64":"..."}`
	var out []byte
	n := 0
	err := d.fields(expected, func(name string) error {
		if n++; n > 1 {
			return d.errorf("a second encoding of the same")
		}
		b, err := d.text()
		if err != nil {
			return err
		}
		size := 0
		switch {
		case bytes.ContainsAny(b, "\r\n"): // which the decoder would skip
			err = errors.New("a line break in it")
		case name == "hex":
			size, err = hex.Decode(b, b)
		case name == "base64":
			size, err = strictBase64.Decode(b, b)
		default:
			return d.errorf("unknown encoding %q: there are hex and base64", cli.Shorten(name))
		}
		if err != nil {
			return d.errorf("%s: %s", name, err)
		}
		out = b[:size]
		return nil
	})
	if err == nil && n == 0 {
		err = d.errorf(expected)
	}
	return out, err
}

var strictBase64 = base64.StdEncoding.Strict()

// number reads a whole number.
func (d *decoder) number() (uint64, error) {
	const expected = "a whole number of up to 64 bits expected"
	value, err := d.next('0', expected)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(string(value), 10, 64)
	if err != nil {
		return 0, d.errorf(expected)
	}
	return n, nil
}
