package command_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"holdfast"
)

// TestSharedCommands: commands look at a database that a program has open and shares, and say so once. doctor failed since
// only the program can ask vacuum what it would do, inspect said it twice, and info gave 0 as bbolt's number.
func TestSharedCommands(t *testing.T) {
	withSample(t)
	t.Setenv("HOLDFAST_SHARE", t.TempDir())
	db, err := holdfast.Open("sample.db", 0o600, nil)
	check(t, err)
	defer db.Close()
	for _, c := range []struct{ args, want string }{
		{"doctor sample.db", fmt.Sprintf("Open        in process %d", os.Getpid())},
		{"doctor sample.db --json", `"in_use_by": `},
		{"inspect sample.db", "alpha"},
		{"info sample.db", "Transaction  6\n"},
		{"check sample.db", "sample.db: sound"},
		{"pages --map sample.db", "meta pages"},
	} {
		r := run(t, strings.Fields(c.args)...)
		if r.code != 0 || !strings.Contains(r.out, c.want) || strings.Count(r.errOut, "note: read through process") != 1 {
			t.Errorf("%s: %s", c.args, r)
		}
		if strings.Contains(r.out, "First:") {
			t.Errorf("%s warns of a crash: %s", c.args, r)
		}
	}
	wantIn(t, run(t, "compact", "-o", "backup.db", "sample.db"), 0, "sample.db -> backup.db", "")
	wantIn(t, run(t, "diff", "sample.db", "backup.db"), 0, "sample.db and backup.db hold the same", "")
}
