package inspect

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/command/cli"
	"holdfast/internal/page"
	"holdfast/internal/salvage"
)

const checkHelp = `Look at every page of the database and print each fault with the page where it
was found, and then that FILE is sound, or how many faults it has. The exit code is 3 then.

A meta page that is not whole is told as a note and not as a fault: that is how
the end of a process in the middle of a commit looks, and the other one is used.

Pages that Holdfast writes are sealed: their last bytes are a checksum. A seal that
is wrong is a fault: the disk damaged the page, or a tool changed it in place; after
such a tool, "holdfast reseal" mends the seals. A page without a seal is none: bbolt
wrote it, or it is full. They are counted.

Of several files each has its verdict, sound or damaged, before what was found in it; the
exit code is 3 if any of them has faults, and 1 if any other cannot be looked at.

With --quick next to nothing is read: the meta pages and what stands after them, what is
recorded of free pages, and the pages of the root bucket from its root to its first leaf.
That is instant on a file of any size, and says nothing of all other pages.`

type checkReport struct {
	File      string            `json:"file"`
	OK        bool              `json:"ok"`
	Verdict   string            `json:"verdict"` // sound or damaged
	Faults    []cli.FaultReport `json:"faults"`
	Truncated bool              `json:"truncated"` // there may be more faults
	Notes     []string          `json:"notes"`
	Unflushed bool              `json:"unflushed"` // a note says so too
	Seals     sealReport        `json:"seals"`
	Quick     *quickReport      `json:"quick,omitempty"`

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

type checkFlags struct {
	fromPage uint64
	quick    bool
}

func newCheck(a *cli.App) *cobra.Command {
	var f checkFlags
	cmd := &cobra.Command{
		Use:   "check FILE...",
		Short: "Look at every page and print all faults",
		Long:  checkHelp,
		Args:  cobra.MinimumNArgs(1),
		RunE:  a.Action(func(c *cli.Call) error { return runCheck(c, f) }),
	}
	if a.Stock {
		cmd.Use, cmd.Args = "check FILE", cobra.ExactArgs(1)
	}
	cmd.Flags().Uint64Var(&f.fromPage, "from-page", 0, "check only this page and what lies below it; 0: everything")
	if !a.Stock {
		cmd.Flags().BoolVar(&f.quick, "quick", false, "look only at the metas, what is recorded of free pages, and one path to a leaf")
	}
	return cmd
}

func runCheck(c *cli.Call, f checkFlags) error {
	if f.quick && f.fromPage != 0 {
		return cli.Usagef("--quick does not go with --from-page")
	}
	if len(c.Args) > 1 {
		if f.fromPage != 0 {
			return cli.Usagef("--from-page is for one FILE, and there are %d", len(c.Args))
		}
		return eachFile(c, func(file string) (finding, error) {
			r, err := checked(c, file, f)
			if err != nil {
				return finding{}, err
			}
			return finding{r.Verdict, r, func() { printCheck(c, r) }}, nil
		})
	}
	r, err := checked(c, c.Args[0], f)
	if err != nil {
		return err
	}
	err = c.Report(r, func() {
		printCheck(c, r)
		if r.OK && r.Quick == nil && !c.Stock { // else the error has it
			what := r.File
			if f.fromPage != 0 {
				what = fmt.Sprintf("page %d and what lies below it", f.fromPage)
			}
			fmt.Fprintf(c.Out, "%s: %s\n", what, c.Paint(cli.Green, r.Verdict))
		}
	})
	if err != nil {
		return err
	}
	switch {
	case r.OK:
		return nil
	case c.Stock:
		return cli.ErrDamaged
	}
	return &cli.CheckFailure{File: r.File, Faults: len(r.Faults), Command: c.Name()}
}

// checked is what was found in a file.
func checked(c *cli.Call, file string, f checkFlags) (*checkReport, error) {
	r := &checkReport{File: file, Verdict: verdictSound, Faults: []cli.FaultReport{}, Notes: []string{}}
	find := findFaults
	if f.quick {
		find = quickFaults
	}
	if err := find(c, f, r); err != nil {
		if !cli.IsDamage(err) {
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
		r.Faults = append(r.Faults, cli.FaultReport{Page: uint64(damage.Page), Reason: damage.Reason})
	case errors.Is(err, holdfast.ErrChecksum):
		r.Faults = append(r.Faults, cli.FaultReport{Page: 0, Reason: "neither of the two meta pages is whole: " + holdfast.ErrChecksum.Error()})
	default:
		if explained := (*cli.FileError)(nil); errors.As(err, &explained) {
			err = explained.Err // the report names the file
		}
		r.Faults = append(r.Faults, cli.FaultReport{Page: r.root, Reason: err.Error()})
	}
}

// findFaults adds all faults of the file to r.
func findFaults(c *cli.Call, f checkFlags, r *checkReport) error {
	return c.View(r.File, false, func(d *cli.Database, tx *holdfast.Tx) error {
		if err := noteMetas(d, r); err != nil {
			return err
		}
		if environment("HOLDFAST_SEALS", r.File) == "off" {
			r.Notes = append(r.Notes, "the environment sets HOLDFAST_SEALS=off: damage that only a checksum shows is not found")
		}
		r.root = uint64(tx.Cursor().Bucket().RootPage())
		var seals holdfast.SealCounts
		options := []holdfast.CheckOption{holdfast.WithKVStringer(cli.Stringer{}), holdfast.WithSealCounts(&seals)}
		if f.fromPage != 0 {
			pages := uint64(tx.Size()) / uint64(d.Info().PageSize)
			if first := uint64(page.FirstDataPage); f.fromPage < first || f.fromPage >= pages {
				return noPage(c, r, f.fromPage, pages)
			}
			options = append(options, holdfast.WithPageId(f.fromPage))
		}
		var done atomic.Int64
		pageSize := uint64(d.Info().PageSize)
		options = append(options, holdfast.WithProgress(func(pages, _ uint64) { done.Store(int64(pages * pageSize)) }))
		stop := c.Progress("checking", tx.Size(), done.Load)
		defer stop()
		for err := range tx.Check(options...) {
			r.add(err)
		}
		if f.fromPage != 0 && !c.Stock {
			what, err := notOfTree(d, tx, f.fromPage)
			switch {
			case err != nil:
				return err
			case what != "" && len(r.Faults) > 0:
				return cli.Usagef("--from-page: page %d of %s %s; give a page of a bucket", f.fromPage, r.File, what)
			case what != "": // what it held once; or a damaged freelist names a page that is in use
				r.Notes = append(r.Notes, fmt.Sprintf("page %d %s", f.fromPage, what))
			}
		}
		r.Truncated = len(r.Faults) >= cli.MaxFaults
		r.Seals = sealReport(seals)
		return nil
	})
}

// quickFaults adds the faults to r that can be found in no time.
func quickFaults(c *cli.Call, _ checkFlags, r *checkReport) error {
	r.Quick = &quickReport{}
	return c.View(r.File, false, func(d *cli.Database, _ *holdfast.Tx) error {
		if d.InUse() {
			return &cli.FileError{File: r.File, What: "in use by another process, which writes to what a quick look is about", Next: "check all of it, without --quick", Err: errInUse}
		}
		if err := noteMetas(d, r); err != nil {
			return err
		}
		look, err := salvage.Quick(d.File, d.FileSize)
		if err != nil {
			return err
		}
		r.Quick = &quickReport{look.Pages, uint64(look.All), look.Free}
		for _, f := range look.Faults {
			r.Faults = append(r.Faults, cli.FaultReport{Page: uint64(f.Page), Reason: f.Reason})
		}
		return nil
	})
}

var errInUse = errors.New("the database is in use")

// noPage is what a page number gives that the file does not have.
func noPage(c *cli.Call, r *checkReport, id, pages uint64) error {
	if c.Stock {
		r.add(page.Corruptf(page.ID(id), "page ID (%d) out of range [%d, %d)", id, page.FirstDataPage, pages))
		return nil
	}
	return cli.Usagef("--from-page: %s has pages %d to %d, not %d", r.File, page.FirstDataPage, pages-1, id)
}

// notOfTree says what a page is that is known not to be one of a tree; "" of all others.
func notOfTree(d *cli.Database, tx *holdfast.Tx, id uint64) (what string, err error) {
	header := make([]byte, page.HeaderSize)
	if _, err := d.File.ReadAt(header, int64(id)*int64(d.Info().PageSize)); err != nil {
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
func noteMetas(d *cli.Database, r *checkReport) error {
	if d.InUse() {
		r.Notes = append(r.Notes, "in use by another process: one state of it was checked, and not which pages are free")
		return nil
	}
	slots, err := d.Metas()
	if err != nil {
		return err
	}
	r.Notes = append(r.Notes, d.Notes(slots)...)
	if r.Unflushed = d.FileState().Unflushed; r.Unflushed {
		r.Notes = append(r.Notes, cli.NotFlushed)
	}
	return nil
}

func printCheck(c *cli.Call, r *checkReport) {
	for _, note := range r.Notes {
		fmt.Fprintf(c.Cmd.ErrOrStderr(), "%s: note: %s\n", c.Name(), note)
	}
	if r.OK && r.Quick != nil {
		fmt.Fprintln(c.Out, r.Quick)
		fmt.Fprintf(c.Out, "for all of it: %s check %s\n", c.Name(), cli.ShellWord(r.File))
		return
	}
	switch {
	case r.OK && c.Stock:
		fmt.Fprintln(c.Out, c.Paint(cli.Green, "OK"))
		return
	case r.OK:
		fmt.Fprintln(c.Out, r.Seals)
		return
	}
	for _, f := range r.Faults {
		fmt.Fprintf(c.Out, "%s %s\n", c.Paint(cli.Red, fmt.Sprintf("page %d:", f.Page)), f.Reason)
	}
	if c.Stock {
		fmt.Fprintf(c.Out, "%d errors found\n", len(r.Faults))
		return
	}
	more := ""
	if r.Truncated {
		more = " and perhaps more"
	}
	fmt.Fprintf(c.Out, "%s%s, on %s\n", cli.Plural(len(r.Faults), "fault"), more, r.pages())
	if r.Quick != nil {
		fmt.Fprintf(c.Out, "little was looked at; for all of it: %s check %s\n", c.Name(), cli.ShellWord(r.File))
		return
	}
	fmt.Fprintln(c.Out, r.Seals)
}

// String says what was looked at.
func (q quickReport) String() string {
	free := "nothing is recorded of free pages"
	if q.Free != "" {
		free = "what " + q.Free + " says of free pages"
	}
	return fmt.Sprintf("nothing wrong in the little that was looked at: the meta pages, %s, and %s on the way to one leaf, of %s in all",
		free, cli.Plural(q.Pages, "page"), cli.Count(q.All))
}

// String is the line that counts seals.
func (s sealReport) String() string {
	all := s.Sealed + s.Unsealed + s.Wrong
	if all == 0 {
		return "no checksums were looked at"
	}
	return fmt.Sprintf("checksums: %s right, %s wrong, %s without one", cli.Count(s.Sealed), cli.Count(s.Wrong), cli.Plural(s.Unsealed, "page"))
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
		text = append(text, fmt.Sprintf("%s more", cli.Count(len(ids)-maxListed)))
	}
	if len(ids) == 1 {
		return "page " + text[0]
	}
	return "pages " + strings.Join(text, ", ")
}
