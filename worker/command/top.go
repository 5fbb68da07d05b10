package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"holdfast/command/cli"
	"holdfast/worker/disk"
	"holdfast/worker/snapshot"
)

func init() { register((*app).newTop) }

const topHelp = `Show what a store has and what runs on it: snapshots, what waits to be deleted, the disk,
mounts, and the commands of steps, with the time and memory that they take.

It looks from outside, at directories and /proc, so it does not disturb the process that has the
store open. How many snapshots are committed, and what they take, is in the metadata: they are read
when no process has the store open, and shown with their age.

On a terminal the figures are drawn anew each --interval, until Ctrl-C. Elsewhere, and with
--json, each interval gives a line; --count ends after so many.`

type topFlags struct {
	interval time.Duration
	count    int
}

func (a *app) newTop() *cobra.Command {
	var f topFlags
	cmd := &cobra.Command{
		Use: "top", Short: "Show what runs on a store", Long: topHelp, Args: cobra.NoArgs, Annotations: map[string]string{runsHere: "yes"},
		RunE: a.action(func(c *call) error { return c.top(f) }),
	}
	cli.DurationVar(cmd.Flags(), &f.interval, "interval", time.Second, "time between two looks")
	cmd.Flags().IntVar(&f.count, "count", 0, "end after so many looks; 0: on Ctrl-C")
	return cmd
}

// topReport is what is seen at one time.
type topReport struct {
	Root string    `json:"root"`
	Time time.Time `json:"time"`

	Owner        int    `json:"owner"` // process that has the store open; 0: none
	OwnerCommand string `json:"owner_command"`

	Directories int   `json:"directories"` // of snapshots
	Trash       int   `json:"trash"`       // trees that are being deleted
	Metadata    int64 `json:"metadata_bytes"`
	DiskBytes   int64 `json:"disk_bytes"`
	DiskFree    int64 `json:"disk_free_bytes"`

	// From the metadata, when it could be read last.
	Known     time.Time `json:"known,omitzero"`
	Snapshots int64     `json:"snapshots"`
	Committed int64     `json:"committed"`
	Bytes     int64     `json:"bytes"`

	Mounts int           `json:"mounts"` // of snapshots of this store, in any namespace that is seen
	Steps  []runningStep `json:"steps"`
}

// runningStep is what runs with a snapshot as its root directory.
type runningStep struct {
	PID       int     `json:"pid"` // its first process
	Snapshot  string  `json:"snapshot_id"`
	Command   string  `json:"command"`
	Processes int     `json:"processes"`
	Seconds   float64 `json:"seconds"` // since it began
	CPU       float64 `json:"cpu_seconds"`
	Memory    int64   `json:"memory_bytes"`
}

// topView looks at a store again and again.
type topView struct {
	*call
	terminal bool
	lines    int
	last     topReport
	read     time.Time // when metadata.db was changed last, as it was read
}

func (c *call) top(f topFlags) error {
	switch {
	case f.interval < 10*time.Millisecond:
		return cli.Usagef("--interval is %s; give 10ms or more", f.interval)
	case f.count < 0:
		return cli.Usagef("--count is %d; give 0 for no end, or more", f.count)
	}
	defer c.heedInterrupt()()
	if err := c.needStore(); err != nil {
		return err
	}
	v := &topView{call: c, terminal: cli.IsTerminal(c.cmd.OutOrStdout())}
	tick := time.NewTicker(f.interval)
	defer tick.Stop()
	for n := 1; ; n++ {
		if err := v.look(); err != nil {
			return err
		}
		if err := v.show(); err != nil {
			return err
		}
		if err := c.out.Flush(); err != nil || n == f.count {
			return err
		}
		select {
		case <-c.ctx.Done():
			return errors.Join(errSaid, c.ctx.Err())
		case <-tick.C:
		}
	}
}

// look looks at everything.
func (v *topView) look() error {
	root, err := v.absRoot()
	if err != nil {
		return err
	}
	r := topReport{Root: root, Time: time.Now(), Known: v.last.Known, Snapshots: v.last.Snapshots, Committed: v.last.Committed, Bytes: v.last.Bytes}
	for dir, n := range map[string]*int{"snapshots": &r.Directories, "trash": &r.Trash} {
		if *n, err = entries(filepath.Join(root, dir)); err != nil {
			return err
		}
	}
	info, err := os.Stat(filepath.Join(root, "metadata.db"))
	if err != nil {
		return err
	}
	r.Metadata = info.Size()
	d, err := disk.Measure(root)
	if err != nil {
		return err
	}
	r.DiskBytes, r.DiskFree = d.Size, d.Free
	if r.Owner, r.OwnerCommand, err = ownerOf(root); err != nil {
		return err
	}
	if r.Owner == 0 && !info.ModTime().Equal(v.read) {
		if err := v.metadata(&r); err != nil {
			return err
		}
	}
	if r.Mounts, r.Steps, err = running(root); err != nil {
		return err
	}
	v.last = r
	return nil
}

// entries is how many entries a directory has. It may go away with what it is in.
func entries(dir string) (int, error) {
	list, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return len(list), err
}

// metadata opens the store for a short time. If another process was faster it has to wait for the next look.
func (v *topView) metadata(r *topReport) error {
	s, err := v.openStore(true)
	if errors.Is(err, snapshot.ErrLocked) || errors.Is(err, syscall.EROFS) || isFull(err) {
		return nil // what is seen from outside is there all the same
	}
	if err != nil {
		return err
	}
	totals, err := s.Totals(v.ctx)
	if err = errors.Join(err, s.Close()); err != nil {
		return err
	}
	r.Known, r.Snapshots, r.Committed, r.Bytes = r.Time, totals.Snapshots, totals.Committed, totals.Usage.Size
	info, err := os.Stat(filepath.Join(r.Root, "metadata.db"))
	if err == nil {
		v.read, r.Metadata = info.ModTime(), info.Size()
	}
	return err
}

// headerEvery is after how many lines the header comes again.
const headerEvery = 20

func (v *topView) show() error {
	r := &v.last
	switch {
	case v.json:
		return json.NewEncoder(v.out).Encode(r)
	case v.terminal:
		v.draw(r)
		return nil
	}
	const format = "%8s %8s %10s %8s %10s %7s %10s %10s %8s\n"
	if v.lines%headerEvery == 0 {
		fmt.Fprintf(v.out, format, "TIME", "OWNER", "SNAPSHOTS", "TRASH", "METADATA", "MOUNTS", "STEPS", "FREE", "FREE%")
	}
	v.lines++
	owner := "-"
	if r.Owner != 0 {
		owner = fmt.Sprint(r.Owner)
	}
	fmt.Fprintf(v.out, format, r.Time.Format(time.TimeOnly), owner, cli.Count(r.Directories), cli.Count(r.Trash), cli.Size(r.Metadata),
		cli.Count(r.Mounts), cli.Count(len(r.Steps)), cli.Size(r.DiskFree), cli.Percent(r.DiskFree, r.DiskBytes))
	return nil
}

// What a terminal is told: a screen is written over the one before, which does not flicker as clearing it does.
const (
	toCorner   = "\x1b[H"
	clearRest  = "\x1b[K" // of a line
	clearBelow = "\x1b[J"
)

// draw draws a screen, of what there is room for.
func (v *topView) draw(r *topReport) {
	w := v.cmd.OutOrStdout()
	width, height := cli.TerminalSize(w)
	lines := strings.Split(strings.TrimSuffix(v.screen(r, width, height), "\n"), "\n")
	title := cli.Paint(w, cli.Bold, shortened(printable(r.Root), width-10)) + "  " + r.Time.Format(time.TimeOnly)
	lines = append([]string{title}, lines...)
	if !cli.HasColour(w) { // a terminal that does not understand such things
		fmt.Fprintln(v.out, "\n"+strings.Join(lines, "\n"))
		return
	}
	fmt.Fprint(v.out, toCorner, strings.Join(lines, clearRest+"\n"), clearRest, "\n", clearBelow)
}

// fixedLines are those of a screen that are not steps, with the one where the cursor stays.
const fixedLines = 11

// screen is what is drawn below the title.
func (v *topView) screen(r *topReport, width, height int) string {
	var b strings.Builder
	owner := "no process has it open"
	if r.Owner != 0 {
		owner = shortened(fmt.Sprintf("open in process %d, %s", r.Owner, printable(r.OwnerCommand)), width-11)
	}
	cli.Rows(&b,
		[2]string{"Store", owner},
		[2]string{"Snapshots", cli.Count(r.Directories) + v.known(r)},
		[2]string{"Trash", cli.Count(r.Trash) + " being deleted"},
		[2]string{"Metadata", cli.Size(r.Metadata)},
		[2]string{"Disk", cli.Size(r.DiskBytes) + ", " + cli.Size(r.DiskFree) + " free (" + cli.Percent(r.DiskFree, r.DiskBytes) + ")"},
		[2]string{"Mounts", cli.Count(r.Mounts)},
		[2]string{"Steps", cli.Count(len(r.Steps)) + " running"})
	if len(r.Steps) == 0 {
		return b.String()
	}
	fmt.Fprintln(&b)
	shown := r.Steps
	if room := max(height-fixedLines, 1); height > 0 && len(shown) > room {
		shown = shown[:max(room-1, 1)]
	}
	lines := [][]string{{"PID", "SNAPSHOT", "TIME", "CPU", "MEMORY", "PROCESSES", "COMMAND"}}
	for _, s := range shown {
		lines = append(lines, []string{fmt.Sprint(s.PID), s.Snapshot, seconds(s.Seconds), seconds(s.CPU), cli.Size(s.Memory),
			cli.Count(s.Processes), shortened(printable(s.Command), width-64)})
	}
	cli.Columns(&b, lines...)
	if more := len(r.Steps) - len(shown); more > 0 {
		fmt.Fprintf(&b, "and %s\n", cli.Plural(more, "more step"))
	}
	return b.String()
}

func (v *topView) known(r *topReport) string {
	if r.Known.IsZero() {
		return ""
	}
	age := ""
	if past := r.Time.Sub(r.Known); past >= time.Second && r.Owner != 0 {
		age = fmt.Sprintf(" %s ago", past.Round(time.Second))
	}
	return fmt.Sprintf("; %s committed%s, %s", cli.Count(r.Committed), age, cli.Size(r.Bytes))
}

func seconds(s float64) string {
	return (time.Duration(s*10) * (time.Second / 10)).String()
}

// shortened is what of a text there is room for.
func shortened(s string, room int) string {
	room = max(room, 20)
	if r := []rune(s); len(r) > room {
		return strings.TrimSpace(string(r[:room-3])) + "..."
	}
	return s
}
