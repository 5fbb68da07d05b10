package fstree

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
)

// ErrChanged: a tree was changed while its digest was computed.
var ErrChanged = errors.New("it was changed meanwhile")

// DigestOptions say how content is read for a digest.
type DigestOptions struct {
	// Fresh has files read from the disk where the system can be asked for that, and not from
	// the memory in which it keeps what was read or written lately.
	Fresh bool

	// Read is called with the number of bytes that were read since its last call; each entry
	// of a directory counts as EntryBytes besides. It may wait. Its error ends the reading,
	// and is returned. nil: nothing is called.
	Read func(n int64) error
}

// EntryBytes is what an entry of a directory counts for DigestOptions.Read.
const EntryBytes = 256

const (
	digestChunk = 1 << 20
	digestBlock = 1 << 16 // in which holes and zeros are left out: part of what a digest is
)

var zeros [digestBlock]byte

// digest is a hash of values, each of which ends where the next one begins, whatever it is.
type digest struct {
	ctx     context.Context
	options DigestOptions
	hash    hash.Hash
	scratch [8]byte
	chunk   []byte
}

func newDigest(ctx context.Context, o DigestOptions) *digest {
	return &digest{ctx: ctx, options: o, hash: sha256.New(), chunk: make([]byte, digestChunk)}
}

func (d *digest) sum() (sum [sha256.Size]byte) {
	d.hash.Sum(sum[:0])
	return sum
}

func (d *digest) number(n uint64) {
	binary.BigEndian.PutUint64(d.scratch[:], n)
	d.hash.Write(d.scratch[:])
}

func (d *digest) text(s string) {
	d.number(uint64(len(s)))
	_, _ = io.WriteString(d.hash, s) // a hash has no errors
}

// read tells that n bytes were read.
func (d *digest) read(n int64) error {
	if err := d.ctx.Err(); err != nil || d.options.Read == nil {
		return err
	}
	return d.options.Read(n)
}

// DigestFile gives the SHA-256 of the bytes of a regular file, as sha256sum does. Its last name is
// not followed if it is a symbolic link.
func DigestFile(ctx context.Context, path string, o DigestOptions) (sum [sha256.Size]byte, err error) {
	f, err := openFile(path)
	if err != nil {
		return sum, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return sum, err
	}
	if !info.Mode().IsRegular() {
		return sum, fmt.Errorf("%s is not a regular file", path)
	}
	if o.Fresh {
		forget(f)
		defer forget(f)
	}
	d := newDigest(ctx, o)
	for {
		n, err := f.Read(d.chunk)
		d.hash.Write(d.chunk[:n])
		if err := d.read(int64(n)); err != nil {
			return sum, err
		}
		if err == io.EOF {
			return d.sum(), nil
		}
		if err != nil {
			return sum, err
		}
	}
}

// blocks hashes the content of a file of a size by blocks, each with its number. What is zero is left
// out, whether it is written or a hole. data tells where from a position on there may be something
// else than a hole; io.EOF if nowhere.
func (d *digest) blocks(f io.ReaderAt, size int64, data func(at int64) (int64, error)) error {
	d.number(uint64(size))
	for at := int64(0); at < size; {
		next, err := data(at)
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		at = max(at, next&^(digestBlock-1))
		if at >= size {
			break
		}
		chunk := d.chunk[:min(digestChunk, size-at)]
		if n, err := f.ReadAt(chunk, at); n < len(chunk) {
			if err == io.EOF {
				err = ErrChanged
			}
			return err
		}
		for i := 0; i < len(chunk); i += digestBlock {
			block := chunk[i:min(i+digestBlock, len(chunk))]
			if string(block) != string(zeros[:len(block)]) {
				d.number(uint64(at+int64(i))/digestBlock + 1)
				d.hash.Write(block)
			}
		}
		if err := d.read(int64(len(chunk))); err != nil {
			return err
		}
		at += int64(len(chunk))
	}
	d.number(0)
	return nil
}

// IsGone tells of an error of Digest and DigestFile that what was to be read is not there, or that the disk
// could not read it: not that another was in the way.
func IsGone(err error) bool {
	return errors.Is(err, os.ErrNotExist) || unreadable(err)
}
