// Package patient waits for what may never come, such as a writer of a named pipe or input at a terminal, until a
// context ends.
package patient

import (
	"context"
	"io"
	"os"
)

// Open opens the file at path for reading. Of a named pipe that nothing writes to, os.Open would never return.
func Open(ctx context.Context, path string) (*os.File, error) {
	type opened struct {
		f   *os.File
		err error
	}
	done := make(chan opened)
	go func() {
		f, err := os.Open(path)
		select {
		case done <- opened{f, err}:
		case <-ctx.Done():
			_ = f.Close() // nil says so
		}
	}()
	select {
	case o := <-done:
		return o.f, o.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// size is how much is read at a time.
const size = 64 << 10

type reader struct {
	ctx   context.Context
	from  io.Reader
	buf   []byte // of the Read under way; not that of a caller, who may be gone when it ends
	ready []byte // what is read and not given out
	err   error
}

// NewReader reads from a reader until ctx ends; a Read of from that is under way then goes on, and its
// bytes are lost.
func NewReader(ctx context.Context, from io.Reader) io.Reader {
	return &reader{ctx: ctx, from: from, buf: make([]byte, size)}
}

func (r *reader) Read(p []byte) (int, error) {
	if len(r.ready) == 0 && r.err == nil {
		r.fill()
	}
	if len(r.ready) == 0 {
		return 0, r.err
	}
	n := copy(p, r.ready)
	r.ready = r.ready[n:]
	return n, nil
}

// fill reads once.
func (r *reader) fill() {
	if r.err = r.ctx.Err(); r.err != nil {
		return
	}
	type read struct {
		n   int
		err error
	}
	done := make(chan read, 1)
	go func() {
		n, err := r.from.Read(r.buf)
		done <- read{n, err}
	}()
	select {
	case got := <-done:
		r.ready, r.err = r.buf[:got.n], got.err
	case <-r.ctx.Done():
		r.err = r.ctx.Err()
	}
}
