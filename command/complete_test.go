package command_test

import (
	"os"
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
