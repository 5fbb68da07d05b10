package command_test

import (
	"os"
	"runtime"
	"strings"
	"testing"

	"holdfast"
	"holdfast/command"
)

// completed is what the shell is offered after these words: names, and whether files
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

// TestCompletion: after a file come the names of its buckets, and of those in them.
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
		{[]string{"keys", "sample.db", ""}, `\x00\x01\xfe\xff alpha many nested`, false},
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

// Of a name with a slash or a backslash in it, and of one that is not text, nothing was offered once it was begun as it
// stands in a path: names were looked for from that text on, and cut at the slash within.
func TestCompletionOfWrittenNames(t *testing.T) {
	withSample(t)
	for _, path := range []string{`a\/b/in`, `back\\slash/in`, `\xff\x00/in`, "plain/in"} {
		must(t, "put", "paths.db", path, "k", "v", "--create")
		name := strings.TrimSuffix(path, "/in")
		for cut := 1; cut <= len(name); cut++ {
			if names, _ := completed(t, "keys", "paths.db", name[:cut]); strings.Join(names, " ") != name {
				t.Errorf("after %s: %q, want %s", name[:cut], names, name)
			}
		}
		if names, _ := completed(t, "keys", "paths.db", name+"/"); strings.Join(names, " ") != path {
			t.Errorf("after %s/: %q, want %s", name, names, path)
		}
	}
	if names, _ := completed(t, "keys", "paths.db", "nested/i"); len(names) != 0 {
		t.Errorf("%q", names)
	}
	if names, _ := completed(t, "get", "sample.db", "nested/i"); strings.Join(names, " ") != "nested/inner" {
		t.Errorf("%q", names)
	}
	// The drop-in's command takes names as they stand.
	for begun, want := range map[string]string{"": `a/b back\slash plain`, "a/": "a/b", `back\`: `back\slash`} {
		out := execute(command.NewBboltCommand(), "", "__complete", "keys", "paths.db", begun).out
		if names, _, _ := strings.Cut(out, ":"); strings.Join(strings.Fields(names), " ") != want {
			t.Errorf("bbolt, after %s: %q, want %s", begun, names, want)
		}
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

// TestEnvMisspelt: a variable that nothing reads, but that looks like one that is read, is noted.
func TestEnvMisspelt(t *testing.T) {
	workdir(t)
	t.Setenv("HOLDFAST_SEAL", "off")
	if runtime.GOOS != "windows" { // where it is the right one
		t.Setenv("holdfast_seals", "off")
	}
	t.Setenv("HOLDFAST_OF_ANOTHER_PROGRAM", "1")
	r := run(t, "env")
	wantIn(t, r, 0, "HOLDFAST_SEALS=off|on  (not set)", "holdfast: note: HOLDFAST_SEAL is set, which nothing reads; similar: HOLDFAST_SEALS\n")
	if runtime.GOOS != "windows" {
		wantIn(t, r, 0, "", "note: holdfast_seals is set, which nothing reads; similar: HOLDFAST_SEALS\n")
	}
	if strings.Contains(r.errOut, "ANOTHER") {
		t.Errorf("got %s", r.errOut)
	}
}
