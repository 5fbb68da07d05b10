package vfs

import (
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
)

// Crash is a file in memory that knows which of its bytes have been flushed: a
// disk under a page cache. Its handles see all that was written; Disks gives
// what a power failure now could leave.
//
// The model is that of docs/design.md. What was flushed stays. Of what was
// written since, each block survives or not, by itself, in any of the versions
// that were written, or as garbage. Changes of the size happen in their order,
// up to some point. Where the file was cut off, and has grown again, are zeros, what
// was there before, or garbage. A flush covers what was written before it began.
//
// A flush that fails (see FailSync) leaves some blocks on the disk and drops
// the others for good: handles go on to see them, as Linux lets them, but no
// later flush writes them. DropCache brings the disk's version back, in its
// range and no further, and nowhere while anything is mapped. The size is not
// lost: file systems keep it in their journal, and a later flush writes it.
//
// Methods may be called concurrently.
type Crash struct {
	cache *Mem
	after func(Kind)

	mu       sync.Mutex
	stable   []byte         // on the disk for certain
	pending  []change       // since, in order
	dropped  map[int64]bool // units of the cache with what a failed flush dropped
	syncFail func(rng *rand.Rand) error
	failRNG  *rand.Rand
}

// change is bytes written at off or, without bytes, the size becoming off.
type change struct {
	off  int64
	data []byte
}

// NewCrash returns a file whose disk holds a copy of content. after, if not
// nil, is called after each call that changes the file or its disk: KindWrite,
// KindTruncate, KindGrow, KindSync. It may call Disks, but not use the handle.
func NewCrash(name string, content []byte, after func(Kind)) *Crash {
	if after == nil {
		after = func(Kind) {}
	}
	c := &Crash{cache: NewMem(name), stable: slices.Clone(content), dropped: map[int64]bool{}, after: after}
	c.cache.write(content, 0)
	return c
}

// Open returns a new handle.
func (c *Crash) Open() File { return &crashFile{File: c.cache.Open(), c: c} }

// OpenAhead returns a new handle that can be mapped beyond the end, by so many bytes:
// such a file can also be cut off below a mapping.
func (c *Crash) OpenAhead(room int64) File {
	return &crashFile{File: c.cache.Open(), c: c, ahead: room}
}

// Bytes is a copy of what handles see.
func (c *Crash) Bytes() []byte { return c.cache.Bytes() }

// FailSync makes the next flush fail with err. rng decides what of it reaches
// the disk all the same.
func (c *Crash) FailSync(rng *rand.Rand, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failRNG = rng
	c.syncFail = func(*rand.Rand) error { return err }
}

func (c *Crash) record(kind Kind, ch change) {
	c.mu.Lock()
	c.pending = append(c.pending, ch)
	c.mu.Unlock()
	c.after(kind)
}

func (c *Crash) sync() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.syncFail != nil {
		err := c.syncFail(c.failRNG)
		c.syncFail = nil
		c.loseSome()
		return err
	}
	c.stable = everything.apply(c.stable, c.pending, nil)
	c.pending = nil
	return nil
}

// loseSome is what a failed flush does to the pending changes.
func (c *Crash) loseSome() {
	for u := range units(c.pending) {
		c.dropped[u] = true
	}
	half := policy{block: smallestBlock, newest: 0.5, older: 0.5}
	size := everything.size(c.stable, c.pending, nil)
	c.stable = half.apply(c.stable, c.pending, c.failRNG)
	c.pending = nil
	if size != int64(len(c.stable)) {
		c.pending = []change{{off: size}}
	}
}

// written are the pending changes that are bytes: a size alone is not a page of the
// cache.
func (c *Crash) written() []change {
	return slices.DeleteFunc(slices.Clone(c.pending), func(ch change) bool { return ch.data == nil })
}

// cacheUnit is the size in bytes of what is cached, and forgotten, as a whole.
const cacheUnit = 4096

// units are the numbers of the cache units that changes have written to.
func units(changes []change) map[int64]bool {
	all := map[int64]bool{}
	for _, ch := range changes {
		for u := ch.off / cacheUnit; u*cacheUnit < ch.off+int64(len(ch.data)); u++ {
			all[u] = true
		}
	}
	return all
}

// dropCache shows handles the disk's version of what failed flushes dropped in
// the units that the range touches. As with Linux, a unit that is mapped (here,
// any while there is a mapping) or was written since is not forgotten.
func (c *Crash) dropCache(off, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cache.mu.Lock()
	defer c.cache.mu.Unlock()
	if slices.ContainsFunc(c.cache.arrays, func(a *memArray) bool { return a.mappings > 0 }) {
		return
	}
	dirty := units(c.written())
	for u := range c.dropped {
		from, to := u*cacheUnit, min((u+1)*cacheUnit, c.cache.size)
		if dirty[u] || from >= off+n || (u+1)*cacheUnit <= off {
			continue
		}
		delete(c.dropped, u)
		if from < to {
			disk := make([]byte, to-from) // zero past the disk's end
			copy(disk, c.stable[min(from, int64(len(c.stable))):])
			c.cache.write(disk, from)
		}
	}
}

// Sizes of the blocks that survive or not.
const (
	smallestBlock = 512
	largestBlock  = 4096
)

// maxEnumerated is the number of dirty blocks up to which Disks gives every
// combination of survivors.
const maxEnumerated = 4

// Disks gives disks that a power failure now could leave: one with
// nothing that is not flushed, one with everything, each combination of
// surviving blocks if they are few, and n that rng picks. Blocks are no larger
// than pageSize. The same rng gives the same disks.
func (c *Crash) Disks(rng *rand.Rand, pageSize, n int) iter.Seq[[]byte] {
	c.mu.Lock()
	stable, pending := c.stable, slices.Clone(c.pending) // stable is replaced, never changed
	c.mu.Unlock()
	return func(yield func([]byte) bool) {
		if !yield(slices.Clone(stable)) || len(pending) == 0 {
			return
		}
		if !yield(everything.apply(stable, pending, nil)) {
			return
		}
		block := int64(min(largestBlock, pageSize))
		if dirty := dirtyBlocks(pending, block); len(dirty) <= maxEnumerated {
			cut := slices.ContainsFunc(pending, func(ch change) bool { return ch.data == nil && ch.off < int64(len(stable)) })
			for keep := range 1 << len(dirty) {
				if (keep == 0 || keep == 1<<len(dirty)-1) && !cut { // there were these
					continue
				}
				p := policy{block: block, chosen: map[int64]bool{}, newest: 1, anySize: cut}
				for i, b := range dirty {
					p.chosen[b] = keep&(1<<i) != 0
				}
				if !yield(p.apply(stable, pending, rng)) {
					return
				}
			}
		}
		for range n {
			if !yield(randomPolicy(rng, block).apply(stable, pending, rng)) {
				return
			}
		}
	}
}

func dirtyBlocks(pending []change, block int64) []int64 {
	var dirty []int64
	for _, ch := range pending {
		for b := ch.off / block; b*block < ch.off+int64(len(ch.data)); b++ {
			if !slices.Contains(dirty, b) {
				dirty = append(dirty, b)
			}
			if len(dirty) > maxEnumerated {
				return dirty
			}
		}
	}
	return dirty
}

// policy decides what survives.
type policy struct {
	block   int64
	newest  float64        // probability that a block survives as it was written last
	older   float64        // and else, that it survives in some version
	garbage float64        // and else, that it is garbage; what remains stays as flushed
	chosen  map[int64]bool // if not nil: which blocks survive, in place of chance
	anySize bool           // and the size is any that there was
}

// everything survives.
var everything = policy{block: 1 << 62, newest: 1}

func randomPolicy(rng *rand.Rand, largest int64) policy {
	p := policy{block: smallestBlock}
	if rng.IntN(2) == 0 {
		p.block = largest
	}
	p.newest = []float64{0, 0.1, 0.5, 0.9}[rng.IntN(4)]
	p.older = []float64{0, 0.5}[rng.IntN(2)]
	p.garbage = []float64{0, 0, 0, 0.2}[rng.IntN(4)]
	return p
}

// apply gives the disk that results from stable and the pending changes.
func (p policy) apply(stable []byte, pending []change, rng *rand.Rand) []byte {
	size := p.size(stable, pending, rng)
	disk := make([]byte, max(size, int64(len(stable))))
	copy(disk, stable)
	last := map[int64]int{} // how many of the pending changes a block has seen
	length := int64(len(stable))
	for i := range pending {
		ch := &pending[i]
		end := ch.off + int64(len(ch.data))
		if ch.data == nil { // all that lies after it becomes zero
			end, length = max(length, end), ch.off
		} else {
			length = max(length, end)
		}
		for b := ch.off / p.block; b*p.block < end; b++ {
			if _, ok := last[b]; !ok {
				last[b] = p.version(b, len(pending), rng)
			}
			switch {
			case i >= last[b]:
			case ch.data == nil:
				to := min(end, (b+1)*p.block, int64(len(disk)))
				clear(disk[min(max(ch.off, b*p.block), to):to])
			default:
				disk = writeBlock(disk, ch, b*p.block, p.block)
			}
		}
	}
	for _, b := range sortedKeys(last) {
		if last[b] < 0 {
			for i := b * p.block; i < min((b+1)*p.block, int64(len(disk))); i++ {
				disk[i] = byte(rng.Uint32())
			}
		}
	}
	if int64(len(disk)) < size {
		disk = append(disk, make([]byte, size-int64(len(disk)))...)
	}
	return disk[:size]
}

// version is the number of changes that block b has seen; -1 for garbage.
func (p policy) version(b int64, changes int, rng *rand.Rand) int {
	if p.chosen != nil {
		if p.chosen[b] {
			return changes
		}
		return 0
	}
	switch {
	case p.newest == 1 || rng.Float64() < p.newest:
		return changes
	case rng.Float64() < p.older:
		return rng.IntN(changes + 1)
	case rng.Float64() < p.garbage:
		return -1
	}
	return 0
}

// size is the size that the file has on the disk.
func (p policy) size(stable []byte, pending []change, rng *rand.Rand) int64 {
	sizes := []int64{int64(len(stable))}
	for _, ch := range pending {
		last := sizes[len(sizes)-1]
		switch {
		case ch.data == nil:
			sizes = append(sizes, ch.off)
		case ch.off+int64(len(ch.data)) > last:
			sizes = append(sizes, ch.off+int64(len(ch.data)))
		}
	}
	if p.newest == 1 && !p.anySize {
		return sizes[len(sizes)-1]
	}
	return sizes[rng.IntN(len(sizes))]
}

// writeBlock writes the part of ch that lies in the block at from.
func writeBlock(disk []byte, ch *change, from, block int64) []byte {
	start := max(ch.off, from)
	end := min(ch.off+int64(len(ch.data)), from+block)
	if int64(len(disk)) < end {
		disk = append(disk, make([]byte, end-int64(len(disk)))...)
	}
	copy(disk[start:end], ch.data[start-ch.off:end-ch.off])
	return disk
}

func sortedKeys(m map[int64]int) []int64 {
	keys := make([]int64, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// crashFile is a handle of a Crash.
type crashFile struct {
	File
	c     *Crash
	ahead int64 // see OpenAhead
}

func (f *crashFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.File.WriteAt(p, off)
	if n > 0 {
		f.c.record(KindWrite, change{off: off, data: slices.Clone(p[:n])})
	}
	return n, err
}

func (f *crashFile) WriteVec(bufs [][]byte, off int64) error {
	if err := f.File.WriteVec(bufs, off); err != nil {
		return err
	}
	if data := slices.Concat(bufs...); len(data) > 0 {
		f.c.record(KindWrite, change{off: off, data: data})
	}
	return nil
}

func (f *crashFile) Truncate(size int64) error {
	if err := f.File.Truncate(size); err != nil {
		return err
	}
	f.c.record(KindTruncate, change{off: size})
	return nil
}

func (f *crashFile) Grow(size int64) error {
	before, err := f.File.Size()
	if err != nil {
		return err
	}
	if err := f.File.Grow(size); err != nil {
		return err
	}
	if size > before {
		f.c.record(KindGrow, change{off: size})
	}
	return nil
}

func (f *crashFile) Sync() error {
	if err := f.File.Sync(); err != nil {
		return err
	}
	err := f.c.sync()
	f.c.after(KindSync)
	return err
}

// Identity is one and the same: what a crash leaves is opened as the file that it was.
func (f *crashFile) Identity() uint64 { return 1 }

// DropCache drops what failed flushes did not write of the range.
func (f *crashFile) DropCache(off, n int64) error {
	f.c.dropCache(off, n)
	return nil
}

// MapBeyondEnd is false unless the handle is OpenAhead's, so that each growth makes a
// new mapping.
func (f *crashFile) MapBeyondEnd() bool { return f.ahead > 0 }

// Map maps no more room ahead than the handle has: each byte of it is memory.
func (f *crashFile) Map(length int64, opts MapOptions) (Mapping, error) {
	size, err := f.File.Size()
	switch {
	case err != nil:
		return nil, mapError(f.Name(), length, err)
	case length > size+f.ahead && f.ahead > 0:
		length = size + f.ahead
	}
	return f.File.Map(length, opts)
}
