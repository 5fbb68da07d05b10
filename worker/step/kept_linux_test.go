package step

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/worker/snapshot"
)

// TestCacheHeld: prune --caches took the cache of a step that ran longer than it says, or of any with 0, from under it.
func TestCacheHeld(t *testing.T) {
	s := newStand(t, Options{})
	step := sh("base", "echo begun; exec sleep 1000")
	step.Mounts = []Mount{{Cache: "c", Target: "/c"}, {Cache: "read", Target: "/read", ReadOnly: true}}
	names := []string{CachePrefix + "c", CachePrefix + "read"}
	s.during(step, func() {
		for _, name := range names {
			if err := s.namespace.Remove(s.ctx, name); !errors.Is(err, snapshot.ErrInUse) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
	for _, name := range names {
		must(t, s.namespace.Remove(s.ctx, name))
	}
	step = sh("base", "exit 3") // that fails
	step.Mounts = []Mount{{Cache: "c", Target: "/c"}}
	_ = s.fails(step, ErrExit)
	must(t, s.namespace.Remove(s.ctx, names[0]))
	s.clean()
}

// TestCacheGivenToCanceled: caches that a step gets while it is canceled are free again.
func TestCacheGivenToCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	u, failed := &cacheUses{}, 0
	for range 1000 {
		_, release, err := u.take(ctx, cached(SharingLocked, "a", "b"))
		if err == nil {
			release()
		} else {
			failed++
		}
		if len(u.users)+len(u.waiting) > 0 {
			t.Fatalf("%v, %d wait", u.users, len(u.waiting))
		}
	}
	if failed == 0 {
		t.Error("it was never canceled")
	}
}

// TestRecentBounds: what is remembered of steps that have ended does not grow.
func TestRecentBounds(t *testing.T) {
	var n recent
	for i := range 3 * recentSteps {
		f := &flight{serial: uint64(i), step: &Step{}, out: newOutput(DefaultMaxOutput), err: ErrExit}
		_, _ = f.out.Write(bytes.Repeat([]byte("x"), DefaultMaxOutput))
		n.add(f)
	}
	logs := 0
	for _, e := range n.list {
		logs += cap(e.log)
	}
	if last := n.list[len(n.list)-1]; len(n.list) != recentSteps || last.Serial != 3*recentSteps-1 || logs < recentLogs*recentOutput || logs > recentLogs*recentOutput*3/2 {
		t.Errorf("%d steps up to %d, with %d bytes of output", len(n.list), last.Serial, logs)
	}
}

// TestNothingOpen: a step leaves no descriptor open, however it ends.
func TestNothingOpen(t *testing.T) {
	s := newStand(t, Options{})
	file := filepath.Join(s.dir, "input")
	write(t, file, "input")
	run := func(i int) {
		in, err := os.Open(file)
		must(t, err)
		defer in.Close()
		step := sh("base", fmt.Sprintf("cat; echo %d", i))
		step.Stdin = in
		s.ok(step)
		s.ok(step)
		step.Command[len(step.Command)-1] += "; exit 3"
		_ = s.fails(step, ErrExit)
	}
	run(0)
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // which would close what is forgotten
	before := descriptors(t)
	for i := range 20 {
		run(i + 1)
	}
	untilTrue(s, func() bool { return descriptors(t) < before+10 }) // of what goes in the background
	s.clean()
}

func descriptors(t *testing.T) int {
	list, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(list)
}

// TestThreads: a thread on which something is left that cannot be undone is not used again, and between steps none is in an ipc
// namespace of a step.
func TestThreads(t *testing.T) {
	s := newStand(t, Options{})
	s.ok(sh("base", "true"))
	o, ok := s.way().runtime.(*openNative)
	if !ok {
		t.Fatalf("the default runtime is %T", s.way().runtime)
	}
	var spoiled *thread
	must(t, o.onThread(func(on *thread) error {
		spoiled, on.spent = on, true
		return nil
	}))
	for range 3 {
		must(t, o.onThread(func(on *thread) error {
			if on == spoiled {
				t.Error("it is used again")
			}
			return nil
		}))
	}
	s.ok(sh("base", "echo again"))
	own, err := os.Readlink("/proc/self/ns/ipc")
	must(t, err)
	untilTrue(s, func() bool { // the last thread of a step may still be ending
		tasks, err := os.ReadDir("/proc/self/task")
		must(t, err)
		for _, task := range tasks {
			at, err := os.Readlink("/proc/self/task/" + task.Name() + "/ns/ipc")
			if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ESRCH) {
				t.Fatal(err)
			}
			if err == nil && at != own {
				return false
			}
		}
		return true
	})
	s.clean()
}
