package command

import (
	"fmt"

	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/internal/page"
)

type infoReport struct {
	File         string `json:"file"`
	SizeBytes    int64  `json:"size_bytes"`
	PageSize     int    `json:"page_size_bytes"`
	HighWater    uint64 `json:"high_water_pages"`
	RootPage     uint64 `json:"root_page"`
	RootSequence uint64 `json:"root_sequence"`
	stateReport
	Freelist  *uint64      `json:"freelist_page"`
	FreePages *uint64      `json:"free_pages"`
	Metas     []metaReport `json:"metas"`
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

// info reads the metas and the header of the freelist page, and nothing else; of a
// file that was not closed also the pages that the last flush wrote, to see that they
// are there.
func (d *database) info() (*infoReport, error) {
	slots, err := d.metas()
	if err != nil {
		return nil, err
	}
	m, free, err := d.newestFree()
	if err != nil {
		return nil, err
	}
	state := d.FileState()
	r := &infoReport{
		File: d.path, SizeBytes: d.size, PageSize: d.Info().PageSize, HighWater: uint64(m.HighWater),
		RootPage: uint64(m.Root), RootSequence: m.Sequence, stateReport: newStateReport(state),
	}
	for slot, slotErr := range slots.Err {
		mr := metaReport{Slot: slot, Valid: slotErr == nil, Current: slot == r.Slot, TxID: uint64(slots.Meta[slot].Label)}
		if slotErr != nil {
			mr.Error = slotErr.Error()
		}
		r.Metas = append(r.Metas, mr)
	}
	if id := uint64(m.Freelist); m.Freelist != page.NoFreelist {
		r.Freelist = &id
	}
	r.FreePages = free
	return r, nil
}

// newestFree is newest with the number of free pages; nil: it would take a scan.
func (d *database) newestFree() (m page.Meta, free *uint64, err error) {
	slots, err := d.metas()
	if err != nil {
		return m, nil, err
	}
	if m, err = d.newest(slots); err != nil {
		return m, nil, err
	}
	free, err = d.freePages(m)
	return m, free, err
}

// freePages is how many pages are free in the newest state, whose meta m is; nil: it would take a scan.
func (d *database) freePages(m page.Meta) (*uint64, error) {
	var list freelist
	var err error
	if m.Freelist != page.NoFreelist {
		if list, err = d.freelist(m); err != nil {
			return nil, err
		}
	}
	switch state := d.FileState(); {
	case state.FreeRecorded:
		list.free = uint64(state.FreePages)
	case m.Freelist == page.NoFreelist:
		return nil, nil
	}
	return &list.free, nil
}

// newest is the meta of the newest state. The current slot's own may be of the state
// before; then the newest has no freelist page.
func (d *database) newest(slots page.Slots) (m page.Meta, err error) {
	m = slots.Meta[d.FileState().Slot]
	if d.FileState().BboltBehind {
		m.Freelist = page.NoFreelist
	}
	err = d.View(func(tx *holdfast.Tx) error {
		root := tx.Cursor().Bucket()
		m.Root, m.Sequence = root.RootPage(), root.Sequence()
		m.HighWater = page.ID(tx.Size() / int64(m.PageSize))
		return nil
	})
	return m, err
}

// freelist is what the header of a freelist page says.
type freelist struct {
	free  uint64 // pages that it lists
	pages uint64 // that it takes itself
}

// freelist reads the header of the freelist page that m names.
func (d *database) freelist(m page.Meta) (freelist, error) {
	buf := make([]byte, page.HeaderSize+8) // with the count of a long one
	if _, err := d.file.ReadAt(buf, int64(m.Freelist)*int64(m.PageSize)); err != nil {
		return freelist{}, err
	}
	h := page.DecodeHeader(buf)
	if h.Flags != page.FlagFreelist {
		return freelist{}, page.Corruptf(m.Freelist, "the meta names it as freelist, but it is of type %s", page.TypeName(h.Flags))
	}
	list := freelist{pages: uint64(h.Overflow) + 1}
	list.free, _ = page.FreelistBody(buf)
	if list.free > uint64(m.HighWater) {
		return freelist{}, page.Corruptf(m.Freelist, "the freelist has %d pages, more than the file", list.free)
	}
	return list, nil
}

func (c *call) printInfo(r *infoReport) {
	lines := [][2]string{
		{"File", r.File},
		{"Size", sizeExactly(r.SizeBytes)},
		{"Page size", sizeExactly(int64(r.PageSize))},
		{"Pages", fmt.Sprintf("%s up to the high-water mark (%s)", count(r.HighWater), size(int64(r.HighWater)*int64(r.PageSize)))},
		{"Free pages", r.freeText()},
		{"Root bucket", fmt.Sprintf("page %d, sequence %d", r.RootPage, r.RootSequence)},
		{"Transaction", fmt.Sprintf("%d (bbolt's transaction id: %d)", r.Transaction, r.Label)},
	}
	unread := "what Holdfast wrote into the current meta page cannot be read"
	for _, m := range r.Metas {
		text := fmt.Sprintf("transaction id %d", m.TxID)
		switch {
		case !m.Valid:
			text = c.paint(yellow, "damaged: "+m.Error) + "; the other one is used"
			unread = fmt.Sprintf("meta page %d may have named a newer state", m.Slot)
		case m.Current:
			text += ", current"
		}
		lines = append(lines, [2]string{fmt.Sprintf("Meta page %d", m.Slot), text})
	}
	switch {
	case r.Unfinished:
		lines = append(lines, [2]string{"Last flush", c.paint(yellow, "not whole") + ": " + lastFlush})
	case r.Unreadable:
		lines = append(lines, [2]string{"Last flush", c.paint(yellow, "not known") + ": " + unread + "; " + lastFlush})
	}
	lines = append(lines, [2]string{"bbolt finds", c.bboltText(&r.stateReport, r.File)})
	if r.Unflushed {
		lines = append(lines, [2]string{"Not flushed", notFlushed})
	}
	rows(c.out, lines...)
}

// lastFlush is what may have become of the last flush, which a file cannot tell.
const lastFlush = "a crash cut it short, before its commits had returned (with Periodic they may have), or it was damaged since, and its commits are lost: if there was no crash, take it for damage (docs/recovering.md)"

// notFlushed is told of a file that could not be flushed before it was read. What was written last may be in
// the system's cache only.
const notFlushed = "the file could not be flushed before it was read, as on a read-only file system: a power failure may take back what was written to it last"

// bboltText says what bbolt finds in a file.
func (a *app) bboltText(s *stateReport, file string) string {
	if s.BboltBehind {
		return fmt.Sprintf("the state before the last flush; before you go back to bbolt, run: %s settle %s", a.name(), shellQuote(file))
	}
	return "the newest state"
}

// freeText says how many pages are free, and how somebody who opens the file for
// writing gets to know which.
func (r *infoReport) freeText() string {
	if r.FreePages == nil {
		return "not stored: opening it for writing takes a scan"
	}
	text := fmt.Sprintf("%s, %s of the file; ", count(*r.FreePages), size(int64(*r.FreePages)*int64(r.PageSize)))
	switch {
	case !r.FreeRecorded:
		return text + fmt.Sprintf("in the freelist in page %d: opening takes no scan", *r.Freelist)
	case r.Freelist == nil:
		return text + "recorded: opening takes no scan (with bbolt it does)"
	}
	return text + fmt.Sprintf("recorded: opening takes no scan; for bbolt there is the freelist in page %d", *r.Freelist)
}
