package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"connectrpc.com/connect"

	"holdfast"
	"holdfast/worker/api"
)

// Sizes of a map of pages. Of a larger file it is shown only what is free, which takes no look at the pages.
const (
	defaultCells = 1024
	maxCells     = 8192
	maxMapped    = 256 << 20 // bytes
)

// What most pages of a cell are, as GetPagesResponse.use has it.
const (
	useFree = iota
	useMeta
	useBranch
	useLeaf
	useOverflow
	useFreelist
	useOther
	useDamaged
	uses
)

// pageCells counts the pages of a file by cells of equally many.
type pageCells struct {
	per   uint64
	count [][uses]uint32
}

func newPageCells(pages uint64, most int) *pageCells {
	c := &pageCells{per: max((pages+uint64(most)-1)/uint64(most), 1)}
	c.count = make([][uses]uint32, (pages+c.per-1)/c.per)
	return c
}

// add adds n pages from id on.
func (c *pageCells) add(use int, id, n uint64) {
	for n > 0 && id/c.per < uint64(len(c.count)) {
		k := min(n, (id/c.per+1)*c.per-id)
		c.count[id/c.per][use] += uint32(k)
		id, n = id+k, n-k
	}
}

// run adds what the engine says of pages.
func (c *pageCells) run(r holdfast.PageRun) {
	first, id := useOther, uint64(r.ID)
	switch r.Kind {
	case holdfast.PageFree:
		first = useFree
	case holdfast.PageMeta:
		first = useMeta
	case holdfast.PageFreelist, holdfast.PageRecord:
		first = useFreelist
	case holdfast.PageDamaged:
		first = useDamaged
	case holdfast.PageBranch:
		c.add(useBranch, id, 1)
		c.add(useOverflow, id+1, r.Pages-1)
		return
	case holdfast.PageLeaf:
		c.add(useLeaf, id, 1)
		c.add(useOverflow, id+1, r.Pages-1)
		return
	}
	c.add(first, id, r.Pages)
}

// message is the map.
func (c *pageCells) message(pageBytes int64, pages uint64) *api.GetPagesResponse {
	out := &api.GetPagesResponse{PageBytes: pageBytes, Pages: int64(pages), PagesPerCell: int64(c.per), Use: make([]byte, len(c.count)), Share: make([]byte, len(c.count))}
	for i, cell := range c.count {
		best, all := useFree, cell[useFree]
		for u := useMeta; u < uses; u++ {
			all += cell[u]
			if cell[u] > 0 && (best == useFree || cell[u] > cell[best]) {
				best = u
			}
		}
		if cell[useDamaged] > 0 {
			best = useDamaged
		}
		used := all - cell[useFree]
		out.Use[i], out.Used = byte(best), out.Used+int64(used)
		if all > 0 {
			out.Share[i] = byte(uint64(used) * 255 / uint64(all))
		}
	}
	return out
}

// GetPages implements api.StorageHandler.
func (s storage) GetPages(ctx context.Context, req *connect.Request[api.GetPagesRequest]) (*connect.Response[api.GetPagesResponse], error) {
	most := min(cmp.Or(max(int(req.Msg.Cells), 0), defaultCells), maxCells)
	for _, d := range s.Databases {
		if d.Name != req.Msg.Database {
			continue
		}
		s.pages.Lock()
		defer s.pages.Unlock()
		out, err := mapOf(ctx, d.DB, most)
		if err != nil {
			return nil, coded(fmt.Errorf("pages of %s: %w", d.Name, err))
		}
		return connect.NewResponse(out), nil
	}
	return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("no database is called %q", req.Msg.Database))
}

func mapOf(ctx context.Context, db *holdfast.DB, most int) (out *api.GetPagesResponse, err error) {
	pageBytes := int64(db.Info().PageSize)
	for range 10 { // others may commit when it begins
		err = db.View(func(tx *holdfast.Tx) error {
			pages := uint64(tx.Size() / pageBytes)
			cells := newPageCells(pages, most)
			if tx.Size() <= maxMapped {
				err := tx.ForEachPage(func(r holdfast.PageRun) error {
					cells.run(r)
					return ctx.Err()
				})
				out = cells.message(pageBytes, pages)
				return err
			}
			free, err := tx.FreeExtents()
			if err != nil {
				return err
			}
			next := uint64(0)
			for id, n := range free {
				cells.add(useOther, next, uint64(id)-next)
				cells.add(useFree, uint64(id), n)
				next = uint64(id) + n
			}
			cells.add(useOther, next, pages-next)
			out = cells.message(pageBytes, pages)
			return nil
		})
		if err == nil || !errors.Is(err, holdfast.ErrNewerCommit) {
			return out, err
		}
	}
	return nil, connect.NewError(connect.CodeUnavailable, err)
}

// sizeOf is how many bytes a file has; 0 if that cannot be told.
func sizeOf(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}
