package inspect

import (
	"fmt"

	"github.com/spf13/cobra"

	"holdfast/command/cli"
	"holdfast/internal/page"
)

type infoReport struct {
	File         string `json:"file"`
	SizeBytes    int64  `json:"size_bytes"`
	PageSize     int    `json:"page_size_bytes"`
	HighWater    uint64 `json:"high_water_pages"`
	RootPage     uint64 `json:"root_page"`
	RootSequence uint64 `json:"root_sequence"`
	cli.StateReport
	Freelist  *uint64      `json:"freelist_page"`
	FreePages *uint64      `json:"free_pages"`
	Metas     []metaReport `json:"metas"`
	InUseBy   *int         `json:"in_use_by,omitempty"` // process
}

type metaReport struct {
	Slot    int    `json:"slot"`
	Valid   bool   `json:"valid"`
	Current bool   `json:"current"`
	TxID    uint64 `json:"txid"`
	Error   string `json:"error,omitempty"`
}

func newInfo(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "info FILE",
		Short: "Print what the meta pages say; instant on a file of any size",
		Args:  cobra.ExactArgs(1),
		RunE:  a.Action(runInfo),
	}
}

func runInfo(c *cli.Call) error {
	d, err := c.Read(c.Args[0], false)
	if err != nil {
		return err
	}
	defer d.Close()
	r, err := info(d)
	switch {
	case err != nil:
		return c.Explain(d.FilePath, err)
	case c.JSON:
		return c.PrintJSON(r)
	case c.Stock:
		fmt.Fprintf(c.Out, "Page Size: %d\n", r.PageSize)
	default:
		printInfo(c, r)
	}
	return nil
}

// info reads the metas and the header of the freelist page, and nothing else; of a
// file that was not closed also the pages that the last flush wrote, to see that they
// are there.
func info(d *cli.Database) (*infoReport, error) {
	slots, err := d.Metas()
	if err != nil {
		return nil, err
	}
	m, free, err := d.NewestFree()
	if err != nil {
		return nil, err
	}
	state := d.FileState()
	var inUseBy *int
	if pid, shared := d.SharedBy(); shared {
		inUseBy = &pid
	}
	r := &infoReport{
		InUseBy: inUseBy,
		File:    d.FilePath, SizeBytes: d.FileSize, PageSize: d.Info().PageSize, HighWater: uint64(m.HighWater),
		RootPage: uint64(m.Root), RootSequence: m.Sequence, StateReport: cli.NewStateReport(state),
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

func printInfo(c *cli.Call, r *infoReport) {
	lines := [][2]string{
		{"File", r.File},
		{"Size", cli.SizeExactly(r.SizeBytes)},
		{"Page size", cli.SizeExactly(int64(r.PageSize))},
		{"Pages", fmt.Sprintf("%s up to the high-water mark (%s)", cli.Count(r.HighWater), cli.Size(int64(r.HighWater)*int64(r.PageSize)))},
		{"Free pages", r.freeText()},
		{"Root bucket", fmt.Sprintf("page %d, sequence %d", r.RootPage, r.RootSequence)},
		{"Transaction", r.transactionText()},
	}
	unread := "what Holdfast wrote into the current meta page cannot be read"
	for _, m := range r.Metas {
		text := fmt.Sprintf("transaction id %d", m.TxID)
		switch {
		case !m.Valid:
			text = c.Paint(cli.Yellow, "damaged: "+m.Error) + "; the other one is used"
			unread = fmt.Sprintf("meta page %d may have named a newer state", m.Slot)
		case m.Current:
			text += ", current"
		}
		lines = append(lines, [2]string{fmt.Sprintf("Meta page %d", m.Slot), text})
	}
	switch {
	case r.Unfinished:
		lines = append(lines, [2]string{"Last flush", c.Paint(cli.Yellow, "not whole") + ": " + cli.LastFlush})
	case r.Unreadable:
		lines = append(lines, [2]string{"Last flush", c.Paint(cli.Yellow, "not known") + ": " + unread + "; " + cli.LastFlush})
	}
	if r.InUseBy != nil {
		lines = append(lines, [2]string{"In use", fmt.Sprintf("by %s; bbolt, and programs that write, cannot open it until that has closed it", cli.Process(*r.InUseBy))})
	} else {
		lines = append(lines, [2]string{"bbolt finds", bboltText(c.App, &r.StateReport, r.File)})
	}
	if r.Unflushed {
		lines = append(lines, [2]string{"Not flushed", cli.NotFlushed})
	}
	cli.Rows(c.Out, lines...)
}

// bboltText says what bbolt finds in a file.
func bboltText(a *cli.App, s *cli.StateReport, file string) string {
	if s.BboltBehind {
		return fmt.Sprintf("the state before the last flush; before you go back to bbolt, run: %s settle %s", a.Name(), cli.ShellWord(file))
	}
	return "the newest state"
}

// transactionText has bbolt's number too, if there is one: not of a state that a program shares, whose meta need not be there yet.
func (r *infoReport) transactionText() string {
	if r.InUseBy != nil {
		return fmt.Sprint(r.Transaction)
	}
	return fmt.Sprintf("%d (bbolt's transaction id: %d)", r.Transaction, r.Label)
}

// freeText says how many pages are free, and how a program that opens the file for
// writing gets to know which.
func (r *infoReport) freeText() string {
	if r.FreePages == nil {
		return "not stored: opening it for writing takes a scan"
	}
	text := fmt.Sprintf("%s, %s of the file; ", cli.Count(*r.FreePages), cli.Size(int64(*r.FreePages)*int64(r.PageSize)))
	switch {
	case !r.FreeRecorded:
		return text + fmt.Sprintf("in the freelist in page %d: opening takes no scan", *r.Freelist)
	case r.Freelist == nil:
		return text + "recorded: opening takes no scan (with bbolt it does)"
	}
	return text + fmt.Sprintf("recorded: opening takes no scan; for bbolt there is the freelist in page %d", *r.Freelist)
}
