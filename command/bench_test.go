package command_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"holdfast/command"
	"holdfast/internal/vfs"
)

// inTemp makes dir the place of temporary files.
func inTemp(t *testing.T, dir string) {
	t.Helper()
	for _, name := range []string{"TMPDIR", "TMP", "TEMP"} {
		t.Setenv(name, dir)
	}
}

func left(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	check(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestBenchModes runs all modes on several page sizes: what was written is read, and
// nothing is left behind.
func TestBenchModes(t *testing.T) {
	dir := workdir(t)
	for i, write := range []string{"seq", "rnd", "seq-nest", "rnd-nest"} {
		for _, read := range []string{"seq", "rnd"} {
			pageSize := 1024 << (2 * i)
			var r struct {
				Kept        bool
				Write, Read struct{ Operations int64 }
				PageSize    int `json:"page_size_bytes"`
			}
			out := must(t, "bench", "--path", "bench.db", "--count", "300", "--batch-size", "50", "--write-mode", write, "--read-mode", read,
				"--page-size", fmt.Sprint(pageSize), "--value-size", "700", "--time", "0s", "--no-sync", "--json")
			check(t, json.Unmarshal([]byte(out), &r))
			if r.Write.Operations != 300 || r.Read.Operations < 1 || r.Kept || r.PageSize != pageSize {
				t.Errorf("%s %s: %s", write, read, out)
			}
			if strings.HasPrefix(write, "seq") && r.Read.Operations != 300 {
				t.Errorf("%s %s: %d keys were read", write, read, r.Read.Operations)
			}
			if names := left(t, dir); len(names) > 0 {
				t.Errorf("%s %s left %v", write, read, names)
			}
		}
	}
}

// TestBenchOutput: for people and as JSON, with the file that is kept.
func TestBenchOutput(t *testing.T) {
	here, err := os.Getwd()
	check(t, err)
	dir := workdir(t)
	args := []string{"bench", "--path", "bench.db", "--time", "0s", "--count", "10", "--work"}
	out := must(t, args...)
	want := regexp.MustCompile(`^Written  10 keys in \S+ \S+: \S+ \S+ each, \S+ a second; in 1 transaction, flushed
Read     10 keys in \S+ \S+: \S+ \S+ each, \S+ a second
The database is in bench.db
$`)
	if !want.MatchString(out) {
		t.Errorf("got %s", out)
	}
	if n := must(t, "keys", "bench.db", "bench", "--format", "hex"); strings.Count(n, "\n") != 10 || !strings.HasPrefix(n, "0000000100000000\n") {
		t.Errorf("the keys are %s", n)
	}
	check(t, os.Remove("bench.db"))
	golden(t, here, "bench.json.golden", zero(must(t, append(args, "--json")...)))
	if names := left(t, dir); len(names) != 1 {
		t.Errorf("there are %v", names)
	}
}

// TestBenchTemporary: without --path the file is a temporary one, which is removed.
func TestBenchTemporary(t *testing.T) {
	dir := workdir(t)
	inTemp(t, dir)
	var r struct{ File string }
	check(t, json.Unmarshal([]byte(must(t, "bench", "--time", "0s", "--json")), &r))
	if r.File == "" {
		t.Error("no file is named")
	}
	if _, err := os.Stat(r.File); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", r.File, err)
	}
	if names := left(t, dir); len(names) > 0 {
		t.Errorf("left %v", names)
	}
}

// TestBenchStock: the lines that scripts for bbolt read.
func TestBenchStock(t *testing.T) {
	workdir(t)
	r := execute(command.NewBboltCommand(), "", "bench", "--path", "bench.db", "--count", "20", "--batch-size", "10", "--work")
	want := regexp.MustCompile(`^# Write\t20\(ops\)\t\S+\t\(\S+/op\)\t\(\d+ op/sec\)
# Read\t\d+\(ops\)\t\S+\t\(\S+/op\)\t\(\d+ op/sec\)

$`)
	if r.code != 0 || !want.MatchString(r.out) {
		t.Errorf("got %s", r)
	}
	started := "work: bench.db\nstarting write benchmark.\nStarting write iteration 0\nFinished write iteration 0\n" +
		"Starting write iteration 10\nFinished write iteration 10\nstarting read benchmark.\n"
	if !strings.HasPrefix(r.errOut, started) || strings.Contains(r.errOut, "iter mismatch") {
		t.Errorf("got %s", r)
	}
	check(t, os.Remove("bench.db"))
	r = execute(command.NewRootCommand(), "", "bench", "--path", "bench.db", "--time", "0s", "--gobench-output")
	want = regexp.MustCompile(`^BenchmarkWrite\t    1000\t {1,10}[\d.]+ ns/op\nBenchmarkRead \t    1000\t {1,10}[\d.]+ ns/op\n\n$`)
	if r.code != 0 || r.errOut != "" || !want.MatchString(r.out) {
		t.Errorf("got %s", r)
	}
}

// TestBenchProfiles: profiles are written, those that were there replaced, and nothing
// else is left.
func TestBenchProfiles(t *testing.T) {
	dir := workdir(t)
	for _, mode := range []string{"rw", "r", "w", "n"} {
		check(t, os.WriteFile("cpu", []byte("old"), 0o600))
		must(t, "bench", "--path", "bench.db", "--time", "0s", "--profile-mode", mode, "--cpuprofile", "cpu", "--memprofile", "mem", "--blockprofile", "block")
		for _, name := range []string{"cpu", "mem", "block"} {
			data, err := os.ReadFile(name)
			check(t, err)
			if gzipped := len(data) > 2 && data[0] == 0x1f && data[1] == 0x8b; gzipped != (mode != "n") {
				t.Errorf("%s of mode %s: %d bytes", name, mode, len(data))
			}
			check(t, os.Remove(name))
		}
		if names := left(t, dir); len(names) > 0 {
			t.Errorf("left %v", names)
		}
	}
}

// TestBenchLocked: an empty file that another program has open, which may be about to make a
// database of it, stays.
func TestBenchLocked(t *testing.T) {
	dir := workdir(t)
	check(t, os.WriteFile("new.db", nil, 0o600))
	file, err := vfs.OpenOS("new.db", os.O_RDWR, 0, nil)
	check(t, err)
	defer file.Close()
	check(t, file.Lock(true, 0))
	wantIn(t, run(t, "bench", "--path", "new.db", "--time", "0s", "--timeout", "50ms"), 1, "", "new.db: locked by another process")
	if names := left(t, dir); len(names) != 1 {
		t.Errorf("there are %v", names)
	}
}

// TestBenchLink: of a link to an empty file, the file is removed in which the database was made.
func TestBenchLink(t *testing.T) {
	workdir(t)
	check(t, os.WriteFile("new.db", nil, 0o600))
	symlink(t, "new.db", "link")
	must(t, "bench", "--path", "link", "--time", "0s")
	if _, err := os.Stat("new.db"); !os.IsNotExist(err) {
		t.Errorf("the database is still there: %v", err)
	}
}

// TestBenchRefuses: flags that make no sense, and files that are there, which stay.
func TestBenchRefuses(t *testing.T) {
	dir := withSample(t)
	check(t, os.Mkdir("dir", 0o700))
	before := snapshot(t, dir)
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"--path sample.db", 1, "holdfast: sample.db: exists already, and the file is removed in the end"},
		{"--path sample.db --work", 1, "exists already"},
		{"--path dir", 1, "dir: is not a regular file"},
		{"--path gone/bench.db", 1, "the directory gone does not exist"},
		{"--cpuprofile gone/cpu", 1, "the directory gone does not exist"},
		{"--cpuprofile dir", 1, "dir: is not a regular file"},
		{"--count 0", 2, "--count: 0 is outside"},
		{"--count 4294967296", 2, "--count: 4294967296 is outside"},
		{"--batch-size -1", 2, "--batch-size is -1"},
		{"--batch-size 3", 2, "not a multiple of --batch-size"},
		{"--write-mode seq-del", 2, "there is no such write mode; there are "},
		{"--read-mode odd", 2, `there is no "odd"`},
		{"--profile-mode odd", 2, `there is no "odd"`},
		{"--key-size 3", 2, "--key-size: 3 is outside of 4 to 32768"},
		{"--key-size 32769", 2, "--key-size: 32769 is outside"},
		{"--value-size 2147483647", 2, "--value-size: 2147483647 is outside"},
		{"--value-size -1", 2, "--value-size -1: negative: give 0, or more"},
		{"--page-size 1000", 2, "--page-size: 1000 is not a power of two"},
		{"--page-size 256", 2, "--page-size: 256"},
		{"--page-size 512", 2, "--page-size: 512 is not a power of two from 1024"},
		{"--fill-percent NaN", 2, "--fill-percent is not a number"},
		{"--initial-mmap-size -1", 2, "--initial-mmap-size -1: negative: give 0, or more"},
		{"--time -1s", 2, "--time -1s: negative: give 0, or more"},
		{"--gobench-output --json", 2, "exclude each other"},
		{"extra", 2, "unexpected argument \"extra\""},
	} {
		wantIn(t, run(t, append([]string{"bench"}, strings.Fields(c.args)...)...), c.code, "", c.want)
	}
	if after := snapshot(t, dir); after != before {
		t.Errorf("files changed: before\n%s\nafter\n%s", before, after)
	}
	for args, want := range map[string]error{
		"bench --batch-size 3":   command.ErrBatchNonDivisibleBatchSize,
		"bench --write-mode odd": command.ErrBatchInvalidWriteMode,
	} {
		root := command.NewBboltCommand()
		root.SilenceErrors, root.SilenceUsage = true, true
		root.SetArgs(strings.Fields(args))
		if err := root.Execute(); err != want {
			t.Errorf("%s: %v", args, err)
		}
	}
}

// TestBenchInterrupted: when the command is ended its file is removed, and kept with
// --work.
func TestBenchInterrupted(t *testing.T) {
	dir := workdir(t)
	for work, want := range map[string]string{"--work=false": "the file was removed", "--work": "the file is still there"} {
		ctx, cancel := contextDone(t)
		defer cancel()
		root := newRoot()
		var errOut strings.Builder
		root.SetErr(&errOut)
		root.SetArgs([]string{"bench", "--path", filepath.Join(dir, "bench.db"), "--count", "100000", "--no-sync", work})
		if code := command.Execute(ctx, root); code != command.ExitInterrupted || !strings.Contains(errOut.String(), "bench.db: interrupted, "+want) {
			t.Errorf("exit code %d, %s", code, errOut.String())
		}
		if names := left(t, dir); (len(names) == 1) != (work == "--work") {
			t.Errorf("%s left %v", work, names)
		}
		_ = os.Remove("bench.db")
	}
}

// An empty file, as mktemp makes them, is taken, and removed with what was written to it.
func TestBenchEmptyFile(t *testing.T) {
	dir := workdir(t)
	check(t, os.WriteFile("empty.db", nil, 0o600))
	must(t, "bench", "--path", "empty.db", "--time", "0s")
	if names := left(t, dir); len(names) > 0 {
		t.Errorf("left %v", names)
	}
}
