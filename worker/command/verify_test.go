package command_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/worker/command"
	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/copy"
)

func TestVerify(t *testing.T) {
	t.Chdir(t.TempDir())
	s, err := snapshot.Open("store", snapshot.Options{Driver: copy.New()})
	check(t, err)
	n, err := s.Namespace(command.DefaultNamespace)
	check(t, err)
	var file string
	for _, name := range []string{"one", "two"} {
		mounts, err := n.Prepare(t.Context(), name+" active", "")
		check(t, err)
		file = filepath.Join(mounts[0].Source, "file")
		check(t, os.WriteFile(file, []byte(name), 0o600))
		check(t, n.Commit(t.Context(), name, name+" active"))
	}
	check(t, s.Close())
	expect := func(out string, code int, args ...string) {
		t.Helper()
		r := run(t, "", append([]string{"verify"}, args...)...)
		if r.out != out || r.code != code {
			t.Errorf("verify %v: %+v, and should be %q", args, r, out)
		}
	}
	expect("no snapshot has a digest: name some, which then get one, or give --digests to import and step\n", 0)
	expect("0 snapshots verified, 2 got a digest\n", 0, "one", "two")
	expect("1 snapshot verified\n", 0, "one")
	expect("2 snapshots verified\n", 0, "--rate", "1GB")
	check(t, os.WriteFile(file, []byte("twp"), 0o600))
	expect("damaged: two\n1 snapshot verified, 1 damaged\n", 1)
	expect("damaged: two\n0 snapshots verified, 1 damaged\n", 1, "two")
	if r := run(t, "", "verify", "--json"); r.code != 1 || !strings.Contains(r.out, `"two"`) {
		t.Errorf("%+v", r)
	}
	if out := must(t, "snapshot", "ls"); !strings.Contains(out, "damaged") {
		t.Errorf("ls: %s", out)
	}
	for _, args := range [][]string{{"verify", "--rate", "x"}, {"verify", "--rate", "1MB", "one"}} {
		if r := run(t, "", args...); r.code != command.ExitUsage {
			t.Errorf("%v: %+v", args, r)
		}
	}
}

// TestRepair: a base that was found to be damaged is imported again.
func TestRepair(t *testing.T) {
	work(t)
	must(t, "--driver", "copy", "import", "files.tar", "tiny")
	_, layer, _ := strings.Cut(must(t, "import", "files.tar"), "Snapshot")
	layer = strings.Fields(layer)[0]
	must(t, "verify", layer)
	damaged, err := filepath.Glob("store/snapshots/*/fs/etc/name")
	if err != nil || len(damaged) != 1 {
		t.Fatal(damaged, err)
	}
	before, err := os.ReadFile(damaged[0])
	check(t, err)
	check(t, os.WriteFile(damaged[0], []byte("x"), 0o600))
	if r := run(t, "", "verify"); r.code != 1 {
		t.Errorf("verify: %+v", r)
	}
	if r := run(t, "", "import", "files.tar", "tiny"); r.code != 1 || !strings.Contains(r.errOut, "with --repair it is extracted again") {
		t.Errorf("without --repair: %+v", r)
	}
	if out := must(t, "import", "files.tar", "tiny", "--repair"); !strings.Contains(out, "1, 0 new, 1 repaired") {
		t.Errorf("with --repair: %s", out)
	}
	if out := must(t, "import", "files.tar", "tiny", "--repair", "--json"); !strings.Contains(out, `"repaired": false`) {
		t.Errorf("again: %s", out)
	}
	must(t, "verify")
	if now, err := os.ReadFile(damaged[0]); err != nil || string(now) != string(before) {
		t.Errorf("it has %q, %v", now, err)
	}
}
