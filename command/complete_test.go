package command_test

import (
	"os"
	"runtime"
	"strings"
	"testing"

	"holdfast"
)

// completed is what the shell is offered behind these words: names, and whether files
// are offered too.
func completed(t *testing.T, args ...string) (names []string, files bool) {
	t.Helper()
	out := run(t, append([]string{"__complete"}, args...)...).out
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	switch last := lines[len(lines)-1]; last {
	case ":0":
		files = true
	case ":4":
	default:
		t.Errorf("%q: directive %s", args, last)
	}
	return lines[:len(lines)-1], files
}

// TestCompletion: behind a file come the names of its buckets, and of those in them.
func TestCompletion(t *testing.T) {
	dir := withSample(t)
	before := snapshot(t, dir)
	for _, c := range []struct {
		args  []string
		want  string
		files bool
	}{
		{[]string{"keys", ""}, "", true},
		{[]string{"info", ""}, "", true},
		{[]string{"keys", "sample.db", ""}, "alpha many nested", false},
		{[]string{"keys", "sample.db", "ne"}, "nested", false},
		{[]string{"keys", "sample.db", "x"}, "", false},
		{[]string{"get", "sample.db", "nested", ""}, "inner", false},
		{[]string{"put", "sample.db", "nested", "inner", ""}, "deep", false},
		{[]string{"delete", "sample.db", "--bucket-format", "hex", "00"}, "0001feff", false},
		{[]string{"keys", "sample.db", "nothing", ""}, "", false},
		{[]string{"keys", "nothing.db", ""}, "", false},
		{[]string{"keys", "sample.db", "", ""}, "", false},
		{[]string{"keys", "sample.db", "-f", ""}, "auto ascii-encoded hex bytes redacted", false},
		{[]string{"import", "--key-format", "h"}, "hex", false},
		{[]string{"pages", "sample.db", "--type", "fr"}, "freelist free", false},
		{[]string{"pages", "sample.db", "--type", "leaf,b"}, "leaf,branch", false},
	} {
		names, files := completed(t, c.args...)
		if got := strings.Join(names, " "); got != c.want || files != c.files {
			t.Errorf("%q: %q, files %v; want %q, %v", c.args, got, files, c.want, c.files)
		}
	}
	if after := snapshot(t, dir); after != before {
		t.Errorf("files changed: before\n%s\nafter\n%s", before, after)
	}
}

// A file that somebody writes cannot be looked into; the shell is not kept waiting for it.
func TestCompletionOfLockedFile(t *testing.T) {
	withSample(t)
	db, err := holdfast.Open("sample.db", 0o600, nil)
	check(t, err)
	defer db.Close()
	if names, files := completed(t, "keys", "sample.db", ""); len(names) != 0 || files {
		t.Errorf("%q, files %v", names, files)
	}
	check(t, os.WriteFile("text", []byte("no database"), 0o600))
	if names, _ := completed(t, "keys", "text", ""); len(names) != 0 {
		t.Errorf("%q", names)
	}
}

// TestCompletionShells: there is a script for each shell, and the shells are named to whom wants another.
func TestCompletionShells(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		long, short := must(t, "completion", shell), must(t, "completion", shell, "--no-descriptions")
		if !strings.Contains(long, "holdfast") || !strings.Contains(short, "__completeNoDesc") || strings.Contains(long, "__completeNoDesc") {
			t.Errorf("%s: %.200s", shell, long)
		}
	}
	wantIn(t, run(t, "completion", "tcsh"), 2, "", "holdfast: there is no completion for the shell \"tcsh\"; there is for bash, fish, powershell, zsh\n")
	wantIn(t, run(t, "completion"), 0, "Available Commands:", "")
	wantIn(t, execute(rootNamed("bbolt"), "", "completion", "tcsh"), 2, "", "there is for bash, ")
}

// TestEnvMisspelt: a variable that nobody reads, but that looks like one that is read, is noted.
func TestEnvMisspelt(t *testing.T) {
	workdir(t)
	t.Setenv("HOLDFAST_SEAL", "off")
	if runtime.GOOS != "windows" { // where it is the right one
		t.Setenv("holdfast_seals", "off")
	}
	t.Setenv("HOLDFAST_OF_ANOTHER_PROGRAM", "1")
	r := run(t, "env")
	wantIn(t, r, 0, "HOLDFAST_SEALS=off|on  (not set)", "holdfast: note: HOLDFAST_SEAL is set, which nobody reads; similar: HOLDFAST_SEALS\n")
	if runtime.GOOS != "windows" {
		wantIn(t, r, 0, "", "note: holdfast_seals is set, which nobody reads; similar: HOLDFAST_SEALS\n")
	}
	if strings.Contains(r.errOut, "ANOTHER") {
		t.Errorf("got %s", r.errOut)
	}
}
