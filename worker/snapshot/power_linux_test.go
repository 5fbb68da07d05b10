package snapshot_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/copy"
)

// shutdown is EXT4_IOC_SHUTDOWN and XFS_IOC_GOINGDOWN: with noLogFlush the file system stops as it would
// without power. What was not flushed is lost.
const (
	shutdown   = 0x8004587d
	noLogFlush = 2
)

// TestPowerFailure takes the power away from a file system with a store, again and again, and looks at
// what is left each time.
func TestPowerFailure(t *testing.T) {
	if lookInMachine != nil {
		lookInMachine(t)
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts file systems of its own")
	}
	for _, fs := range []string{"ext4", "xfs"} {
		mkfs, err := exec.LookPath("mkfs." + fs)
		if err != nil {
			t.Errorf("mkfs.%s is missing; Debian has it in e2fsprogs and xfsprogs", fs)
			continue
		}
		for mode, name := range map[snapshot.SyncMode]string{snapshot.SyncCommit: "SyncCommit", snapshot.SyncDeferred: "SyncDeferred"} {
			t.Run(fs+"/"+name, func(t *testing.T) {
				defer snapshot.SetBootID("")
				defer snapshot.SetFlushDelay(0)
				snapshot.SetFlushDelay(time.Hour)
				p := &powered{T: t, dir: t.TempDir(), options: "loop", mode: mode, all: map[string]map[string]crashed{}}
				p.image = filepath.Join(t.TempDir(), "image")
				p.run("truncate", "-s", "400M", p.image)
				p.run(mkfs, "-q", p.image)
				if fs == "xfs" {
					p.options += ",nouuid"
				}
				t.Cleanup(func() { _ = unix.Unmount(p.dir, unix.MNT_DETACH) })
				for p.round = range 6 {
					p.untilPowerFails()
				}
				p.lookAfterwards()
				t.Logf("%d committed snapshots verified, %d distrusted, %d active ones without a directory", p.verified, p.distrusted, p.missing)
				if p.verified == 0 || (p.distrusted > 0) && mode == snapshot.SyncCommit {
					t.Error("these figures are not what they should be")
				}
			})
		}
	}
}

// powered is a store on a file system of its own.
type powered struct {
	*testing.T
	dir, image, options string
	mode                snapshot.SyncMode
	round               int

	mu      sync.Mutex
	all     map[string]map[string]crashed // by worker
	pending map[string]crashOp

	verified, distrusted, missing int
}

func (p *powered) run(name string, args ...string) {
	p.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		p.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
}

// start mounts, which replays the journal, and opens the store as after a start of the machine. It
// mounts a copy of the image: if somebody makes a mount namespace meanwhile, the file system that was shut
// down lives on in it, and mounting the same image would give that one again.
func (p *powered) start() (*snapshot.Store, *snapshot.Namespace) {
	p.Helper()
	next := fmt.Sprintf("%s.%d", p.image, p.round)
	p.run("cp", "--sparse=always", p.image, next)
	if err := os.Remove(p.image); err != nil {
		p.Fatal(err)
	}
	p.image = next
	p.run("mount", "-o", p.options, p.image, p.dir)
	snapshot.SetBootID(fmt.Sprint("boot ", p.round))
	s, err := snapshot.Open(filepath.Join(p.dir, "store"), snapshot.Options{Driver: copy.New(), Sync: p.mode})
	if err != nil {
		p.Fatal(err)
	}
	return s, namespace(p, s, "t")
}

func (p *powered) untilPowerFails() {
	p.Helper()
	s, n := p.start()
	p.inspect(s, n)
	p.pending = map[string]crashOp{}
	dir, err := os.Open(p.dir)
	if err != nil {
		p.Fatal(err)
	}
	steps, last := 0, 20+rand.IntN(150)
	off := make(chan struct{})
	say := func(stage string, op crashOp) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		w := owner(op.name)
		if p.all[w] == nil {
			p.all[w] = map[string]crashed{}
		}
		if steps >= last { // without power nothing is acknowledged any more
			return errors.New("no power")
		}
		if p.pending[w] = op; stage == "done" {
			delete(p.pending, w)
			apply(p.all[w], op)
		}
		if steps++; steps == last {
			close(off)
		}
		if steps == last/2 && p.mode == snapshot.SyncDeferred {
			return s.FlushDeferred()
		}
		return nil
	}
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() { _ = work(n, fmt.Sprintf("%d-%d", w, p.round), say) }) // until an error
	}
	<-off
	if err := unix.IoctlSetPointerInt(int(dir.Fd()), shutdown, noLogFlush); err != nil {
		p.Fatalf("shut the file system down: %v", err)
	}
	wg.Wait()
	_ = dir.Close()
	s.Crash()
	if err := unix.Unmount(p.dir, 0); err != nil {
		p.Fatalf("unmount: %v", err)
	}
}

func (p *powered) lookAfterwards() {
	p.Helper()
	p.round++
	s, n := p.start()
	p.inspect(s, n)
	if err := s.Close(); err != nil {
		p.Error(err)
	}
	if err := unix.Unmount(p.dir, 0); err != nil {
		p.Fatalf("unmount: %v", err)
	}
}

// inspect compares what there is with what was acknowledged.
func (p *powered) inspect(s *snapshot.Store, n *snapshot.Namespace) {
	p.Helper()
	report, err := s.Reconciled(ctx)
	if err != nil || len(report.Quarantined) > 0 {
		p.Fatalf("%+v, %v", report, err)
	}
	if err := s.Cleanup(ctx); err != nil {
		p.Fatal(err)
	}
	sound(p, s)
	missing := map[snapshot.ID]bool{}
	for _, id := range report.Missing {
		missing[id] = true
	}
	found := map[string]map[string]crashed{}
	infos := map[string]snapshot.Info{}
	err = n.Walk(ctx, func(i snapshot.Info) error {
		w := owner(i.Name)
		if found[w] == nil {
			found[w] = map[string]crashed{}
		}
		found[w][i.Name] = crashed{committed: i.Kind == snapshot.Committed, parent: i.Parent}
		infos[i.Name] = i
		if missing[i.ID] && i.Kind == snapshot.Active {
			p.missing++
		}
		return nil
	})
	if err != nil {
		p.Fatal(err)
	}
	for w, state := range p.all {
		if op, ok := p.pending[w]; ok && !maps.Equal(found[w], state) {
			apply(state, op)
		}
		if !maps.Equal(found[w], state) && len(found[w])+len(state) > 0 {
			p.Fatalf("round %d, worker %s: there is %v, and should be %v; under way was %v", p.round, w, found[w], state, p.pending[w])
		}
	}
	for _, i := range infos {
		if i.Kind == snapshot.Committed {
			p.content(n, infos, i)
		}
	}
}

// content verifies a committed snapshot, unless it is distrusted.
func (p *powered) content(n *snapshot.Namespace, infos map[string]snapshot.Info, i snapshot.Info) {
	p.Helper()
	_, err := n.View(ctx, "0-view", i.Name)
	if errors.Is(err, snapshot.ErrDistrusted) {
		p.distrusted++
		return
	}
	if err != nil {
		p.Fatalf("round %d: view of %s: %v", p.round, i.Name, err)
	}
	if err := n.Remove(ctx, "0-view"); err != nil {
		p.Fatal(err)
	}
	for below := i.Name; below != ""; below = infos[below].Parent {
		file := strings.Replace(below, "layer", "active", 1)
		path := filepath.Join(p.dir, "store", "snapshots", i.ID.String(), "fs", "of "+file)
		if b, err := os.ReadFile(path); err != nil || string(b) != file {
			p.Fatalf("round %d: %s has not what %s has written: %q, %v", p.round, i.Name, below, b, err)
		}
	}
	p.verified++
}
