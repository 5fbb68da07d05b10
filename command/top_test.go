package command_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"holdfast"
	"holdfast/command"
	"holdfast/command/cli"
)

// owner has a database open that is shared in dir, or where the system cannot shows its figures there.
func owner(t *testing.T, path, dir string) *holdfast.DB {
	t.Helper()
	db, err := holdfast.Open(path, 0o600, &holdfast.Options{StatsDir: dir, NoSync: true})
	check(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

// TestTop: the figures of a database that is open are shown, by its file and by the
// process, also by another path, and nothing is opened.
func TestTop(t *testing.T) {
	workdir(t)
	owner(t, "a.db", "figures")
	symlink(t, "a.db", "link.db")
	pid := fmt.Sprint(os.Getpid())
	for _, what := range []string{"a.db", "link.db", pid} {
		out := must(t, "top", what, "--dir", "figures", "--count", "2", "--interval", "10ms")
		lines := strings.Split(out, "\n")
		if len(lines) != 4 || !strings.HasPrefix(strings.TrimSpace(lines[0]), "TIME COMMITS/S") || !strings.HasSuffix(lines[1], "iB") {
			t.Errorf("%s: %q", what, out)
		}
		out = must(t, "top", what, "--dir", "figures", "--count", "3", "--interval", "10ms", "--json")
		d := json.NewDecoder(strings.NewReader(out))
		for range 3 {
			var r struct {
				File  string `json:"file"`
				PID   int    `json:"pid"`
				Size  int64  `json:"size_bytes"`
				Stale bool   `json:"stale"`
			}
			check(t, d.Decode(&r))
			if filepath.Base(r.File) != "a.db" || r.PID != os.Getpid() || r.Size != fileSize(t, "a.db") || r.Stale {
				t.Errorf("%s: %+v", what, r)
			}
		}
	}
	wantIn(t, run(t, "top", "--dir", "figures"), 0, "/a.db\n", "")
	owner(t, "b.db", "figures")
	wantIn(t, run(t, "top", "--dir", "figures"), 0, "/b.db\n", "")
	wantIn(t, run(t, "top", "--dir", "figures", "--json"), 0, `"stale": false`, "")
	wantIn(t, run(t, "top", pid, "--dir", "figures"), 2, "", "has several databases open: name one of ")
}

// TestTopOfRemoved: of a database whose file was removed while its program has it open, or
// lies where only the program sees it, top failed with the bare error of a system call,
// though its figures were there: it looked for the file itself.
func TestTopOfRemoved(t *testing.T) {
	workdir(t)
	owner(t, "a.db", "figures")
	path, err := filepath.EvalSymlinks("a.db")
	check(t, err)
	path, err = filepath.Abs(path)
	check(t, err)
	if err := os.Remove("a.db"); err != nil {
		t.Skip("the system removes no file that is open")
	}
	for _, what := range []string{fmt.Sprint(os.Getpid()), path} {
		out := must(t, "top", what, "--dir", "figures", "--count", "1", "--interval", "10ms", "--json")
		if !strings.Contains(out, fmt.Sprintf(`"pid":%d,`, os.Getpid())) {
			t.Errorf("%s: %s", what, out)
		}
	}
	wantIn(t, run(t, "top", "a.db", "--dir", "figures"), 1, "", "a.db: no such file")
}

// TestTopEnds: when the program closes the database, the view ends.
func TestTopEnds(t *testing.T) {
	workdir(t)
	db := owner(t, "a.db", "figures")
	w := &closing{db: db}
	var errOut strings.Builder
	root := command.NewRootCommand()
	root.SetOut(w)
	root.SetErr(&errOut)
	root.SetArgs([]string{"top", "a.db", "--dir", "figures", "--interval", "10ms", "--json"})
	if code := command.Execute(t.Context(), root); code != 0 || !strings.Contains(errOut.String(), "a.db: closed by its program") || w.lines == 0 {
		t.Errorf("exit code %d, %d lines, %s", code, w.lines, &errOut)
	}
}

// closing is an output that closes the database behind the first line.
type closing struct {
	db    *holdfast.DB
	lines int
}

func (w *closing) Write(p []byte) (int, error) {
	w.lines++
	return len(p), w.db.Close()
}

func TestTopRefuses(t *testing.T) {
	dir := withSample(t)
	for _, name := range []string{"HOLDFAST_SHARE", "HOLDFAST_STATS"} {
		t.Setenv(name, "")
	}
	check(t, os.Mkdir("figures", 0o755))
	check(t, os.WriteFile("figures/other.json", []byte("{}"), 0o600))
	check(t, os.WriteFile("figures/broken.json", []byte("{"), 0o600))
	before := snapshot(t, dir)
	in := func(dir string) string { // as the environment has it
		if runtime.GOOS != "linux" {
			return "HOLDFAST_STATS=" + cli.ShellWord(dir)
		}
		abs, err := filepath.Abs(dir)
		check(t, err)
		return "HOLDFAST_SHARE=" + cli.ShellWord(abs)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"top", "sample.db"}, 1, "sample.db: not shared in " + holdfast.DefaultShareDir() + " by a program that has it open; start that program with HOLDFAST_S"},
		{[]string{"top", "sample.db", "--dir", "figures"}, 1, "sample.db: not shared in figures by a program that has it open; start that program with " + in("figures") + " in its environment"},
		{[]string{"top", "sampel.db", "--dir", "figures"}, 1, "sampel.db: no such file; there is sample.db"},
		{[]string{"top", "1", "--dir", "figures"}, 1, "process 1: shares no database in figures; start it with " + in("figures")},
		{[]string{"top", "--dir", "nowhere"}, 1, "nowhere: no such directory; a program that is started with " + in("nowhere") + " in its environment makes it"},
		{[]string{"top", "1", "--dir", "nowhere"}, 1, "nowhere: no such directory; "},
		{[]string{"top", "sample.db", "--dir", "figures", "--interval", "1ms"}, 2, "--interval is 1ms; give 10ms or more"},
		{[]string{"top", "sample.db", "--dir", "figures", "--count", "-1"}, 2, "--count is -1"},
	} {
		wantIn(t, run(t, c.args...), c.code, "", c.want)
	}
	wantIn(t, run(t, "top", "--dir", "figures"), 0, "no database is shared in figures\n", "")
	if after := snapshot(t, dir); after != before {
		t.Errorf("files changed: before\n%s\nafter\n%s", before, after)
	}
}

// TestTopOfFile: where databases cannot be shared, programs show their figures in files.
func TestTopOfFile(t *testing.T) {
	withSample(t)
	check(t, os.Mkdir("figures", 0o755))
	file, err := holdfast.StatsFile("figures", "sample.db")
	check(t, err)
	check(t, os.WriteFile(file, []byte(`{"Path":"sample.db"}`), 0o600))
	wantIn(t, run(t, "top", "--dir", "figures"), 0, "sample.db  (not heard of for 10s)\n", "")
	wantIn(t, run(t, "top", "sample.db", "--dir", "figures", "--count", "2", "--interval", "10ms"), 0, "", "sample.db: note: not heard of for 10s: its program was killed or stopped")
	wantIn(t, run(t, "top", "sample.db", "--dir", "figures", "--count", "1", "--interval", "10ms", "--json"), 0, `"stale":true,`, "")
	// What another user's program says reaches a terminal as text only.
	check(t, os.WriteFile(file, []byte(`{"Path":"a\u001b[31m.db","Program":"/x/\u0007y","PID":1}`), 0o600))
	wantIn(t, run(t, "top", "--dir", "figures"), 0, "\"\\ay\" ", "")
	wantIn(t, run(t, "top", "--dir", "figures"), 0, " \"a\\x1b[31m.db\"  (not heard of", "")
	check(t, os.WriteFile(file, []byte("no JSON"), 0o600))
	wantIn(t, run(t, "top", "sample.db", "--dir", "figures"), 1, "", "does not hold figures of a database")
}

// TestTopDirectory: where a database is shared is also said by the environment, which can differ by file.
func TestTopDirectory(t *testing.T) {
	dir := workdir(t)
	for _, name := range []string{"HOLDFAST_SHARE", "HOLDFAST_STATS"} {
		t.Setenv(name, "")
	}
	owner(t, "a.db", "figures")
	figures := filepath.Join(dir, "figures")
	top := []string{"top", "a.db", "--count", "1", "--interval", "10ms"}
	for _, c := range []struct {
		share, stats string
		code         int
		errOut       string
	}{
		{figures, "", 0, ""},
		{"off,a.db=" + figures, "", 0, ""},
		{"", "figures", 0, ""},
		{"off", "figures", 0, ""},
		{figures, "elsewhere", 0, ""},
		{"on", "figures", 1, "a.db: not shared in " + holdfast.DefaultShareDir()},
		{"b.db=" + figures, "", 1, "a.db: not shared in " + holdfast.DefaultShareDir()},
		{"figures", "", 2, `HOLDFAST_SHARE is "figures"; it can be "off", "on" or the absolute path of a directory`},
	} {
		t.Setenv("HOLDFAST_SHARE", c.share)
		t.Setenv("HOLDFAST_STATS", c.stats)
		wantIn(t, run(t, top...), c.code, "", c.errOut)
	}
	wantIn(t, run(t, append(top, "--dir", "figures")...), 0, "", "")
}

// TestEnv: a value that a variable cannot have is named, and the exit code tells.
func TestEnv(t *testing.T) {
	t.Setenv("HOLDFAST_SEALS", "off")
	wantIn(t, run(t, "env"), 0, "HOLDFAST_SEALS=off|on  (set to off)\n", "")
	t.Setenv("HOLDFAST_SEALS", "of")
	wantIn(t, run(t, "env"), 1, "HOLDFAST_SEALS=off|on  (set to of, which it cannot be)\n", `HOLDFAST_SEALS is "of"; it can be "off" or "on"`)
	wantIn(t, run(t, "env", "--json"), 1, `"value": "of",`+"\n"+`      "valid": false`, "it can be")
}
