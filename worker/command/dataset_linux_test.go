package command

import (
	"os"
	"path/filepath"
	"testing"
)

// A dataset with a blank in its name, which mountinfo escapes, was looked for as it is: top saw no steps of its store.
func TestTopDataset(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mountinfo")
	line := `46 27 0:39 / / rw - zfs tank/a\040store/s7 rw` + "\n"
	if err := os.WriteFile(file, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	sources := map[string]bool{}
	if id, err := mountsOfStore(file, &shownStore{snapshots: "/store/snapshots/"}, "tank/a store", sources); err != nil || id != "7" || !sources["tank/a store/s7"] {
		t.Errorf("%q, %v, %v", id, sources, err)
	}
}
