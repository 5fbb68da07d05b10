package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync/atomic"
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

// input is an open input.
type input struct {
	name string
	size int64 // 0 if it is not known
	read atomic.Int64
	ctx  context.Context
	file *os.File // nil: standard input
	from io.Reader

	// What a goroutine has read, so that an interruption does not wait for more.
	chunks chan chunk
	free   chan []byte
	last   chunk
	rest   []byte
	cancel context.CancelFunc
}

type chunk struct {
	buf []byte
	n   int
	err error
}

// inputChunk is how many bytes are read at a time.
const inputChunk = 1 << 16

// openInput opens the file, or standard input if there is none. Reading it ends when ctx does.
func (c *call) openInput(ctx context.Context, path string) (*input, error) {
	in := &input{name: "standard input", from: c.cmd.InOrStdin()}
	in.ctx, in.cancel = context.WithCancel(ctx)
	if path != "" && path != "-" {
		f, err := openAwaited(ctx, path)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			in.cancel()
			return nil, &fileError{file: path, what: "interrupted before there was anything to read", err: ctx.Err()}
		case errors.Is(err, fs.ErrNotExist):
			in.cancel()
			return nil, &fileError{file: path, what: "no such file", next: similarFile(path), err: err}
		default:
			in.cancel()
			return nil, c.explain(path, err)
		}
		in.name, in.file, in.from = path, f, f
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			in.size = info.Size()
		}
	}
	in.chunks, in.free = make(chan chunk), make(chan []byte, 2)
	in.free <- make([]byte, inputChunk)
	in.free <- make([]byte, inputChunk)
	go in.fetch()
	return in, nil
}

// close ends reading. A read of standard input that waits for more goes on by itself.
func (in *input) close() {
	in.cancel()
	if in.file != nil {
		_ = in.file.Close() // it was only read
	}
}

func (in *input) fetch() {
	for total := int64(0); ; {
		var buf []byte
		select {
		case buf = <-in.free:
		case <-in.ctx.Done():
			return
		}
		n, err := in.from.Read(buf)
		if total += int64(n); err == io.EOF {
			err = in.ended(total)
		}
		select {
		case in.chunks <- chunk{buf, n, err}:
		case <-in.ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

var errCut = errors.New("the file was made shorter while it was read")

// ended is io.EOF, or an error if the file ended after so many bytes because it was cut off since it was opened.
// Those that a system makes up, as in /sys, have fewer bytes than their size says, and keep it.
func (in *input) ended(total int64) error {
	if in.file == nil || total >= in.size {
		return io.EOF
	}
	info, err := in.file.Stat()
	if err != nil {
		return err
	}
	if info.Size() < in.size {
		return fmt.Errorf("%w: from %s to %s", errCut, sizeExactly(in.size), sizeExactly(info.Size()))
	}
	return io.EOF
}

// Read reads what comes next.
func (in *input) Read(b []byte) (int, error) {
	for len(in.rest) == 0 {
		if in.last.err != nil {
			return 0, in.last.err
		}
		if in.last.buf != nil {
			in.free <- in.last.buf
			in.last.buf = nil
		}
		select {
		case in.last = <-in.chunks:
			in.rest = in.last.buf[:in.last.n]
			in.read.Add(int64(in.last.n))
		case <-in.ctx.Done():
			return 0, in.ctx.Err()
		}
	}
	n := copy(b, in.rest)
	in.rest = in.rest[n:]
	return n, nil
}

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
	return &lines{r: bufio.NewReaderSize(r, inputChunk), max: maxLine}
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
	return fmt.Errorf("longer than %s; --max-line allows more, which takes as much memory", size(limit))
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
			return fmt.Errorf("the format is %q and not %q", shorten(l.parser.format), exportFormat)
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
