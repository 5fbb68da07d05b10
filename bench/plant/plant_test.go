package plant

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

// hang is how long a test may take to find a defect. One that waits for ever
// with a defect planted has found nothing.
const hang = 5 * time.Minute

// Each defect that can be planted has a row, and each row a defect.
func TestTable(t *testing.T) {
	source, err := os.ReadFile(filepath.Join(top, "internal", "plant", "plant.go"))
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]bool{}
	for _, p := range table(t) {
		rows[p.defect] = true
	}
	known := map[string]bool{}
	for _, m := range defined.FindAllStringSubmatch(string(source), -1) {
		known[m[1]] = true
		if !rows[m[1]] {
			t.Errorf("no row for %s", m[1])
		}
	}
	for defect := range rows {
		if !known[defect] {
			t.Errorf("a row for %s, which is no defect", defect)
		}
	}
	if len(known) < 20 {
		t.Errorf("%d defects are defined: is internal/plant/plant.go read rightly?", len(known))
	}
}

// TestPlanted plants each defect. The tests named in its row fail with it, and
// pass in the same build without it.
func TestPlanted(t *testing.T) {
	rows := table(t)
	binaries := t.TempDir()
	built := map[string]string{}
	for _, p := range rows {
		if built[p.dir] == "" {
			built[p.dir] = build(t, binaries, p.dir)
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
				t.Errorf("%s %s fails with nothing planted: %v\n%s", p.dir, p.test, err, out)
			}
		})
	}
	for _, p := range rows {
		t.Run(p.defect+"/"+filepath.Base(p.dir)+"/"+p.test, func(t *testing.T) {
			t.Parallel()
			p.mayNeedRoot(t)
			out, err := p.run(t, built[p.dir], p.defect)
			var exit *exec.ExitError
			switch {
			case err == nil:
				t.Errorf("%s %s does not find %s\n%s", p.dir, p.test, p.defect, out)
			case !errors.As(err, &exit):
				t.Errorf("%s %s: %v\n%s", p.dir, p.test, err, out)
			case !strings.Contains(out, "--- FAIL: "+p.test) && !strings.Contains(out, "panic: "):
				t.Errorf("%s %s ends otherwise than by finding %s: %v\n%s", p.dir, p.test, p.defect, err, tail([]byte(out)))
			}
		})
	}
}

// mayNeedRoot skips what would skip itself: a test that was skipped finds nothing.
func (p planting) mayNeedRoot(t *testing.T) {
	if strings.HasSuffix(p.dir, "/real") && os.Getuid() != 0 {
		t.Skip("needs root: the test mounts a file system")
	}
}

// build makes the test binary of the package in dir, with the tag plant.
func build(t *testing.T, into, dir string) string {
	t.Helper()
	binary, err := filepath.Abs(filepath.Join(into, strings.ReplaceAll(dir, "/", "_")+".test"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "test", "-c", "-tags", "plant", "-o", binary, ".")
	cmd.Dir = filepath.Join(top, dir)
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the tests in %s: %v\n%s", dir, err, out)
	}
	return binary
}

// run runs the test with a defect, and returns the end of what it says.
func (p planting) run(t *testing.T, binary, defect string) (string, error) {
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "-test.run", "^"+p.test+"$", "-test.v", "-test.timeout", "0")
	cmd.Dir = filepath.Join(top, p.dir)
	cmd.Env = append(os.Environ(), "HOLDFAST_PLANT="+defect, "HOLDFAST_SHRINK=0", "GOGC=800")
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
