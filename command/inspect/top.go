package inspect

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/command/cli"
)

const topHelp = `Show what happens in a database while a program has it open: commits, how long they
take, bytes written, readers, free pages, vacuum.

The program has to show its figures: start it with HOLDFAST_STATS=DIR in its
environment (or set Options.StatsDir), and give the same directory here with --dir, or
HOLDFAST_STATS. The database itself is not opened and need not be readable.

What to show is the file of the database or the number of a process; without either,
all databases that are shown in the directory are listed.

On a terminal the figures are drawn anew each --interval, until Ctrl-C. Elsewhere, and
with --json, each interval gives a line; --count ends after so many.`

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
	flags.StringVar(&f.dir, "dir", os.Getenv("HOLDFAST_STATS"), "directory in which programs show their figures")
	cli.DurationVar(flags, &f.interval, "interval", holdfast.StatsInterval, "time between two looks; figures are new once a second")
	flags.IntVar(&f.count, "count", 0, "end after so many intervals; 0: on Ctrl-C")
	_ = cmd.MarkFlagDirname("dir")
	cmd.Flags().Lookup("dir").DefValue = "" // it is not for the help what it is here
	return cmd
}

func runTop(c *cli.Call, f topFlags) error {
	switch {
	case f.dir == "":
		return cli.Usagef("no directory with figures: start the program with HOLDFAST_STATS=DIR in its environment, and give the same here with --dir DIR")
	case f.interval < 10*time.Millisecond:
		return cli.Usagef("--interval is %s; give 10ms or more", f.interval)
	case f.count < 0:
		return cli.Usagef("--count is %d; give 0 for no end, or more", f.count)
	case len(c.Args) == 0:
		return topList(c, f)
	}
	file, err := figuresOf(c, f.dir, c.Args[0])
	if err != nil {
		return err
	}
	first, err := readFigures(file)
	if err != nil {
		return noFigures(c, f.dir, c.Args[0], err)
	}
	return watch(c, f, file, first)
}

// watch shows the figures in file until it is interrupted or they end.
func watch(c *cli.Call, f topFlags, file string, first *holdfast.Snapshot) error {
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
		now, err := readFigures(file)
		if errors.Is(err, fs.ErrNotExist) {
			fmt.Fprintf(c.Cmd.ErrOrStderr(), "%s: closed by its program\n", cli.Quoted(first.Path))
			return nil
		} else if err != nil {
			return noFigures(c, f.dir, c.Args[0], err)
		}
		r := newRates(last, now)
		if err := v.show(r); err != nil {
			return err
		}
		if r.Stale && !told && !v.terminal && !c.JSON { // those two say it themselves
			told = true
			fmt.Fprintf(c.Cmd.ErrOrStderr(), "%s: note: not heard of for %s: its program was killed or stopped, and the figures are the last that it showed\n", cli.Quoted(first.Path), staleAfter)
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

// topList lists the databases that are shown in the directory.
func topList(c *cli.Call, f topFlags) error {
	all, err := figuresIn(c, f.dir)
	if err != nil {
		return err
	}
	list := []topEntry{}
	for _, s := range all {
		list = append(list, topEntry{File: s.Path, PID: s.PID, Program: s.Program, SizeBytes: s.FileSize, Stale: isStale(s.Snapshot)})
	}
	if c.JSON {
		return c.PrintJSON(map[string][]topEntry{"databases": list})
	}
	if len(list) == 0 {
		fmt.Fprintf(c.Out, "no database is shown in %s\n", f.dir)
		return nil
	}
	lines := [][]string{{"PID", "PROGRAM", "SIZE", "FILE"}}
	for _, e := range list {
		path := cli.Quoted(e.File)
		if e.Stale {
			path += "  (not heard of for " + staleAfter.String() + ")"
		}
		lines = append(lines, []string{strconv.Itoa(e.PID), cli.Quoted(filepath.Base(e.Program)), cli.Size(e.SizeBytes), path})
	}
	cli.Columns(c.Out, lines...)
	return nil
}

type topEntry struct {
	File      string `json:"file"`
	PID       int    `json:"pid"`
	Program   string `json:"program"`
	SizeBytes int64  `json:"size_bytes"`
	Stale     bool   `json:"stale"` // its program was killed, or stopped
}

func isStale(s *holdfast.Snapshot) bool { return time.Since(s.Taken) > staleAfter }

// figuresOf is the file in dir with the figures of what: a database, or a process with one.
func figuresOf(c *cli.Call, dir, what string) (string, error) {
	if _, err := os.Stat(what); err == nil {
		file, err := holdfast.StatsFile(dir, what)
		return file, c.Explain(what, err)
	}
	all, listErr := figuresIn(c, dir)
	for _, s := range all {
		if s.Path == what { // it was removed since, or only its program sees it
			return s.in, nil
		}
	}
	pid, err := strconv.Atoi(what)
	if err != nil {
		_, err := c.Look(what)
		return "", err
	}
	if listErr != nil {
		return "", listErr
	}
	var file string
	var found []string
	for _, s := range all {
		if s.PID == pid && !isStale(s.Snapshot) {
			file, found = s.in, append(found, cli.Quoted(s.Path))
		}
	}
	switch len(found) {
	case 0:
		return "", noFigures(c, dir, "process "+what, fs.ErrNotExist)
	case 1:
		return file, nil
	}
	return "", cli.Usagef("process %d has several databases open: name one of %s", pid, strings.Join(found, ", "))
}

func noFigures(c *cli.Call, dir, what string, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return c.Explain(what, err)
	}
	return &cli.FileError{File: what, What: "no figures of it in " + dir, Err: err,
		Next: "start the program that has it open with HOLDFAST_STATS=" + cli.ShellWord(dir) + " in its environment"}
}

// maxFigures bounds the bytes of a file with figures that are read, and maxInDir the
// files in a directory.
const (
	maxFigures = 1 << 20
	maxInDir   = 10_000
)

func readFigures(path string) (*holdfast.Snapshot, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFigures {
		return nil, fmt.Errorf("%s does not hold figures of a database", path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s := &holdfast.Snapshot{}
	if err := json.Unmarshal(data, s); err != nil || s.Path == "" {
		return nil, fmt.Errorf("%s does not hold figures of a database", path)
	}
	return s, nil
}

// figures are those of a database, with the file that they are in.
type figures struct {
	*holdfast.Snapshot
	in string
}

// figuresIn are all figures in dir.
func figuresIn(c *cli.Call, dir string) ([]figures, error) {
	all, err := allFigures(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &cli.FileError{File: dir, What: "no such directory", Err: err,
			Next: "a program that is started with HOLDFAST_STATS=" + cli.ShellWord(dir) + " in its environment makes it, where that one runs"}
	}
	return all, c.Explain(dir, err)
}

// allFigures are those that are in dir, in the order of their files. Other files are
// passed over.
func allFigures(dir string) ([]figures, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []figures
	for _, e := range entries[:min(len(entries), maxInDir)] {
		if filepath.Ext(e.Name()) != ".json" {
			continue
		}
		file := filepath.Join(dir, e.Name())
		if s, err := readFigures(file); err == nil {
			all = append(all, figures{s, file})
		}
	}
	return all, nil
}
