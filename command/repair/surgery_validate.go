package repair

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"holdfast/command/cli"
	"holdfast/internal/extension"
	"holdfast/internal/page"
)

// metaVerdict is what meta validate says of a meta page.
type metaVerdict struct {
	Slot      int     `json:"slot"`
	Valid     bool    `json:"valid"`   // magic, version and checksum are right
	Sound     bool    `json:"sound"`   // and its numbers can be right
	Current   bool    `json:"current"` // it is the one that is opened
	Error     string  `json:"error,omitempty"`
	PageSize  uint32  `json:"page_size_bytes"`
	Root      uint64  `json:"root_page"`
	Freelist  *uint64 `json:"freelist_page"`
	HighWater uint64  `json:"high_water_pages"`
	TxID      uint64  `json:"txid"`
	Extension string  `json:"extension"`
}

type metaReports struct {
	File     string        `json:"file"`
	PageSize int64         `json:"page_size_bytes"` // 0: it cannot be told
	Metas    []metaVerdict `json:"metas"`
}

func newMetaValidate(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "validate FILE",
		Short: "Say what is right or wrong with each meta page",
		Long:  "Say what is right or wrong with each meta page. Nothing is changed. The exit code\nis 3 if one of them is not valid.",
		Args:  cobra.ExactArgs(1),
		RunE:  a.Action(validateMetas),
	}
}

func validateMetas(c *cli.Call) error {
	path := c.Args[0]
	if _, err := c.Look(path); err != nil {
		return err
	}
	src, err := c.OpenRaw(path, !c.Stock) // bbolt takes no lock for surgery
	if err != nil {
		return c.Explain(path, err)
	}
	defer src.Close()
	p, err := examine(src.File)
	if err != nil {
		return c.Explain(path, err)
	}
	if !c.Stock && errors.Is(p.slots.Err[0], page.ErrInvalid) && errors.Is(p.slots.Err[1], page.ErrInvalid) && !c.HoldsPages(path) {
		return c.Explain(path, page.ErrInvalid)
	}
	r := metaReports{File: path, PageSize: p.pageSize}
	faults := 0
	for slot := range p.slots.Meta {
		v, err := p.verdict(slot)
		if err != nil {
			return c.Explain(path, err)
		}
		if !v.Sound {
			faults++
		}
		r.Metas = append(r.Metas, v)
	}
	err = c.Report(r, func() { printVerdicts(c, &r) })
	if err == nil && faults > 0 && !c.Stock {
		return &cli.CheckFailure{File: path, Faults: faults, Command: c.Name()}
	}
	return err
}

// verdict looks at a meta page.
func (p *patient) verdict(slot int) (metaVerdict, error) {
	v := metaVerdict{Slot: slot, Current: p.err == nil && slot == p.best, Extension: extensionNone}
	if slot == 1 && p.pageSize == 0 {
		v.Error = "the page size cannot be told, so neither where the page is"
		return v, nil
	}
	buf, err := p.metaPage(slot)
	if err != nil {
		return v, err
	}
	m := page.MetaFields(buf)
	v.PageSize, v.Root, v.HighWater, v.TxID = m.PageSize, uint64(m.Root), uint64(m.HighWater), uint64(m.Label)
	if m.Freelist != page.NoFreelist {
		id := uint64(m.Freelist)
		v.Freelist = &id
	}
	if err = p.slots.Err[slot]; err == nil {
		v.Valid = true
		err = m.Check(p.size)
	}
	if err != nil {
		v.Error = reason(err)
	}
	v.Sound = err == nil
	v.Extension = extensionKind(buf)
	return v, nil
}

// reason is the text of err without the page's number.
func reason(err error) string {
	if damage := (*page.CorruptError)(nil); errors.As(err, &damage) {
		return damage.Reason
	}
	return err.Error()
}

// What Holdfast has added to a meta page.
const (
	extensionNone       = "none"
	extensionPlain      = "plain"
	extensionTrailing   = "trailing"
	extensionUnreadable = "unreadable"
)

var extensionTexts = map[string]string{
	extensionNone:       "nothing",
	extensionPlain:      "what it knows of this state: its number, its free pages",
	extensionTrailing:   "a newer state than this, left in mid use",
	extensionUnreadable: "something that cannot be read",
}

// extensionKind says what Holdfast has added to a meta page.
func extensionKind(buf []byte) string {
	ext, err := extension.Decode(buf)
	switch {
	case errors.Is(err, extension.ErrNone) && len(bytes.Trim(page.Extension(buf), "\x00")) == 0:
		return extensionNone
	case err != nil:
		return extensionUnreadable
	case ext.Trailing != nil:
		return extensionTrailing
	}
	return extensionPlain
}

// printVerdicts prints what was found for people, or what bbolt prints.
func printVerdicts(c *cli.Call, r *metaReports) {
	for _, v := range r.Metas {
		if c.Stock {
			if v.Valid {
				fmt.Fprintf(c.Out, "The meta page %d is valid!\n", v.Slot)
			} else {
				fmt.Fprintf(c.Out, "WARNING: The meta page %d isn't valid: %s!\n", v.Slot, v.Error)
			}
			continue
		}
		printVerdict(c, v)
	}
}

func printVerdict(c *cli.Call, v metaVerdict) {
	state := c.Paint(cli.Green, "valid")
	switch {
	case !v.Valid:
		state = c.Paint(cli.Red, "not valid") + ": " + v.Error
	case !v.Sound:
		state = c.Paint(cli.Red, "cannot be opened") + ": " + v.Error
	case v.Current:
		state += ", current"
	}
	list := uint64(page.NoFreelist)
	if v.Freelist != nil {
		list = *v.Freelist
	}
	cli.Rows(c.Out,
		[2]string{fmt.Sprintf("Meta page %d", v.Slot), state},
		[2]string{"  page size", strconv.FormatUint(uint64(v.PageSize), 10)},
		[2]string{"  root", strconv.FormatUint(v.Root, 10)},
		[2]string{"  freelist", metaNumber(list)},
		[2]string{"  high-water mark", strconv.FormatUint(v.HighWater, 10)},
		[2]string{"  transaction id", strconv.FormatUint(v.TxID, 10)},
		[2]string{"  Holdfast added", extensionTexts[v.Extension]},
	)
}
