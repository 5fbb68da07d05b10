package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"holdfast/command/cli"
	"holdfast/internal/vfs"
)

const demoHelp = `Make a database file that has been emptied, as the files of build workers are
after some time, and one that has not; work on both, and print what was measured.

Every figure that is printed was measured in this run. The files are removed at
the end unless --keep is given.`

// Bounds on what demo can be asked for, in bytes.
const (
	minDemoBytes = 1 << 20
	maxDemoBytes = 1 << 40
)

type demoFlags struct {
	size int64
	dir  string
	keep bool
	time time.Duration
}

// demoReport is what a demo measured. Times are in microseconds.
type demoReport struct {
	Dir      string        `json:"dir"`
	InMemory bool          `json:"in_memory"` // the directory is on no disk
	Values   int           `json:"values_written_and_deleted"`
	FillMS   int64         `json:"fill_ms"`
	FlushUS  float64       `json:"bare_flush_us"`
	Young    demoStore     `json:"young"`
	Aged     demoStore     `json:"aged"`
	Growing  []demoGrowth  `json:"growing"`
	Verdict  *doctorReport `json:"doctor"`
	KeptFile string        `json:"kept_file,omitempty"`
}

// demoStore is what was measured on one of the two databases.
type demoStore struct {
	SizeBytes      int64    `json:"size_bytes"`
	FreePages      int      `json:"free_pages"`
	OpenUS         float64  `json:"open_us"`
	Commits        int      `json:"commits"`
	CommitMidUS    float64  `json:"commit_median_us"`
	CommitP99US    float64  `json:"commit_p99_us"`
	CommitsPerSec  float64  `json:"commits_per_second"` // by the median
	BytesPerCommit *float64 `json:"bytes_per_commit"`   // null where the system does not tell
}

// demoGrowth is what a writer and short readers saw while the file grew.
type demoGrowth struct {
	ReaderHeld  bool    `json:"reader_held_open"`
	GrownBytes  int64   `json:"grown_bytes"`
	Commits     int     `json:"commits"`
	CommitMidUS float64 `json:"commit_median_us"`
	CommitMaxUS float64 `json:"commit_max_us"`
	Reads       int     `json:"reads"`
	ReadMidUS   float64 `json:"read_median_us"`
	ReadP99US   float64 `json:"read_p99_us"`
	ReadMaxUS   float64 `json:"read_max_us"`
}

func (a *app) newDemo() *cobra.Command {
	var f demoFlags
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Make an aged database, work on it and print what was measured",
		Long:  demoHelp,
		Args:  cobra.NoArgs,
		RunE:  a.action(func(c *call) error { return c.demo(f) }),
	}
	flags := cmd.Flags()
	cli.SizeRangeVar(flags, &f.size, "size", 64<<20, minDemoBytes, maxDemoBytes, "bytes of values to write and delete, such as 64MiB or 1GiB")
	flags.StringVar(&f.dir, "dir", "", "where to make the files; default: the system's directory for temporary files, or /var/tmp if that one is in memory")
	flags.BoolVar(&f.keep, "keep", false, "keep the files")
	cli.DurationVar(flags, &f.time, "time", 2*time.Second, "how long to measure commits, and then again how long to let a file grow")
	_ = cmd.MarkFlagDirname("dir")
	return cmd
}

func (c *call) demo(f demoFlags) error {
	if f.time <= 0 {
		return usagef("--time is %s; it must be more than nothing", f.time)
	}
	ctx, stop := c.interruptible()
	defer stop()
	defer outliveReader()()
	if f.dir == "" {
		f.dir = vfs.TempDir()
	}
	dir, err := os.MkdirTemp(f.dir, "holdfast-demo-")
	if err != nil {
		return c.explain(f.dir, err)
	}
	if !f.keep {
		defer os.RemoveAll(dir)
	}
	d := &demo{call: c, ctx: ctx, flags: f, bytes: f.size, r: demoReport{Dir: dir, InMemory: vfs.InMemory(dir)}}
	err = d.run()
	switch {
	case errors.Is(err, context.Canceled):
		return &fileError{file: dir, what: "interrupted" + d.left(), err: err}
	case err != nil:
		return c.explain(dir, err)
	case c.json:
		return c.printJSON(d.r)
	}
	return nil
}

// left says whether the files are still there.
func (d *demo) left() string {
	if d.flags.keep {
		return ", the files are still there"
	}
	return ", the files were removed"
}

// say prints a line of the report for people.
func (d *demo) say(format string, args ...any) {
	if d.json {
		return
	}
	fmt.Fprintf(d.out, format+"\n", args...)
	_ = d.out.Flush() // each part when it has been measured; an error stays for the end
}

// table prints rows of columns for people.
func (d *demo) table(lines ...[]string) {
	if d.json {
		return
	}
	columns(d.out, lines...)
	_ = d.out.Flush()
}
