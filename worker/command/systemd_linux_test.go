package command_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestSystemd runs the units under systemd: its sockets start the daemon, it is started again when it is killed, and when it does
// not answer its watchdog, while clients wait; it can be reloaded, restarted and stopped.
func TestSystemd(t *testing.T) {
	if os.Geteuid() != 0 || runtime.GOARCH != "amd64" {
		t.Skip("left out: it runs a program for amd64 as root")
	}
	if _, err := os.Stat("/lib/systemd/systemd"); err != nil {
		t.Skip("left out: it needs Debian's package systemd")
	}
	units, err := filepath.Abs("../systemd")
	check(t, err)
	script, err := filepath.Abs("testdata/systemd-test")
	check(t, err)
	archive, err := filepath.Abs("testdata/store-0.1.0.tar.gz")
	check(t, err)
	self, err := os.Executable()
	check(t, err)
	dir := t.TempDir()
	t.Chdir(dir)
	// The base is the layer of the store of TestUpgrade.
	if out, err := exec.Command("sh", "-c", `mkdir old && tar -C old -xzf "$1" && tar -C old/snapshots/1/fs -cf base.tar . && rm -r old`, "sh", archive).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd := exec.Command("unshare", "--mount", script)
	cmd.Env = append(os.Environ(), "DIR="+dir, "HOLDFASTD="+self, "UNITS="+units)
	said, err := cmd.CombinedOutput()
	if text, left := strings.CutPrefix(string(said), "no systemd"); left {
		t.Skipf("left out: systemd does not run here: %s", text)
	}
	if err != nil {
		t.Errorf("%v", err)
	}
	const want = `before the first client: inactive
then: active
after kill -9: old, restarts: 1
after it hung: old, restarts: 2
reloaded: old
restarted: old
stopped: inactive, success
`
	if string(said) != want {
		log, _ := os.ReadFile("systemd.log")
		t.Errorf("it said\n%s\nand not\n%s\nsystemd's log: %s", said, want, log)
	}
}
