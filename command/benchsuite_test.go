package command_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"holdfast"
	"holdfast/command"
)

// suiteRun is what the JSON of bench run says.
type suiteRun struct {
	Dir       string
	Room      int64 `json:"room_bytes"`
	Kept      bool
	Workloads []struct {
		Name string
		Rows []suiteRow
	}
}

type suiteRow struct {
	Name       string
	Operations int64
	P50        int64    `json:"p50_ns"`
	P99        int64    `json:"p99_ns"`
	Max        int64    `json:"max_ns"`
	Written    *float64 `json:"written_bytes_per_operation"`
	File       *int64   `json:"file_bytes"`
	Free       *int64   `json:"free_pages"`
	Ratio      *float64
	RatioOf    string `json:"ratio_of"`
	RatioTo    string `json:"ratio_to"`
}

// withoutSettings unsets the variables that Holdfast reads.
func withoutSettings(t *testing.T) {
	t.Helper()
	for _, v := range holdfast.Environment() {
		t.Setenv(v.Name, "")
	}
}

// jsonValues are the values in JSON that differ from run to run; names stay.
var jsonValues = regexp.MustCompile(`(": )(-?\d[\d.e+-]*)`)

const suiteCount = 5 // of --count below

// TestBenchRun runs all workloads with a few operations each: the report has its shape, and
// the files have what was put there.
func TestBenchRun(t *testing.T) {
	here, err := os.Getwd()
	check(t, err)
	withoutSettings(t)
	dir := workdir(t)
	out := must(t, "bench", "run", "--count", fmt.Sprint(suiteCount), "--size", "1MiB", "--dir", dir, "--keep", "--json")
	var r suiteRun
	check(t, json.Unmarshal([]byte(out), &r))
	for _, v := range []string{r.Dir, runtime.GOOS, runtime.GOARCH} {
		out = strings.ReplaceAll(out, string(mustJSON(t, v)), `"..."`)
	}
	out = regexp.MustCompile(`"version": ".*"`).ReplaceAllString(out, `"version": "..."`)
	out = strings.Replace(out, `"in_memory": true`, `"in_memory": false`, 1)
	golden(t, here, "bench-run.json.golden", jsonValues.ReplaceAllString(out, "${1}0"))

	rows := map[string]suiteRow{}
	for _, w := range r.Workloads {
		for _, row := range w.Rows {
			rows[w.Name+" "+row.Name] = row
			sawRow(t, w.Name, row)
			if row.Ratio != nil && !slices.ContainsFunc(w.Rows, func(other suiteRow) bool { return other.Name == row.RatioTo }) {
				t.Errorf("%s %s: a ratio to %q", w.Name, row.Name, row.RatioTo)
			}
		}
	}
	if aged := rows["aged aged"]; *aged.Free < 10**rows["aged young"].Free || *aged.File <= 0 {
		t.Errorf("the aged file has %d free pages", *aged.Free)
	}
	for _, name := range []string{"young", "aged_eighth", "aged"} { // which does not depend on time
		if w := *rows["aged "+name].Written; w < 8<<10 || w > 64<<10 {
			t.Errorf("a commit on the %s file wrote %g bytes", name, w)
		}
	}
	if before, after := rows["vacuum commits_before"], rows["vacuum vacuum"]; *after.Free >= *before.Free {
		t.Errorf("the vacuum left %d free pages of %d", *after.Free, *before.Free)
	}
	sawFiles(t, r)
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	check(t, err)
	return data
}

// sawRow sees that a row says what was done.
func sawRow(t *testing.T, workload string, row suiteRow) {
	t.Helper()
	name := workload + " " + row.Name
	switch name {
	case "vacuum vacuum":
		if row.Operations != 1 {
			t.Errorf("%s: done %d times", name, row.Operations)
		}
	case "vacuum commits_beside", "readers commits_beside_views": // as many as there was time for
		if row.Operations < 1 {
			t.Errorf("%s: nothing was done", name)
		}
	default:
		if row.Operations != suiteCount {
			t.Errorf("%s: done %d times", name, row.Operations)
		}
	}
	coarse := runtime.GOOS == "windows" && row.P50 == 0 // a tick of its clock takes longer
	if row.P50 <= 0 && !coarse || row.P99 < row.P50 || row.Max < row.P99 {
		t.Errorf("%s: p50 %d, p99 %d, longest %d", name, row.P50, row.P99, row.Max)
	}
	if coarse {
		return
	}
	without := []string{"vacuum vacuum", "readers views_alone", "readers commits_alone"}
	if (row.Ratio == nil) != slices.Contains(without, name) || row.Ratio != nil && *row.Ratio <= 0 {
		t.Errorf("%s: the ratio is %v", name, row.Ratio)
	}
}

// sawFiles sees that the files of TestBenchRun are sound and have what was put there, and
// that they are no larger than was announced.
func sawFiles(t *testing.T, r suiteRun) {
	t.Helper()
	type content struct {
		commits uint64 // of keys in bucket small, or with a vacuum in bucket big
		keys    int    // in bucket big; -1: no such bucket
	}
	const values, stay, thinned = 1 << 20 / 900, (1<<20/900 + 9) / 10, (1<<20/4/900 + 4) / 5
	want := map[string]content{
		"aged-young.db": {suiteCount, stay}, "aged-aged.db": {suiteCount, stay}, "open-young.db": {suiteCount, stay}, "open-aged.db": {suiteCount, stay},
		"aged-aged_eighth.db": {suiteCount, (1<<20/8/900 + 9) / 10},
		"commit-update.db":    {4 * suiteCount, -1}, "commit-batch.db": {2 * suiteCount, -1}, "commit-strict.db": {4 * suiteCount, -1},
		"commit-periodic.db": {4 * suiteCount, -1}, "commit-none.db": {4 * suiteCount, -1},
		"import-in_order.db": {0, suiteCount * 1000}, "import-in_order_durable.db": {0, suiteCount * 1000},
		"import-random.db": {0, suiteCount * 1000}, "scan.db": {0, 1 << 20 / 100}, "readers.db": {0, values},
		"vacuum.db": {0, thinned}, "large.db": {0, -1},
	}
	total := int64(0)
	for _, name := range left(t, r.Dir) {
		path := filepath.Join(r.Dir, name)
		info, err := os.Stat(path)
		check(t, err)
		total += info.Size()
		w, known := want[name]
		if !known {
			t.Errorf("there is %s", name)
			continue
		}
		delete(want, name)
		must(t, "check", path)
		commits, keys := contentOf(t, path)
		if keys != w.keys || w.commits > 0 && commits != w.commits {
			t.Errorf("%s has %d commits and %d keys, want %+v", name, commits, keys, w)
		}
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
	if total > r.Room {
		t.Errorf("the files take %d bytes, and %d were announced", total, r.Room)
	}
}

func contentOf(t *testing.T, path string) (commits uint64, keys int) {
	t.Helper()
	db, err := holdfast.Open(path, 0o600, &holdfast.Options{ReadOnly: true})
	check(t, err)
	defer db.Close()
	keys = -1
	check(t, db.View(func(tx *holdfast.Tx) error {
		if b := tx.Bucket([]byte("small")); b != nil {
			commits = b.Sequence()
		}
		if b := tx.Bucket([]byte("big")); b != nil {
			keys = 0
			for range b.All() {
				keys++
			}
		}
		return nil
	}))
	return commits, keys
}

// TestBenchRunOutput: for people, with what is going to be done first, and no file left.
func TestBenchRunOutput(t *testing.T) {
	withoutSettings(t)
	dir := withSample(t)
	before := snapshot(t, dir)
	out := must(t, "bench", "run", "aged", "scan", "aged", "--count", "3", "--size", "1MiB", "--dir", ".")
	for _, want := range []string{
		"Writes up to 98 MiB in holdfast-bench-", ", which is removed at the end; 2 workloads, each of which measures 3 operations of each kind.\n",
		"To write a page here and flush it takes ",
		"\n\naged: one-key commits on a young file and on files with many free pages (",
		"  done  a second  p50 ", "  flushes each  file ", "\n  young file ", "  1.00\n",
		"\n  ratio: median of a commit, to that on the young file\n", "\n\nscan: ", "  keys a second  p50 ", "\n  cursor, backward ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if strings.Count(out, "\naged: ") != 1 {
		t.Errorf("aged was not run once:\n%s", out)
	}
	if after := snapshot(t, dir); after != before {
		t.Errorf("files changed: before\n%s\nafter\n%s", before, after)
	}
	out = must(t, "bench", "run", "scan", "--quick", "--time", "1ns", "--dir", dir) // each once at least
	if want := "Writes up to 102 MiB in "; !strings.Contains(out, want) || !strings.Contains(out, "; the workload measures for 1ns.") || !strings.Contains(out, "  ForEach ") {
		t.Errorf("got %s", out)
	}
	t.Setenv("HOLDFAST_SEALS", "off")
	out = must(t, "bench", "run", "scan", "--count", "1", "--size", "1MiB", "--dir", dir)
	if want := "\nThe environment sets HOLDFAST_SEALS=off, and the figures are with that.\n"; !strings.Contains(out, want) {
		t.Errorf("no %q in\n%s", want, out)
	}
}

// TestBenchRunList: all workloads, and the help names the same ones.
func TestBenchRunList(t *testing.T) {
	withoutSettings(t)
	dir := workdir(t)
	list := must(t, "bench", "run", "--list")
	if n := strings.Count(list, "\n"); n != 8 {
		t.Errorf("%d workloads:\n%s", n, list)
	}
	help := must(t, "bench", "run", "--help")
	for line := range strings.Lines(list) {
		if !strings.Contains(help, line) {
			t.Errorf("no %q in\n%s", line, help)
		}
	}
	var r struct {
		Workloads []struct{ Name, About, Ratio string }
	}
	check(t, json.Unmarshal([]byte(must(t, "bench", "run", "--list", "--json")), &r))
	for i, line := range slices.Collect(strings.Lines(list)) {
		if w := r.Workloads[i]; w.Ratio == "" || !strings.HasPrefix(line, w.Name+" ") || !strings.HasSuffix(line, "  "+w.About+"\n") {
			t.Errorf("%q is %+v", line, w)
		}
	}
	wantIn(t, run(t, "__complete", "bench", "run", "va"), 0, "vacuum\n", "")
	wantFiles(t, dir, "")
}

// TestBenchRunRefuses: command lines that make no sense, places that are none, and an
// environment with which the figures would lie.
func TestBenchRunRefuses(t *testing.T) {
	withoutSettings(t)
	dir := withSample(t)
	before := snapshot(t, dir)
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"agd", 2, `there is no workload "agd"; did you mean aged?`},
		{"scan comit", 2, `there is no workload "comit"; did you mean commit?`},
		{"x12345", 2, `there is no workload "x12345"; there are aged, commit, readers, `},
		{"--size lots", 2, "--size lots: not a size"},
		{"--size 1kB", 2, "--size 1kB: outside of 1MiB to 1TiB"},
		{"--time 0s", 2, "--time is 0s"},
		{"--count -1", 2, "--count: -1 is outside of 0 to"},
		{"--count 2 --time 1s", 2, "--time and --count exclude each other"},
		{"--path x.db", 2, "unknown flag --path"},
		{"--dir gone", 1, "gone: there is no such directory; make it first"},
		{"--dir sample.db", 1, "sample.db: is not a directory"},
	} {
		args := append([]string{"bench", "run"}, strings.Fields(c.args)...)
		if !strings.Contains(c.args, "--dir") {
			args = append(args, "--dir", ".")
		}
		wantIn(t, run(t, args...), c.code, "", c.want)
	}
	if runtime.GOOS == "linux" {
		wantIn(t, run(t, "bench", "run", "--size", "1TiB", "--dir", "."), 1, "", "and up to 5.0 TiB are written; give another place with --dir, or a smaller --size")
	}
	for _, set := range []string{"HOLDFAST_DURABILITY=none", "HOLDFAST_DURABLE_BASE=on", "HOLDFAST_STRICT_COMPAT=on", "HOLDFAST_AUTO_VACUUM=on"} {
		name, value, _ := strings.Cut(set, "=")
		t.Setenv(name, value)
		wantIn(t, run(t, "bench", "run", "--dir", "."), 1, "", "the environment variable "+name+" is set, so that")
		t.Setenv(name, "")
	}
	if after := snapshot(t, dir); after != before {
		t.Errorf("files changed: before\n%s\nafter\n%s", before, after)
	}
	r := execute(command.NewBboltCommand(), "", "bench", "run") // which bbolt does not have
	wantIn(t, r, 2, "", `unknown command "run"`)
}

// whenSays calls do once what is written has a text in it.
type whenSays struct {
	text string
	do   func()
	out  strings.Builder
}

func (w *whenSays) Write(b []byte) (int, error) {
	n, err := w.out.Write(b)
	if w.do != nil && strings.Contains(w.out.String(), w.text) {
		w.do()
		w.do = nil
	}
	return n, err
}

// TestBenchRunInterrupted: at any moment no file is left, unless it is to be kept.
func TestBenchRunInterrupted(t *testing.T) {
	withoutSettings(t)
	for _, when := range []string{"Writes up to", "To write a page", "\naged: ", "\ncommit: ", "\nreaders: ", "\nscan: ", "\nimport: ", "\nlarge: ", "\nopen: "} {
		for keep, want := range map[string]string{"--keep=false": "interrupted, the files were removed", "--keep": "interrupted, the files are still there"} {
			dir := workdir(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			root := newRoot()
			var errOut strings.Builder
			root.SetOut(&whenSays{text: when, do: cancel})
			root.SetErr(&errOut)
			root.SetArgs([]string{"bench", "run", "--dir", dir, "--count", "2", "--size", "1MiB", keep})
			if code := command.Execute(ctx, root); code != command.ExitInterrupted || !strings.Contains(errOut.String(), want) {
				t.Errorf("%q %s: exit code %d, %s", when, keep, code, &errOut)
			}
			if names := left(t, dir); (len(names) == 1) != (keep == "--keep") {
				t.Errorf("%q %s left %v", when, keep, names)
			}
		}
	}
}
