package step

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"holdfast/worker/mount"
	"holdfast/worker/snapshot"
)

// aRemoteCache is one of tests.
type aRemoteCache struct {
	find    func(ctx context.Context, id ID, base string) (*RemoteResult, error)
	exports bool
	// withdraw ends what holds a result; nil: nothing does.
	withdraw func(name string)

	mu      sync.Mutex
	asked   int
	offered []string
}

func (c *aRemoteCache) Find(ctx context.Context, id ID, base string) (*RemoteResult, error) {
	c.mu.Lock()
	c.asked++
	c.mu.Unlock()
	if c.find == nil {
		return nil, nil
	}
	return c.find(ctx, id, base)
}

func (c *aRemoteCache) Exports() bool { return c.exports }

func (c *aRemoteCache) Offer(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offered = append(c.offered, name)
}

func (c *aRemoteCache) Withdraw(_ context.Context, name string) (func(), error) {
	if c.withdraw != nil {
		c.withdraw(name)
	}
	return func() {}, nil
}

func (c *aRemoteCache) times() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked
}

// newRemoteStand is a stand with a remote cache, and the content of the base known.
func newRemoteStand(t *testing.T) (*stand, *aRemoteCache) {
	c := &aRemoteCache{}
	s := newStand(t, Options{Remote: c, Concurrency: 2})
	s.label("base", snapshot.LabelContent, "content of the base")
	return s, c
}

func (s *stand) label(name, key, value string) {
	s.Helper()
	_, err := s.namespace.Update(s.ctx, snapshot.Info{Name: name, Labels: map[string]string{key: value}}, "labels."+key)
	must(s, err)
}

// into writes a file into an active snapshot.
func (s *stand) into(ctx context.Context, mounts []mount.Mount, file, content string) error {
	spec, err := mount.FromMounts(mounts)
	if err != nil {
		return err
	}
	h, err := s.mounts.Acquire(ctx, spec)
	if err != nil {
		return err
	}
	err = os.WriteFile(filepath.Join(h.Path(), file), []byte(content), 0o644)
	h.Release()
	return errors.Join(err, h.Wait(ctx))
}

// TestFetched: a result that a remote cache has is a hit, for all who wait, and is there from then on.
func TestFetched(t *testing.T) {
	s, c := newRemoteStand(t)
	var fills atomic.Int32
	c.exports = true
	c.find = func(_ context.Context, _ ID, base string) (*RemoteResult, error) {
		if base != "content of the base" {
			return nil, nil
		}
		return &RemoteResult{From: "elsewhere", Content: "content of the result", Output: []byte("said"), OutputSize: 4, Duration: 5, Usage: Usage{Memory: 6},
			Fill: func(ctx context.Context, mounts []mount.Mount, _ string) error {
				fills.Add(1)
				return s.into(ctx, mounts, "made", "there")
			}}, nil
	}
	step := sh("base", "echo here >/made")
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			var log strings.Builder
			res, err := s.Run(s.ctx, step, &log)
			if err != nil || !res.Hit || string(res.Output) != "said" || log.String() != "said" || res.Duration != 5 || res.Usage.Memory != 6 {
				t.Errorf("%+v, %v, %q", res, err, log.String())
			}
		})
	}
	all.Wait()
	res := s.ok(step)
	if !res.Hit || res.From != "" || fills.Load() != 1 || s.read(res.Snapshot, "made") != "there" {
		t.Errorf("%+v, fetched %d times", res, fills.Load())
	}
	info, err := s.namespace.Stat(s.ctx, res.Snapshot)
	if err != nil || ContentOf(info) != "content of the result" || info.Labels[LabelExport] != "" || len(c.offered) > 0 {
		t.Errorf("%+v, %v; offered: %q", info, err, c.offered)
	}
	if n := s.Counts(); n.Fetched != 1 || n.Ran != 0 {
		t.Errorf("%+v", n)
	}
	// The next step stands on content that is known, and finds nothing.
	next := s.ok(sh(res.Snapshot, "cat /made"))
	if next.Hit || string(next.Output) != "there" {
		t.Errorf("%+v", next)
	}
	if !slices.Equal(c.offered, []string{next.Snapshot}) {
		t.Errorf("offered: %q", c.offered)
	}
	s.clean()
}

// TestFetchFails: whatever goes wrong with a result that was found, the step is run, and nothing is left of what was fetched.
func TestFetchFails(t *testing.T) {
	s, c := newRemoteStand(t)
	fill := func(context.Context, []mount.Mount, string) error { return nil }
	for name, find := range map[string]func(context.Context, ID, string) (*RemoteResult, error){
		"nothing": nil,
		"find":    func(context.Context, ID, string) (*RemoteResult, error) { return nil, errors.New("gone") },
		"half": func(context.Context, ID, string) (*RemoteResult, error) {
			return &RemoteResult{Content: "x", Fill: func(ctx context.Context, mounts []mount.Mount, _ string) error {
				return errors.Join(s.into(ctx, mounts, "half", ""), errors.New("broke off"))
			}}, nil
		},
		"replaced base": func(context.Context, ID, string) (*RemoteResult, error) {
			s.label("base", snapshot.LabelContent, "another content")
			return &RemoteResult{Content: "x", Fill: fill}, nil
		},
		"bad label": func(context.Context, ID, string) (*RemoteResult, error) {
			return &RemoteResult{Content: strings.Repeat("x", 1<<20), Fill: fill}, nil
		},
	} {
		c.find = find
		res := s.ok(sh("base", "echo "+name+"; ls /"))
		lines := strings.Split(string(res.Output), "\n")
		if res.Hit || lines[0] != name || slices.Contains(lines[1:], "half") {
			t.Errorf("%s: %+v: %s", name, res, res.Output)
		}
		s.label("base", snapshot.LabelContent, "content of the base")
	}
	s.clean()
}

// TestFetchCanceled: a fetch ends with the last who wants it, and leaves nothing.
func TestFetchCanceled(t *testing.T) {
	s, c := newRemoteStand(t)
	for _, where := range []string{"find", "fill"} {
		begun := make(chan struct{})
		wait := func(ctx context.Context) error {
			close(begun)
			<-ctx.Done()
			return ctx.Err()
		}
		c.find = func(ctx context.Context, _ ID, _ string) (*RemoteResult, error) {
			if where == "find" {
				return nil, wait(ctx)
			}
			return &RemoteResult{Content: "x", Fill: func(ctx context.Context, mounts []mount.Mount, _ string) error {
				return errors.Join(s.into(ctx, mounts, "half", ""), wait(ctx))
			}}, nil
		}
		ctx, cancel := context.WithCancel(s.ctx)
		go func() {
			<-begun
			cancel()
		}()
		if _, err := s.Run(ctx, sh("base", "echo "+where), nil); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", where, err)
		}
		must(t, s.namespace.WalkPrefix(s.ctx, RunPrefix, func(i snapshot.Info) error {
			t.Errorf("%s left %s", where, i.Name)
			return nil
		}))
	}
	s.clean()
}

// TestNotAsked: the results of some steps are of no use elsewhere. They are not looked for, nor offered.
func TestNotAsked(t *testing.T) {
	s, c := newRemoteStand(t)
	c.exports = true
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o777))
	uncached := sh("base", "echo uncached")
	uncached.Mounts = []Mount{{Source: dir, Target: "/out"}}
	res := s.ok(uncached)
	if res.Uncached == "" {
		t.Errorf("%+v", res)
	}
	s.ok(sh(res.Snapshot, "echo on an uncached one")) // its base has no content that is known
	if n := c.times(); n != 0 || !slices.Equal(c.offered, []string{s.ok(sh(res.Snapshot, "echo on an uncached one")).Snapshot}) {
		t.Errorf("asked %d times; offered: %q", n, c.offered)
	}
	again := sh("base", "echo cached")
	s.ok(again)
	again.NoCache = true
	made := s.ok(again) // in place of the other: the cache gets what is there now
	if n := c.times(); n != 1 || len(c.offered) != 3 || c.offered[1] != made.Snapshot || c.offered[2] != made.Snapshot {
		t.Errorf("asked %d times; offered: %q", n, c.offered)
	}
	c.exports = false
	info, err := s.namespace.Stat(s.ctx, s.ok(sh("base", "echo import only")).Snapshot)
	if err != nil || info.Labels[LabelExport] != "" || len(c.offered) != 3 {
		t.Errorf("%+v, %v; offered: %q", info, err, c.offered)
	}
	s.clean()
}

// TestWithdrawn: a result that was being exported was in use, so a step that was run again without the cache could not
// replace it, and the earlier one remained what others got.
func TestWithdrawn(t *testing.T) {
	s, c := newRemoteStand(t)
	c.exports = true
	step := sh("base", "date +%N >/time")
	first := s.ok(step)
	_, err := s.namespace.View(s.ctx, "exporting", first.Snapshot)
	must(t, err)
	c.withdraw = func(name string) {
		if name == first.Snapshot {
			must(t, s.namespace.Remove(s.ctx, "exporting"))
		}
	}
	step.NoCache = true
	second := s.ok(step)
	if second.Snapshot != first.Snapshot || second.Uncached != "" {
		t.Errorf("%+v", second)
	}
}

// TestRecordedOf: a daemon that was killed between the commit of a result that replaced another and its record
// exported it, when it was started again, with what the earlier one had said.
func TestRecordedOf(t *testing.T) {
	s, _ := newRemoteStand(t)
	res := s.ok(sh("base", "echo earlier"))
	info, err := s.namespace.Stat(s.ctx, res.Snapshot)
	must(t, err)
	if got, err := s.RecordedOf(info); err != nil || string(got.Output) != "earlier\n" {
		t.Errorf("%+v, %v", got, err)
	}
	must(t, s.namespace.Remove(s.ctx, res.Snapshot))
	_, err = s.namespace.Prepare(s.ctx, "later", "base")
	must(t, err)
	must(t, s.namespace.Commit(s.ctx, res.Snapshot, "later", snapshot.WithLabels(info.Labels)))
	info, err = s.namespace.Stat(s.ctx, res.Snapshot)
	must(t, err)
	if got, err := s.RecordedOf(info); !errors.Is(err, ErrNotFound) {
		t.Errorf("%+v, %v", got, err)
	}
}
