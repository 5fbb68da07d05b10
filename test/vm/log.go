package vm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
)

// Log is what the device mapper's target log-writes has recorded of a disk: each
// write, in the order in which it was completed, and each flush after the
// writes that it has made durable.
type Log struct {
	Entries []Entry
	file    *os.File
	sector  int64 // bytes of what the log counts
}

// Entry is a write, a flush, or a mark that a program has set.
type Entry struct {
	Flags  uint64
	Mark   string
	first  int64 // sector on the disk
	count  int64 // of sectors
	offset int64 // of the data, in the log
}

// Flags of an entry.
const (
	Flush   = 1 << iota // what comes before is durable
	FUA                 // and so is this
	Discard             // there is no data: the sectors are given up
	Mark
	Metadata
)

// The first sector of a log, and what a sector before each entry's data has.
const (
	logMagic   = 0x6a736677736872
	logVersion = 1
	entryBytes = 32
)

// OpenLog reads a log from the disk that log-writes has written, when it has been
// removed.
func OpenLog(path string) (l *Log, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("log %s: %w", path, err), f.Close())
		}
	}()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	head := make([]byte, 28)
	if _, err := f.ReadAt(head, 0); err != nil {
		return nil, err
	}
	magic, version := binary.LittleEndian.Uint64(head), binary.LittleEndian.Uint64(head[8:])
	entries, sector := binary.LittleEndian.Uint64(head[16:]), int64(binary.LittleEndian.Uint32(head[24:]))
	if magic != logMagic || version != logVersion || sector < 512 || sector > 1<<16 {
		return nil, fmt.Errorf("magic %#x, version %d, sectors of %d bytes", magic, version, sector)
	}
	l = &Log{file: f, sector: sector}
	at := sector
	for range entries {
		e, err := l.entryAt(at, info.Size())
		if err != nil {
			return nil, fmt.Errorf("entry %d: %w", len(l.Entries), err)
		}
		l.Entries = append(l.Entries, e)
		at = e.offset
		if e.Flags&Discard == 0 {
			at += e.count * sector
		}
	}
	return l, nil
}

func (l *Log) entryAt(at, size int64) (e Entry, err error) {
	head := make([]byte, l.sector)
	if _, err := l.file.ReadAt(head, at); err != nil {
		return e, err
	}
	field := func(i int) uint64 { return binary.LittleEndian.Uint64(head[8*i:]) }
	e = Entry{first: int64(field(0)), count: int64(field(1)), Flags: field(2), offset: at + l.sector}
	text := field(3)
	if e.first < 0 || e.count < 0 || e.Flags&Discard == 0 && e.count > (size-e.offset)/l.sector || text > uint64(len(head)-entryBytes) {
		return e, fmt.Errorf("%d sectors at %d, flags %d, a text of %d bytes", e.count, e.first, e.Flags, text)
	}
	if e.Flags&Mark != 0 {
		e.Mark = strings.TrimRight(string(head[entryBytes:][:text]), "\x00")
	}
	return e, nil
}

// Close closes the log.
func (l *Log) Close() error { return l.file.Close() }

// Flushes are the indexes of the entries that are flushes.
func (l *Log) Flushes() (at []int) {
	for i, e := range l.Entries {
		if e.Flags&Flush != 0 {
			at = append(at, i)
		}
	}
	return at
}

// Replay makes of a disk, as it was when the recording began, one whose power was cut
// after the entry at. Writes that were flushed until then are there, and those
// that were made durable by themselves. Of others each piece of unit bytes may
// be there, as r says; none is if r is nil.
func (l *Log) Replay(disk string, at int, unit int64, r *rand.Rand) (err error) {
	f, err := os.OpenFile(disk, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	flushed := -1
	for i, e := range l.Entries[:at+1] {
		if e.Flags&Flush != 0 {
			flushed = i
		}
	}
	for i, e := range l.Entries[:at+1] {
		keep := func() bool { return true }
		if i >= flushed && e.Flags&FUA == 0 {
			keep = pieces(r)
		}
		if err := l.apply(f, e, unit, keep); err != nil {
			return fmt.Errorf("entry %d: %w", i, err)
		}
	}
	return nil
}

// pieces says of each piece of a write whether it is there: all, none or some are.
func pieces(r *rand.Rand) func() bool {
	if r == nil {
		return func() bool { return false }
	}
	switch r.IntN(5) {
	case 0:
		return func() bool { return r.IntN(2) == 0 }
	case 1, 2:
		return func() bool { return false }
	}
	return func() bool { return true }
}

// apply writes the pieces of an entry that keep says.
func (l *Log) apply(disk io.WriterAt, e Entry, unit int64, keep func() bool) error {
	if e.Flags&Mark != 0 {
		return nil
	}
	size := e.count * l.sector
	for done := int64(0); done < size; done += unit {
		if !keep() {
			continue
		}
		piece := make([]byte, min(unit, size-done)) // zeros for what is discarded
		if e.Flags&Discard == 0 {
			if _, err := l.file.ReadAt(piece, e.offset+done); err != nil {
				return err
			}
		}
		if _, err := disk.WriteAt(piece, e.first*l.sector+done); err != nil {
			return err
		}
	}
	return nil
}
