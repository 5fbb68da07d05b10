package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync/atomic"
)

// Input is an open input.
type Input struct {
	Name string
	Size int64 // 0 if it is not known
	Done atomic.Int64
	ctx  context.Context
	File *os.File // nil: standard input
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

// InputChunk is how many bytes are read at a time.
const InputChunk = 1 << 16

// OpenInput opens the file, or standard input if there is none. Reading it ends when ctx does.
func (c *Call) OpenInput(ctx context.Context, path string) (*Input, error) {
	in := &Input{Name: "standard input", from: c.Cmd.InOrStdin()}
	in.ctx, in.cancel = context.WithCancel(ctx)
	if path != "" && path != "-" {
		f, err := openAwaited(ctx, path)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			in.cancel()
			return nil, &FileError{File: path, What: "interrupted before there was anything to read", Err: ctx.Err()}
		case errors.Is(err, fs.ErrNotExist):
			in.cancel()
			return nil, &FileError{File: path, What: "no such file", Next: SimilarFile(path), Err: err}
		default:
			in.cancel()
			return nil, c.Explain(path, err)
		}
		in.Name, in.File, in.from = path, f, f
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			in.Size = info.Size()
		}
	}
	in.chunks, in.free = make(chan chunk), make(chan []byte, 2)
	in.free <- make([]byte, InputChunk)
	in.free <- make([]byte, InputChunk)
	go in.fetch()
	return in, nil
}

// Close ends reading. A read of standard input that waits for more goes on by itself.
func (in *Input) Close() {
	in.cancel()
	if in.File != nil {
		_ = in.File.Close() // it was only read
	}
}

func (in *Input) fetch() {
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
func (in *Input) ended(total int64) error {
	if in.File == nil || total >= in.Size {
		return io.EOF
	}
	info, err := in.File.Stat()
	if err != nil {
		return err
	}
	if info.Size() < in.Size {
		return fmt.Errorf("%w: from %s to %s", errCut, SizeExactly(in.Size), SizeExactly(info.Size()))
	}
	return io.EOF
}

// Err is the error that reading has ended with; io.EOF at the end, nil before.
func (in *Input) Err() error { return in.last.err }

// Read reads what comes next.
func (in *Input) Read(b []byte) (int, error) {
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
			in.Done.Add(int64(in.last.n))
		case <-in.ctx.Done():
			return 0, in.ctx.Err()
		}
	}
	n := copy(b, in.rest)
	in.rest = in.rest[n:]
	return n, nil
}
