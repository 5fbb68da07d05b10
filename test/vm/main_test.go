package vm

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// All tests of this package are named TestMachine..., so that scripts/test can run
// them in a phase of their own.

// top is the directory of the repository.
const top = "../.."

// findKernel skips the test where there is nothing to make a machine of.
func findKernel(t *testing.T) *Kernel {
	t.Helper()
	k, err := Find(top)
	if err != nil {
		if os.Getenv("HOLDFAST_VM_NEEDED") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	return k
}

// newConfig is a machine of this test.
func newConfig(t *testing.T) Config {
	t.Helper()
	return Config{Kernel: findKernel(t), Dir: t.TempDir(), Limit: 4 * time.Minute}
}

// newDisk makes a disk of so many MiB with a file system, "" for none.
func newDisk(t *testing.T, mebibytes int64, fs string, options ...string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "disk")
	f, err := os.Create(name)
	must(t, err)
	must(t, f.Truncate(mebibytes<<20))
	must(t, f.Close())
	if fs != "" {
		args := append(append([]string{"-q"}, options...), name)
		if out, err := exec.Command("mkfs."+fs, args...).CombinedOutput(); err != nil {
			t.Fatalf("mkfs.%s %v: %v: %s", fs, args, err, out)
		}
	}
	return name
}

// run runs a machine to its end and returns what its command said.
func run(t *testing.T, c Config) (lines []string, err error) {
	t.Helper()
	err = Run(t.Context(), c, func(line string) { lines = append(lines, line) })
	return lines, err
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
