package command_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// content is what is below a directory.
func content(t *testing.T, dir string) (list []string) {
	t.Helper()
	check(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		var b []byte
		if err == nil && !e.IsDir() {
			b, err = os.ReadFile(path)
		}
		list = append(list, path+" "+string(b))
		return err
	}))
	return list
}

// import with --root at a directory with other content deleted its trash and new, and overwrote lock and
// emergency.
func TestRootOfOthers(t *testing.T) {
	work(t)
	for _, name := range []string{"trash/9/x", "new/1/y", "emergency", "lock", "notes.txt"} {
		path := filepath.Join("store", name)
		check(t, os.MkdirAll(filepath.Dir(path), 0o755))
		check(t, os.WriteFile(path, []byte("mine"), 0o600))
	}
	before := content(t, "store")
	for _, args := range [][]string{{"import", "files.tar", "x"}, {"snapshot", "ls"}, {"df"}, {"prune", "--all"}, {"doctor"}} {
		r := run(t, "", append([]string{"--driver", "copy"}, args...)...)
		said := r.errOut
		if args[0] == "doctor" {
			said = r.out
		}
		if r.code != 1 || !strings.Contains(said, "store") || !strings.Contains(said, "--root") {
			t.Errorf("%q: %+v", args, r)
		}
	}
	if after := content(t, "store"); !slices.Equal(before, after) {
		t.Errorf("there was\n%q\nand is\n%.2000q", before, after)
	}
}

// Damaged metadata were an "invalid database", without the file's name and what can be done.
func TestDamagedMetadata(t *testing.T) {
	work(t)
	must(t, "--driver", "copy", "import", "files.tar", "tiny")
	path, err := filepath.Abs("store/metadata.db")
	check(t, err)
	check(t, os.WriteFile(path, []byte(strings.Repeat("film ", 9000)), 0o600))
	r := run(t, "", "snapshot", "ls", "--json")
	var said struct {
		Error struct{ Message, Kind, Next string }
	}
	check(t, json.Unmarshal([]byte(r.errOut), &said))
	if e := said.Error; r.code != 1 || e.Kind != "damaged" || !strings.Contains(e.Message, path) ||
		!strings.Contains(e.Next, "holdfast doctor "+path) || !strings.Contains(e.Next, "salvage") {
		t.Errorf("%+v", r)
	}
}
