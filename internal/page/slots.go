package page

import (
	"io"
	"os"
)

// FindPageSize is the page size that the metas of a file give: the first, or where that is
// not whole the second, wherever it is. whole is false if neither is; then the size is what
// the first gives all the same, or 0 if that can be none. The error is one of reading: it may
// have kept a meta from being found.
func FindPageSize(r io.ReaderAt) (size int64, whole bool, err error) {
	buf := make([]byte, ExtensionOffset)
	failed := readZeros(r, buf, 0)
	said := int64(MetaFields(buf).PageSize)
	if said < MinPageSize || said > MaxPageSize {
		said = 0
	}
	if _, err := DecodeMeta(buf); err == nil && said != 0 {
		return said, true, nil
	}
	sizes := []int64{said, int64(os.Getpagesize())}
	for size := int64(MinPageSize); size <= MaxPageSize; size *= 2 {
		sizes = append(sizes, size)
	}
	for _, size := range sizes {
		if size == 0 {
			continue
		}
		if err := readZeros(r, buf, size); err != nil {
			failed = err
		} else if m, err := DecodeMeta(buf); err == nil && int64(m.PageSize) == size {
			return size, true, failed
		}
	}
	return said, false, failed
}

// ReadMetas reads the first n bytes of both meta pages of a file whose pages have size
// bytes. Zeros stand for what is beyond the end of the file, or cannot be read.
func ReadMetas(r io.ReaderAt, size int64, n int) (metas [2][]byte, errs [2]error) {
	for slot := range metas {
		metas[slot] = make([]byte, n)
		errs[slot] = readZeros(r, metas[slot], int64(slot)*size)
	}
	return metas, errs
}

// readZeros fills b with what stands at off, and with zeros where there is nothing.
func readZeros(r io.ReaderAt, b []byte, off int64) error {
	n, err := r.ReadAt(b, off)
	clear(b[n:])
	if err == io.EOF {
		return nil
	}
	return err
}

// OfSize is s without the metas that give another page size, as those of another file do
// of which a part was copied.
func (s Slots) OfSize(size int64) Slots {
	for slot, m := range s.Meta {
		if s.Err[slot] == nil && int64(m.PageSize) != size {
			s.Err[slot] = Corruptf(ID(slot), "the metas give page sizes of %d and %d bytes", size, m.PageSize)
		}
	}
	return s
}
