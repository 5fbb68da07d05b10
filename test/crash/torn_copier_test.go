package crash

import (
	"io"
	"math/rand/v2"
	"slices"
	"sync"

	"holdfast/internal/vfs"
)

// copier copies a file page by page, as tools do, while it is written: some pages
// before each piece of a write.
type copier struct {
	mu     sync.Mutex
	file   vfs.File
	size   int     // of a page
	order  []int64 // of the pages that are still to be copied
	chunk  int     // pages at a time
	often  float64 // how many times before each piece of a write
	rng    *rand.Rand
	copied []byte
	begun  bool
	toEnd  bool // goes on to what is the end of the file then

	identity uint64 // of the file
}

// The orders in which pages are copied.
const (
	frontToBack = iota
	backToFront
	shuffled
	chunksShuffled
	orders
)

var orderNames = [orders]string{"front to back", "back to front", "in any order", "in pieces in any order"}

// begin begins a copy.
func (c *copier) begin(order, chunk int, often float64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	size, err := c.file.Size()
	if err != nil {
		return err
	}
	n := size / int64(c.size)
	c.order, c.chunk, c.often, c.begun, c.toEnd = nil, chunk, often, true, order == frontToBack
	c.copied = make([]byte, size)
	for i := range n {
		c.order = append(c.order, i)
	}
	switch order {
	case backToFront:
		slices.Reverse(c.order)
	case shuffled:
		c.rng.Shuffle(len(c.order), func(i, j int) { c.order[i], c.order[j] = c.order[j], c.order[i] })
	case chunksShuffled:
		pieces := slices.Collect(slices.Chunk(c.order, chunk))
		c.rng.Shuffle(len(pieces), func(i, j int) { pieces[i], pieces[j] = pieces[j], pieces[i] })
		c.order = slices.Concat(pieces...)
	}
	return nil
}

// done tells whether all is copied.
func (c *copier) done() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.order) == 0
}

// step is called before a piece of a write.
func (c *copier) step() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.begun {
		return nil
	}
	for often := c.often; often > 0 && len(c.order) > 0; often-- {
		if c.rng.Float64() >= often {
			break
		}
		for range min(c.chunk, len(c.order)) {
			if err := c.page(c.order[0]); err != nil {
				return err
			}
			c.order = c.order[1:]
		}
		size, err := c.file.Size()
		if err != nil {
			return err
		}
		if len(c.order) == 0 && c.toEnd {
			for at := int64(len(c.copied)); at < size; at += int64(c.size) {
				c.order = append(c.order, at/int64(c.size))
				c.copied = append(c.copied, make([]byte, c.size)...)
			}
		}
	}
	return nil
}

// page copies a page. What was cut off meanwhile is zero.
func (c *copier) page(n int64) error {
	at := n * int64(c.size)
	_, err := c.file.ReadAt(c.copied[at:][:c.size], at)
	if err == io.EOF {
		err = nil
	}
	return err
}

// copiedFile is a file that is copied while it is written.
type copiedFile struct {
	vfs.File
	c *copier
}

func (f copiedFile) WriteAt(p []byte, off int64) (int, error) {
	return len(p), f.WriteVec([][]byte{p}, off)
}

// WriteVec writes page by page.
func (f copiedFile) WriteVec(bufs [][]byte, off int64) error {
	for _, b := range bufs {
		for piece := range slices.Chunk(b, f.c.size) {
			if err := f.c.step(); err != nil {
				return err
			}
			if _, err := f.File.WriteAt(piece, off); err != nil {
				return err
			}
			off += int64(len(piece))
		}
	}
	return nil
}

// Identity tells the file from its copy.
func (f copiedFile) Identity() uint64 { return f.c.identity }

// Sync is a moment for a copy too.
func (f copiedFile) Sync() error {
	if err := f.c.step(); err != nil {
		return err
	}
	return f.File.Sync()
}
