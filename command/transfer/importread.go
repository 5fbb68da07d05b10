package transfer

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"holdfast/command/cli"
)

// Bounds of --max-line, in bytes.
const (
	minLine = 1 << 10
	maxLine = 8 << 30
)

// source gives what is to be imported, io.EOF at its end. Errors do not name the input.
type source interface {
	next() (record, error)
}

// lineError is an error in a line of the input.
type lineError struct {
	line int64
	err  error
}

func (e *lineError) Error() string { return fmt.Sprintf("line %d: %s", e.line, e.err) }
func (e *lineError) Unwrap() error { return e.err }

// lines is an export as a source.
type lines struct {
	r       *bufio.Reader
	max     int64
	parser  lineParser
	long    []byte // a line that is longer than the reader's buffer
	n       int64  // the number of the line
	ended   bool   // the last line was there
	buckets uint64
	keys    uint64
}

func newLines(r io.Reader, maxLine int64) *lines {
	return &lines{r: bufio.NewReaderSize(r, cli.InputChunk), max: maxLine}
}

// line reads a line with the line break. At the end of the input there may be none.
func (l *lines) line() ([]byte, error) {
	l.n++
	l.long = l.long[:0]
	for {
		part, err := l.r.ReadSlice('\n')
		switch {
		case int64(len(l.long)+len(part)) > l.max:
			return nil, errLongLine(l.max)
		case errors.Is(err, bufio.ErrBufferFull):
			l.long = append(l.long, part...)
			continue
		case err != nil && (err != io.EOF || len(part)+len(l.long) == 0):
			return nil, err
		case len(l.long) == 0:
			return part, nil
		}
		l.long = append(l.long, part...)
		return l.long, nil
	}
}

func errLongLine(limit int64) error {
	return fmt.Errorf("longer than %s; --max-line allows more, which takes as much memory", cli.Size(limit))
}

// next gives the buckets and keys, and checks what the first and the last line say.
func (l *lines) next() (record, error) {
	for {
		text, err := l.line()
		switch {
		case err == io.EOF && l.n == 1:
			return record{}, errors.New("the input is empty: an export begins with a line that names its format")
		case err == io.EOF && !l.ended:
			return record{}, fmt.Errorf("the input is cut off after line %d: the line is missing that ends an export", l.n-1)
		case err == io.EOF:
			return record{}, io.EOF
		case err != nil:
			return record{}, &lineError{l.n, err}
		case l.ended:
			return record{}, &lineError{l.n, errors.New("something follows the line that ends an export")}
		}
		r, err := l.parser.parse(text)
		switch {
		case err != nil && l.n == 1:
			err = fmt.Errorf("this does not begin as an export: %w", err)
		case err != nil && text[len(text)-1] != '\n':
			err = fmt.Errorf("the input is cut off in this line: %w", err)
		case err == nil:
			err = l.check(r)
		}
		if err != nil {
			return record{}, &lineError{l.n, err}
		}
		if r.kind == bucketLine || r.kind == keyLine {
			r.line = l.n
			return r, nil
		}
	}
}

// check compares a line with those before it.
func (l *lines) check(r record) error {
	if (l.n == 1) != (r.kind == headerLine) {
		return fmt.Errorf(`the first line, and no other, is {"format":%q,"version":%d}`, exportFormat, exportVersion)
	}
	switch r.kind {
	case headerLine:
		if l.parser.format != exportFormat {
			return fmt.Errorf("the format is %q and not %q", cli.Shorten(l.parser.format), exportFormat)
		}
		if l.parser.version != exportVersion {
			return fmt.Errorf("version %d of the format: this command knows version %d", l.parser.version, exportVersion)
		}
	case bucketLine:
		l.buckets++
	case keyLine:
		l.keys++
	case endLine:
		l.ended = true
		if r.buckets != l.buckets || r.keys != l.keys {
			return fmt.Errorf("the export had %d buckets and %d keys, and here are %d and %d: lines are missing or there twice", r.buckets, r.keys, l.buckets, l.keys)
		}
	}
	return nil
}
