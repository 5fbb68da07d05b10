//go:build unix

package snapshot_test

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast"
	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/copy"
	"holdfast/worker/snapshot/drivertest"
)

// crashRoot is the environment variable that makes this test binary the victim.
const crashRoot = "SNAPSHOT_CRASH_ROOT"

const crashWorkers = 6

func TestMain(m *testing.M) {
	if root := os.Getenv(crashRoot); root != "" {
		if err := victim(root, os.Getenv(crashRoot+"_ROUND")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if order := os.Getenv(machineVariable); order != "" {
		os.Exit(inMachine(m, order))
	}
	if root := os.Getenv(repairRoot); root != "" {
		err := repairVictim(root, os.Getenv(repairRoot+"_STEP"))
		fmt.Fprintln(os.Stderr, "not killed:", err)
		os.Exit(1)
	}
	if root := os.Getenv(pointRoot); root != "" {
		fmt.Fprintln(os.Stderr, "not killed:", pointVictim(root, os.Getenv(pointRoot+"_POINT"), os.Getenv(pointRoot+"_WHAT")))
		os.Exit(1)
	}
	os.Exit(drivertest.Main(m))
}

// victim works on a store until it is killed, and says on its output what it is about to do and what it has done.
func victim(root, round string) error {
	store, err := snapshot.Open(root, crashOptions(round))
	if err != nil {
		return err
	}
	namespace, err := store.Namespace("t")
	if err != nil {
		return err
	}
	errs := make(chan error)
	for w := range crashWorkers {
		go func() {
			errs <- work(namespace, fmt.Sprintf("%d-%s", w, round), func(stage string, op crashOp) error {
				_, err := fmt.Printf("%s %v\n", stage, op)
				return err
			})
		}()
	}
	return <-errs
}

func crashOptions(round string) snapshot.Options {
	n, _ := strconv.Atoi(round)
	o := snapshot.Options{Driver: copy.New(), Durability: []holdfast.Durability{holdfast.Full, holdfast.Periodic}[n%2]}
	if deferredWorks && n%3 == 0 {
		o.Sync = snapshot.SyncDeferred
	}
	return o
}

// crashOp is one thing that a worker does.
type crashOp struct{ what, name, other string }

func (o crashOp) String() string { return o.what + " " + o.name + " " + o.other }

// work makes a tree of snapshots whose names begin with own, and takes parts of it away. It calls say
// before each step with "intent", and after it with "done".
func work(namespace *snapshot.Namespace, own string, say func(stage string, op crashOp) error) error {
	ctx := context.Background()
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	state := map[string]crashed{}
	for k := 0; ; k++ {
		op := nextOp(rng, state, own, k)
		if err := say("intent", op); err != nil {
			return err
		}
		var err error
		switch op.what {
		case "prepare":
			var dir string
			mounts, e := namespace.Prepare(ctx, op.name, strings.TrimPrefix(op.other, "-"))
			if err = e; e == nil {
				dir = mounts[0].Source
				err = os.WriteFile(filepath.Join(dir, "of "+op.name), []byte(op.name), 0o600)
			}
		case "commit":
			err = namespace.Commit(ctx, op.other, op.name, snapshot.WithDigest())
		case "remove":
			err = namespace.Remove(ctx, op.name)
		}
		if err != nil {
			return fmt.Errorf("%v: %w", op, err)
		}
		if err := say("done", op); err != nil {
			return err
		}
		apply(state, op)
	}
}

// crashed is a snapshot as parent and child process have it.
type crashed struct {
	committed bool
	parent    string
}

func nextOp(rng *rand.Rand, state map[string]crashed, own string, k int) crashOp {
	var leaves, active, committed []string
	for name, s := range state {
		switch {
		case !s.committed:
			active = append(active, name)
		default:
			committed = append(committed, name)
		}
		leaf := true
		for _, o := range state {
			leaf = leaf && o.parent != name
		}
		if leaf {
			leaves = append(leaves, name)
		}
	}
	pick := func(list []string) string { return list[rng.IntN(len(list))] }
	switch n := rng.IntN(6); {
	case n < 2 && len(leaves) > 3 || len(leaves) > 12:
		return crashOp{"remove", pick(leaves), "-"}
	case n < 4 && len(active) > 0:
		key := pick(active)
		return crashOp{"commit", key, strings.Replace(key, "active", "layer", 1)}
	}
	parent := "-"
	if len(committed) > 0 && rng.IntN(3) > 0 {
		parent = pick(committed)
	}
	return crashOp{"prepare", fmt.Sprintf("%s-active-%d", own, k), parent}
}

func apply(state map[string]crashed, o crashOp) {
	switch o.what {
	case "prepare":
		state[o.name] = crashed{parent: strings.TrimPrefix(o.other, "-")}
	case "commit":
		s := state[o.name]
		delete(state, o.name)
		s.committed = true
		state[o.other] = s
	case "remove":
		delete(state, o.name)
	}
}

// TestKilled kills a process that works on a store, again and again, and looks at what is left each time.
func TestKilled(t *testing.T) {
	root := t.TempDir()
	all := map[string]map[string]crashed{} // by worker and round
	kills := 25
	if testing.Short() {
		kills = 5
	}
	orphans := 0
	for round := range kills {
		pending := map[string]crashOp{}
		runVictim(t, root, round, all, pending)
		orphans += inspect(t, root, round, all, pending)
	}
	left := 0
	for _, state := range all {
		left += len(state)
	}
	t.Logf("%d kills, %d orphans, %d snapshots left", kills, orphans, left)
}

// runVictim lets the victim work for a random time and kills it. It fills all with what was
// acknowledged, and pending with what was not.
func runVictim(t *testing.T, root string, round int, all map[string]map[string]crashed, pending map[string]crashOp) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashRoot+"="+root, fmt.Sprintf("%s_ROUND=%d", crashRoot, round))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	kill := func() { once.Do(func() { _ = cmd.Process.Kill() }) }
	t.Cleanup(kill)
	// It is killed after a number of lines, so it has done something whatever the machine does else.
	lines, last := 0, 1+rand.IntN(600)
	for scan := bufio.NewScanner(out); scan.Scan(); {
		f := strings.Fields(scan.Text())
		if len(f) != 4 {
			break // torn
		}
		op := crashOp{f[1], f[2], f[3]}
		w := owner(op.name)
		if all[w] == nil {
			all[w] = map[string]crashed{}
		}
		if pending[w] = op; f[0] == "done" {
			delete(pending, w)
			apply(all[w], op)
		}
		if lines++; lines == last {
			kill()
		}
	}
	kill()
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() > 0 {
		t.Fatalf("the victim ended by itself: %v", err)
	}
}

// owner is the worker and round of a snapshot: the first two parts of its name.
func owner(name string) string {
	parts := strings.SplitN(name, "-", 3)
	return parts[0] + "-" + parts[1]
}

// inspect opens the store and compares it with what was acknowledged.
func inspect(t *testing.T, root string, round int, all map[string]map[string]crashed, pending map[string]crashOp) int {
	t.Helper()
	ctx := context.Background()
	store, err := snapshot.Open(root, crashOptions(strconv.Itoa(round)))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	report, err := store.Reconciled(ctx)
	if err != nil || len(report.Missing)+len(report.Strange)+len(report.Quarantined) > 0 {
		t.Fatalf("round %d: %+v, %v", round, report, err)
	}
	if err := store.Cleanup(ctx); err != nil {
		t.Fatal(err)
	}
	problems, err := store.Check(ctx)
	if err != nil || len(problems) > 0 {
		t.Fatalf("round %d: check: %v, %v", round, problems, err)
	}
	if err := store.Digested(ctx); err != nil {
		t.Fatal(err)
	}
	scrubbed, err := store.Scrub(ctx, snapshot.ScrubOptions{})
	if err != nil || len(scrubbed.Damaged)+scrubbed.Failed+scrubbed.Digests > 0 {
		t.Fatalf("round %d: scrub: %+v, %v", round, scrubbed, err)
	}
	namespace, err := store.Namespace("t")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]map[string]crashed{}
	ids := map[string]snapshot.ID{}
	err = namespace.Walk(ctx, func(i snapshot.Info) error {
		if (i.Kind == snapshot.Committed) != (i.Digest != snapshot.Digest{}) {
			t.Errorf("round %d: %q, %v, has the digest %v", round, i.Name, i.Kind, i.Digest)
		}
		w := owner(i.Name)
		if found[w] == nil {
			found[w] = map[string]crashed{}
		}
		found[w][i.Name] = crashed{committed: i.Kind == snapshot.Committed, parent: i.Parent}
		ids[i.Name] = i.ID
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for w := range all {
		want := all[w]
		if op, ok := pending[w]; ok && !maps.Equal(found[w], want) {
			apply(want, op) // it was done, and not yet told
		}
		if !maps.Equal(found[w], want) && len(found[w])+len(want) > 0 {
			t.Fatalf("round %d, worker %s: there is %v, and should be %v; under way was %v", round, w, found[w], want, pending[w])
		}
	}
	for w := range found {
		if all[w] == nil {
			t.Fatalf("round %d: %v is there and was never begun", round, found[w])
		}
	}
	lookAtTrees(t, root, found, ids)
	return report.Orphans
}

// lookAtTrees verifies that each committed snapshot has its content and that of all below it, and that there
// are no other directories.
func lookAtTrees(t *testing.T, root string, found map[string]map[string]crashed, ids map[string]snapshot.ID) {
	t.Helper()
	dirs := map[string]bool{}
	for _, state := range found {
		for name, s := range state {
			id := ids[name].String()
			dirs[id] = true
			above := name
			if !s.committed {
				above = s.parent // its own file may not be written
			}
			for n := above; n != ""; n = state[n].parent {
				file := strings.Replace(n, "layer", "active", 1)
				b, err := os.ReadFile(filepath.Join(root, "snapshots", id, "fs", "of "+file))
				if err != nil || string(b) != file {
					t.Fatalf("%s has not what %s has written: %q, %v", name, n, b, err)
				}
			}
		}
	}
	entries, err := os.ReadDir(filepath.Join(root, "snapshots"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !dirs[e.Name()] {
			t.Fatalf("snapshots/%s belongs to no snapshot", e.Name())
		}
	}
	if len(entries) != len(dirs) {
		t.Fatalf("%d directories, and %d snapshots", len(entries), len(dirs))
	}
	if left, err := os.ReadDir(filepath.Join(root, "trash")); err != nil || len(left) > 0 {
		t.Fatalf("in trash: %v, %v", left, err)
	}
}
