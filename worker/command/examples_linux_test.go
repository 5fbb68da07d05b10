package command_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// example runs a script of worker/examples, with this program as the holdfastd that it calls, and returns what it
// writes.
func example(t *testing.T, script string, args ...string) string {
	t.Helper()
	dir, err := os.Getwd()
	check(t, err)
	check(t, os.MkdirAll("path", 0o755))
	self, err := os.Executable()
	check(t, err)
	check(t, os.WriteFile("path/holdfastd", []byte("#!/bin/sh\n"+envMain+"=1 exec "+self+" --run "+dir+"/run \"$@\"\n"), 0o755))
	cmd := exec.Command(script, args...)
	cmd.Env = append(os.Environ(), "PATH="+dir+"/path:"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return string(out)
}

// scripts is the directory of the examples.
func scripts(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../examples")
	check(t, err)
	return dir
}

// TestExampleOBuilder runs the script twice, then with another source, and with another secret.
func TestExampleOBuilder(t *testing.T) {
	script := filepath.Join(scripts(t), "obuilder.sh")
	stand(t, "overlay")
	run(t, "", "step", "--base", "bb", "--", "busybox", "--install", "-s", "/bin")
	base := resultName.FindString(run(t, "", "step", "--base", "bb", "--", "busybox", "--install", "-s", "/bin").errOut)
	check(t, os.Mkdir("work", 0o755))
	check(t, os.WriteFile("work/greeting.in", []byte("hello, @NAME@\n"), 0o644))
	check(t, os.WriteFile("work/token", []byte("a-secret-of-the-example"), 0o600))
	dir, err := filepath.Abs("work")
	check(t, err)
	build := func(ran, hit int) {
		t.Helper()
		out := example(t, script, filepath.Join(filepath.Dir(dir), "store"), base, dir)
		if r, h := strings.Count(out, "ran step-"), strings.Count(out, "hit step-"); r != ran || h != hit {
			t.Errorf("%d were run and %d not, in place of %d and %d: %s", r, h, ran, hit, out)
		}
		if !strings.Contains(out, "\nhello, ") && !strings.Contains(out, "\nbye, ") {
			t.Errorf("%s", out)
		}
		if !strings.Contains(out, "\nA /src/greeting\n") {
			t.Errorf("what the second step has made is not listed: %s", out)
		}
	}
	build(3, 0)
	if b, err := os.ReadFile("work/greeting"); err != nil || string(b) != "hello, world\n" {
		t.Errorf("%q, %v", b, err)
	}
	build(0, 3)
	check(t, os.WriteFile("work/token", []byte("another"), 0o600))
	build(0, 3)
	check(t, os.WriteFile("work/greeting.in", []byte("bye, @NAME@\n"), 0o644))
	build(3, 0)
	if b, err := os.ReadFile("work/greeting"); err != nil || string(b) != "bye, world\n" {
		t.Errorf("%q, %v", b, err)
	}
	held(t, "a-secret-of-the-example", "")
}

// TestExampleOBuilderFetched runs the script where another worker has run all steps: each is on the one before.
func TestExampleOBuilderFetched(t *testing.T) {
	script := filepath.Join(scripts(t), "obuilder.sh")
	t.Chdir(t.TempDir())
	check(t, os.Mkdir("path", 0o755))
	check(t, os.WriteFile("path/holdfastd", []byte(`#!/bin/sh
case "$*" in
*" step "*"--base image "*) echo "fetched step-1a from registry/steps in 1.0 ms; the command took 1.0 ms there" >&2 ;;
*" step "*"--base step-1a "*) echo "fetched step-2b from registry/steps in 1.0 ms; the command took 1.0 ms there" >&2 ;;
*" step "*"--base step-2b "*) echo "fetched step-3c from registry/steps in 1.0 ms; the command took 1.0 ms there" >&2 ;;
*" diff step-2b"|*" cp step-3c:/src/greeting work/greeting") ;;
*) echo "unexpected: $*" >&2; exit 2 ;;
esac
`), 0o755))
	cmd := exec.Command(script, "store", "image", "work")
	cmd.Env = append(os.Environ(), "PATH=path:"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestExampleSelf builds this repository on Debian, twice.
func TestExampleSelf(t *testing.T) {
	script := filepath.Join(scripts(t), "self.sh")
	for _, name := range []string{"mmdebstrap", "git", "go"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("left out: it needs %s (mmdebstrap and git are Debian's packages)", name)
		}
	}
	if err := exec.Command("git", "-C", filepath.Dir(script), "rev-parse").Run(); err != nil {
		t.Skip("left out: the sources are in no repository of git: ", err)
	}
	release, err := os.ReadFile("/etc/os-release")
	check(t, err)
	if names := regexp.MustCompile(`(?m)^VERSION_CODENAME=(\w+)$`).FindSubmatch(release); names != nil && strings.Contains(string(release), "\nID=debian\n") {
		t.Setenv("SUITE", string(names[1])) // whose keys this machine has
	}
	stand(t, "overlay")
	check(t, os.Mkdir("out", 0o755))
	dir, err := os.Getwd()
	check(t, err)
	if out := example(t, script, filepath.Join(dir, "store"), filepath.Join(dir, "out")); !strings.Contains(out, "ran step-") {
		t.Errorf("%s", out)
	}
	version, err := exec.Command("out/holdfast", "--version").CombinedOutput()
	if err != nil {
		t.Errorf("the program that was built: %v: %s", err, version)
	}
	check(t, os.Remove("out/holdfast"))
	if out := example(t, script, filepath.Join(dir, "store"), filepath.Join(dir, "out")); !strings.Contains(out, "hit step-") {
		t.Errorf("%s", out)
	}
	if _, err := os.Stat("out/holdfast"); err != nil {
		t.Error(err)
	}
}
