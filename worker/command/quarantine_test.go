package command_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/worker/command"
)

// TestQuarantine: an older metadata.db was put back, and the next command of any kind deleted all that was
// younger, without a word. It is kept, shown by df, doctor and ls --quarantined, and goes when that is
// said.
func TestQuarantine(t *testing.T) {
	work(t)
	must(t, "import", "files.tar", "tiny")
	metadata := filepath.Join("store", "metadata.db")
	older, err := os.ReadFile(metadata)
	if err != nil {
		t.Fatal(err)
	}
	files(t, "more.tar", map[string]string{"bin/hello": "more"})
	must(t, "import", "more.tar", "more")
	newer, err := os.ReadFile(metadata)
	if err != nil {
		t.Fatal(err)
	}
	put := func(b []byte) {
		t.Helper()
		if err := os.WriteFile(metadata, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(older)
	if r := run(t, "", "df"); r.code != 0 || strings.Count(r.errOut, "\n") != 1 || !strings.Contains(r.errOut, "in quarantine now") {
		t.Errorf("%+v", r)
	}
	want(t, must(t, "snapshot", "ls", "--quarantined"), `
ID  SIZE  FILES  CHANGED  DIRECTORY
3  SIZE  5  AGO  DIR/store/quarantine/3
4  SIZE  1  AGO  DIR/store/quarantine/4
`)
	if out := must(t, "df"); !strings.Contains(out, "in 2 directories: 3, 4; holdfastd snapshot ls --quarantined") {
		t.Errorf("df: %s", out)
	}
	var r struct {
		Quarantine []int `json:"quarantine"`
		Bytes      int64 `json:"quarantine_bytes"`
		Trash      int64 `json:"trash"`
	}
	if err := json.Unmarshal([]byte(must(t, "df", "--json")), &r); err != nil || len(r.Quarantine) != 2 || r.Bytes == 0 || r.Trash != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if out := must(t, "doctor"); !strings.Contains(out, "quarantine") || !strings.Contains(out, "put the right metadata.db back") {
		t.Errorf("doctor: %s", out)
	}
	must(t, "prune", "--all")
	if out := must(t, "snapshot", "ls", "--quarantined", "--json"); !strings.Contains(out, `"id":4`) && !strings.Contains(out, `"id": 4`) {
		t.Errorf("after prune: %s", out)
	}

	put(newer)
	if out := must(t, "snapshot", "ls"); !strings.Contains(out, "more") {
		t.Errorf("with the right metadata: %s", out)
	}
	want(t, must(t, "snapshot", "ls", "--quarantined"), "nothing is in quarantine\n")

	put(older)
	run(t, "", "df") // with the warning
	if r := run(t, "", "snapshot", "rm", "--quarantined", "x"); r.code != command.ExitUsage {
		t.Errorf("%+v", r)
	}
	if r := run(t, "", "snapshot", "rm", "--quarantined", "99"); r.code != command.ExitFailed || !strings.Contains(r.errOut, "holdfastd snapshot ls --quarantined lists what is there") {
		t.Errorf("%+v", r)
	}
	want(t, must(t, "snapshot", "rm", "--quarantined", "3"), "removed 3 from quarantine\n")
	want(t, must(t, "snapshot", "rm", "--quarantined", "all"), "removed 4 from quarantine\n")
	want(t, must(t, "snapshot", "ls", "--quarantined"), "nothing is in quarantine\n")
}

// TestMissing: an older metadata.db was put back, which names what was removed since. An import of it said
// that nothing was to be done, and each step on it failed with an error of the driver's; doctor said that
// all was well.
func TestMissing(t *testing.T) {
	work(t)
	must(t, "import", "files.tar", "tiny")
	metadata := filepath.Join("store", "metadata.db")
	older, err := os.ReadFile(metadata)
	if err != nil {
		t.Fatal(err)
	}
	must(t, "snapshot", "rm", "tiny")
	must(t, "prune", "--all")
	if err := os.WriteFile(metadata, older, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"import", "files.tar", "tiny"}, {"import", "files.tar", "tiny", "--repair"}} {
		if r := run(t, "", args...); r.code != command.ExitFailed {
			t.Errorf("%v: %+v", args, r)
		}
	}
	if r := run(t, "", "import", "files.tar", "tiny"); !strings.Contains(r.errOut, "directory of the snapshot is missing") || !strings.Contains(r.errOut, "put the right metadata.db back") {
		t.Errorf("%+v", r)
	}
	if out := must(t, "doctor"); !strings.Contains(out, "metadata.db is older than their removal") {
		t.Errorf("doctor: %s", out)
	}
	must(t, "snapshot", "rm", "tiny")
	must(t, "prune", "--all")
	must(t, "import", "files.tar", "tiny")
	if out := must(t, "doctor"); strings.Contains(out, "older than their removal") {
		t.Errorf("doctor: %s", out)
	}
}
