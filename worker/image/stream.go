package image

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// compression is how an archive is compressed.
type compression string

const (
	compressNone compression = "none"
	compressGzip compression = "gzip"
	compressZstd compression = "zstd"
	compressAuto compression = "" // by its first bytes
)

// maxWindow is how much memory a zstd stream may ask for.
const maxWindow = 128 << 20

// Progress counts what an import has read. It may be looked at meanwhile.
type Progress struct {
	read, total atomic.Int64
}

// Read is how many bytes were read, of how many; of 0 if that is not known.
func (p *Progress) Read() (done, total int64) { return p.read.Load(), p.total.Load() }

// source reads compressed bytes, counts them, and ends with its context.
type source struct {
	ctx  context.Context
	r    io.Reader
	n    int64
	seen *atomic.Int64 // may be nil
}

func (s *source) Read(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := s.r.Read(p)
	s.n += int64(n)
	if s.seen != nil {
		s.seen.Add(int64(n))
	}
	return n, err
}

// bounded is what comes out of a decompressor. It ends with ErrLimit when that is too much for what went in.
type bounded struct {
	in     *source
	r      io.Reader
	n      int64
	limits Limits
	packed bool
}

func (b *bounded) Read(p []byte) (int, error) {
	if err := b.in.ctx.Err(); err != nil { // a few bytes can make many
		return 0, err
	}
	n, err := b.r.Read(p)
	b.n += int64(n)
	if b.packed && b.n > b.limits.RatioFrom && b.n/b.limits.Ratio > b.in.n {
		return n, fmt.Errorf("%w: %d bytes have expanded to %d, more than %d times as many", ErrLimit, b.in.n, b.n, b.limits.Ratio)
	}
	if err != nil && err != io.EOF && b.packed && b.in.ctx.Err() == nil {
		if errors.Is(err, zstd.ErrMagicMismatch) && b.n > 0 {
			return n, errAfterEnd
		}
		err = malformed(err)
	}
	return n, err
}

var errAfterEnd = fmt.Errorf("%w: there is something after the end of the compressed data; an archive that is whole ends there", ErrFormat)

// malformed is an error of reading bytes that should have been a certain format.
func malformed(err error) error {
	if errors.Is(err, ErrFormat) || errors.Is(err, ErrLimit) || errors.Is(err, ErrDigest) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: cut off", ErrFormat)
	}
	// What the decoder says, without the name of its package.
	text := err.Error()
	for _, name := range []string{"archive/tar: ", "gzip: ", "flate: ", "zstd: "} {
		text = strings.TrimPrefix(text, name)
	}
	return fmt.Errorf("%w: %w", ErrFormat, reworded{text, err})
}

// reworded is an error with another text.
type reworded struct {
	text string
	err  error
}

func (r reworded) Error() string { return r.text }
func (r reworded) Unwrap() error { return r.err }

// decompress reads what is compressed in s. close gives up what that needs.
func decompress(s *source, how compression, limits Limits) (b *bounded, closer func(), err error) {
	b, closer = &bounded{in: s, limits: limits, packed: true}, func() {}
	head := bufio.NewReaderSize(s, 64<<10)
	if how == compressAuto {
		if how, err = sniff(head); err != nil {
			return nil, nil, err
		}
	}
	switch how {
	case compressNone:
		b.packed, b.r = false, head
	case compressGzip:
		z, err := gzip.NewReader(head)
		if err != nil {
			return nil, nil, malformed(err)
		}
		b.r, closer = &members{z: z, in: head}, func() { _ = z.Close() }
	case compressZstd:
		z, err := zstd.NewReader(head, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, nil, malformed(err)
		}
		b.r, closer = z, z.Close
	default:
		return nil, nil, fmt.Errorf("%w: the compression %q", ErrFormat, how)
	}
	return b, closer, nil
}

// members reads a gzip file, which has any number of members, one after the other, and may be filled with
// zeros. What package gzip says of anything else after a member is what it says of a file that is cut off,
// or is not a gzip file.
type members struct {
	z       *gzip.Reader
	in      *bufio.Reader
	started bool
}

func (m *members) Read(p []byte) (int, error) {
	if !m.started {
		m.z.Multistream(false)
		m.started = true
	}
	for {
		n, err := m.z.Read(p)
		if err != io.EOF || n > 0 {
			if err == io.EOF {
				err = nil // it comes again
			}
			return n, err
		}
		if err := m.next(); err != nil {
			return 0, err
		}
	}
}

// next goes on to the next member, io.EOF if there is none.
func (m *members) next() error {
	head, err := m.in.Peek(2)
	switch {
	case len(head) == 0:
		return err
	case len(head) == 2 && head[0] == 0x1f && head[1] == 0x8b:
		if err := m.z.Reset(m.in); err != nil {
			return err
		}
		m.z.Multistream(false)
		return nil
	}
	for after := 0; ; after++ {
		switch one, err := m.in.ReadByte(); {
		case err != nil:
			return err
		case one != 0:
			return errAfterEnd
		case after >= maxAfterEnd:
			return fmt.Errorf("%w: more than %d MiB after the end of the compressed data", ErrFormat, maxAfterEnd>>20)
		}
	}
}

// Compressions by their first bytes, those included that are not read.
var magics = []struct {
	bytes string
	name  compression
	next  string
}{
	{"\x1f\x8b", compressGzip, ""},
	{"\x28\xb5\x2f\xfd", compressZstd, ""},
	{"\xfd7zXZ\x00", "xz", "xz -d"},
	{"BZh", "bzip2", "bzip2 -d"},
	{"\x04\x22\x4d\x18", "lz4", "lz4 -d"},
}

// skippable follows one of the bytes 0x50 to 0x5f in a frame of zstd that is to be skipped, with which pzstd begins a
// stream.
const skippable = "\x2a\x4d\x18"

func sniff(r *bufio.Reader) (compression, error) {
	head, err := r.Peek(6)
	if err != nil && err != io.EOF {
		return "", err
	}
	for _, m := range magics {
		if bytes.HasPrefix(head, []byte(m.bytes)) {
			if m.next != "" {
				return "", fmt.Errorf("%w: compressed with %s, which is not read: decompress it first (%s)", ErrFormat, m.name, m.next)
			}
			return m.name, nil
		}
	}
	if len(head) >= 4 && head[0]&0xf0 == 0x50 && string(head[1:4]) == skippable {
		return compressZstd, nil
	}
	return compressNone, nil
}

// endReader tells whether what was read since reset ends with a block of zeros, as archives do.
type endReader struct {
	r     io.Reader
	zeros int // at the end
}

func (e *endReader) Read(p []byte) (int, error) {
	n, err := e.r.Read(p)
	if rest := len(bytes.TrimRight(p[:n], "\x00")); rest > 0 {
		e.zeros = n - rest
	} else {
		e.zeros = min(e.zeros+n, 1<<20)
	}
	return n, err
}

func (e *endReader) reset()      { e.zeros = 0 }
func (e *endReader) ended() bool { return e.zeros >= 512 }
