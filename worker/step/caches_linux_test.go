package step

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/worker/snapshot"
)

// TestCacheLocked: no two steps have a locked cache at once, whether they share it otherwise or not; it stays.
func TestCacheLocked(t *testing.T) {
	for _, name := range []string{"native", "runc"} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, Options{Runtime: runtimeNamed(name), Concurrency: 6})
			const n = 12
			var all sync.WaitGroup
			for i := range n {
				all.Go(func() {
					// Without a lock two read the same number sooner or later.
					step := sh("base", fmt.Sprintf("mkdir /cache/held || exit 9; n=$(cat /cache/n 2>/dev/null); sleep 0.02; echo $((n+1)) >/cache/n; rm -r /cache/held # %d", i))
					step.Mounts = []Mount{{Cache: "c", Target: "/cache", Sharing: SharingLocked}, {Cache: "c", Target: "/again", Sharing: SharingLocked}}
					step.User = User{UID: 1000}
					if _, err := s.Run(s.ctx, step, nil); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			step := sh("base", "cat /cache/n")
			step.Mounts = []Mount{{Cache: "c", Target: "/cache"}}
			if got := s.text(step); got != fmt.Sprint(n) {
				t.Errorf("%s of %d", got, n)
			}
			s.clean()
		})
	}
}

// TestCachePrivate: steps at once have instances of their own, which are kept for the next ones, and no more of them
// than there may be.
func TestCachePrivate(t *testing.T) {
	s := newStand(t, Options{Concurrency: MaxInstances + 4})
	gate := filepath.Join(s.dir, "gate")
	for round := range 2 {
		must(t, os.RemoveAll(gate))
		must(t, os.Mkdir(gate, 0o777))
		must(t, os.Chmod(gate, 0o777))
		var all sync.WaitGroup
		var mu sync.Mutex
		seen := map[string]int{}
		for i := range MaxInstances + 4 {
			all.Go(func() {
				step := sh("base", fmt.Sprintf("mkdir /cache/held || exit 9; : >/gate/%d; while test ! -e /gate/go; do sleep 0.01; done; echo x >>/cache/uses; wc -l </cache/uses; rmdir /cache/held", i))
				step.Mounts = []Mount{{Cache: "c", Target: "/cache", Sharing: SharingPrivate}, {Source: gate, Target: "/gate"}}
				res, err := s.Run(s.ctx, step, nil)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				seen[strings.TrimSpace(string(res.Output))]++
				mu.Unlock()
			})
		}
		for began := 0; began < MaxInstances; {
			entries, err := os.ReadDir(gate)
			must(t, err)
			if began = len(entries); s.ctx.Err() != nil {
				t.Fatalf("%d steps have begun", began)
			}
			time.Sleep(time.Millisecond)
		}
		must(t, os.WriteFile(filepath.Join(gate, "go"), nil, 0o644))
		all.Wait()
		if round == 0 && seen["1"] != MaxInstances || round == 1 && seen["1"] > 0 {
			t.Errorf("round %d: how often an instance was used: %v", round, seen)
		}
	}
	var names []string
	must(t, s.namespace.WalkPrefix(s.ctx, CachePrefix, func(i snapshot.Info) error {
		names = append(names, strings.TrimPrefix(i.Name, CachePrefix))
		return nil
	}))
	var want []string
	for n := range MaxInstances {
		want = append(want, instance("c", n))
	}
	slices.Sort(names)
	if !slices.Equal(names, want) {
		t.Errorf("%q", names)
	}
	s.clean()
}

// TestCacheWaits: a step that waits for a cache keeps no other from running, and can be canceled.
func TestCacheWaits(t *testing.T) {
	s := newStand(t, Options{Concurrency: 2})
	gate := filepath.Join(s.dir, "gate")
	must(t, os.Mkdir(gate, 0o777))
	must(t, os.Chmod(gate, 0o777))
	holder := sh("base", "echo >/gate/begun; while test ! -e /gate/go; do sleep 0.01; done")
	holder.Mounts = []Mount{{Cache: "c", Target: "/cache", Sharing: SharingLocked}, {Source: gate, Target: "/gate"}}
	var all sync.WaitGroup
	all.Go(func() { s.ok(holder) })
	waitFile(s, filepath.Join(gate, "begun"))
	for i := range 4 {
		all.Go(func() {
			waiter := sh("base", fmt.Sprint("echo ", i))
			waiter.Mounts = holder.Mounts[:1:1]
			s.ok(waiter)
		})
	}
	for n := 0; n < 4; {
		s.caches.mu.Lock()
		n = len(s.caches.waiting)
		s.caches.mu.Unlock()
	}
	s.ok(sh("base", "echo not stopped by those that wait"))
	must(t, os.WriteFile(filepath.Join(gate, "go"), nil, 0o644))
	all.Wait()
	s.clean()
}
