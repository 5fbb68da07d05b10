package inspect

import (
	"io"

	"holdfast/command/cli"
	"holdfast/internal/page"
)

// pathWalk goes from the root of a database down to a key, as a commit that
// changes the key has to, and counts the pages on the way.
type pathWalk struct {
	file  io.ReaderAt
	meta  page.Meta
	pages uint64
}

// commitPages is the number of pages on the path to key in the bucket with the
// given names: each commit that changes the key writes them anew.
func commitPages(file io.ReaderAt, m page.Meta, names [][]byte, key []byte) (uint64, error) {
	w := &pathWalk{file: file, meta: m}
	root := m.Root
	for _, name := range names {
		e, found, err := w.descend(root, name)
		if err != nil || !found {
			return w.pages, err
		}
		header, _, err := page.DecodeBucket(e.Value)
		if err != nil || header.Root == 0 { // an inline bucket lies in the page of its header
			return w.pages, err
		}
		root = header.Root
	}
	_, _, err := w.descend(root, key)
	return w.pages, err
}

// descend goes from page root to the leaf where key belongs.
func (w *pathWalk) descend(root page.ID, key []byte) (e page.Element, found bool, err error) {
	for id, level := root, 0; level < cli.MaxPathPages; level++ {
		p, err := w.read(id)
		if err != nil {
			return e, false, err
		}
		w.pages += p.Pages()
		i, exact, err := p.Search(key)
		if err != nil {
			return e, false, err
		}
		if p.IsLeaf() {
			if !exact {
				return e, false, nil
			}
			e, err = p.Leaf(i)
			return e, true, err
		}
		if !exact && i > 0 {
			i--
		}
		if p.Count() == 0 {
			return e, false, page.Corruptf(id, "branch without elements")
		}
		if _, id, err = p.Branch(i); err != nil {
			return e, false, err
		}
	}
	return e, false, page.Corruptf(root, "the tree is deeper than any real one")
}

// usage is what pages hold.
type usage struct {
	pages uint64
	used  int64 // bytes
}

// rootUsage walks the root bucket, without the buckets in it.
func rootUsage(file io.ReaderAt, m page.Meta) (usage, error) {
	w := &pathWalk{file: file, meta: m}
	var u usage
	err := w.usage(m.Root, &u, 0)
	return u, err
}

func (w *pathWalk) usage(id page.ID, u *usage, level int) error {
	p, err := w.read(id)
	if err != nil {
		return err
	}
	u.pages += p.Pages()
	if level == cli.MaxPathPages || u.pages > uint64(w.meta.HighWater) {
		return page.Corruptf(id, "the root bucket has more pages than the file")
	}
	used, err := p.UsedBytes()
	if err != nil {
		return err
	}
	u.used += int64(used)
	for i := 0; i < p.Count() && !p.IsLeaf(); i++ {
		_, child, err := p.Branch(i)
		if err != nil {
			return err
		}
		if err := w.usage(child, u, level+1); err != nil {
			return err
		}
	}
	return nil
}

// read reads page id with its overflow pages.
func (w *pathWalk) read(id page.ID) (page.Page, error) {
	pageSize := int64(w.meta.PageSize)
	if id < page.FirstDataPage || id >= w.meta.HighWater {
		return page.Page{}, page.NoPage(id, w.meta.HighWater)
	}
	header := make([]byte, page.HeaderSize)
	if _, err := w.file.ReadAt(header, int64(id)*pageSize); err != nil {
		return page.Page{}, err
	}
	n := uint64(page.DecodeHeader(header).Overflow) + 1
	if n > uint64(w.meta.HighWater-id) {
		return page.Page{}, page.TooLong(id, n, w.meta.HighWater)
	}
	run := make([]byte, int64(n)*pageSize)
	if _, err := w.file.ReadAt(run, int64(id)*pageSize); err != nil {
		return page.Page{}, err
	}
	return page.Parse(run, id)
}
