package pages

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"runtime/debug"
	"sort"

	"holdfast"
	"holdfast/command/cli"
	"holdfast/internal/extension"
	"holdfast/internal/page"
	"holdfast/internal/vfs"
)

// pageFile is a database file as its bytes are, for commands that look at pages: it
// opens whether a database can be opened or not. It holds the lock that readers share.
// The file is mapped, so that a page with a large value takes no memory.
type pageFile struct {
	*cli.App
	path     string
	file     vfs.File
	mapping  vfs.Mapping
	size     int64 // bytes
	pageSize int
	pages    page.ID // whole pages in the file
	// highWater is the first page that no meta page that can be read knows of; pages if
	// neither can.
	highWater page.ID
	image     page.Image // all whole pages
	metas     [2]metaPage
	best      int // slot that bbolt opens; -1: neither meta is whole
	records   []recordRun

	freeKnown bool
	free      []page.Extent // ascending; see loadFree
}

// withPages opens the file at path, calls fn with it, and closes it. pageSize is 0 if the
// file is to say it.
func withPages(c *cli.Call, path string, pageSize int, fn func(*pageFile) error) error {
	if err := cli.GoodPageSize(pageSize); err != nil {
		return err
	}
	if _, err := c.Look(path); err != nil {
		return err
	}
	file, err := c.OpenInUse(path)
	if err != nil {
		return c.Explain(path, err)
	}
	f := &pageFile{App: c.App, path: path, file: file.VFS, size: file.Size, pageSize: pageSize, best: -1}
	if err = f.open(); err == nil {
		err = fn(f)
	}
	if f.mapping != nil {
		err = errors.Join(err, f.mapping.Close())
	}
	return c.Explain(path, errors.Join(err, file.Close()))
}

func (f *pageFile) open() error {
	var err error
	if f.pageSize == 0 {
		if f.pageSize, err = f.findPageSize(); err != nil {
			return err
		}
	}
	if f.size > 0 {
		if f.mapping, err = f.file.Map(f.size, vfs.MapOptions{}); err != nil {
			return err
		}
		f.pages = page.ID(f.size / int64(f.pageSize))
		f.image = page.NewImage(f.mapping.Data(), f.pageSize, f.pages)
	}
	return f.safely(f.readMetas)
}

// safely calls fn, and makes an error of a fault in what is mapped: the file was
// shortened, or its disk failed.
func (f *pageFile) safely(fn func() error) (err error) {
	defer f.image.CatchFault(debug.SetPanicOnFault(true), &err)
	return fn()
}

// errPageSize is the error of a file that does not say its page size.
var errPageSize = errors.New("page size unknown")

// looked is how many pages are looked at to find the page size.
const looked = 64

// findPageSize takes the page size from the meta pages, as opening a database does. If
// neither is whole it takes the size at which most pages say that they are where they
// are.
func (f *pageFile) findPageSize() (int, error) {
	said, whole, err := page.FindPageSize(f.file)
	if whole {
		return int(said), nil
	}
	if err != nil {
		return 0, err
	}
	first, errs := page.ReadMetas(f.file, 0, page.ExtensionOffset)
	if errs[0] != nil {
		return 0, errs[0]
	}
	best, most := 0, 1 // page 0 is where it is at any page size
	for size := page.MinPageSize; size <= page.MaxPageSize; size *= 2 {
		fits, err := f.fitting(size)
		if err != nil {
			return 0, err
		}
		if m := readMeta(first[0]); m.magicRight && int64(m.PageSize) == int64(size) {
			fits++
		}
		if fits > most {
			best, most = size, fits
		}
	}
	if best == 0 {
		return 0, &cli.FileError{File: f.path, What: "not a bbolt database, or so damaged that its page size cannot be told",
			Next: "if it is one, give the size with --page-size", Err: errPageSize}
	}
	return best, nil
}

// fitting is how many of the first pages say of themselves that they are where they
// are, if pages are of that size.
func (f *pageFile) fitting(pageSize int) (n int, err error) {
	buf := make([]byte, page.HeaderSize)
	for id := range page.ID(looked) {
		at := int64(id) * int64(pageSize)
		if at >= f.size {
			break
		}
		if err := f.readAt(buf, at); err != nil {
			return 0, err
		}
		if h := page.DecodeHeader(buf); h.ID == id && knownType(h.Flags) && (id < page.FirstDataPage) == (h.Flags == page.FlagMeta) {
			n++
		}
	}
	return n, nil
}

// knownType tells whether there are pages with such flags.
func knownType(flags uint16) bool {
	return flags != 0 && flags&(flags-1) == 0 && flags&(page.FlagBranch|page.FlagLeaf|page.FlagMeta|page.FlagFreelist) != 0
}

// readAt fills b, with zeros where the file has ended.
func (f *pageFile) readAt(b []byte, at int64) error {
	n, err := f.file.ReadAt(b, at)
	clear(b[n:])
	if err == io.EOF {
		return nil
	}
	return err
}

// readMetas reads both meta pages and what they say of the file.
func (f *pageFile) readMetas() error {
	var bufs [2][]byte
	for slot := range bufs {
		bufs[slot], _ = f.image.Run(page.ID(slot), 1) // none in a file that is too short
		f.metas[slot] = readMeta(bufs[slot])
	}
	slots := page.DecodeSlots(bufs[0], bufs[1])
	best, err := slots.Best()
	if err != nil {
		f.highWater = f.pages
		return nil
	}
	f.best = best
	for _, slot := range []int{best, 1 - best} { // the records of the newest first
		m := &f.metas[slot]
		if m.err == nil {
			f.highWater = max(f.highWater, m.HighWater)
		}
		if m.ext == nil {
			continue
		}
		if m.err == nil && m.ext.Trailing != nil {
			f.highWater = max(f.highWater, m.ext.Trailing.HighWater)
		}
		f.records = append(f.records, recordsOf(slot, m.ext)...)
	}
	f.highWater = min(f.highWater, f.pages)
	return nil
}

// offset is where page id begins, in bytes; false if the file has no such page.
func (f *pageFile) offset(id page.ID) (int64, bool) {
	over, at := bits.Mul64(uint64(id), uint64(f.pageSize))
	return int64(at), over == 0 && at < uint64(f.size)
}

// noPage is the error of a page that the file does not have.
func (f *pageFile) noPage(id page.ID) error {
	e := &cli.FileError{File: f.path, What: fmt.Sprintf("no page %d; its pages are 0 to %d", id, uint64(max(f.pages, 1))-1), Err: errNoPage}
	switch {
	case id == f.pages && f.size%int64(f.pageSize) != 0:
		e.What = fmt.Sprintf("page %d is not whole: the file ends within it", id)
	case f.pages == 0:
		e.What = fmt.Sprintf("no page %d; the file is shorter than one page of %d bytes", id, f.pageSize)
	}
	if id < page.FirstDataPage {
		e.Next = "restore a copy of it"
	}
	return e
}

var errNoPage = errors.New("no such page")

// loadFree finds out which pages are free in the newest state, if the file says that
// and a database can be opened; else it is not known. It takes no look at other pages.
func (f *pageFile) loadFree() {
	d, err := f.Read(f.path, false)
	if err != nil {
		return
	}
	defer d.Close()
	_ = d.View(func(tx *holdfast.Tx) error {
		slots, err := d.Metas()
		if err != nil {
			return err
		}
		state := d.FileState()
		if d.InUse() {
			return nil // it would, too
		}
		if !state.FreeRecorded && (state.BboltBehind || slots.Meta[state.Slot].Freelist == page.NoFreelist) {
			return nil // it would take a scan of the file
		}
		extents, err := tx.FreeExtents()
		if err != nil {
			return err
		}
		for id, n := range extents {
			f.free = append(f.free, page.Extent{Start: id, N: n})
		}
		f.freeKnown = true
		return nil
	})
}

// freeExtent is the run of free pages in which page id is, from that page on; 0 pages if
// it is not free, or if that is not known.
func (f *pageFile) freeExtent(id page.ID) page.Extent {
	i := sort.Search(len(f.free), func(i int) bool { return f.free[i].End() > id })
	if i == len(f.free) || f.free[i].Start > id {
		return page.Extent{Start: id}
	}
	return page.Extent{Start: id, N: uint64(f.free[i].End() - id)}
}

// zeros is how many pages from page id on hold nothing but zeros.
func (f *pageFile) zeros(ctx context.Context, id page.ID) (n uint64) {
	for ctx.Err() == nil && id+page.ID(n) < f.pages {
		b, err := f.image.Run(id+page.ID(n), 1)
		if err != nil || page.DecodeHeader(b) != (page.Header{}) || len(bytes.TrimLeft(b, "\x00")) > 0 {
			break
		}
		n++
	}
	return n
}

// recordRun is a run of pages in which Holdfast records free pages.
type recordRun struct {
	extension.Run
	slot    int // whose extension names it
	key     [16]byte
	purpose extension.Purpose
	log     int // number of the log run, from 1 on; 0: the snapshot
}

func recordsOf(slot int, ext *extension.Extension) (runs []recordRun) {
	if ext.Free == nil {
		return nil
	}
	if ext.Free.Snapshot.Pages > 0 {
		runs = append(runs, recordRun{Run: ext.Free.Snapshot, slot: slot, key: ext.Key, purpose: extension.OfSnapshot})
	}
	for i, run := range ext.Free.Logs {
		runs = append(runs, recordRun{Run: run, slot: slot, key: ext.Key, purpose: extension.OfLog, log: i + 1})
	}
	return runs
}

// record is the record of free pages in which page id is. Those that only the older
// meta page names may have been given up and written over: their checksum tells.
func (f *pageFile) record(id page.ID) (*recordRun, bool) {
	for i := range f.records {
		r := &f.records[i]
		if id < r.Start || uint64(id-r.Start) >= uint64(r.Pages) || r.Check(f.pages, f.pageSize) != nil {
			continue
		}
		if r.slot == f.best || f.recordErr(r) == nil {
			return r, true
		}
	}
	return nil, false
}

// recordErr says why a record is not to be believed.
func (f *pageFile) recordErr(r *recordRun) error {
	run, err := f.recordBytes(r)
	if err != nil {
		return err
	}
	h, err := extension.NewHasher(r.key)
	if err != nil {
		return err
	}
	if h.Sum(r.purpose, r.Start, run) != r.Hash {
		return page.Corruptf(r.Start, "the checksum of this record of free pages does not hold")
	}
	return nil
}

// recordBytes is what means something of a record.
func (f *pageFile) recordBytes(r *recordRun) ([]byte, error) {
	if err := r.Check(f.pages, f.pageSize); err != nil {
		return nil, err
	}
	run, err := f.image.Run(r.Start, uint64(r.Pages))
	if err != nil {
		return nil, err
	}
	return run[:r.Bytes], nil
}
