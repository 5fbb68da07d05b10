package command

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/internal/page"
)

const checkHelp = `Look at every page of the database and print each fault with the page where it
was found, or OK if there is none. The exit code is 3 if there are faults.

A meta page that is not whole is told as a note and not as a fault: that is how
the end of a process in the middle of a commit looks, and the other one is used.`

// maxFaults is the number of faults at which the engine ends a check.
const maxFaults = 10_000

type checkReport struct {
	File      string        `json:"file"`
	OK        bool          `json:"ok"`
	Faults    []faultReport `json:"faults"`
	Truncated bool          `json:"truncated"` // there may be more faults
	Notes     []string      `json:"notes"`

	root uint64 // page of the root bucket
}

type faultReport struct {
	Page   uint64 `json:"page"`
	Reason string `json:"reason"`
}

type checkFlags struct {
	fromPage uint64
}

func (a *app) newCheck() *cobra.Command {
	var f checkFlags
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Look at every page and print all faults",
		Long:  checkHelp,
		Args:  cobra.ExactArgs(1),
		RunE:  a.action(func(c *call) error { return c.check(f) }),
	}
	cmd.Flags().Uint64Var(&f.fromPage, "from-page", 0, "check only this page and what lies below it; 0: everything")
	return cmd
}

func (c *call) check(f checkFlags) error {
	r := &checkReport{File: c.args[0], Faults: []faultReport{}, Notes: []string{}}
	if err := c.findFaults(f, r); err != nil {
		if !isDamage(err) {
			return err
		}
		r.add(err) // the damage is such that the file cannot be opened
	}
	r.OK = len(r.Faults) == 0
	if c.json {
		if err := c.printJSON(r); err != nil {
			return err
		}
	} else {
		c.printCheck(r)
	}
	switch {
	case r.OK:
		return nil
	case c.stock:
		return ErrDamaged
	}
	return &checkFailure{file: r.File, faults: len(r.Faults)}
}

func (r *checkReport) add(err error) {
	var damage *holdfast.CorruptError
	switch {
	case errors.As(err, &damage):
		r.Faults = append(r.Faults, faultReport{uint64(damage.Page), damage.Reason})
	case errors.Is(err, holdfast.ErrChecksum):
		r.Faults = append(r.Faults, faultReport{0, "neither of the two meta pages is whole: " + holdfast.ErrChecksum.Error()})
	default:
		if explained := (*fileError)(nil); errors.As(err, &explained) {
			err = explained.err // the report names the file
		}
		r.Faults = append(r.Faults, faultReport{r.root, err.Error()})
	}
}

// findFaults adds all faults of the file to r.
func (c *call) findFaults(f checkFlags, r *checkReport) error {
	return c.view(r.File, false, func(d *database, tx *holdfast.Tx) error {
		if err := d.noteMetas(r); err != nil {
			return err
		}
		options := []holdfast.CheckOption{holdfast.WithKVStringer(stringer{})}
		if f.fromPage != 0 {
			pages := uint64(tx.Size()) / uint64(d.Info().PageSize)
			if first := uint64(page.FirstDataPage); f.fromPage < first || f.fromPage >= pages {
				return c.noPage(r, f.fromPage, pages)
			}
			options = append(options, holdfast.WithPageId(f.fromPage))
		}
		var done atomic.Int64
		pageSize := uint64(d.Info().PageSize)
		options = append(options, holdfast.WithProgress(func(pages, _ uint64) { done.Store(int64(pages * pageSize)) }))
		stop := c.progress("checking", tx.Size(), done.Load)
		defer stop()
		for err := range tx.Check(options...) {
			r.add(err)
		}
		r.Truncated = len(r.Faults) >= maxFaults
		return nil
	})
}

// noPage is what a page number gives that the file does not have.
func (c *call) noPage(r *checkReport, id, pages uint64) error {
	if c.stock {
		r.add(page.Corruptf(page.ID(id), "page ID (%d) out of range [%d, %d)", id, page.FirstDataPage, pages))
		return nil
	}
	return usagef("--from-page: %s has pages %d to %d, not %d", r.File, page.FirstDataPage, pages-1, id)
}

// noteMetas adds a note for a meta page that is not whole.
func (d *database) noteMetas(r *checkReport) error {
	slots, err := d.metas()
	if err != nil {
		return err
	}
	if best, err := slots.Best(); err == nil {
		r.root = uint64(slots.Meta[best].Root)
	}
	for slot, err := range slots.Err {
		if err != nil {
			r.Notes = append(r.Notes, fmt.Sprintf("meta page %d is not whole (%s), the other one is used: a commit was cut off", slot, err))
		}
	}
	return nil
}

func (c *call) printCheck(r *checkReport) {
	for _, note := range r.Notes {
		fmt.Fprintf(c.cmd.ErrOrStderr(), "%s: note: %s\n", c.name(), note)
	}
	if r.OK {
		fmt.Fprintln(c.out, c.paint(green, "OK"))
		return
	}
	for _, f := range r.Faults {
		fmt.Fprintf(c.out, "%s %s\n", c.paint(red, fmt.Sprintf("page %d:", f.Page)), f.Reason)
	}
	if c.stock {
		fmt.Fprintf(c.out, "%d errors found\n", len(r.Faults))
		return
	}
	more := ""
	if r.Truncated {
		more = " and perhaps more"
	}
	fmt.Fprintf(c.out, "%s%s, on %s\n", plural(len(r.Faults), "fault"), more, r.pages())
}

// maxListed is the number of pages that the summary names at most.
const maxListed = 10

// pages names the pages with faults.
func (r *checkReport) pages() string {
	var ids []uint64
	for _, f := range r.Faults {
		ids = append(ids, f.Page)
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	var text []string
	for _, id := range ids[:min(len(ids), maxListed)] {
		text = append(text, fmt.Sprint(id))
	}
	if len(ids) > maxListed {
		text = append(text, fmt.Sprintf("%s more", count(len(ids)-maxListed)))
	}
	if len(ids) == 1 {
		return "page " + text[0]
	}
	return "pages " + strings.Join(text, ", ")
}
