package command_test

import (
	"os"
	"path/filepath"
	"testing"
)

// TestServeShare: the databases of a store are shared while a daemon has it, unless its configuration says off.
func TestServeShare(t *testing.T) {
	stand(t, "overlay")
	dir := filepath.Join(t.TempDir(), "share")
	check(t, os.WriteFile("holdfastd.toml", []byte("share = '"+dir+"'\n"), 0o600))
	d := startDaemon(t, "--config", "holdfastd.toml")
	const databases = 2 // of the metadata, and of results
	if shares, err := os.ReadDir(dir); err != nil || len(shares) != databases {
		t.Errorf("the shares are %v (%v)", shares, err)
	}
	d.stop()
	if shares, err := os.ReadDir(dir); err != nil || len(shares) != 0 {
		t.Errorf("%v is left (%v)", shares, err)
	}
	check(t, os.Remove(dir))
	check(t, os.WriteFile("holdfastd.toml", []byte("share = 'off'\n"), 0o600))
	d = startDaemon(t, "--config", "holdfastd.toml")
	if _, err := os.Stat(dir); err == nil {
		t.Error("it is shared")
	}
	d.stop()
}
