package transfer

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// What the first line of an export says.
const (
	exportFormat  = "holdfast-export"
	exportVersion = 1
)

// exportLines writes the lines of an export. An error shows when w is flushed, and in
// what the calls return that write a line.
type exportLines struct {
	w       *bufio.Writer
	buckets uint64
	keys    uint64
	bytes   uint64 // of keys and values
}

func (e *exportLines) begin() error {
	_, err := fmt.Fprintf(e.w, "{\"format\":%q,\"version\":%d}\n", exportFormat, exportVersion)
	return err
}

// end writes the last line, without which an export is not whole.
func (e *exportLines) end() error {
	_, err := fmt.Fprintf(e.w, "{\"end\":true,\"buckets\":%d,\"keys\":%d}\n", e.buckets, e.keys)
	return err
}

// bucket writes the line of a bucket. path is that of bucketPath.
func (e *exportLines) bucket(path []byte, sequence uint64) error {
	e.buckets++
	e.open(path)
	if sequence > 0 {
		fmt.Fprintf(e.w, ",\"sequence\":%d", sequence)
	}
	_, err := e.w.WriteString("}\n")
	return err
}

// key writes the line of a key in the bucket at path.
func (e *exportLines) key(path, key, value []byte) error {
	e.keys++
	e.bytes += uint64(len(key) + len(value))
	e.open(path)
	_, _ = e.w.WriteString(`,"key":`)
	writeExact(e.w, key, false)
	_, _ = e.w.WriteString(`,"value":`)
	writeExact(e.w, value, true)
	_, err := e.w.WriteString("}\n")
	return err
}

func (e *exportLines) open(path []byte) {
	_, _ = e.w.WriteString(`{"bucket":[`)
	_, _ = e.w.Write(path)
	_ = e.w.WriteByte(']')
}

// bucketPath adds name to the names of buckets as they stand in a line, without the brackets.
func bucketPath(path, name []byte) []byte {
	var b bytes.Buffer
	w := bufio.NewWriter(&b)
	if len(path) > 0 {
		_ = w.WriteByte(',')
	}
	writeExact(w, name, false)
	_ = w.Flush() // to memory
	return append(path, b.Bytes()...)
}

// writeExact writes b as JSON such that it can be read exactly: text as a string, anything
// else as {"hex":"..."} or, if it may be long, {"base64":"..."}. An error shows when w is flushed.
func writeExact(w *bufio.Writer, b []byte, long bool) {
	switch {
	case isText(b):
		writeText(w, b)
	case long:
		_, _ = w.WriteString(`{"base64":"`)
		e := base64.NewEncoder(base64.StdEncoding, w)
		_, _ = e.Write(b)
		_ = e.Close()
		_, _ = w.WriteString(`"}`)
	default:
		_, _ = w.WriteString(`{"hex":"`)
		_, _ = hex.NewEncoder(w).Write(b)
		_, _ = w.WriteString(`"}`)
	}
}

// isText tells whether b is UTF-8 that people can read: lines of characters that can be printed.
func isText(b []byte) bool {
	for len(b) > 0 {
		if c := b[0]; c >= ' ' && c < 0x7f { // most are
			b = b[1:]
			continue
		}
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 || !unicode.IsPrint(r) && r != '\n' && r != '\t' && r != '\r' {
			return false
		}
		b = b[n:]
	}
	return true
}

// writeText writes what isText as a JSON string.
func writeText(w *bufio.Writer, b []byte) {
	_ = w.WriteByte('"')
	for {
		i := bytes.IndexAny(b, "\"\\\n\t\r")
		if i < 0 {
			break
		}
		_, _ = w.Write(b[:i])
		_ = w.WriteByte('\\')
		switch b[i] {
		case '\n':
			_ = w.WriteByte('n')
		case '\t':
			_ = w.WriteByte('t')
		case '\r':
			_ = w.WriteByte('r')
		default:
			_ = w.WriteByte(b[i])
		}
		b = b[i+1:]
	}
	_, _ = w.Write(b)
	_ = w.WriteByte('"')
}
