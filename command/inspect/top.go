package inspect

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/command/cli"
	"holdfast/internal/share"
)

const topHelp = `Show what happens in a database while a program has it open: commits, how long they
take, bytes written, readers, free pages, vacuum, and who reads it in other processes.

The program has to share the database: start it with HOLDFAST_SHARE=on in its
environment, or with HOLDFAST_SHARE=DIR and give the same directory here with --dir, or
HOLDFAST_SHARE. The database itself is not opened and need not be readable; its share
is for users who may read it.

What to show is the file of the database or the number of a process; without either,
all databases that are shared in the directory are listed.

On a terminal the figures are drawn anew each --interval, until Ctrl-C. Elsewhere, and
with --json, each interval gives a line; --count ends after so many. When the program
closes the database, or ends without, that is said and the exit code is 0.

Where databases cannot be shared (on other systems than Linux) HOLDFAST_STATS=DIR has a
program show its figures in a file there.`

// staleAfter is how old figures are of a program that does not run any more, or was
// stopped.
const staleAfter = 10 * holdfast.StatsInterval

type topFlags struct {
	dir      string
	interval time.Duration
	count    int
}

func newTop(a *cli.App) *cobra.Command {
	var f topFlags
	cmd := &cobra.Command{
		Use:   "top [FILE|PID]",
		Short: "Show what happens in a database that a program has open",
		Long:  topHelp,
		Args:  cobra.MaximumNArgs(1),
		RunE:  a.Action(func(c *cli.Call) error { return runTop(c, f) }),
	}
	flags := cmd.Flags()
	cli.AddShareDir(cmd, &f.dir)
	cli.DurationVar(flags, &f.interval, "interval", holdfast.StatsInterval, "time between two looks; figures are new once a second")
	flags.IntVar(&f.count, "count", 0, "end after so many intervals; 0: on Ctrl-C")
	return cmd
}

func runTop(c *cli.Call, f topFlags) (err error) {
	switch {
	case f.interval < 10*time.Millisecond:
		return cli.Usagef("--interval is %s; give 10ms or more", f.interval)
	case f.count < 0:
		return cli.Usagef("--count is %d; give 0 for no end, or more", f.count)
	}
	what := strings.Join(c.Args, "")
	if f.dir, err = cli.ShareDir(f.dir, what); err != nil {
		return err
	}
	if len(c.Args) == 0 {
		return topList(c, f.dir)
	}
	p, err := topPlace(c, f.dir, what)
	if err != nil {
		return err
	}
	first, err := p.look()
	if err != nil {
		return shareError(c, f.dir, what, err)
	}
	return watch(c, f, first)
}

// watch shows the figures of a database until it is interrupted or they end.
func watch(c *cli.Call, f topFlags, first seen) error {
	ctx, stop := c.Interruptible()
	defer stop()
	v := newTopView(c)
	tick := time.NewTicker(f.interval)
	defer tick.Stop()
	last, told := first, false
	for n := 0; f.count == 0 || n < f.count; n++ {
		select {
		case <-ctx.Done():
			return errors.Join(cli.ErrSilent, ctx.Err())
		case <-tick.C:
		}
		now, err := first.look()
		switch {
		case errors.Is(err, share.ErrBusy): // the program was stopped while it wrote them
			now = last
		case errors.Is(err, share.ErrOwnerDied):
			fmt.Fprintf(c.Cmd.ErrOrStderr(), "%s: its program ended without closing it, or can share it no more\n", cli.Quoted(first.Path))
			return nil
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, share.ErrNoOwner), errors.Is(err, share.ErrOwnerGone):
			fmt.Fprintf(c.Cmd.ErrOrStderr(), "%s: closed by its program\n", cli.Quoted(first.Path))
			return nil
		case err != nil:
			return shareError(c, f.dir, c.Args[0], err)
		}
		r := newRates(last.Snapshot, now.Snapshot)
		r.addOthers(now)
		if err := v.show(r); err != nil {
			return err
		}
		if r.Stale && !told && !v.terminal && !c.JSON { // those two say it themselves
			told = true
			fmt.Fprintf(c.Cmd.ErrOrStderr(), "%s: note: not heard of for %s: its program %s, and the figures are the last that it showed\n", cli.Quoted(first.Path), staleAfter, r.why)
		}
		if err := c.Out.Flush(); err != nil {
			return err
		}
		if now.Taken.After(last.Taken) {
			last = now
		}
	}
	return nil
}

// topList lists the databases that are shared in the directory.
func topList(c *cli.Call, dir string) error {
	all, err := seenIn(c, dir)
	if err != nil {
		return err
	}
	list := []topEntry{}
	for _, s := range all {
		n, _ := reading(s.others)
		list = append(list, topEntry{File: s.Path, PID: s.PID, Program: s.Program, SizeBytes: s.FileSize, Others: n, Stale: isStale(s.Snapshot)})
	}
	if c.JSON {
		return c.PrintJSON(map[string][]topEntry{"databases": list})
	}
	if len(list) == 0 {
		fmt.Fprintf(c.Out, "no database is shared in %s\n", cli.OneLine(dir))
		return nil
	}
	lines := [][]string{{"PID", "PROGRAM", "SIZE", "OTHERS", "FILE"}}
	for _, e := range list {
		path := cli.Quoted(e.File)
		if e.Stale {
			path += "  (not heard of for " + staleAfter.String() + ")"
		}
		lines = append(lines, []string{strconv.Itoa(e.PID), cli.Quoted(filepath.Base(e.Program)), cli.Size(e.SizeBytes), cli.Count(e.Others), path})
	}
	cli.Columns(c.Out, lines...)
	return nil
}

type topEntry struct {
	File      string `json:"file"`
	PID       int    `json:"pid"`
	Program   string `json:"program"`
	SizeBytes int64  `json:"size_bytes"`
	Others    int    `json:"other_readers"` // transactions of other processes
	Stale     bool   `json:"stale"`         // its program was killed, or stopped
}

func isStale(s *holdfast.Snapshot) bool { return time.Since(s.Taken) > staleAfter }

// topPlace is where the figures of what are: a database, or a process with one.
func topPlace(c *cli.Call, dir, what string) (place, error) {
	p, ok, err := placeOf(c, dir, what)
	if ok || err != nil {
		return p, err
	}
	pid, err := strconv.Atoi(what)
	if err != nil {
		_, err := c.Look(what)
		return p, err
	}
	all, err := seenIn(c, dir)
	if err != nil {
		return p, err
	}
	var found []string
	for _, s := range all {
		if s.PID == pid && (s.file == "" || !isStale(s.Snapshot)) { // the owner of a share lives
			p, found = s.place, append(found, cli.Quoted(s.Path))
		}
	}
	switch len(found) {
	case 0:
		return p, &cli.FileError{File: "process " + what, What: "shares no database in " + cli.OneLine(dir), Err: share.ErrNoOwner,
			Next: "start it with " + toShare(dir) + ", or say with --dir where it shares them"}
	case 1:
		return p, nil
	}
	return p, cli.Usagef("process %d has several databases open: name one of %s", pid, strings.Join(found, ", "))
}
