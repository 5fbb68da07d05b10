package salvage

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/bits"

	"holdfast/internal/page"
)

// ErrPageSize is returned for a page size that no database can have.
var ErrPageSize = errors.New("no page size of a database")

// findPageSize takes the page size that both metas give. If they do not agree, the pages
// decide between what they give and what the pages themselves tell: page N of a database
// says that it is page N. A checksum that holds does not make a meta that of this file.
func findPageSize(ctx context.Context, r io.ReaderAt, size int64) (int64, error) {
	said := metaSize(r, 0)
	if said != 0 && metaSize(r, said) == said {
		return said, nil
	}
	second := secondMeta(r, size)
	if said == 0 && second != 0 {
		return second, nil
	}
	guess, err := guessPageSize(ctx, r, size)
	if err != nil && !errors.Is(err, ErrNone) {
		return 0, err
	}
	best, most := int64(0), -1
	for _, ps := range []int64{said, second, guess} {
		if ps == 0 || ps == best {
			continue
		}
		n, err := countPages(ctx, r, size, ps)
		if err != nil {
			return 0, err
		}
		if n > most {
			best, most = ps, n
		}
	}
	if best == 0 {
		return 0, ErrNone
	}
	return best, nil
}

// metaSize is the page size that the meta at off gives, if it is whole and gives one; or else 0.
func metaSize(r io.ReaderAt, off int64) int64 {
	buf := make([]byte, page.ExtensionOffset)
	if _, err := r.ReadAt(buf, off); err != nil {
		return 0
	}
	m, err := page.DecodeMeta(buf)
	if err != nil || m.PageSize < page.MinPageSize || m.PageSize > page.MaxPageSize {
		return 0
	}
	return int64(m.PageSize)
}

// secondMeta looks for a whole meta that stands where the page size that it gives puts
// the second one. bbolt makes files of any page size.
func secondMeta(r io.ReaderAt, size int64) int64 {
	magic := magicAndVersion()
	window := make([]byte, windowBytes)
	step := int64(len(window) - len(magic) + 1)
	for base := int64(0); base <= min(page.MaxPageSize+metaMagic, size); base += step {
		n, _ := r.ReadAt(window, base)
		for at := 0; ; at++ {
			i := bytes.Index(window[at:n], magic)
			if i < 0 {
				break
			}
			at += i
			if off := base + int64(at) - metaMagic; off >= page.MinPageSize && metaSize(r, off) == off {
				return off
			}
		}
	}
	return 0
}

// enough is the number of pages of one size that are believed.
const enough = 1000

// countPages counts the pages that stand where they say they do, if pages have ps bytes,
// as far as enough of them.
func countPages(ctx context.Context, r io.ReaderAt, size, ps int64) (n int, err error) {
	pages := page.ID(size / ps)
	head := make([]byte, page.HeaderSize)
	for id := page.FirstDataPage; id < pages && n < enough; id++ {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if _, err := r.ReadAt(head, int64(id)*ps); err != nil {
			continue
		}
		h := page.DecodeHeader(head)
		if h.ID != id || !isKind(h.Flags) {
			continue
		}
		if n++; page.ID(h.Overflow) < pages-id {
			id += page.ID(h.Overflow)
		}
	}
	return n, nil
}

func isKind(flags uint16) bool {
	return flags == page.FlagLeaf || flags == page.FlagBranch || flags == page.FlagFreelist
}

// votes are how many pages speak for each page size.
type votes struct {
	of   map[int64]int
	best int64
}

// add looks whether a page can stand at that offset whose header is head. odd sizes count
// if odd is set.
func (v *votes) add(head []byte, at int64, odd bool) {
	h := page.DecodeHeader(head)
	if h.ID < page.FirstDataPage || uint64(h.ID) > uint64(at) || at%int64(h.ID) != 0 || !isKind(h.Flags) {
		return
	}
	ps := at / int64(h.ID)
	if ps < page.MinPageSize || ps > page.MaxPageSize || !odd && bits.OnesCount64(uint64(ps)) != 1 {
		return
	}
	v.of[ps]++
	if n := v.of[ps]; n > v.of[v.best] || n == v.of[v.best] && ps < v.best {
		v.best = ps
	}
}

// few votes may be those of values. Then any page size is looked for, in the first bytes of the file.
const (
	few      = 3
	oddBytes = 16 << 20
)

// holdsBytes is how far Holds looks, and pair is how many pages it wants: each database has
// as many, and one may stand by chance where it says.
const (
	holdsBytes = 64 << 20
	pair       = 2
)

// Holds tells whether there are pages of a database in the file, whatever its metas are.
func Holds(ctx context.Context, r io.ReaderAt, size int64) bool {
	usual, odd := votes{of: make(map[int64]int)}, votes{of: make(map[int64]int)}
	if err := usual.count(ctx, r, min(size, holdsBytes), page.MinPageSize, false); err != nil || usual.of[usual.best] >= pair {
		return err == nil
	}
	err := odd.count(ctx, r, min(size, oddBytes), 1, true)
	return err == nil && odd.of[odd.best] >= few
}

// guessPageSize takes the page size that most pages speak for.
func guessPageSize(ctx context.Context, r io.ReaderAt, size int64) (int64, error) {
	usual := votes{of: make(map[int64]int)}
	if err := usual.count(ctx, r, size, page.MinPageSize, false); err != nil {
		return 0, err
	}
	if usual.of[usual.best] < few {
		odd := votes{of: make(map[int64]int)}
		if err := odd.count(ctx, r, min(size, oddBytes), 1, true); err != nil {
			return 0, err
		}
		if odd.of[odd.best] > usual.of[usual.best] {
			return odd.best, nil
		}
	}
	if usual.best == 0 {
		return 0, ErrNone
	}
	return usual.best, nil
}

// count looks at each multiple of step below size, until enough pages agree.
func (v *votes) count(ctx context.Context, r io.ReaderAt, size int64, step int, odd bool) error {
	window := make([]byte, windowBytes+page.HeaderSize)
	for base := int64(0); base < size && v.of[v.best] < enough; base += windowBytes {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, _ := r.ReadAt(window, base)
		for o := 0; o < windowBytes && o+page.HeaderSize <= n; o += step {
			v.add(window[o:], base+int64(o), odd)
		}
	}
	return nil
}
