package real

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/test/vm"
)

// snapshotModes are values of snapshot.SyncMode, which this module does not know.
var snapshotModes = []string{"SyncCommit", "SyncDeferred"}

// buildSnapshots builds the test program of worker/snapshot, for a machine.
func buildSnapshots(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "snapshot.test")
	build := exec.Command("go", "test", "-c", "-o", program, "./snapshot")
	build.Dir = "../../worker"
	build.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, out)
	}
	return program
}

// snapshotDisk is a disk with a store of snapshots whose machine is cut.
type snapshotDisk struct {
	t       *testing.T
	rand    *rand.Rand
	fs      fileSystem
	mode    int
	image   string
	program string
	said    []string // by all machines
	done    int
	looked  []string
}

func (d *snapshotDisk) boot(round int, last bool) error {
	must(d.t, d.fs.mend(d.t, d.image))
	c := newMachine(d.t, d.program)
	said := filepath.Join(c.Dir, "said")
	must(d.t, os.WriteFile(said, []byte(strings.Join(d.said, "")), 0o600))
	text, err := json.Marshal(map[string]any{"Dir": "/mnt", "Mode": d.mode, "Round": round, "Said": "/said", "Stop": last})
	must(d.t, err)
	c.Files = map[string]string{"said": said}
	c.Disks = []string{d.image}
	c.Command = d.fs.mountScript("/dev/vda") + fmt.Sprintf("SNAPSHOT_MACHINE='%s' /programs/%s || exit 7\numount /mnt\n", text, filepath.Base(d.program))
	m, err := vm.Start(d.t.Context(), c)
	if err != nil {
		return err
	}
	left := 10 + d.rand.IntN(500) // lines before the cut
	var other []string
	looked := false
	for line, ok := m.Line(); ok; line, ok = m.Line() {
		word, _, _ := strings.Cut(line, " ")
		switch {
		case word == "looked":
			d.looked, looked = append(d.looked, line), true
			continue
		case (word == "intent" || word == "done") && len(strings.Fields(line)) == 4:
			d.said = append(d.said, line+"\n")
			if word == "done" {
				d.done++
			}
		default:
			other = append(other, line)
		}
		if left--; left == 0 {
			time.Sleep(time.Duration(d.rand.IntN(20)) * time.Millisecond)
			m.Cut()
		}
	}
	if err := m.Wait(); err != nil {
		return fmt.Errorf("%w\nthe machine said:\n%s", err, strings.Join(other[:min(len(other), 60)], "\n"))
	}
	if !looked {
		return fmt.Errorf("nothing was looked at:\n%s", strings.Join(other, "\n"))
	}
	return nil
}

// TestMachineSnapshots cuts the power of machines that work on a store of snapshots: one that
// was committed has its files, all of them, whatever came to the disk first. With
// SyncDeferred it has them too, or is distrusted.
func TestMachineSnapshots(t *testing.T) {
	const cuts = 2
	newMachine(t, os.Args[0])
	program := buildSnapshots(t)
	for i, fs := range []fileSystem{fileSystems[0], fileSystems[2], fileSystems[3]} {
		mode := i % len(snapshotModes)
		t.Run(fs.name+" "+snapshotModes[mode], func(t *testing.T) {
			t.Parallel()
			for seed := range seeds(t, 1) {
				againWith(t, seed)
				d := &snapshotDisk{t: t, rand: rand.New(rand.NewPCG(seed, 6)), fs: fs, mode: mode, image: fs.newImage(t), program: program}
				for round := range cuts {
					must(t, d.boot(round, false))
				}
				must(t, d.boot(cuts, true))
				t.Logf("%d cuts, %d operations acknowledged: %q", cuts, d.done, d.looked)
				if d.done == 0 {
					t.Error("that is too little")
				}
			}
		})
	}
}
