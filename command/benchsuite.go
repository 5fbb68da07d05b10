package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/command/cli"
	"holdfast/internal/vfs"
)

const benchSuiteHelp = `Run workloads on databases that are made for them, in a directory and so on the disk that
you choose, and print rates, latencies and ratios. Without WORKLOAD all are run.

A workload measures for --time in all, beside making its files, or, with --count, so
many operations of each kind. It says first how much it writes at most, and does not begin
if the disk has less room than that. The files are in a new directory in --dir, which is
removed in the end, also after Ctrl-C, unless --keep is given. Nothing else is touched.

`

// Bounds on what bench run can be asked for.
const (
	minSuiteBytes = 1 << 20
	maxSuiteBytes = 1 << 40
	maxSuiteCount = 1 << 40
)

// Defaults of bench run, and those with --quick.
const (
	suiteSize, quickSuiteSize = 64 << 20, 4 << 20
	suiteTime, quickSuiteTime = 3 * time.Second, 300 * time.Millisecond
)

type benchSuiteFlags struct {
	list, quick, keep bool
	dir               string
	size              int64
	time              time.Duration
	count             int64
}

// workload is something that bench run measures.
type workload struct {
	name  string
	about string
	ratio string                 // what the column of that name says
	room  func(size int64) int64 // that its files take at most, beside suiteReserve
	run   func(*benchSuite, *workloadReport) error
}

// benchWorkloads are all, in the order in which they are run.
func benchWorkloads() []workload {
	return []workload{
		{"aged", "one-key commits on a young file and on files with many free pages",
			"median of a commit, to that on the young file", func(n int64) int64 { return 2 * n }, (*benchSuite).aged},
		{"commit", "one-key commits of 1 to 64 writers, durable and less so",
			"commits a second, to those of one writer with Update", func(int64) int64 { return 0 }, (*benchSuite).commit},
		{"readers", "short reads, alone and beside writers",
			"99th percentile, to that when alone", func(n int64) int64 { return 3 * n / 2 }, (*benchSuite).readers},
		{"scan", "going over all keys with a cursor",
			"keys a second, to those forward", func(n int64) int64 { return 3 * n / 2 }, (*benchSuite).scan},
		{"import", "filling a new file with keys in order and at random",
			"bytes a second, to those in order", func(n int64) int64 { return 5 * n }, (*benchSuite).fill},
		{"large", "writing and reading values of 64 KiB to 1 MiB",
			"bytes a second, to those of 64 KiB", func(int64) int64 { return 4 * largeBytes }, (*benchSuite).large},
		{"open", "opening a young file and an aged one, and the first commit",
			"median, to that of the young file", func(n int64) int64 { return 2 * n }, (*benchSuite).open},
		{"vacuum", "making a file shorter from which four of five values were deleted, beside a writer",
			"99th percentile of a commit, to that before the vacuum", func(n int64) int64 { return n }, (*benchSuite).vacuum},
	}
}

// suiteReserve is room for what does not depend on --size: files that grow ahead of what is
// written to them, and those that the workloads change.
const suiteReserve = 96 << 20

func workloadNames() (names []string) {
	for _, w := range benchWorkloads() {
		names = append(names, w.name)
	}
	return names
}

func (a *app) newBenchSuite() *cobra.Command {
	var f benchSuiteFlags
	var list strings.Builder
	var pairs [][2]string
	for _, w := range benchWorkloads() {
		pairs = append(pairs, [2]string{"  " + w.name, w.about})
	}
	rows(&list, pairs...)
	cmd := &cobra.Command{
		Use:       "run [WORKLOAD...]",
		Short:     "Run workloads on this machine and this disk",
		Long:      benchSuiteHelp + "Workloads:\n" + strings.TrimSuffix(list.String(), "\n"),
		ValidArgs: workloadNames(),
		RunE:      a.action(func(c *call) error { return c.benchSuite(f) }),
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.list, "list", false, "list the workloads and do nothing else")
	flags.BoolVar(&f.quick, "quick", false, fmt.Sprintf("a short look: --time %s --size %s where these are not given", quickSuiteTime, cli.SizeText(quickSuiteSize)))
	flags.StringVar(&f.dir, "dir", "", "where to make the files; default: the system's directory for temporary files, or /var/tmp if that one is in memory")
	flags.BoolVar(&f.keep, "keep", false, "keep the files")
	cli.SizeRangeVar(flags, &f.size, "size", suiteSize, minSuiteBytes, maxSuiteBytes, "bytes of values in the larger files, such as 64MiB or 1GiB")
	cli.DurationVar(flags, &f.time, "time", suiteTime, "how long each workload measures")
	flags.Int64Var(&f.count, "count", 0, "measure so many operations of each kind, and not for a time")
	_ = cmd.MarkFlagDirname("dir")
	return cmd
}

// benchSuite is one run of bench run.
type benchSuite struct {
	*call
	ctx   context.Context
	flags benchSuiteFlags
	size  int64
	todo  []workload
	room  int64  // that is needed at most
	now   string // the file that is worked on
	r     suiteReport

	unheard error // of printing
}

// check tells whether the flags and arguments make sense, and completes them.
func (s *benchSuite) check() error {
	f := &s.flags
	if f.quick && !s.cmd.Flags().Changed("time") {
		f.time = quickSuiteTime
	}
	if f.quick && !s.cmd.Flags().Changed("size") {
		f.size = quickSuiteSize
	}
	switch {
	case f.time <= 0:
		return usagef("--time is %s; it must be more than nothing", f.time)
	case f.count < 0 || f.count > maxSuiteCount:
		return usagef("--count: %d is outside of 0 to %d", f.count, int64(maxSuiteCount))
	case f.count > 0 && s.cmd.Flags().Changed("time"):
		return usagef("--time and --count exclude each other")
	}
	s.size = f.size
	return s.choose()
}

// choose picks the workloads that the command line names.
func (s *benchSuite) choose() error {
	all := benchWorkloads()
	for _, name := range s.args {
		i := slices.IndexFunc(all, func(w workload) bool { return w.name == name })
		if i < 0 {
			hint := "there are " + strings.Join(workloadNames(), ", ")
			if near := similar(name, workloadNames()); len(near) > 0 {
				hint = "did you mean " + strings.Join(near, " or ") + "?"
			}
			return usagef("there is no workload %q; %s", name, hint)
		}
		if !slices.ContainsFunc(s.todo, func(w workload) bool { return w.name == name }) {
			s.todo = append(s.todo, all[i])
		}
	}
	if len(s.todo) == 0 {
		s.todo = all
	}
	for _, w := range s.todo {
		room := w.room(s.size)
		if s.flags.keep {
			s.room += room + suiteReserve
		} else {
			s.room = max(s.room, room+suiteReserve)
		}
	}
	return nil
}

// unsettled are environment variables that would make what is measured something else than
// what it is called.
func unsettled() error {
	harmless := map[string]string{"HOLDFAST_DURABILITY": "", "HOLDFAST_DURABLE_BASE": "off", "HOLDFAST_STRICT_COMPAT": "off", "HOLDFAST_AUTO_VACUUM": "off"}
	for name := range harmless {
		if v := environment(name); v != "" && v != harmless[name] {
			return fmt.Errorf("the environment variable %s is set, so that the figures would be of something else than they say; unset it", name)
		}
	}
	return nil
}

func (c *call) benchSuite(f benchSuiteFlags) error {
	s := &benchSuite{call: c, flags: f}
	if err := s.check(); err != nil {
		return err
	}
	if f.list {
		return s.listWorkloads()
	}
	if err := unsettled(); err != nil {
		return err
	}
	dir, err := s.makeDir()
	if err != nil {
		return err
	}
	ctx, stop := c.interruptible()
	defer stop()
	defer outliveReader()()
	if !s.flags.keep {
		defer os.RemoveAll(dir)
	}
	s.ctx, s.now = ctx, dir
	s.begin(dir)
	err = s.run()
	switch {
	case ctx.Err() != nil:
		left := ", the files were removed"
		if f.keep {
			left = ", the files are still there"
		}
		return &fileError{file: dir, what: "interrupted" + left, err: ctx.Err()}
	case err != nil:
		return c.explain(s.now, err)
	}
	return s.end()
}

// makeDir makes the directory for the files, if the disk has the room.
func (s *benchSuite) makeDir() (string, error) {
	in := s.flags.dir
	if in == "" {
		in = vfs.TempDir()
	}
	if info, err := os.Stat(in); errors.Is(err, fs.ErrNotExist) {
		return "", &fileError{file: in, what: "there is no such directory", next: "make it first", err: err}
	} else if err == nil && !info.IsDir() {
		return "", &fileError{file: in, what: "is not a directory", err: errNotADirectory}
	}
	if free, ok := diskFree(filepath.Join(in, "x")); ok && free < s.room {
		return "", &fileError{file: in, what: fmt.Sprintf("its disk has %s left, and up to %s are written", size(free), size(s.room)),
			next: "give another place with --dir, or a smaller --size", err: syscall.ENOSPC}
	}
	dir, err := os.MkdirTemp(in, s.name()+"-bench-")
	return filepath.Clean(dir), s.explain(in, err)
}

var errNotADirectory = errors.New("not a directory")

// run runs the workloads one after the other, and prints each when it is done.
func (s *benchSuite) run() error {
	flush, err := s.bareFlush()
	if err != nil {
		return err
	}
	s.r.FlushP50, s.r.FlushP99 = flush.quantile(0.5), flush.quantile(0.99)
	s.say("To write a page here and flush it takes %s, 99th percentile %s, without a database.\n",
		nanos(s.r.FlushP50), nanos(s.r.FlushP99))
	for _, w := range s.todo {
		if s.unheard != nil { // what is measured would not be seen
			return s.unheard
		}
		report := &workloadReport{Name: w.name, About: w.about, ratio: w.ratio, FlushBefore: flush.quantile(0.5)}
		start := time.Now()
		if err := w.run(s, report); err != nil {
			return err
		}
		report.Duration = time.Since(start).Nanoseconds()
		if flush, err = s.bareFlush(); err != nil {
			return err
		}
		report.FlushAfter = flush.quantile(0.5)
		s.r.Workloads = append(s.r.Workloads, report)
		if !s.json {
			s.printWorkload(report)
		}
		if err := s.clear(); err != nil {
			return err
		}
	}
	return nil
}

// clear removes the files of the workload that has ended.
func (s *benchSuite) clear() error {
	if s.flags.keep {
		return nil
	}
	entries, err := os.ReadDir(s.r.Dir)
	for _, e := range entries {
		if e := os.Remove(filepath.Join(s.r.Dir, e.Name())); err == nil {
			err = e
		}
	}
	return err
}

// with opens a database of the run, calls fn and closes it. It becomes the file that
// errors are about.
func (s *benchSuite) with(name string, o holdfast.Options, fn func(*holdfast.DB) error) error {
	db, err := s.database(name, o)
	if err != nil {
		return err
	}
	err = fn(db)
	return errors.Join(err, db.Close())
}

func (s *benchSuite) database(name string, o holdfast.Options) (*holdfast.DB, error) {
	s.now = filepath.Join(s.r.Dir, name)
	o.Timeout = s.timeout
	return holdfast.Open(s.now, 0o600, &o)
}
