package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/command/cli"
	"holdfast/internal/page"
	"holdfast/internal/vfs"
)

const benchHelp = `Write keys to a new database, then read them for a second at least, and print how long
that took. It is a quick look at one machine.

The database is a temporary file, or the one that --path names, which must not exist or
be empty. It is removed in the end, unless --work is given.

In one transaction come --batch-size keys, or all. Keys ascend with the write modes seq
and seq-nest and are random numbers with rnd and rnd-nest; with seq-nest and rnd-nest
each transaction writes to a nested bucket of its own. They are read in their order
(--read-mode seq) or shuffled (rnd).

Profiles are of writing (--profile-mode w), reading (r) or both (rw), and replace the files
that they are written to.`

type benchFlags struct {
	profileMode, writeMode, readMode string
	count, batchSize                 int64
	keySize, valueSize               int
	profiles                         [3]string // files, as profileKinds has them
	fill                             float64
	noSync, work, goBench            bool
	path                             string
	pageSize, mmapSize               int
	time                             time.Duration // to read at least
}

func newBench(a *cli.App) *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure writing to a new database and reading it",
		Long:  benchHelp,
		Args:  cobra.NoArgs,
		RunE:  a.Action(func(c *cli.Call) error { return runBench(c, f) }),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.profileMode, "profile-mode", "rw", "what is profiled: rw, r, w; n: nothing")
	flags.StringVar(&f.writeMode, "write-mode", "seq", "how keys are written: seq, rnd, seq-nest or rnd-nest")
	flags.StringVar(&f.readMode, "read-mode", "seq", "how keys are read: seq or rnd")
	flags.Int64Var(&f.count, "count", 1000, "keys to write")
	flags.Int64Var(&f.batchSize, "batch-size", 0, "keys of one transaction, by which their number can be divided; 0: all")
	cli.SizeIntVar(flags, &f.keySize, "key-size", 8, "bytes of a key")
	cli.SizeIntVar(flags, &f.valueSize, "value-size", 32, "bytes of a value")
	for i, kind := range profileKinds {
		flags.StringVar(&f.profiles[i], kind.flag, "", "file for the profile of "+kind.of)
	}
	flags.Float64Var(&f.fill, "fill-percent", holdfast.DefaultFillPercent, "share to which pages are filled when they are split")
	flags.BoolVar(&f.noSync, "no-sync", false, "leave flushing to the system")
	flags.BoolVar(&f.work, "work", false, "keep the database and name it")
	flags.StringVar(&f.path, "path", "", "file to make the database in, which must not exist or be empty")
	flags.BoolVar(&f.goBench, "gobench-output", false, "print what Go's benchmarks print")
	cli.SizeIntVar(flags, &f.pageSize, "page-size", os.Getpagesize(), "page size in bytes")
	cli.SizeIntVar(flags, &f.mmapSize, "initial-mmap-size", 0, "bytes to map at least")
	f.time = time.Second
	if !a.Stock {
		cli.DurationVar(flags, &f.time, "time", time.Second, "how long to read at least")
	}
	return cmd
}

// check tells whether the flags fit each other, and completes them.
func (f *benchFlags) check(c *cli.Call) error {
	modes := map[string]bool{"seq": true, "rnd": true, "seq-nest": true, "rnd-nest": true}
	profiled := map[string]bool{"rw": true, "r": true, "w": true, "n": true}
	const maxKeys = math.MaxUint32 // they are numbers of 4 bytes
	const number = 4
	switch {
	case f.count < 1 || f.count > maxKeys:
		return cli.Usagef("--count: %d is outside of 1 to %d", f.count, int64(maxKeys))
	case f.batchSize < 0:
		return cli.Usagef("--batch-size is %d; give 0 for one transaction, or more", f.batchSize)
	case f.batchSize > 0 && f.count%f.batchSize != 0:
		return cli.ErrBatchNonDivisibleBatchSize
	case !modes[f.writeMode]:
		return cli.ErrBatchInvalidWriteMode
	case f.readMode != "seq" && f.readMode != "rnd":
		return cli.Usagef("--read-mode: there is no %q; there are seq and rnd", f.readMode)
	case !profiled[f.profileMode] && !c.Stock: // for bbolt any other word is none
		return cli.Usagef("--profile-mode: there is no %q; there are rw, r, w and n", f.profileMode)
	case f.keySize < number || f.keySize > holdfast.MaxKeySize:
		return cli.Usagef("--key-size: %d is outside of %d to %d", f.keySize, number, holdfast.MaxKeySize)
	case f.valueSize < 0 || f.valueSize > holdfast.MaxValueSize:
		return cli.Usagef("--value-size: %d is outside of 0 to %d", f.valueSize, holdfast.MaxValueSize)
	case f.pageSize < page.MinNewPageSize || f.pageSize > page.MaxPageSize || f.pageSize&(f.pageSize-1) != 0:
		return cli.Usagef("--page-size: %d is not a power of two from %d to %d", f.pageSize, page.MinNewPageSize, page.MaxPageSize)
	case math.IsNaN(f.fill):
		return cli.Usagef("--fill-percent is not a number")
	case f.mmapSize < 0:
		return cli.Usagef("--initial-mmap-size is %d", f.mmapSize)
	case f.time < 0:
		return cli.Usagef("--time is %s", f.time)
	case f.goBench && c.JSON:
		return cli.Usagef("--gobench-output and --json exclude each other")
	}
	if f.batchSize == 0 {
		f.batchSize = f.count
	}
	return nil
}

func runBench(c *cli.Call, f benchFlags) error {
	if err := f.check(c); err != nil {
		return err
	}
	p, err := newProfiler(c, &f)
	if err != nil {
		return err
	}
	path, made, err := benchFile(c, f.path)
	if err != nil {
		return err
	}
	if f.work && c.Stock {
		fmt.Fprintf(c.Cmd.ErrOrStderr(), "work: %s\n", path)
	}
	ctx, stop := c.Interruptible()
	defer stop()
	b := &benchmark{Call: c, benchFlags: f, ctx: ctx, mine: made, profiler: p, tick: time.NewTicker(time.Second)}
	defer b.tick.Stop()
	defer func() {
		if b.mine && !f.work {
			_ = os.Remove(path)
		}
	}()
	err = b.run(path)
	switch {
	case ctx.Err() != nil && b.mine:
		left := ", the file was removed"
		if f.work {
			left = ", the file is still there"
		}
		return &cli.FileError{File: path, What: "interrupted" + left, Err: ctx.Err()}
	case err != nil:
		return c.Explain(path, err)
	}
	return b.print(path)
}

// benchFile makes the file of the database, or takes one that is empty. made tells which.
func benchFile(c *cli.Call, path string) (file string, made bool, err error) {
	if path == "" {
		f, err := os.CreateTemp(vfs.TempDir(), c.Name()+"-bench-")
		if err != nil {
			return "", false, err
		}
		return f.Name(), true, f.Close()
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if dir := filepath.Dir(path); !isDir(dir) {
			return "", false, &cli.FileError{File: path, What: "the directory " + dir + " does not exist", Next: "make it first", Err: err}
		}
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) // so that it is no other process's
		if err != nil {
			return "", false, c.Explain(path, err)
		}
		return path, true, f.Close()
	case err != nil:
		return "", false, c.Explain(path, err)
	case !info.Mode().IsRegular():
		return "", false, &cli.FileError{File: path, What: "is not a regular file", Err: cli.ErrNotAFile}
	case info.Size() > 0:
		return "", false, benchExists(path)
	}
	path, err = filepath.EvalSymlinks(path) // the file is removed, and not its name alone
	return path, false, c.Explain(path, err)
}

func benchExists(path string) error {
	return &cli.FileError{File: path, What: "exists already, and the file is removed in the end", Next: "give a new one with --path", Err: fs.ErrExist}
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// benchResult is what was measured.
type benchResult struct {
	ops  int64
	took time.Duration
}

// each is the time of one operation.
func (r benchResult) each() time.Duration {
	if r.ops == 0 {
		return 0
	}
	return r.took / time.Duration(r.ops)
}

// perSecond is how many operations there were in a second.
func (r benchResult) perSecond() int64 {
	if r.took <= 0 {
		return 0
	}
	return int64(float64(r.ops) / r.took.Seconds())
}

// stockPerSecond is perSecond as bbolt computes it.
func (r benchResult) stockPerSecond() int64 {
	if r.each() == 0 {
		return 0
	}
	return int64(time.Second / r.each())
}

// benchmark is one run of bench.
type benchmark struct {
	*cli.Call
	benchFlags
	ctx      context.Context
	profiler *profiler
	mine     bool // the file: no other has anything in it
	random   *rand.Rand
	last     uint32     // key
	keys     []benchKey // in the order of reading, if that is not theirs

	tick     *time.Ticker
	ops      int64 // of what is measured
	lastOps  int64 // at the last tick
	lastTick time.Time

	wrote, read benchResult
}

// say prints a line of progress in bbolt's shape.
func (b *benchmark) say(format string, args ...any) {
	if b.Stock && !b.JSON {
		fmt.Fprintf(b.Cmd.ErrOrStderr(), format+"\n", args...)
	}
}

// tickEvery is how many operations are done between two looks at the time.
const tickEvery = 1 << 12

// done counts operations, and says each second how many there were. The error is that
// the command was ended.
func (b *benchmark) done(n int64) error {
	before := b.ops
	b.ops += n
	if before/tickEvery == b.ops/tickEvery {
		return nil
	}
	select {
	case now := <-b.tick.C:
		seconds := max(now.Sub(b.lastTick).Seconds(), 1e-9)
		b.say("Completed %d requests, %d/s ", b.ops, int64(float64(b.ops-b.lastOps)/seconds))
		b.lastOps, b.lastTick = b.ops, now
	default:
	}
	return b.ctx.Err()
}

func (b *benchmark) print(path string) error {
	switch {
	case b.JSON:
		return b.PrintJSON(b.report(path))
	case b.goBench:
		printGoBench(b.Out, "BenchmarkWrite", b.wrote)
		printGoBench(b.Out, "BenchmarkRead", b.read)
		_, err := fmt.Fprintln(b.Out)
		return err
	case b.Stock:
		line := func(name string, r benchResult) {
			fmt.Fprintf(b.Out, "# %s\t%d(ops)\t%v\t(%v/op)\t(%d op/sec)\n", name, r.ops, r.took, r.each(), r.stockPerSecond())
		}
		line("Write", b.wrote)
		line("Read", b.read)
		_, err := fmt.Fprintln(b.Out)
		return err
	}
	line := func(r benchResult) string {
		return fmt.Sprintf("%s in %s: %s each, %s a second", cli.Plural(r.ops, "key"), cli.Briefly(r.took), cli.Briefly(r.each()), cli.Count(r.perSecond()))
	}
	commits := cli.Plural(b.count/b.batchSize, "transaction")
	flushed := "flushed"
	if b.noSync {
		flushed = "not flushed"
	}
	cli.Rows(b.Out, [2]string{"Written", fmt.Sprintf("%s; in %s, %s", line(b.wrote), commits, flushed)}, [2]string{"Read", line(b.read)})
	if b.work {
		fmt.Fprintf(b.Out, "The database is in %s\n", path)
	}
	return nil
}

// printGoBench prints a result as Go's benchmarks do, with more digits of small times.
func printGoBench(w io.Writer, name string, r benchResult) {
	ns := float64(r.took.Nanoseconds()) / float64(max(r.ops, 1))
	width, digits := 10, 0
	for limit := 999.95; ns < limit && digits < 4; limit /= 10 {
		if digits++; digits == 1 {
			width++ // for the point
		}
		width++
	}
	fmt.Fprintf(w, "%-*s\t%8d\t%*.*f ns/op\n", len("BenchmarkWrite"), name, r.ops, width, digits, ns)
}
