package inspect

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast/command/cli"
	"holdfast/internal/share"
)

const readersHelp = `List the readers of a database in other processes than the one that has it open: which
process, since when it has the share of the database open, which state it reads (the
number of the transaction that left it), for how long, and how many transactions are
newer. Pages that the state of a reader needs are not used again, so one that never ends
makes the file grow. An idle reader holds nothing. This command is no reader: it looks
only at the share, not at the database.

The program has to share the database: start it with HOLDFAST_SHARE=on in its
environment, or with HOLDFAST_SHARE=DIR and give the same directory here with --dir, or
HOLDFAST_SHARE.

--end PID ends all readers of that process: they hold nothing from then on, what they
read later fails, and a process that is stopped finds that when it goes on. Its next
transactions are not affected. Numbers are as the process itself sees them: in a
container they are others than outside, several processes can have the same, and the
program named is the one that has the number here.

A reader that begins while this looks is not ended. Right before each reader is ended
its slot is read again; that in the moment between another reader takes the slot, and is
ended in its place, cannot be excluded. That one fails with an error, too, and reads
nothing wrong.`

type readersFlags struct {
	dir string
	end uint
}

type readersReport struct {
	File         string   `json:"file"`
	OwnerPID     uint64   `json:"owner_pid"`
	OwnerProgram string   `json:"owner_program"`
	Transaction  uint64   `json:"transaction"` // the newest; 0: not known
	Readers      []reader `json:"readers"`
}

type endedReport struct {
	File  string   `json:"file"`
	Ended []reader `json:"ended"` // as they were before
}

func newReaders(a *cli.App) *cobra.Command {
	var f readersFlags
	cmd := &cobra.Command{
		Use:   "readers FILE",
		Short: "List the readers of a database in other processes, and end them",
		Long:  readersHelp,
		Args:  cobra.ExactArgs(1),
		RunE:  a.Action(func(c *cli.Call) error { return runReaders(c, f) }),
	}
	cli.AddShareDir(cmd, &f.dir)
	cmd.Flags().UintVar(&f.end, "end", 0, "end the readers of this process")
	_ = cmd.RegisterFlagCompletionFunc("end", completeReaders)
	return cmd
}

// completeReaders offers the processes that read the database.
func completeReaders(cmd *cobra.Command, args []string, begun string) (names []string, _ cobra.ShellCompDirective) {
	if len(args) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	given, _ := cmd.Flags().GetString("dir")
	dir, err := cli.ShareDir(given, args[0])
	id, failed := identityOf(args[0])
	if err = errors.Join(err, failed); err == nil {
		err = attached(dir, id, func(v *share.View) error {
			all, err := readersOf(v)
			for _, r := range all {
				name := fmt.Sprintf("%d\t%s", r.PID, cli.OneLine(r.Program))
				if !r.Ended && strings.HasPrefix(name, begun) && !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
			return err
		})
	}
	if err != nil { // it cannot be told here; running the command tells
		names = nil
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// attached calls fn with the share of a database. It takes no slot.
func attached(dir string, id share.Identity, fn func(v *share.View) error) error {
	v, err := share.Attach(dir, id)
	if err != nil {
		return err
	}
	return errors.Join(fn(v), v.Close())
}

func runReaders(c *cli.Call, f readersFlags) error {
	file := c.Args[0]
	if c.Cmd.Flags().Changed("end") && f.end == 0 {
		return cli.Usagef("--end is 0; give the number of a process")
	}
	dir, err := cli.ShareDir(f.dir, file)
	if err != nil {
		return err
	}
	p, err := readersPlace(c, dir, file)
	if err != nil {
		return err
	}
	err = attached(dir, p, func(v *share.View) error {
		if f.end != 0 {
			return endReaders(c, v, uint64(f.end))
		}
		return listReaders(c, v)
	})
	var told *cli.FileError
	if errors.As(err, &told) {
		return err
	}
	if errors.Is(err, errors.ErrUnsupported) {
		return &cli.FileError{File: file, What: "databases are shared with other processes on Linux only", Err: err}
	}
	return shareError(c, dir, file, err)
}

// readersPlace is the database whose share is looked for. One that was removed while a program has it open is found by the path
// that its share names.
func readersPlace(c *cli.Call, dir, file string) (share.Identity, error) {
	p, ok, err := placeOf(c, dir, file)
	if err == nil && !ok {
		_, err = c.Look(file)
	}
	return p.id, err
}

func listReaders(c *cli.Call, v *share.View) error {
	r := readersReport{File: c.Args[0]}
	owner, _, err := v.Owner()
	if err != nil {
		return err
	}
	r.OwnerPID, r.OwnerProgram = owner, programName(owner)
	if r.Readers, err = readersOf(v); err != nil {
		return err
	}
	newest, err := v.State()
	if err != nil && !errors.Is(err, share.ErrBusy) {
		return err
	}
	if err := v.Owned(); err != nil { // what is left of a share means nothing
		return err
	}
	r.Transaction = newest.Tx
	return c.Report(r, func() { r.print(c) })
}

func (r *readersReport) print(c *cli.Call) {
	owner := reader{PID: r.OwnerPID, Program: r.OwnerProgram}
	newest := "."
	if r.Transaction != 0 {
		newest = fmt.Sprintf(", at transaction %d.", r.Transaction)
	}
	fmt.Fprintf(c.Out, "The %s has it open%s\n", owner.process(), newest)
	if len(r.Readers) == 0 {
		fmt.Fprintln(c.Out, "No other process reads it.")
		return
	}
	lines := [][]string{{"PID", "PROGRAM", "SINCE", "STATE", "FOR", "BEHIND"}}
	for _, e := range r.Readers {
		line := []string{fmt.Sprint(e.PID), cli.Quoted(cmp.Or(e.Program, "?")), e.Opened.Local().Format(time.DateTime), "idle", "-", "-"}
		switch {
		case e.Ended:
			line[3] = "ended"
		case e.Reading:
			line[3], line[4], line[5] = fmt.Sprint(e.Transaction), briefAge(e.AgeMS), cli.Count(e.Behind)
		}
		lines = append(lines, line)
	}
	cli.Columns(c.Out, lines...)
}

// endReaders ends the readers of a process.
func endReaders(c *cli.Call, v *share.View, pid uint64) error {
	all, err := readersOf(v)
	if err != nil {
		return err
	}
	ended, already := []reader{}, 0
	for _, r := range all {
		if r.PID != pid {
			continue
		}
		if r.Ended {
			already++
			continue
		}
		did, err := v.EndReader(share.ReaderInfo{Slot: r.Slot, PID: r.PID, Opened: r.Opened})
		if err != nil {
			return err
		}
		if did {
			ended = append(ended, r)
		}
	}
	if err := v.Owned(); err != nil { // then they have ended without this
		return err
	}
	if len(ended) == 0 {
		return noReaders(c, v, all, pid, already)
	}
	r := endedReport{File: c.Args[0], Ended: ended}
	return c.Report(r, func() {
		for _, e := range ended {
			did := "which held nothing"
			if e.Reading {
				did = "which read " + e.state()
			}
			fmt.Fprintf(c.Out, "ended a reader of %s, %s\n", e.process(), did)
		}
	})
}

// noReaders is the error if there was no reader of the process to be ended.
func noReaders(c *cli.Call, v *share.View, all []reader, pid uint64, already int) error {
	asked := reader{PID: pid, Program: programName(pid)}
	e := &cli.FileError{File: c.Args[0], What: asked.process() + " is no reader of it", Err: errNoReader}
	var others []string
	for _, r := range all {
		if name := r.process(); r.PID != pid && !r.Ended && !slices.Contains(others, name) {
			others = append(others, name)
		}
	}
	owner, _, err := v.Owner()
	switch {
	case err != nil:
		return err
	case already > 0:
		e.What = cli.Plural(already, "reader") + " of " + asked.process() + " ended already, and it has no other"
	case pid == owner:
		e.What = asked.process() + " has it open itself: what it reads ends with its own transactions"
	case len(others) == 0:
		e.Next = "no other process reads it"
	default:
		e.Next = "readers are " + strings.Join(others[:min(len(others), cli.MaxNamed)], ", ")
		if len(others) > cli.MaxNamed {
			e.Next += fmt.Sprintf(" and %d more", len(others)-cli.MaxNamed)
		}
	}
	return e
}

// errNoReader is wrapped by the error of ending readers that are not there.
var errNoReader = errors.New("no such reader")
