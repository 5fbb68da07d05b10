package command

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"holdfast"
	"holdfast/internal/vfs"
)

// suiteReport is what was measured by bench run, in JSON.
type suiteReport struct {
	Dir         string            `json:"dir"`
	InMemory    bool              `json:"in_memory"` // no disk is behind the directory
	Kept        bool              `json:"kept"`
	RoomBytes   int64             `json:"room_bytes"` // that the files take at most
	SizeBytes   int64             `json:"size_bytes"`
	TimeNS      int64             `json:"time_ns"` // 0: count says how much is measured
	Count       int64             `json:"count"`
	CPUs        int               `json:"cpus"`
	OS          string            `json:"os"`
	Arch        string            `json:"arch"`
	Version     string            `json:"version"`
	Environment map[string]string `json:"environment"` // variables of Holdfast that are set
	FlushP50    int64             `json:"bare_flush_p50_ns"`
	FlushP99    int64             `json:"bare_flush_p99_ns"`
	Workloads   []*workloadReport `json:"workloads"`
}

// workloadReport is what one workload measured.
type workloadReport struct {
	Name     string      `json:"name"`
	About    string      `json:"about"`
	Duration int64       `json:"duration_ns"` // with the making of the files
	Rows     []*suiteRow `json:"rows"`

	// Medians of bare flushes: where they differ the disk changed its pace meanwhile, and
	// rows that were measured one behind the other cannot be compared.
	FlushBefore int64 `json:"bare_flush_before_p50_ns"`
	FlushAfter  int64 `json:"bare_flush_after_p50_ns"`

	ratio string
}

// unsteady is how many times as long a bare flush may take behind a workload as before it,
// or before as behind, without a word.
const unsteady = 1.5

func (w *workloadReport) steady() bool {
	a, b := float64(w.FlushBefore), float64(w.FlushAfter)
	return a <= unsteady*b && b <= unsteady*a
}

// suiteRow is one kind of operation. What is null has no meaning for it.
type suiteRow struct {
	Name           string   `json:"name"`
	Operations     int64    `json:"operations"`
	Duration       int64    `json:"duration_ns"`
	PerSecond      float64  `json:"operations_per_second"`
	P50            int64    `json:"p50_ns"` // of one operation
	P99            int64    `json:"p99_ns"`
	Max            int64    `json:"max_ns"`
	KeysPerSecond  *float64 `json:"keys_per_second"`
	BytesPerSecond *float64 `json:"bytes_per_second"`            // of keys and values
	Written        *float64 `json:"written_bytes_per_operation"` // to the file
	Flushes        *float64 `json:"flushes_per_operation"`
	FileBytes      *int64   `json:"file_bytes"` // afterwards
	FreePages      *int64   `json:"free_pages"`
	Ratio          *float64 `json:"ratio"`
	RatioOf        *string  `json:"ratio_of"` // a field
	RatioTo        *string  `json:"ratio_to"` // a row

	label string
}

// add adds a row, name being for JSON and label for people.
func (w *workloadReport) add(name, label string, t *timed) *suiteRow {
	r := &suiteRow{
		Name: name, label: label, Operations: t.n, Duration: t.took.Nanoseconds(), PerSecond: t.perSecond(t.n),
		P50: t.quantile(0.5), P99: t.quantile(0.99), Max: t.longest,
	}
	w.Rows = append(w.Rows, r)
	return r
}

// Fields that ratios are of.
const (
	ratioMedian = "p50_ns"
	ratioP99    = "p99_ns"
	ratioRate   = "operations_per_second"
	ratioKeys   = "keys_per_second"
	ratioBytes  = "bytes_per_second"
)

func (r *suiteRow) field(name string) float64 {
	var of *float64
	switch name {
	case ratioMedian:
		return float64(r.P50)
	case ratioP99:
		return float64(r.P99)
	case ratioRate:
		return r.PerSecond
	case ratioKeys:
		of = r.KeysPerSecond
	case ratioBytes:
		of = r.BytesPerSecond
	}
	if of == nil {
		return 0
	}
	return *of
}

// to gives the row the ratio of one of its fields to that of another row.
func (r *suiteRow) to(other *suiteRow, field string) {
	ratio := 0.0
	if base := other.field(field); base > 0 {
		ratio = r.field(field) / base
	}
	r.Ratio, r.RatioOf, r.RatioTo = &ratio, &field, &other.Name
}

// amount says how many keys and bytes of keys and values the row's operations were about.
func (r *suiteRow) amount(t *timed, keys, bytes int64) {
	if keys > 0 {
		v := t.perSecond(keys)
		r.KeysPerSecond = &v
	}
	v := t.perSecond(bytes)
	r.BytesPerSecond = &v
}

// wrote says what the database wrote for the row's operations: what it has counted since
// before.
func (r *suiteRow) wrote(db *holdfast.DB, before holdfast.Stats) {
	now := db.Stats()
	d := now.Sub(&before)
	ops := float64(max(r.Operations, 1))
	bytes, flushes := float64(d.BytesWritten)/ops, float64(d.Flushes)/ops
	r.Written, r.Flushes = &bytes, &flushes
}

// file notes what the file is like.
func (r *suiteRow) file(db *holdfast.DB) error {
	info, err := os.Stat(db.Path())
	if err != nil {
		return err
	}
	bytes, free := info.Size(), int64(db.Stats().FreePageN)
	r.FileBytes, r.FreePages = &bytes, &free
	return nil
}

// begin says what is about to be done.
func (s *benchSuite) begin(dir string) {
	f := s.flags
	s.r = suiteReport{
		Dir: dir, InMemory: vfs.InMemory(dir), Kept: f.keep, RoomBytes: s.room, SizeBytes: s.size, Count: f.count,
		CPUs: runtime.GOMAXPROCS(0), OS: runtime.GOOS, Arch: runtime.GOARCH, Version: version(), Environment: map[string]string{},
		Workloads: []*workloadReport{},
	}
	for _, v := range holdfast.Environment() {
		if value := os.Getenv(v.Name); value != "" {
			s.r.Environment[v.Name] = value
		}
	}
	until := fmt.Sprintf("measures %s of each kind", countOf(uint64(f.count), "operation", "operations"))
	if f.count == 0 {
		s.r.TimeNS = f.time.Nanoseconds()
		until = "measures for " + f.time.String()
	}
	end := "removed at the end"
	if f.keep {
		end = "kept"
	}
	what := fmt.Sprintf("Writes up to %s in %s, which is %s; %s, each of which %s.", size(s.room), dir, end,
		plural(len(s.todo), "workload"), until)
	if len(s.todo) == 1 {
		what = fmt.Sprintf("Writes up to %s in %s, which is %s; the workload %s.", size(s.room), dir, end, until)
	}
	if s.json {
		if w := s.cmd.ErrOrStderr(); isTerminal(w) {
			fmt.Fprintln(w, what)
		}
		return
	}
	s.say("%s", what)
	if s.r.InMemory {
		s.say("%s", s.paint(yellow, filepath.Dir(dir)+" is in memory: nothing is flushed to a disk; --dir gives another place."))
	}
	for _, v := range holdfast.Environment() {
		if value := s.r.Environment[v.Name]; value != "" {
			s.say("The environment sets %s=%s, and the figures are with that.", v.Name, value)
		}
	}
}

// say prints a line for people, at once: what follows takes time.
func (s *benchSuite) say(format string, args ...any) {
	if s.json {
		return
	}
	fmt.Fprintf(s.out, format+"\n", args...)
	if err := s.out.Flush(); err != nil {
		s.unheard = err
	}
}

func (s *benchSuite) end() error {
	if s.json {
		return s.printJSON(s.r)
	}
	if s.flags.keep {
		s.say("The files are in %s", s.r.Dir)
	}
	return nil
}

func (s *benchSuite) listWorkloads() error {
	if s.json {
		type entry struct {
			Name    string `json:"name"`
			About   string `json:"about"`
			RatioOf string `json:"ratio"`
		}
		all := []entry{}
		for _, w := range s.todo {
			all = append(all, entry{w.name, w.about, w.ratio})
		}
		return s.printJSON(map[string][]entry{"workloads": all})
	}
	var pairs [][2]string
	for _, w := range s.todo {
		pairs = append(pairs, [2]string{w.name, w.about})
	}
	rows(s.out, pairs...)
	return nil
}

// suiteColumn is one of the tables.
type suiteColumn struct {
	title string
	cell  func(*suiteRow) string
}

// rateColumn is the rate that the workload is about.
func (w *workloadReport) rateColumn() suiteColumn {
	switch {
	case w.Rows[0].KeysPerSecond != nil && w.Rows[0].Written == nil:
		return suiteColumn{"keys a second", func(r *suiteRow) string { return rateOf(r.KeysPerSecond) }}
	case w.Rows[0].BytesPerSecond != nil:
		return suiteColumn{"data a second", func(r *suiteRow) string { return sizeOf(r.BytesPerSecond) }}
	}
	return suiteColumn{"a second", func(r *suiteRow) string { return rateOf(&r.PerSecond) }}
}

// printWorkload prints the table of a workload, without the columns that are empty.
func (s *benchSuite) printWorkload(w *workloadReport) {
	s.say("%s: %s (%s)", s.paint(bold, w.Name), w.About, nanos(w.Duration))
	all := []suiteColumn{
		{"", func(r *suiteRow) string { return "  " + r.label }},
		{"done", func(r *suiteRow) string { return count(r.Operations) }},
		w.rateColumn(),
		{"p50", func(r *suiteRow) string { return nanos(r.P50) }},
		{"p99", func(r *suiteRow) string { return nanos(r.P99) }},
		{"written each", func(r *suiteRow) string { return sizeOf(r.Written) }},
		{"flushes each", func(r *suiteRow) string {
			if r.Flushes == nil {
				return ""
			}
			return fmt.Sprintf("%.2f", *r.Flushes)
		}},
		{"file", func(r *suiteRow) string { return sizeOf(r.FileBytes) }},
		{"free pages", func(r *suiteRow) string {
			if r.FreePages == nil {
				return ""
			}
			return count(*r.FreePages)
		}},
		{"ratio", func(r *suiteRow) string {
			if r.Ratio == nil {
				return ""
			}
			return fmt.Sprintf("%.2f", *r.Ratio)
		}},
	}
	lines := make([][]string, len(w.Rows)+1)
	for _, column := range all {
		cells := []string{column.title}
		for _, r := range w.Rows {
			cells = append(cells, column.cell(r))
		}
		if !slices.ContainsFunc(cells[1:], func(cell string) bool { return cell != "" }) {
			continue
		}
		for i, cell := range cells {
			lines[i] = append(lines[i], cell)
		}
	}
	var table strings.Builder
	columns(&table, lines...)
	for line := range strings.Lines(table.String()) {
		s.say("%s", strings.TrimRight(line, " \n"))
	}
	s.say("  ratio: %s", w.ratio)
	if !w.steady() {
		s.say("  %s", s.paint(yellow, fmt.Sprintf("The disk changed its pace meanwhile: a flush alone took %s before and %s afterwards. Run this again.",
			nanos(w.FlushBefore), nanos(w.FlushAfter))))
	}
	s.say("")
}

func rateOf(perSecond *float64) string {
	switch {
	case perSecond == nil:
		return ""
	case *perSecond < 10:
		return fmt.Sprintf("%.1f", *perSecond)
	}
	return count(int64(*perSecond + 0.5))
}

func sizeOf[T int64 | float64](bytes *T) string {
	if bytes == nil {
		return ""
	}
	return size(int64(*bytes))
}

// nanos writes a time in nanoseconds for people.
func nanos(ns int64) string {
	switch {
	case ns < 1e3:
		return fmt.Sprintf("%d ns", ns)
	case ns < 1e9:
		return micros(float64(ns) / 1e3)
	}
	return fmt.Sprintf("%.1f s", float64(ns)/1e9)
}
