package pager

import (
	"fmt"
	"holdfast/internal/vfs"
)

// lengthChecks is how many transactions that are not flushed share a check: it is a
// system call, and took 3% of their time.
const lengthChecks = 16

// checkLength stops the writer if the file is shorter than we left it. A commit
// would acknowledge what stands on pages that are no more.
func (p *Pager) checkLength() error {
	size, err := p.file.Size()
	if err != nil {
		return err
	}
	if size < p.fileSize {
		return p.stop(fmt.Errorf("the file was shortened from outside to %d bytes while it was open, from %d", size, p.fileSize))
	}
	return nil
}

// minFileSize is the size to which the first growth takes a file, in bytes.
const minFileSize = 32 << 10

// grow makes the file at least need bytes long. It grows in steps, as bbolt
// does: powers of two up to AllocSize, AllocSize more than needed from there on.
func (p *Pager) grow(need int64, opts CommitOptions) error {
	if need > p.fileSize {
		size := int64(minFileSize)
		if need <= opts.AllocSize {
			for size < need {
				size *= 2
			}
		} else {
			size = need + opts.AllocSize
		}
		if opts.MaxSize > 0 && size > opts.MaxSize { // the step counts, as with bbolt
			return ErrMaxSizeReached
		}
		size, err := p.growTo(size, need)
		if err != nil {
			return err
		}
		p.fileSize, p.noRoom = size, false
	}
	return p.remap(need)
}

// growTo makes the file size bytes long, or shorter, down to need bytes, if the
// disk has no room for more, and returns its size.
func (p *Pager) growTo(size, need int64) (int64, error) {
	for {
		err := p.file.Grow(size)
		if err == nil {
			return size, nil
		}
		if size == need || !vfs.IsFull(err) {
			return 0, err
		}
		extra := (size - need) / 2
		if extra < minFileSize {
			extra = 0
		}
		size = need + extra/int64(p.pageSize)*int64(p.pageSize)
	}
}
