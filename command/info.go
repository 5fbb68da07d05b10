package command

import (
	"encoding/binary"
	"fmt"

	"github.com/spf13/cobra"

	"holdfast/internal/page"
)

type infoReport struct {
	File         string       `json:"file"`
	SizeBytes    int64        `json:"size_bytes"`
	PageSize     int          `json:"page_size_bytes"`
	HighWater    uint64       `json:"high_water_pages"`
	RootPage     uint64       `json:"root_page"`
	RootSequence uint64       `json:"root_sequence"`
	TxID         uint64       `json:"txid"`
	Freelist     *uint64      `json:"freelist_page"`
	FreePages    *uint64      `json:"free_pages"`
	Metas        []metaReport `json:"metas"`
}

type metaReport struct {
	Slot    int    `json:"slot"`
	Valid   bool   `json:"valid"`
	Current bool   `json:"current"`
	TxID    uint64 `json:"txid"`
	Error   string `json:"error,omitempty"`
}

func (a *app) newInfo() *cobra.Command {
	return &cobra.Command{
		Use:   "info FILE",
		Short: "Print what the meta pages say; instant on a file of any size",
		Args:  cobra.ExactArgs(1),
		RunE:  a.action((*call).info),
	}
}

func (c *call) info() error {
	d, err := c.read(c.args[0], false)
	if err != nil {
		return err
	}
	defer d.Close()
	r, err := d.info()
	switch {
	case err != nil:
		return c.explain(d.path, err)
	case c.json:
		return c.printJSON(r)
	case c.stock:
		fmt.Fprintf(c.out, "Page Size: %d\n", r.PageSize)
	default:
		c.printInfo(r)
	}
	return nil
}

// info reads the metas and the header of the freelist page, and nothing else.
func (d *database) info() (*infoReport, error) {
	slots, err := d.metas()
	if err != nil {
		return nil, err
	}
	best, err := slots.Best()
	if err != nil {
		return nil, err
	}
	m := slots.Meta[best]
	r := &infoReport{
		File: d.path, SizeBytes: d.size, PageSize: int(m.PageSize), HighWater: uint64(m.HighWater),
		RootPage: uint64(m.Root), RootSequence: m.Sequence, TxID: uint64(m.Label),
	}
	for slot, slotErr := range slots.Err {
		mr := metaReport{Slot: slot, Valid: slotErr == nil, Current: slot == best, TxID: uint64(slots.Meta[slot].Label)}
		if slotErr != nil {
			mr.Error = slotErr.Error()
		}
		r.Metas = append(r.Metas, mr)
	}
	if m.Freelist == page.NoFreelist {
		return r, nil
	}
	id := uint64(m.Freelist)
	r.Freelist = &id
	list, err := d.freelist(m)
	if err != nil {
		return nil, err
	}
	r.FreePages = &list.free
	return r, nil
}

// freelist is what the header of a freelist page says.
type freelist struct {
	free  uint64 // pages that it lists
	pages uint64 // that it takes itself
}

// A freelist of more pages than its header can count has the number behind it.
const (
	freelistLong   = 0xFFFF
	freelistNumber = 8 // bytes
)

// freelist reads the header of the freelist page that m names.
func (d *database) freelist(m page.Meta) (freelist, error) {
	buf := make([]byte, page.HeaderSize+freelistNumber)
	if _, err := d.file.ReadAt(buf, int64(m.Freelist)*int64(m.PageSize)); err != nil {
		return freelist{}, err
	}
	h := page.DecodeHeader(buf)
	if h.Flags != page.FlagFreelist {
		return freelist{}, page.Corruptf(m.Freelist, "the meta names it as freelist, but it is a %s page", page.TypeName(h.Flags))
	}
	list := freelist{free: uint64(h.Count), pages: uint64(h.Overflow) + 1}
	if h.Count == freelistLong {
		list.free = binary.NativeEndian.Uint64(buf[page.HeaderSize:])
	}
	if list.free > uint64(m.HighWater) {
		return freelist{}, page.Corruptf(m.Freelist, "the freelist has %d pages, more than the file", list.free)
	}
	return list, nil
}

func (c *call) printInfo(r *infoReport) {
	free := "not stored: whoever opens the file for writing scans it"
	if r.FreePages != nil {
		used := int64(*r.FreePages) * int64(r.PageSize)
		free = fmt.Sprintf("%s, %s of the file (freelist in page %d)", count(*r.FreePages), size(used), *r.Freelist)
	}
	rows(c.out,
		[2]string{"File", r.File},
		[2]string{"Size", sizeExactly(r.SizeBytes)},
		[2]string{"Page size", sizeExactly(int64(r.PageSize))},
		[2]string{"Pages", fmt.Sprintf("%s up to the high-water mark (%s)", count(r.HighWater), size(int64(r.HighWater)*int64(r.PageSize)))},
		[2]string{"Free pages", free},
		[2]string{"Root bucket", fmt.Sprintf("page %d, sequence %d", r.RootPage, r.RootSequence)})
	for _, m := range r.Metas {
		text := fmt.Sprintf("transaction %d", m.TxID)
		switch {
		case !m.Valid:
			text = c.paint(yellow, "damaged: "+m.Error) + "; the other one is used"
		case m.Current:
			text += ", current"
		}
		rows(c.out, [2]string{fmt.Sprintf("Meta page %d", m.Slot), text})
	}
}
