package repair

import (
	"errors"
	"fmt"
	"sync/atomic"

	"holdfast/command/cli"
	"holdfast/internal/page"
	"holdfast/internal/salvage"
)

type candidatesReport struct {
	File       string            `json:"file"`
	PageSize   int64             `json:"page_size_bytes"`
	Pages      uint64            `json:"pages"`
	Candidates []candidateReport `json:"candidates"` // the first is the one that is chosen
	Doubts     []string          `json:"doubts"`
	Notes      []string          `json:"notes"`
}

// candidateReport is a page that can be the root of the database.
type candidateReport struct {
	Root     uint64  `json:"root"`
	Chosen   bool    `json:"chosen"`
	Meta     *int    `json:"meta"` // page that names it; null: none does
	Whole    bool    `json:"meta_whole"`
	Trailing bool    `json:"meta_trailing"`
	Tx       *uint64 `json:"transaction"`
	Freelist *uint64 `json:"freelist"` // page of the freelist that fits it; null: none does
	Buckets  uint64  `json:"buckets"`
	Keys     uint64  `json:"keys"`
	Pages    uint64  `json:"pages"`
	Damaged  uint64  `json:"damaged"`
	Reused   uint64  `json:"reused_pages"`
	Within   bool    `json:"part_of_another"`
}

func newCandidate(r salvage.Candidate) candidateReport {
	out := candidateReport{
		Root: uint64(r.Root), Chosen: r.Chosen, Trailing: r.Trailing,
		Buckets: r.Buckets, Keys: r.Keys, Pages: r.Pages, Damaged: r.Damaged, Reused: r.Stale, Within: r.Within,
	}
	if r.Slot >= 0 {
		out.Meta, out.Tx, out.Whole = &r.Slot, &r.Tx, !r.Unsure
	}
	if list := uint64(r.Freelist); list != 0 {
		out.Freelist = &list
	}
	return out
}

// listRoots prints the pages that can be the root of the database.
func listRoots(c *cli.Call, f salvageFlags) error {
	if f.Path != "" || f.Force || f.all || f.root != 0 {
		return cli.Usagef("--list writes no file: of the flags of salvage only --page-size goes with it")
	}
	src := c.Args[0]
	if _, err := c.Look(src); err != nil {
		return err
	}
	file, err := c.OpenRaw(src, true)
	if err != nil {
		return c.Explain(src, err)
	}
	defer file.Close()
	var read atomic.Int64 // pages
	stop := c.ProgressOf("looking for roots, pages read", 0, read.Load, false)
	list, report, err := salvage.List(c.Ctx, file, file.Size, salvage.Options{PageSize: int64(f.pageSize), Progress: func(pages uint64) { read.Store(int64(pages)) }})
	stop()
	if err != nil {
		return c.Explain(src, salvageError(src, err))
	}
	r := candidatesReport{
		File: src, PageSize: report.PageSize, Pages: uint64(report.Pages), Candidates: []candidateReport{},
		Doubts: append([]string{}, report.Doubts...), Notes: append([]string{}, report.Notes...),
	}
	for _, each := range list {
		r.Candidates = append(r.Candidates, newCandidate(each))
	}
	return c.Report(r, func() { printRoots(c, r) })
}

func printRoots(c *cli.Call, r candidatesReport) {
	for _, doubt := range r.Doubts {
		fmt.Fprintln(c.Out, c.Paint(cli.Yellow, "in doubt:")+" "+doubt)
	}
	for _, note := range r.Notes {
		fmt.Fprintln(c.Out, "note: "+note)
	}
	if len(r.Candidates) == 0 {
		fmt.Fprintln(c.Out, "no page looks like the root of the database")
		return
	}
	lines := [][]string{{"ROOT", "TRANSACTION", "BUCKETS", "KEYS", "PAGES", "FAULTS", ""}}
	for _, each := range r.Candidates[:min(len(r.Candidates), cli.MaxPrinted)] {
		lines = append(lines, each.columns())
	}
	cli.Columns(c.Out, lines...)
	if n := len(r.Candidates) - cli.MaxPrinted; n > 0 {
		fmt.Fprintf(c.Out, "... and %s more; --json lists them\n", cli.Count(n))
	}
	file := cli.ShellWord(r.File)
	if r.Candidates[0].Chosen {
		fmt.Fprintf(c.Out, "%s salvage -o OUT %s takes page %d; another: %[1]s salvage --root PAGE -o OUT %[2]s\n", c.Name(), file, r.Candidates[0].Root)
	}
}

// columns are what is printed of a candidate.
func (r candidateReport) columns() []string {
	tx := "?"
	if r.Tx != nil {
		tx = cli.Count(*r.Tx)
	}
	faults := "none"
	switch {
	case r.Damaged > 0 && r.Reused > 0:
		faults = fmt.Sprintf("%s damaged, %s reused", cli.Count(r.Damaged), cli.Count(r.Reused))
	case r.Damaged > 0:
		faults = cli.Count(r.Damaged) + " damaged"
	case r.Reused > 0:
		faults = cli.Count(r.Reused) + " reused"
	}
	return []string{fmt.Sprint(r.Root), tx, cli.Count(r.Buckets), cli.Count(r.Keys), cli.Count(r.Pages), faults, r.named()}
}

// named says what speaks for a candidate.
func (r candidateReport) named() string {
	by := ""
	switch {
	case r.Meta != nil && r.Whole:
		by = fmt.Sprintf("named by meta page %d", *r.Meta)
	case r.Meta != nil:
		by = fmt.Sprintf("named by meta page %d, which is damaged", *r.Meta)
	case r.Freelist != nil:
		by = fmt.Sprintf("fits the freelist in page %d", *r.Freelist)
	case r.Within:
		by = "part of another"
	}
	if r.Chosen && by != "" {
		return "chosen: " + by
	} else if r.Chosen {
		return "chosen"
	}
	return by
}

// salvageError is err with the next step, if it is one of what the file is.
func salvageError(src string, err error) error {
	switch {
	case errors.Is(err, salvage.ErrNone):
		return &cli.FileError{File: src, What: "nothing in it looks like a page of a database", Next: "restore a copy of it", Err: err}
	case errors.Is(err, salvage.ErrRoot):
		damage := (*page.CorruptError)(nil)
		what := err.Error()
		if errors.As(err, &damage) {
			what = fmt.Sprintf("page %d cannot be the root of the database: %s", damage.Page, damage.Reason)
		}
		return &cli.FileError{File: src, What: what, Next: "those that can be are listed by: holdfast salvage --list " + cli.ShellWord(src), Err: err}
	}
	return err
}
