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
	"holdfast/internal/salvage"
)

const checkHelp = `Look at every page of the database and print each fault with the page where it
was found, or OK if there is none. The exit code is 3 if there are faults.

A meta page that is not whole is told as a note and not as a fault: that is how
the end of a process in the middle of a commit looks, and the other one is used.

Pages that Holdfast writes are sealed: their last bytes are a checksum. A seal that
is wrong is a fault: the disk damaged the page, or a tool changed it in place; after
such a tool, "holdfast reseal" mends the seals. A page without a seal is none: bbolt
wrote it, or it is full. The last line counts them.

Of several files each has its verdict, sound or damaged, before what was found in it; the
exit code is 3 if any of them has faults, and 1 if any other cannot be looked at.

With --quick next to nothing is read: the meta pages and what stands after them, what is
recorded of free pages, and the pages of the root bucket from its root to its first leaf.
That is instant on a file of any size, and says nothing of all other pages.`

// maxFaults is the number of faults at which the engine ends a check.
const maxFaults = 10_000

type checkReport struct {
	File      string        `json:"file"`
	OK        bool          `json:"ok"`
	Verdict   string        `json:"verdict"` // sound or damaged
	Faults    []faultReport `json:"faults"`
	Truncated bool          `json:"truncated"` // there may be more faults
	Notes     []string      `json:"notes"`
	Unflushed bool          `json:"unflushed"` // a note says so too
	Seals     sealReport    `json:"seals"`
	Quick     *quickReport  `json:"quick,omitempty"`

	root uint64 // page of the root bucket
}

// sealReport counts the pages that were looked at, each with its overflow pages.
type sealReport struct {
	Sealed   uint64 `json:"sealed"`
	Unsealed uint64 `json:"unsealed"`
	Wrong    uint64 `json:"wrong"`
}

// quickReport says how little a quick check has looked at.
type quickReport struct {
	Pages uint64 `json:"pages_read"`
	All   uint64 `json:"pages"`
	Free  string `json:"free_pages_from"`
}

type faultReport struct {
	Page   uint64 `json:"page"`
	Reason string `json:"reason"`
}

type checkFlags struct {
	fromPage uint64
	quick    bool
}

func (a *app) newCheck() *cobra.Command {
	var f checkFlags
	cmd := &cobra.Command{
		Use:   "check FILE...",
		Short: "Look at every page and print all faults",
		Long:  checkHelp,
		Args:  cobra.MinimumNArgs(1),
		RunE:  a.action(func(c *call) error { return c.check(f) }),
	}
	if a.stock {
		cmd.Use, cmd.Args = "check FILE", cobra.ExactArgs(1)
	}
	cmd.Flags().Uint64Var(&f.fromPage, "from-page", 0, "check only this page and what lies below it; 0: everything")
	if !a.stock {
		cmd.Flags().BoolVar(&f.quick, "quick", false, "look only at the metas, what is recorded of free pages, and one path to a leaf")
	}
	return cmd
}

func (c *call) check(f checkFlags) error {
	if f.quick && f.fromPage != 0 {
		return usagef("--quick does not go with --from-page")
	}
	if len(c.args) > 1 {
		if f.fromPage != 0 {
			return usagef("--from-page is for one FILE, and there are %d", len(c.args))
		}
		return c.eachFile(func(file string) (finding, error) {
			r, err := c.checked(file, f)
			if err != nil {
				return finding{}, err
			}
			return finding{r.Verdict, r, func() { c.printCheck(r) }}, nil
		})
	}
	r, err := c.checked(c.args[0], f)
	if err != nil {
		return err
	}
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
	return &checkFailure{r.File, len(r.Faults), c.name()}
}

// checked is what was found in a file.
func (c *call) checked(file string, f checkFlags) (*checkReport, error) {
	r := &checkReport{File: file, Verdict: verdictSound, Faults: []faultReport{}, Notes: []string{}}
	find := (*call).findFaults
	if f.quick {
		find = (*call).quickFaults
	}
	if err := find(c, f, r); err != nil {
		if !isDamage(err) {
			return nil, err
		}
		r.add(err) // the damage is such that the file cannot be opened
	}
	if r.OK = len(r.Faults) == 0; !r.OK {
		r.Verdict = verdictDamaged
	}
	return r, nil
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
		if environment("HOLDFAST_SEALS") == "off" {
			r.Notes = append(r.Notes, "the environment sets HOLDFAST_SEALS=off: damage that only a seal shows is not found")
		}
		r.root = uint64(tx.Cursor().Bucket().RootPage())
		var seals holdfast.SealCounts
		options := []holdfast.CheckOption{holdfast.WithKVStringer(stringer{}), holdfast.WithSealCounts(&seals)}
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
		if f.fromPage != 0 && !c.stock {
			what, err := d.notOfTree(tx, f.fromPage)
			switch {
			case err != nil:
				return err
			case what != "" && len(r.Faults) > 0:
				return usagef("--from-page: page %d of %s %s; give a page of a bucket", f.fromPage, r.File, what)
			case what != "": // what it held once; or a damaged freelist names a page that is in use
				r.Notes = append(r.Notes, fmt.Sprintf("page %d %s", f.fromPage, what))
			}
		}
		r.Truncated = len(r.Faults) >= maxFaults
		r.Seals = sealReport(seals)
		return nil
	})
}

// quickFaults adds the faults to r that can be found in no time.
func (c *call) quickFaults(_ checkFlags, r *checkReport) error {
	r.Quick = &quickReport{}
	return c.view(r.File, false, func(d *database, _ *holdfast.Tx) error {
		if err := d.noteMetas(r); err != nil {
			return err
		}
		look, err := salvage.Quick(d.file, d.size)
		if err != nil {
			return err
		}
		r.Quick = &quickReport{look.Pages, uint64(look.All), look.Free}
		for _, f := range look.Faults {
			r.Faults = append(r.Faults, faultReport{uint64(f.Page), f.Reason})
		}
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

// notOfTree says what a page is that is known not to be one of a tree; "" of all others.
func (d *database) notOfTree(tx *holdfast.Tx, id uint64) (what string, err error) {
	header := make([]byte, page.HeaderSize)
	if _, err := d.file.ReadAt(header, int64(id)*int64(d.Info().PageSize)); err != nil {
		return "", err
	}
	if h := page.DecodeHeader(header); h.Flags == page.FlagFreelist && uint64(h.ID) == id {
		return "is the freelist", nil
	}
	extents, err := tx.FreeExtents()
	if err != nil {
		return "", nil // damage, which a check of the whole file tells of
	}
	for first, n := range extents {
		if id >= uint64(first) && id-uint64(first) < n {
			what = "is free"
		}
	}
	return what, nil
}

// noteMetas adds a note for a meta page that is not whole, and if the file could not be flushed.
func (d *database) noteMetas(r *checkReport) error {
	slots, err := d.metas()
	if err != nil {
		return err
	}
	r.Notes = append(r.Notes, d.notes(slots)...)
	if r.Unflushed = d.FileState().Unflushed; r.Unflushed {
		r.Notes = append(r.Notes, notFlushed)
	}
	return nil
}

// notes say what is odd about the metas of a file and yet no fault: a crash can leave
// them so.
func (d *database) notes(slots page.Slots) (notes []string) {
	torn := false
	for slot, err := range slots.Err {
		if err != nil {
			torn = true
			notes = append(notes, fmt.Sprintf("meta page %d is not whole (%s), the other one is used: the last flush is not there: %s", slot, err, lastFlush))
		}
	}
	switch s := d.FileState(); {
	case s.Unfinished:
		notes = append(notes, "the last flush is not whole: "+lastFlush)
	case s.Unreadable && !torn:
		notes = append(notes, fmt.Sprintf("what Holdfast wrote into meta page %d cannot be read; if it was for a last flush: %s", s.Slot, lastFlush))
	}
	return notes
}

func (c *call) printCheck(r *checkReport) {
	for _, note := range r.Notes {
		fmt.Fprintf(c.cmd.ErrOrStderr(), "%s: note: %s\n", c.name(), note)
	}
	if r.OK && r.Quick != nil {
		fmt.Fprintln(c.out, r.Quick)
		fmt.Fprintf(c.out, "for all of it: %s check %s\n", c.name(), shellQuote(r.File))
		return
	}
	if r.OK {
		fmt.Fprintln(c.out, c.paint(green, "OK"))
		if !c.stock {
			fmt.Fprintln(c.out, r.Seals)
		}
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
	if r.Quick != nil {
		fmt.Fprintf(c.out, "little was looked at; for all of it: %s check %s\n", c.name(), shellQuote(r.File))
		return
	}
	fmt.Fprintln(c.out, r.Seals)
}

// String says what was looked at.
func (q quickReport) String() string {
	free := "nothing is recorded of free pages"
	if q.Free != "" {
		free = "what " + q.Free + " says of free pages"
	}
	return fmt.Sprintf("nothing wrong in the little that was looked at: the meta pages, %s, and %s on the way to one leaf, of %s in all",
		free, plural(q.Pages, "page"), count(q.All))
}

// String is the line that counts seals.
func (s sealReport) String() string {
	all := s.Sealed + s.Unsealed + s.Wrong
	if all == 0 {
		return "no seals were looked at"
	}
	return fmt.Sprintf("seals of %s: %s right, %s missing, %s wrong", plural(all, "page"), count(s.Sealed), count(s.Unsealed), count(s.Wrong))
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
