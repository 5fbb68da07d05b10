package suite

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Config says how large and how long the workloads are.
type Config struct {
	Dir     string        // of the databases
	Keys    int           // of the large database
	Loads   int           // rounds of bulk loading
	Rounds  int           // of everything else
	Time    time.Duration // of one measurement
	Emptied int64         // bytes put into the file that is then emptied
	Workers int           // goroutines that read at once
	Log     io.Writer     // progress

	// Of the groups about commits:
	Live        []int64      // bytes of data in the files that are opened
	Ages        []int64      // bytes put into the files that are emptied, for the group age
	Writers     []int        // goroutines that commit at once
	FreePages   int          // in the files whose free pages are held in memory
	CommitPeers []CommitPeer // engines besides bbolt that take part

	// Of the groups about vacuum:
	Thinned int64 // bytes of the file of which four fifths are deleted
	Commits int   // that are to be seen during vacuum, at least

	// Of the groups about blobs:
	Blobs BlobConfig
}

// Quick is a run of less than three minutes, Full one of the sizes that the
// documentation quotes.
var (
	Quick = Config{Keys: 200_000, Loads: 5, Rounds: 5, Time: 200 * time.Millisecond, Emptied: 64 << 20, Workers: 10_000}
	Full  = Config{Keys: 2_000_000, Loads: 5, Rounds: 7, Time: time.Second, Emptied: 256 << 20, Workers: 10_000}
)

// CommitQuick and CommitFull are the same for the groups about commits. The
// latter needs 32 GiB of disk and some ten minutes.
var (
	CommitQuick = Config{
		Keys: 200_000, Rounds: 5, Time: 200 * time.Millisecond, Emptied: 256 << 20, Workers: 10_000,
		Live: []int64{16 << 20, 64 << 20, 256 << 20}, Writers: []int{1, 8, 64}, FreePages: 1_200_000,
		Ages: []int64{0, 64 << 20, 256 << 20},
	}
	CommitFull = Config{
		Keys: 2_000_000, Rounds: 7, Time: time.Second, Emptied: 1 << 30, Workers: 10_000,
		Live: []int64{100 << 20, 1 << 30, 8 << 30}, Writers: []int{1, 8, 64}, FreePages: 1_200_000,
		Ages: []int64{0, 64 << 20, 128 << 20, 256 << 20, 512 << 20, 1 << 30},
	}
)

// SharedQuick and SharedFull are the same for the groups about databases that other processes read. The latter needs
// 5 GiB of disk.
var (
	SharedQuick = Config{Keys: 200_000, Rounds: 5, Time: 200 * time.Millisecond, Emptied: 64 << 20}
	SharedFull  = Config{Keys: 2_000_000, Rounds: 9, Time: time.Second, Emptied: 1 << 30}
)

// VacuumQuick and VacuumFull are the same for the groups about vacuum. The latter needs
// 13 GiB of disk.
var (
	VacuumQuick = Config{Rounds: 5, Time: 200 * time.Millisecond, Emptied: 64 << 20, Thinned: 192 << 20, Commits: 100}
	VacuumFull  = Config{Rounds: 3, Time: time.Second, Emptied: 1 << 30, Thinned: 5 << 30, Commits: 1000}
)

func (c *Config) logf(format string, args ...any) {
	if c.Log != nil {
		fmt.Fprintf(c.Log, format+"\n", args...)
	}
}

// path is a fresh path for a database of the engine.
func (c *Config) path(workload, engine string) (string, error) {
	name := strings.Map(func(r rune) rune {
		if r == ' ' || r == '/' {
			return '-'
		}
		return r
	}, workload+"-"+engine)
	dir, err := os.MkdirTemp(c.Dir, name+"-")
	return filepath.Join(dir, "db"), err
}

// Cell is what was measured of one engine in one workload.
type Cell struct {
	Median, Low, High float64
	Allocs            float64 // per operation; negative if they were not counted
	Text              string  // in place of the figures, if not empty
}

// Row is a workload.
type Row struct {
	Workload string
	Unit     string
	More     bool // more is better
	Cells    map[string]Cell
	Flush    time.Duration // a bare flush with it, 0 if none belongs to it
}

// Table are the workloads of one group.
type Table struct {
	Title   string
	Columns []string // engines, in order
	Rows    []Row
	Targets []Target // what of it was promised

	// The columns whose ratio is shown; if empty, those of bbolt as it is and
	// of Holdfast.
	Peer, Ours string
}

// sample is one measurement.
type sample struct{ value, allocs float64 }

// runner measures one engine once.
type runner struct {
	name    string
	measure func() (sample, error)
}

// alternate measures each of the runners once a round, and gives the medians.
func alternate(rounds int, runners []runner) (map[string]Cell, error) {
	samples, err := byTurns(rounds, runners)
	return cellsOf(samples), err
}

// byTurns measures each of the runners once a round. The samples of a runner are
// in the order of the rounds.
func byTurns(rounds int, runners []runner) (map[string][]sample, error) {
	samples := map[string][]sample{}
	for round := range rounds {
		for i := range runners {
			r := runners[(i+round)%len(runners)]
			runtime.GC()
			s, err := r.measure()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", r.name, err)
			}
			samples[r.name] = append(samples[r.name], s)
		}
	}
	return samples, nil
}

func cellsOf(samples map[string][]sample) map[string]Cell {
	cells := map[string]Cell{}
	for name, all := range samples {
		cells[name] = cellOf(all)
	}
	return cells
}

func cellOf(all []sample) Cell {
	values, allocs := make([]float64, len(all)), make([]float64, len(all))
	for i, s := range all {
		values[i], allocs[i] = s.value, s.allocs
	}
	slices.Sort(values)
	slices.Sort(allocs)
	return Cell{Median: median(values), Low: values[0], High: values[len(values)-1], Allocs: median(allocs)}
}

// median is that of sorted values.
func median(values []float64) float64 {
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// perOperation runs fn, which does n operations, for at least d, and gives the
// nanoseconds and allocations of one.
func perOperation(d time.Duration, n int, fn func() error) (sample, error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began, done := time.Now(), 0
	for time.Since(began) < d || done == 0 {
		if err := fn(); err != nil {
			return sample{}, err
		}
		done += n
	}
	took := time.Since(began)
	runtime.ReadMemStats(&after)
	return sample{
		value:  float64(took.Nanoseconds()) / float64(done),
		allocs: float64(after.Mallocs-before.Mallocs) / float64(done),
	}, nil
}

// written is the number of bytes that the process has handed to write calls.
func written() (int64, error) { return Counter("wchar") }

// Counter is a line of /proc/self/io: "wchar" is what written returns, "syscw"
// the number of those calls.
func Counter(name string) (int64, error) {
	data, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if number, ok := strings.CutPrefix(line, name+": "); ok {
			return strconv.ParseInt(strings.TrimSpace(number), 10, 64)
		}
	}
	return 0, fmt.Errorf("/proc/self/io has no %s", name)
}

// Print writes the table as Markdown.
func (t *Table) Print(w io.Writer) {
	fmt.Fprintf(w, "\n%s\n\n| workload |", t.Title)
	for _, c := range t.Columns {
		fmt.Fprintf(w, " %s |", c)
	}
	fmt.Fprint(w, " ratio | allocs |")
	flush := slices.ContainsFunc(t.Rows, func(r Row) bool { return r.Flush > 0 })
	if flush {
		fmt.Fprint(w, " bare flush |")
	}
	fmt.Fprintf(w, "\n|%s\n", strings.Repeat(" --- |", len(t.Columns)+3+btoi(flush)))
	for _, r := range t.Rows {
		fmt.Fprintf(w, "| %s |", r.Workload)
		for _, c := range t.Columns {
			fmt.Fprintf(w, " %s |", r.text(c))
		}
		fmt.Fprintf(w, " %s | %s |", r.ratio(t.ratioOf()), r.allocs(t.Columns))
		if flush {
			fmt.Fprintf(w, " %s |", flushText(r.Flush))
		}
		fmt.Fprintln(w)
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func flushText(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return FormatValue(float64(d), "ns")
}

// text is a cell's median with the lowest and the highest value.
func (r *Row) text(column string) string {
	c, ok := r.Cells[column]
	switch {
	case !ok:
		return ""
	case c.Text != "":
		return c.Text
	case c.Low == c.High:
		return FormatValue(c.Median, r.Unit)
	}
	return fmt.Sprintf("%s (%s–%s)", FormatValue(c.Median, r.Unit), FormatValue(c.Low, r.Unit), FormatValue(c.High, r.Unit))
}

// ratioOf are the columns whose ratio is shown.
func (t *Table) ratioOf() (peer, ours string) {
	if t.Peer == "" {
		return StockDefault.Name, Holdfast.Name
	}
	return t.Peer, t.Ours
}

// ratio says how many times better one column is than another.
func (r *Row) ratio(peerName, oursName string) string {
	peer, ours := r.Cells[peerName], r.Cells[oursName]
	if peer.Median == 0 || ours.Median == 0 || peer.Text != "" || ours.Text != "" {
		return ""
	}
	better := peer.Median / ours.Median
	if r.More {
		better = 1 / better
	}
	return fmt.Sprintf("%.2f×", better)
}

// allocs are the allocations per operation of the columns.
func (r *Row) allocs(columns []string) string {
	var all []string
	for _, name := range columns {
		if c, ok := r.Cells[name]; ok && c.Allocs >= 0 && c.Text == "" {
			all = append(all, formatCount(c.Allocs))
		} else {
			all = append(all, "-")
		}
	}
	if strings.Trim(strings.Join(all, ""), "-") == "" {
		return ""
	}
	return strings.Join(all, " / ")
}

func formatCount(v float64) string {
	if v < 9.95 {
		return strings.TrimSuffix(fmt.Sprintf("%.1f", math.Abs(v)), ".0")
	}
	return fmt.Sprintf("%.0f", v)
}

// FormatValue writes a value that is in unit: "ns", "B", or a plain name.
func FormatValue(v float64, unit string) string {
	switch unit {
	case "ns":
		return FormatDuration(time.Duration(v))
	case "B":
		return FormatBytes(v)
	}
	if v >= 100 {
		return fmt.Sprintf("%.0f%s", v, unit)
	}
	return fmt.Sprintf("%.3g%s", v, unit)
}

// FormatDuration writes d with three digits.
func FormatDuration(d time.Duration) string {
	v := float64(d)
	for _, unit := range []string{"ns", "µs", "ms"} {
		if v < 1000 {
			return three(v) + " " + unit
		}
		v /= 1000
	}
	return three(v) + " s"
}

// FormatBytes writes a number of bytes with three digits.
func FormatBytes(v float64) string {
	for _, unit := range []string{"B", "KiB", "MiB"} {
		if v < 1024 {
			return three(v) + " " + unit
		}
		v /= 1024
	}
	return three(v) + " GiB"
}

func three(v float64) string {
	switch {
	case v >= 100 || v == math.Trunc(v):
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
