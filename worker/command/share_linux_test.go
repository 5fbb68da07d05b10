package command_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"holdfast"
)

// TestServeShare: other processes read the databases of a store while a daemon has it, unless its configuration says off.
func TestServeShare(t *testing.T) {
	stand(t, "overlay")
	const root = "store"
	dir := filepath.Join(t.TempDir(), "share")
	check(t, os.WriteFile("holdfastd.toml", []byte("share = '"+dir+"'\n"), 0o600))
	d := startDaemon(t, "--config", "holdfastd.toml")
	for _, name := range []string{"metadata.db", "results.db"} {
		db, err := holdfast.OpenShared(filepath.Join(root, name), &holdfast.Options{Share: dir})
		if err != nil {
			t.Fatal(err)
		}
		err = db.View(func(tx *holdfast.Tx) error {
			for err := range tx.Check() {
				t.Errorf("%s: %v", name, err)
			}
			return nil
		})
		check(t, errors.Join(err, db.Close()))
	}
	d.stop()
	check(t, os.WriteFile("holdfastd.toml", []byte("share = 'off'\n"), 0o600))
	d = startDaemon(t, "--config", "holdfastd.toml")
	if _, err := holdfast.OpenShared(filepath.Join(root, "metadata.db"), &holdfast.Options{Share: dir}); !errors.Is(err, holdfast.ErrNotShared) {
		t.Errorf("it is shared: %v", err)
	}
	d.stop()
}
