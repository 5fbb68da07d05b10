package page

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

// metaFile is a file of two metas, with labels 4 and 5, and nothing more than the second.
func metaFile(pageSize int) []byte {
	b := make([]byte, 2*pageSize)
	for slot := range 2 {
		EncodeMeta(b[slot*pageSize:][:pageSize], ID(slot), Meta{PageSize: uint32(pageSize), Label: Label(4 + slot)}, nil)
	}
	return b
}

var errBroken = errors.New("broken")

// broken cannot be read below its length.
type broken struct {
	*bytes.Reader
	length int64
}

func (b broken) ReadAt(p []byte, off int64) (int, error) {
	if off < b.length {
		return 0, errBroken
	}
	return b.Reader.ReadAt(p, off)
}

func TestFindPageSize(t *testing.T) {
	for size := MinPageSize; size <= MaxPageSize; size *= 2 {
		whole, one := metaFile(size), metaFile(size)
		one[HeaderSize+20]++ // in what the checksum covers
		none := bytes.Clone(one)
		none[size+HeaderSize+20]++
		silent := bytes.Clone(none)
		clear(silent[:size])
		for name, c := range map[string]struct {
			r     io.ReaderAt
			want  int64
			whole bool
			err   error
		}{
			"both":             {bytes.NewReader(whole), int64(size), true, nil},
			"the first":        {bytes.NewReader(whole[:ExtensionOffset]), int64(size), true, nil},
			"the second":       {bytes.NewReader(one), int64(size), true, nil},
			"none is whole":    {bytes.NewReader(none), int64(size), false, nil},
			"none":             {bytes.NewReader(silent), 0, false, nil},
			"nothing":          {bytes.NewReader(nil), 0, false, nil},
			"the first broken": {broken{bytes.NewReader(whole), 1}, int64(size), true, errBroken},
			"broken":           {broken{bytes.NewReader(whole), 1 << 40}, 0, false, errBroken},
		} {
			got, found, err := FindPageSize(c.r)
			if got != c.want || found != c.whole || !errors.Is(err, c.err) || c.err == nil && err != nil {
				t.Errorf("%s of %d bytes: got %d, %v, %v", name, size, got, found, err)
			}
		}
	}
}

// TestReadMetas: one that cannot be read, or is of another page size, does not count.
func TestReadMetas(t *testing.T) {
	b := metaFile(1024)
	for _, c := range []struct {
		r    io.ReaderAt
		size int64
		best int // -1: none
		errs [2]error
	}{
		{bytes.NewReader(b), 1024, 1, [2]error{}},
		{bytes.NewReader(b[:ExtensionOffset+1024]), 1024, 1, [2]error{}},
		{bytes.NewReader(b[:1090]), 1024, 0, [2]error{}},
		{broken{bytes.NewReader(b), 1}, 1024, 1, [2]error{errBroken}},
		{bytes.NewReader(b), 2048, -1, [2]error{}},
	} {
		metas, errs := ReadMetas(c.r, c.size, ExtensionOffset)
		best, err := DecodeSlots(metas[0], metas[1]).OfSize(c.size).Best()
		if err != nil {
			best = -1
		}
		if best != c.best || errs != c.errs {
			t.Errorf("of %d bytes: slot %d, %v; want %d, %v", c.size, best, errs, c.best, c.errs)
		}
	}
}
