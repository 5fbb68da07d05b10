package transfer

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

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
	s []byte
	i int

	format  string
	version uint64

	// The bucket of the line before, which most lines have too.
	pathText []byte
	path     [][]byte
}

// parse reads a line. What it returns does not refer to s.
func (p *lineParser) parse(s []byte) (record, error) {
	p.s, p.i = s, 0
	r, err := p.object()
	if err != nil {
		return record{}, err
	}
	if p.space(); p.i < len(p.s) {
		return record{}, p.errorf("something follows the object")
	}
	return r, nil
}

func (p *lineParser) object() (record, error) {
	var r record
	has := 0
	if err := p.fields(func(name string) error {
		bit := fieldBits[name]
		switch {
		case bit == 0:
			return p.errorf("unknown field %q", cli.Shorten(name))
		case has&bit != 0:
			return p.errorf("the field %q is there twice", name)
		}
		has |= bit
		return p.field(bit, &r)
	}); err != nil {
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
func (p *lineParser) field(bit int, r *record) (err error) {
	switch bit {
	case hasFormat:
		var b []byte
		b, err = p.str()
		p.format = string(b)
	case hasVersion:
		p.version, err = p.number()
	case hasBucket:
		r.path, err = p.bucket()
	case hasSequence:
		r.sequence, err = p.number()
	case hasKey:
		r.key, err = p.bytes()
	case hasValue:
		r.value, err = p.bytes()
	case hasEnd:
		if p.space(); !bytes.HasPrefix(p.s[p.i:], []byte("true")) {
			return p.errorf("true expected")
		}
		p.i += len("true")
	case hasBuckets:
		r.buckets, err = p.number()
	case hasKeys:
		r.keys, err = p.number()
	}
	return err
}

// fields reads an object and calls fn with each name, to read what it is of.
func (p *lineParser) fields(fn func(name string) error) error {
	if err := p.want('{'); err != nil {
		return err
	}
	if p.take('}') {
		return nil
	}
	for {
		p.space()
		name, err := p.str()
		if err != nil {
			return err
		}
		if err := p.want(':'); err != nil {
			return err
		}
		if err := fn(string(name)); err != nil {
			return err
		}
		if p.take('}') {
			return nil
		}
		if err := p.want(','); err != nil {
			return err
		}
	}
}

// bucket reads the names of a bucket and of those that it lies in. Lines with the same text
// get the same slice.
func (p *lineParser) bucket() ([][]byte, error) {
	p.space()
	if n := len(p.pathText); n > 0 && bytes.HasPrefix(p.s[p.i:], p.pathText) {
		p.i += n // it ends with its bracket, so it is all of it
		return p.path, nil
	}
	from := p.i
	if err := p.want('['); err != nil {
		return nil, err
	}
	var path [][]byte
	for {
		name, err := p.bytes()
		if err != nil {
			return nil, err
		}
		if len(name) == 0 {
			return nil, p.errorf("a bucket without a name")
		}
		if path = append(path, name); len(path) > maxImportDepth {
			return nil, p.errorf("a bucket in more than %s others", cli.Count(maxImportDepth))
		}
		if p.take(']') {
			break
		}
		if err := p.want(','); err != nil {
			return nil, err
		}
	}
	p.pathText, p.path = append(p.pathText[:0], p.s[from:p.i]...), path
	return path, nil
}

// bytes reads bytes: a string, or an object that says how the string in it is encoded.
func (p *lineParser) bytes() ([]byte, error) {
	if p.space(); p.i < len(p.s) && p.s[p.i] == '"' {
		b, err := p.str()
		return bytes.Clone(b), err
	}
	var out []byte
	n := 0
	err := p.fields(func(name string) error {
		if n++; n > 1 {
			return p.errorf("a second encoding of the same")
		}
		p.space()
		b, err := p.str()
		switch {
		case err != nil:
		case bytes.ContainsAny(b, "\r\n"): // which the decoder would skip
			err = errors.New("a line break in it")
		case name == "hex":
			out = make([]byte, hex.DecodedLen(len(b)))
			_, err = hex.Decode(out, b)
		case name == "base64":
			out = make([]byte, base64.StdEncoding.DecodedLen(len(b)))
			var size int
			size, err = strictBase64.Decode(out, b)
			out = out[:size]
		default:
			return p.errorf("unknown encoding %q: there are hex and base64", cli.Shorten(name))
		}
		if err != nil {
			return p.errorf("%s: %s", name, err)
		}
		return nil
	})
	if err == nil && n == 0 {
		err = p.errorf(`a string expected, or {"hex":"..."} or {"base64":"..."}`)
	}
	return out, err
}

var strictBase64 = base64.StdEncoding.Strict()

// number reads a whole number.
func (p *lineParser) number() (uint64, error) {
	p.space()
	from := p.i
	for p.i < len(p.s) && p.s[p.i] >= '0' && p.s[p.i] <= '9' {
		p.i++
	}
	text := string(p.s[from:p.i])
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || len(text) > 1 && text[0] == '0' {
		p.i = from
		return 0, p.errorf("a whole number of up to 64 bits expected")
	}
	return n, nil
}

// str reads a string. The result may refer to the line.
func (p *lineParser) str() ([]byte, error) {
	if p.i >= len(p.s) || p.s[p.i] != '"' {
		return nil, p.errorf("a string expected")
	}
	p.i++
	from, escaped := p.i, false
	for {
		end := bytes.IndexAny(p.s[p.i:], `"\`)
		if end < 0 {
			p.i = from
			return nil, p.errorf("the string has no end")
		}
		p.i += end + 1
		if p.s[p.i-1] == '"' {
			break
		}
		escaped = true
		p.i++ // what is escaped
		if p.i > len(p.s) {
			p.i = len(p.s)
		}
	}
	b := p.s[from : p.i-1]
	for i, c := range b {
		if c < ' ' {
			p.i = from + i
			return nil, p.errorf("a control character in a string")
		}
	}
	if !utf8.Valid(b) {
		p.i = from
		return nil, p.errorf("a string that is not UTF-8: what is no text has to be encoded as hex or base64")
	}
	if !escaped {
		return b, nil
	}
	out, err := unescape(b)
	if err != nil {
		p.i = from
		return nil, p.errorf("%s", err)
	}
	return out, nil
}

// escapes are what stands behind a backslash, but for u, and what it means.
var escapes = strings.NewReplacer("b", "\b", "f", "\f", "n", "\n", "r", "\r", "t", "\t")

// unescape resolves the escapes of a JSON string.
func unescape(b []byte) ([]byte, error) {
	out := make([]byte, 0, len(b))
	for {
		i := bytes.IndexByte(b, '\\')
		if i < 0 {
			return append(out, b...), nil
		}
		out, b = append(out, b[:i]...), b[i+1:]
		c := b[0] // there is one: a string does not end with a backslash
		b = b[1:]
		if c != 'u' {
			if !strings.ContainsRune(`"\/bfnrt`, rune(c)) {
				return nil, fmt.Errorf("an escape that JSON does not have: \\%s", cli.Show([]byte{c}))
			}
			out = append(out, escapes.Replace(string(rune(c)))...)
			continue
		}
		r, err := hexRune(b)
		if err != nil {
			return nil, err
		}
		b = b[4:]
		if utf16.IsSurrogate(r) {
			low := rune(-1)
			if bytes.HasPrefix(b, []byte(`\u`)) {
				if low, err = hexRune(b[2:]); err != nil {
					return nil, err
				}
				b = b[6:]
			}
			if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
				return nil, errors.New("half of a pair of \\u escapes")
			}
		}
		out = utf8.AppendRune(out, r)
	}
}

func hexRune(b []byte) (rune, error) {
	if len(b) < 4 {
		return 0, errors.New("\\u without four digits")
	}
	n, err := strconv.ParseUint(string(b[:4]), 16, 16)
	if err != nil {
		return 0, errors.New("\\u without four digits")
	}
	return rune(n), nil
}

// space skips what may stand between the parts of JSON.
func (p *lineParser) space() {
	for p.i < len(p.s) && strings.IndexByte(" \t\r\n", p.s[p.i]) >= 0 {
		p.i++
	}
}

// take skips c if it comes next.
func (p *lineParser) take(c byte) bool {
	if p.space(); p.i < len(p.s) && p.s[p.i] == c {
		p.i++
		return true
	}
	return false
}

func (p *lineParser) want(c byte) error {
	if !p.take(c) {
		return p.errorf("%q expected", string(c))
	}
	return nil
}

// errorf is an error at where the parser is.
func (p *lineParser) errorf(format string, args ...any) error {
	return fmt.Errorf("column %d: %s", p.i+1, fmt.Sprintf(format, args...))
}
