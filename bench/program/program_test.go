package program

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/bench/suite"
)

// childVariable makes this test binary a program with a group that hangs, with
// its files in the directory that the variable names.
const childVariable = "HOLDFAST_PROGRAM_TEST"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childVariable); dir != "" {
		hang := func(c suite.Config) (suite.Table, error) {
			err := os.WriteFile(filepath.Join(c.Dir, "large"), []byte("data"), 0o600)
			fmt.Println("hanging", err)
			select {}
		}
		p := Program{Name: "test", Groups: []suite.Group{{Name: "hang", Run: hang}}}
		os.Args = []string{"test", "-dir", dir}
		p.Main()
	}
	os.Exit(m.Run())
}

func good(c suite.Config) (suite.Table, error) {
	return suite.Table{
		Title: "a table", Columns: []string{"holdfast"},
		Rows:    []suite.Row{{Workload: "work", Unit: "ns", Cells: map[string]suite.Cell{"holdfast": {Median: float64(c.Time)}}}},
		Targets: []suite.Target{{Name: "fast", Wanted: "a lot", Measured: "less"}},
	}, os.WriteFile(filepath.Join(c.Dir, "large"), []byte("data"), 0o600)
}

var errBad = errors.New("does not work")

func bad(suite.Config) (suite.Table, error) { return suite.Table{}, errBad }

func empty(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestTables sees the tables printed and put into a document, and that one group
// that fails does not keep the others from running.
func TestTables(t *testing.T) {
	dir := t.TempDir()
	document := filepath.Join(t.TempDir(), "document")
	text := "head\n<!-- bench good -->\nstale\n<!-- end -->\nmiddle\n<!-- bench targets -->\nstale\n<!-- end -->\ntail\n"
	if err := os.WriteFile(document, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := Program{Name: "test", TargetList: "targets", Groups: []suite.Group{{Name: "bad", Run: bad}, {Name: "good", Run: good}}}
	var out bytes.Buffer
	err := p.run([]string{"-dir", dir, "-time", "5ms", "-update", document}, &out)
	if !errors.Is(err, errBad) {
		t.Errorf("error: %v", err)
	}
	for _, want := range []string{"| work | 5 ms |", "| fast | a lot | less | **NOT met** |"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
	empty(t, dir)
	changed := func() string {
		data, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	if got := changed(); !strings.Contains(got, "| work | 5 ms |") || strings.Count(got, "stale") != 1 {
		t.Errorf("the list of targets is replaced by part of it, or the table is not:\n%s", got)
	}

	// A program that runs one of the groups that have targets took the list of all of
	// them for its own.
	p.Groups, p.TargetList = p.Groups[1:], ""
	if err := p.run([]string{"-dir", dir, "-time", "5ms", "-update", document}, &out); err != nil {
		t.Fatal(err)
	}
	if got := changed(); !strings.Contains(got, "targets -->\nstale\n") {
		t.Errorf("the list of targets is replaced by a program whose it is not:\n%s", got)
	}
	p.TargetList = "targets"
	if err := p.run([]string{"-dir", dir, "-time", "6ms", "-update", document}, &out); err != nil {
		t.Fatal(err)
	}
	got := changed()
	for _, want := range []string{"head\n<!-- bench good -->\n\na table\n", "| work | 6 ms |", "<!-- end -->\nmiddle\n", "NOT met", "<!-- end -->\ntail\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
	if strings.Contains(got, "stale") {
		t.Errorf("a stale table is left:\n%s", got)
	}
}

// TestJSON sees one JSON value with everything, and no table.
func TestJSON(t *testing.T) {
	p := Program{Name: "test", Groups: []suite.Group{{Name: "bad", Run: bad}, {Name: "good", Run: good}}}
	var out bytes.Buffer
	if err := p.run([]string{"-dir", t.TempDir(), "-time", "5ms", "-json"}, &out); !errors.Is(err, errBad) {
		t.Errorf("error: %v", err)
	}
	var r result
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatalf("%v:\n%s", err, out.String())
	}
	if len(r.Groups) != 2 || r.Groups[0].Error != "bad: does not work" || len(r.Targets) != 1 || r.Targets[0].Met {
		t.Fatalf("%+v", r)
	}
	if r.Date == "" || !strings.HasPrefix(r.Command, "test -dir ") || !strings.HasSuffix(r.Command, " -time 5ms -json") {
		t.Errorf("command %q, date %q", r.Command, r.Date)
	}
	if cell := r.Groups[1].Table.Rows[0].Cells["holdfast"]; cell.Median != float64(5*time.Millisecond) {
		t.Errorf("%+v", cell)
	}
}

func TestOptions(t *testing.T) {
	p := Program{Name: "test", Groups: []suite.Group{{Name: "good", Run: good}}, Quick: suite.CommitQuick, Full: suite.CommitFull}
	o, err := p.parse([]string{"-full", "-live", "1,2048", "-writers", "1,32", "-emptied", "3", "-rounds", "9", "good"})
	if err != nil {
		t.Fatal(err)
	}
	c := o.config
	if c.Keys != suite.CommitFull.Keys || len(c.Live) != 2 || c.Live[1] != 2<<30 || len(c.Writers) != 2 || c.Writers[1] != 32 || c.Emptied != 3<<20 || c.Rounds != 9 || len(o.names) != 1 {
		t.Errorf("%+v", o)
	}
	for _, wrong := range [][]string{{"none"}, {"-live", "1,"}, {"-live", "0"}, {"-writers", "0"}} {
		if _, err := p.parse(wrong); err == nil {
			t.Errorf("%q is not an error", wrong)
		}
	}
}

// TestInterrupt sees that nothing is left when the program is interrupted.
func TestInterrupt(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "hanging <nil>" {
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Fatalf("the program's files: %v, %v", left, err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 130 {
		t.Errorf("the program ended with %v", err)
	}
	empty(t, dir)
}
