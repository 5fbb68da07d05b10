package snapshot_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/copy"
)

// machineVariable makes this test program one that works in a virtual machine whose power is
// cut: test/real starts it, TestMachineSnapshots. It is a machineOrder.
const machineVariable = "SNAPSHOT_MACHINE"

// machineOrder says what it does.
type machineOrder struct {
	Dir   string // of the file system
	Mode  snapshot.SyncMode
	Round int
	Said  string // a file with all that was said before
	Stop  bool   // it only looks
}

// inMachine looks at what the power cut has left, as a test, and works until the next one.
func inMachine(m *testing.M, text string) int {
	var o machineOrder
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		fmt.Println(err)
		return 2
	}
	if err := flag.Set("test.run", "^TestPowerFailure$"); err != nil {
		fmt.Println(err)
		return 2
	}
	lookInMachine = o.look
	if code := m.Run(); code != 0 {
		return code
	}
	if o.Stop {
		return 0
	}
	store, err := o.open()
	if err != nil {
		fmt.Println(err)
		return 1
	}
	n, err := store.Namespace("t")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	errs := make(chan error)
	for w := range crashWorkers {
		go func() {
			errs <- work(n, fmt.Sprintf("%d-%d", w, o.Round), func(stage string, op crashOp) error {
				if _, err := fmt.Printf("%s %v\n", stage, op); err != nil || stage == "done" {
					return err
				}
				return unix.IoctlSetInt(int(os.Stdout.Fd()), unix.TCSBRK, 1) // it must be heard before it is done
			})
		}()
	}
	fmt.Println(<-errs)
	return 1
}

func (o machineOrder) open() (*snapshot.Store, error) {
	return snapshot.Open(filepath.Join(o.Dir, "store"), snapshot.Options{Driver: copy.New(), Sync: o.Mode})
}

// lookInMachine is what TestPowerFailure is in a machine.
var lookInMachine func(t *testing.T)

// look compares what there is with what was said to be done.
func (o machineOrder) look(t *testing.T) {
	p := &powered{T: t, dir: o.Dir, mode: o.Mode, round: o.Round, all: map[string]map[string]crashed{}, pending: map[string]crashOp{}}
	said, err := os.ReadFile(o.Said)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(said)) {
		f := strings.Fields(line)
		op := crashOp{f[1], f[2], f[3]}
		w := owner(op.name)
		if p.all[w] == nil {
			p.all[w] = map[string]crashed{}
		}
		if p.pending[w] = op; f[0] == "done" {
			delete(p.pending, w)
			apply(p.all[w], op)
		}
	}
	s, err := o.open()
	if err != nil {
		t.Fatal(err)
	}
	p.inspect(s, namespace(t, s, "t"))
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if p.distrusted > 0 && o.Mode == snapshot.SyncCommit {
		t.Errorf("%d committed snapshots are distrusted", p.distrusted)
	}
	fmt.Printf("looked %d verified, %d distrusted, %d missing\n", p.verified, p.distrusted, p.missing)
}
