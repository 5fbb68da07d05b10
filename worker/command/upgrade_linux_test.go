package command_test

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
)

// TestUpgrade: a store that the version 0.1.0 made (testdata, with an image of a program of 182 bytes, and two results, one on the
// other) is used as it is: what was run is a hit with its output, and goes on to be a base; by a command, and by a daemon.
func TestUpgrade(t *testing.T) {
	if os.Geteuid() != 0 || runtime.GOARCH != "amd64" {
		t.Skip("left out: it runs a program for amd64 as root")
	}
	archive, err := os.ReadFile("testdata/store-0.1.0.tar.gz")
	check(t, err)
	for _, daemon := range []bool{false, true} {
		t.Chdir(t.TempDir())
		check(t, os.MkdirAll("store", 0o755))
		cmd := exec.Command("tar", "-C", "store", "-xzpf", "-")
		cmd.Stdin = strings.NewReader(string(archive))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if daemon {
			startDaemon(t)
		}
		first := served(t, "step", "--userns", "off", "--base", "base", "--", "/bin/make")
		name := resultName.FindString(first.errOut)
		if first.code != 0 || first.out != "old\n" || !strings.HasPrefix(first.errOut, "hit step-") {
			t.Errorf("the first step: %+v", first)
		}
		second := served(t, "step", "--userns", "off", "--base", name, "--env", "A=b", "--", "/bin/make")
		if second.code != 0 || second.out != "old\n" || !strings.HasPrefix(second.errOut, "hit step-") {
			t.Errorf("the second step: %+v", second)
		}
		on := resultName.FindString(second.errOut)
		third := served(t, "step", "--userns", "off", "--base", on, "--env", "A=c", "--", "/bin/make")
		if third.code != 0 || third.out != "old\n" || !strings.HasPrefix(third.errOut, "ran step-") {
			t.Errorf("a step on it: %+v", third)
		}
		if r := served(t, "snapshot", "diff", name); r.code != 0 || !strings.Contains(r.out, "/made") {
			t.Errorf("%+v", r)
		}
		if r := served(t, "prune", "--all"); r.code != 0 {
			t.Errorf("%+v", r)
		}
	}
}
