package command_test

import (
	"encoding/json"
	"strings"
	"testing"

	"holdfast/command"
)

// TestUnflushedIsTold: of a file that could not be flushed before it was read, what a command tells may be gone
// after a power failure. FileState knew, and no command said so.
func TestUnflushedIsTold(t *testing.T) {
	withSample(t)
	const text = "the file could not be flushed before it was read"
	told := func(want bool) {
		t.Helper()
		for _, args := range [][]string{
			{"info", "sample.db"}, {"check", "sample.db"}, {"check", "sample.db", "--quick"}, {"check", "sample.db", "sample.db"},
			{"stats", "sample.db"}, {"stats", "sample.db", "ne"}, {"doctor", "sample.db"}, {"doctor", "sample.db", "sample.db"},
		} {
			r := run(t, args...)
			if r.code != 0 || strings.Contains(r.out+r.errOut, text) != want || strings.Contains(r.out, "First:") {
				t.Errorf("%v, told %v: %s", args, want, r)
			}
			r = run(t, append(args, "--json")...)
			var one struct {
				Unflushed *bool
				Files     []struct{ Unflushed *bool }
			}
			check(t, json.Unmarshal([]byte(r.out), &one))
			for _, f := range one.Files {
				one.Unflushed = f.Unflushed
			}
			if one.Unflushed == nil || *one.Unflushed != want {
				t.Errorf("%v --json, told %v: %s", args, want, r)
			}
		}
	}
	told(false)
	command.CannotFlush(t)
	told(true)
}
