package step

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"holdfast/worker/internal/fstree"
)

// MaxStdin is how many bytes the standard input of a step may have.
const MaxStdin = 64 << 20

// input is the standard input of a step by content.
type input struct {
	sum  fstree.Sum
	size int64
}

// checkStdin is an error if a step cannot have its standard input.
func (s *Step) checkStdin() error {
	if s.Stdin == nil {
		return nil
	}
	info, err := s.Stdin.Stat()
	if err != nil {
		return fmt.Errorf("%w: the standard input: %w", ErrInvalid, err)
	}
	if !info.Mode().IsRegular() {
		return invalidf("the standard input is no regular file; copy it to one")
	}
	if info.Size() > MaxStdin {
		return invalidf("the standard input has %d bytes, %d are possible; give a file by a mount", info.Size(), MaxStdin)
	}
	return nil
}

// lookAtStdin finds out the content of a step's standard input.
func lookAtStdin(ctx context.Context, f *os.File) (in input, err error) {
	if f == nil {
		return in, nil
	}
	info, err := f.Stat()
	if err != nil {
		return in, fmt.Errorf("step: standard input: %w", err)
	}
	in.size = info.Size()
	hash := sha256.New()
	if _, err := io.Copy(hash, &untilDone{ctx, io.NewSectionReader(f, 0, in.size)}); err != nil {
		return in, fmt.Errorf("step: standard input: %w", err)
	}
	hash.Sum(in.sum[:0])
	return in, nil
}

// untilDone reads until a context ends.
type untilDone struct {
	ctx context.Context
	io.Reader
}

func (r *untilDone) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(b)
}

func (in *input) appendKey(b []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(in.size)), in.sum[:]...)
}

// feed gives a job its standard input, by a pipe: the file itself is out of the step's reach. end is called when the
// command has ended.
func (f *flight) feed(j *job) (end func() error, err error) {
	if f.stdin == nil {
		return func() error { return nil }, nil
	}
	in, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	j.in = in
	fed := make(chan error, 1)
	go func() {
		hash := sha256.New()
		n, err := io.Copy(out, io.TeeReader(io.NewSectionReader(f.stdin, 0, f.plan.stdin.size), hash))
		if err == nil && (n != f.plan.stdin.size || fstree.Sum(hash.Sum(nil)) != f.plan.stdin.sum) {
			err = fstree.ErrChanged
		}
		_ = out.Close()
		fed <- err
	}()
	return func() error {
		_, _ = in.Close(), out.Close()
		err := <-fed
		if err == nil || errors.Is(err, syscall.EPIPE) || errors.Is(err, os.ErrClosed) { // the command did not read all
			return nil
		}
		return fmt.Errorf("standard input: %w", err)
	}, nil
}
