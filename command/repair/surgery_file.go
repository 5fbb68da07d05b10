package repair

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"

	"holdfast"
	"holdfast/command/cli"
	"holdfast/internal/extension"
	"holdfast/internal/page"
)

// patient is a file that may be damaged in any way, with what can be told of it.
type patient struct {
	file     *os.File
	size     int64
	pageSize int64 // 0: it cannot be told
	sure     bool  // a meta whose checksum is right says so
	slots    page.Slots
	best     int   // the slot that is opened
	err      error // why none can be
}

// examine looks at the metas of file.
func examine(file *os.File) (*patient, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	p := &patient{file: file, size: info.Size()}
	if p.pageSize, p.sure, err = page.FindPageSize(file); err != nil {
		return nil, err
	}
	metas, errs := page.ReadMetas(file, p.pageSize, p.metaBytes())
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	if p.pageSize == 0 { // then it is not known where the second one is
		metas[1] = nil
	}
	p.slots = page.DecodeSlots(metas[0], metas[1]).OfSize(p.pageSize)
	p.best, p.err = p.slots.Best()
	return p, nil
}

// metaBytes is as much of a meta page as can mean something.
func (p *patient) metaBytes() int { return int(max(p.pageSize, page.MinPageSize)) }

// metaPage reads as much of a meta page as can mean something; zeros stand for what is
// beyond the end of the file.
func (p *patient) metaPage(slot int) ([]byte, error) {
	metas, errs := page.ReadMetas(p.file, p.pageSize, p.metaBytes())
	return metas[slot], errs[slot]
}

// extension reads what Holdfast has added to the meta page that is opened; nil: nothing.
func (p *patient) extension() (*extension.Extension, error) {
	buf, err := p.metaPage(p.best)
	if err != nil {
		return nil, err
	}
	ext, err := extension.Decode(buf)
	if errors.Is(err, extension.ErrVersion) || errors.Is(err, extension.ErrNoChecksum) {
		return nil, fmt.Errorf("the newest state cannot be told: %w", err)
	}
	if err != nil { // then it is believed by no engine
		return nil, nil
	}
	return ext, nil
}

// inFile is how many pages the file has; 0 if that cannot be told.
func (p *patient) inFile() uint64 {
	if p.pageSize == 0 {
		return 0
	}
	return uint64(p.size / p.pageSize)
}

// limit is the first page number that cannot be operated on.
func (p *patient) limit() uint64 { return min(uint64(p.slots.Meta[p.best].HighWater), p.inFile()) }

// known is limit, of a file that was left in mid use with the pages of its newest state.
func (p *patient) known() uint64 {
	highWater := p.slots.Meta[p.best].HighWater
	if ext, err := p.extension(); err == nil && ext != nil && ext.Trailing != nil {
		highWater = max(highWater, ext.Trailing.HighWater)
	}
	return min(uint64(highWater), p.inFile())
}

// readFirst reads the page id without its overflow pages.
func (p *patient) readFirst(id page.ID) ([]byte, error) {
	first := make([]byte, p.pageSize)
	if _, err := p.file.ReadAt(first, int64(id)*p.pageSize); err != nil {
		return nil, err
	}
	if h := page.DecodeHeader(first); h.ID != id {
		return nil, page.Corruptf(id, "the page says that it is page %d", h.ID)
	}
	return first, nil
}

// readRun reads the page id with its overflow pages.
func (p *patient) readRun(id page.ID) ([]byte, error) {
	first, err := p.readFirst(id)
	if err != nil {
		return nil, err
	}
	n := uint64(page.DecodeHeader(first).Overflow) + 1
	if n > p.limit()-uint64(id) || n > math.MaxInt/uint64(p.pageSize) {
		return nil, page.Corruptf(id, "it says that it has %d pages, and the last page is %d", n, p.limit()-1)
	}
	if n == 1 {
		return first, nil
	}
	run := make([]byte, int64(n)*p.pageSize) // not more than the file has
	_, err = p.file.ReadAt(run, int64(id)*p.pageSize)
	return run, err
}

// surgeon changes a copy.
type surgeon struct {
	*cli.Call
	*patient
	r *surgeryReport
	// writing is set while what fails is the copy's fault, not the file's.
	writing bool
}

// run makes a copy of src at path and operates on it.
func (s *surgeon) run(ctx context.Context, src *cli.RawFile, path string, info fs.FileInfo, op operation) error {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	s.writing = true
	if err := s.copyAll(ctx, file, src.File); err != nil {
		return err
	}
	s.writing = false
	if s.patient, err = examine(file); err != nil {
		return err
	}
	if err := s.noteUnreadable(); err != nil {
		return err
	}
	if !op.raw {
		if err := s.settle(path); err != nil {
			return err
		}
	}
	if err := op.do(s); err != nil {
		return err
	}
	s.writing = true
	return cli.Finish(file, info, true)
}

// noteUnreadable warns if the meta page that is opened may have named a newer state, which
// will not show any more.
func (s *surgeon) noteUnreadable() error {
	if s.err != nil {
		return nil
	}
	buf, err := s.metaPage(s.best)
	if err == nil && extensionKind(buf) == extensionUnreadable {
		s.r.warn("what Holdfast wrote into meta page %d cannot be read; if it was for a last flush: %s", s.best, cli.LastFlush)
	}
	return err
}

// copyStep is how much is copied before the copy looks whether it is to end.
const copyStep = 16 << 20

func (s *surgeon) copyAll(ctx context.Context, dst, src *os.File) error {
	info, err := src.Stat()
	if err != nil {
		return err
	}
	left := info.Size()
	stop := s.Progress("copying", 0, nil)
	defer stop()
	for left > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := io.CopyN(dst, src, min(left, copyStep))
		if left -= n; errors.Is(err, io.EOF) {
			s.writing = false // the file is at fault
			return &cli.FileError{
				File: s.r.File, What: fmt.Sprintf("the file was made shorter while it was copied: from %s to %s", cli.Size(info.Size()), cli.Size(info.Size()-left)),
				Next: "nothing was written: stop the program that changes it", Err: io.ErrUnexpectedEOF,
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// settle makes the newest state of the copy the one that its metas speak of, if the
// file was left in mid use.
func (s *surgeon) settle(path string) error {
	if s.err != nil {
		return nil // no state can be opened
	}
	ext, err := s.extension()
	if err != nil || ext == nil || ext.Trailing == nil {
		return err
	}
	found, err := holdfast.Settle(path, holdfast.SettleOptions{Timeout: s.Timeout})
	if cli.IsDamage(err) {
		s.r.warn("the file was left in mid use, and its newest state cannot be opened (%s): the copy has the state before", s.Plain(err))
		return nil
	}
	if err != nil {
		return err
	}
	s.r.Settled = found.BboltBehind || found.Unfinished
	s.patient, err = examine(s.file)
	return err
}

// needState is an error unless one of the metas of p can be opened.
func needState(c *cli.Call, p *patient) error {
	if p.err == nil {
		return nil
	}
	return &cli.FileError{
		File: c.Args[0], What: fmt.Sprintf("neither of its two meta pages is whole (%s), so its pages cannot be told", reason(p.err)),
		Next: fmt.Sprintf("%s surgery meta update mends one", c.Name()), Err: p.err,
	}
}

// write writes to the copy. At any error the copy is thrown away.
func (s *surgeon) write(b []byte, at int64) error {
	s.writing = true
	defer func() { s.writing = false }()
	_, err := s.file.WriteAt(b, at)
	return err
}

// writeRun writes a page run and says so.
func (s *surgeon) writeRun(id page.ID, run []byte) error {
	s.changed(id)
	return s.write(run, int64(id)*s.pageSize)
}

func (s *surgeon) changed(id page.ID) {
	s.r.Changed = true
	if !slices.Contains(s.r.Pages, uint64(id)) {
		s.r.Pages = append(s.r.Pages, uint64(id))
	}
}

// putMeta writes m, which is whole then, to a slot, with nothing of Holdfast's after it.
func (s *surgeon) putMeta(slot int, m page.Meta) error {
	size := s.pageSize
	if !s.sure { // then what is after it may be of another page; Holdfast's magic is not
		size = page.MinPageSize
	}
	buf := make([]byte, size)
	page.EncodeMeta(buf, page.ID(slot), m, nil)
	s.changed(page.ID(slot))
	return s.write(buf, int64(slot)*s.pageSize)
}

// forgetFree makes both metas name no freelist, with nothing of Holdfast's after them:
// an opening for writing then looks which pages are free. It has to be done
// whenever other pages may be in use than before: a page that is in use and said to be
// free would be overwritten.
func (s *surgeon) forgetFree() error {
	for slot, err := range s.slots.Err {
		if err != nil {
			continue // it stays as it is: to give it a checksum would be to make it count
		}
		m := s.slots.Meta[slot]
		m.Freelist = page.NoFreelist
		if err := s.putMeta(slot, m); err != nil {
			return err
		}
	}
	s.r.FreelistAbandoned = true
	return nil
}
