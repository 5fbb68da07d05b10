package mutants

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// top is the directory of the repository, seen from this package.
const top = "../.."

// hang is how long a test may take to find a mutant. One that waits for ever has found nothing.
const hang = 5 * time.Minute

// TestTable sees that a test finds each mutant, and that each mutant that is listed has a patch, which says
// what it does and applies. A patch that no longer applied was found only where all tests of all mutants run.
func TestTable(t *testing.T) {
	patches, err := Patches(".")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, m := range table(t) {
		listed[m.name] = true
	}
	known := map[string]bool{}
	for _, p := range patches {
		known[p.Name] = true
		if !listed[p.Name] {
			t.Errorf("tests.txt has no test that finds %s", p.Name)
		}
		if !sentence.MatchString(p.Does) {
			t.Errorf("%s does not begin with a sentence that says what it does, but with %q", p.Path, p.Does)
		}
	}
	for name := range listed {
		if !known[name] {
			t.Errorf("tests.txt lists %s, which has no patch", name)
		}
	}
	if len(known) < 150 {
		t.Errorf("%d mutants: there are 150 at least", len(known))
	}
	if _, err := Overlay(top, t.TempDir()); err != nil {
		t.Error(err)
	}
}

// TestMutants runs, for each mutant, the tests that find it. They fail with it, and
// pass in the same build without it.
func TestMutants(t *testing.T) {
	rows := table(t)
	binaries := t.TempDir()
	overlay, err := Overlay(top, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	built := map[string]string{}
	for _, p := range rows {
		if built[p.dir] == "" {
			built[p.dir] = build(t, overlay, binaries, p.dir)
		}
	}
	sound := map[string]bool{}
	for _, p := range rows {
		key := fmt.Sprint(p.dir, p.test, p.env)
		if sound[key] {
			continue
		}
		sound[key] = true
		t.Run("none/"+filepath.Base(p.dir)+"/"+p.test, func(t *testing.T) {
			t.Parallel()
			p.mayNeedRoot(t)
			if out, err := p.run(t, built[p.dir], ""); err != nil {
				t.Errorf("%s %s fails without a mutant: %v\n%s", p.dir, p.test, err, out)
			}
		})
	}
	for _, p := range rows {
		t.Run(p.name+"/"+filepath.Base(p.dir)+"/"+p.test, func(t *testing.T) {
			t.Parallel()
			p.mayNeedRoot(t)
			out, err := p.run(t, built[p.dir], p.name)
			var exit *exec.ExitError
			switch {
			case err == nil:
				t.Errorf("%s %s does not find %s\n%s", p.dir, p.test, p.name, out)
			case !errors.As(err, &exit):
				t.Errorf("%s %s: %v\n%s", p.dir, p.test, err, out)
			case !strings.Contains(out, "--- FAIL: "+p.test) && !strings.Contains(out, "panic: "):
				t.Errorf("%s %s ends otherwise than by finding %s: %v\n%s", p.dir, p.test, p.name, err, tail([]byte(out)))
			}
		})
	}
}

// mayNeedRoot skips what would skip itself: a test that was skipped finds nothing.
func (p mutant) mayNeedRoot(t *testing.T) {
	if strings.HasSuffix(p.dir, "/real") && os.Getuid() != 0 {
		t.Skip("needs root: the test mounts a file system")
	}
}

// build makes the test binary of the package in dir, with all mutants.
func build(t *testing.T, overlay, into, dir string) string {
	t.Helper()
	binary, err := filepath.Abs(filepath.Join(into, strings.ReplaceAll(dir, "/", "_")+".test"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "test", "-c", "-overlay", overlay, "-o", binary, ".")
	cmd.Dir = filepath.Join(top, dir)
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the tests in %s: %v\n%s", dir, err, out)
	}
	return binary
}

// run runs the test with the mutant of that name, or none, and returns the end of what it says.
func (p mutant) run(t *testing.T, binary, name string) (string, error) {
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "-test.run", "^"+p.test+"$", "-test.v", "-test.timeout", "0")
	cmd.Dir = filepath.Join(top, p.dir)
	cmd.Env = append(os.Environ(), Variable+"="+name, "HOLDFAST_SHRINK=0", "GOGC=800")
	cmd.Env = append(cmd.Env, p.env...)
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return tail(out), fmt.Errorf("not done after %v", hang)
	}
	if err == nil && !strings.Contains(string(out), "--- PASS: "+p.test) {
		return tail(out), errors.New("no such test, or it was skipped")
	}
	return string(out), err
}

func tail(out []byte) string {
	const most = 2000
	if len(out) > most {
		out = out[len(out)-most:]
	}
	return string(out)
}
