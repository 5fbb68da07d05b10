package repair

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/command/cli"
)

const surgeryHelp = `Change single pages of a damaged database, in a copy: the file itself is only
read, and the result is written to --output. That is for damage that nothing else
gets past, and takes a look at the pages first; a backup is better.

The newest state is operated on. In a copy of a file that was left in mid use that
state is settled first, as the command settle does, so that bbolt sees the
same.

Pages that had a seal get one that fits again. What the file says of its free pages is
given up whenever it may be wrong, and then the next opening of the copy for writing
scans it: nothing that is in use is given away.

Whether the result is sound is for check to say, each time.`

// Flags of the operations.
const (
	flagOutput    = "output"
	flagFromPage  = "from-page"
	flagToPage    = "to-page"
	flagPage      = "pageId"
	flagFromIndex = "from-index"
	flagToIndex   = "to-index"
	flagFields    = "fields"
	flagMetaPage  = "meta-page"
)

func newSurgery(a *cli.App) *cobra.Command {
	cmd := cli.Group("surgery", "Change pages of a damaged database, in a copy", surgeryHelp)
	list := cli.Group("freelist", "Give up the list of free pages, or make it anew", "")
	list.AddCommand(newFreelistAbandon(a), newFreelistRebuild(a))
	meta := cli.Group("meta", "Look at the meta pages, or change them", "")
	meta.AddCommand(newMetaValidate(a), newMetaUpdate(a))
	cmd.AddCommand(newRevertMetaPage(a), newCopyPage(a), newClearPage(a), newClearPageElements(a), list, meta)
	return cmd
}

// surgeryReport is what an operation did.
type surgeryReport struct {
	File              string   `json:"file"`
	Output            string   `json:"output"`
	Operation         string   `json:"operation"`
	Settled           bool     `json:"settled"`            // the file was left in mid use
	Changed           bool     `json:"changed"`            // pages were, besides settling
	FreelistAbandoned bool     `json:"freelist_abandoned"` // the copy does not say which pages are free
	Pages             []uint64 `json:"changed_pages"`
	Done              []string `json:"done"`
	Warnings          []string `json:"warnings"`
}

func (r *surgeryReport) did(format string, args ...any) {
	r.Done = append(r.Done, fmt.Sprintf(format, args...))
}

func (r *surgeryReport) warn(format string, args ...any) {
	r.Warnings = append(r.Warnings, fmt.Sprintf(format, args...))
}

// operation is one kind of surgery.
type operation struct {
	use, short, long string
	required         []string // flags besides --output

	// look is called with the file, before it is copied, and may refuse. May be nil.
	look func(*cli.Call, *patient) error
	// raw says that a copy of a file that was left in mid use is not to be settled.
	raw bool
	// do changes the copy.
	do func(*surgeon) error
	// stock prints what bbolt prints when it is done.
	stock func(*surgeon)
}

// newOperation makes the command of an operation.
func newOperation(a *cli.App, op operation) *cobra.Command {
	var o cli.OutputFile
	cmd := &cobra.Command{
		Use:   op.use + " FILE",
		Short: op.short,
		Long:  op.long,
		Args:  cobra.ExactArgs(1),
	}
	o.AddFlags(cmd)
	cmd.RunE = a.Action(func(c *cli.Call) error {
		if err := requiredFlags(c, append([]string{flagOutput}, op.required...)...); err != nil {
			return err
		}
		if err := o.Given(); err != nil {
			return err
		}
		return operate(c, o, op)
	})
	return cmd
}

// requiredFlags is an error of the command line if one of the flags is not given.
func requiredFlags(c *cli.Call, names ...string) error {
	var missing []string
	for _, name := range names {
		if !c.Cmd.Flags().Changed(name) {
			missing = append(missing, `"`+name+`"`)
		}
	}
	if len(missing) > 0 {
		return cli.Usagef("required flag(s) %s not set", strings.Join(missing, ", "))
	}
	return nil
}

// operate copies the file, changes the copy, and gives it its name.
func operate(c *cli.Call, o cli.OutputFile, op operation) error {
	path := c.Args[0]
	info, err := c.Look(path)
	if err != nil {
		return err
	}
	dst, err := c.Destination(o, info, func(fs.FileInfo) bool { return c.Stock })
	if err != nil {
		return err
	}
	src, err := c.OpenRaw(path, !c.Stock) // bbolt takes no lock for surgery
	if err != nil {
		return c.Explain(path, err)
	}
	defer src.Close()
	if op.look != nil {
		p, err := examine(src.File)
		if err == nil {
			err = op.look(c, p)
		}
		if err != nil {
			return explainSurgery(c, path, err)
		}
	}
	name, _, _ := strings.Cut(op.use, " ")
	if parent := c.Cmd.Parent(); parent.Name() != "surgery" {
		name = parent.Name() + " " + name
	}
	s := &surgeon{Call: c, r: &surgeryReport{
		File: path, Output: o.Path, Operation: name, Pages: []uint64{}, Done: []string{}, Warnings: []string{},
	}}
	err = c.MakeFile(dst, o, func(ctx context.Context, temp string) error { return s.run(ctx, src, temp, info, op) })
	if err != nil {
		file := path
		if s.writing {
			file = o.Path
		}
		return explainSurgery(c, file, err)
	}
	return s.print(op)
}

// explainSurgery is explain, but for the error that callers compare.
func explainSurgery(c *cli.Call, file string, err error) error {
	if errors.Is(err, cli.ErrSurgeryFreelistAlreadyExist) {
		return cli.ErrSurgeryFreelistAlreadyExist
	}
	return c.Explain(file, err)
}

// print says what was done.
func (s *surgeon) print(op operation) error {
	r := s.r
	if s.JSON {
		return s.PrintJSON(r)
	}
	if s.Stock {
		for _, w := range r.Warnings {
			fmt.Fprintf(s.Cmd.ErrOrStderr(), "WARNING: %s\n", w)
		}
		op.stock(s)
		return nil
	}
	if r.Settled {
		fmt.Fprintf(s.Out, "%s was left in mid use; the copy was settled first\n", r.File)
	}
	for _, line := range r.Done {
		fmt.Fprintln(s.Out, line)
	}
	for _, w := range r.Warnings {
		fmt.Fprintf(s.Out, "%s %s\n", s.Paint(cli.Yellow, "warning:"), w)
	}
	switch {
	case !r.Changed && r.Settled:
		fmt.Fprintln(s.Out, "nothing else was changed")
	case !r.Changed:
		fmt.Fprintf(s.Out, "nothing was changed: %s is a copy of %s\n", r.Output, r.File)
	}
	fmt.Fprintf(s.Out, "now run: %s check %s\n", s.Name(), cli.ShellWord(r.Output))
	return nil
}
