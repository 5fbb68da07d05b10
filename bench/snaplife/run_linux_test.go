package snaplife

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"

	"holdfast/bench/age"
)

var quiet = age.Watcher{Say: func(string) {}, Measured: func(*age.Result) error { return nil }}

// place is a directory for stores, in which nothing is mounted when the test ends.
func place(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts")
	}
	dir := t.TempDir()
	t.Cleanup(func() {
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil || bytes.Contains(mounts, []byte(dir)) {
			t.Errorf("still mounted in %s: %v, %s", dir, err, mounts)
		}
	})
	return dir
}

// TestShortLife: all peers live three days, are what the model is on each measured day, and everything is measured.
func TestShortLife(t *testing.T) {
	dir := place(t)
	r, told := &age.Result{}, 0
	w := quiet
	w.Measured = func(*age.Result) error { told++; return nil }
	if err := Run(context.Background(), dir, tiny, All(), r, w); err != nil {
		t.Fatal(err)
	}
	days := tiny.Measured() // 1 and 3
	if told != len(days) || len(r.Lives) != len(All()) || r.Config.Days != tiny.Days || r.About.Keys != "snapshots" {
		t.Errorf("%d times, %d lives of %d days, %+v", told, len(r.Lives), r.Config.Days, r.About)
	}
	for _, life := range r.Lives {
		if len(life.Stretches) != len(days) {
			t.Fatalf("%s: %+v", life.Peer, life.Stretches)
		}
		for i, s := range life.Stretches {
			if s.Day != days[i] || s.Cycles == 0 || s.Keys <= imageLayers {
				t.Errorf("%s: %+v", life.Peer, s)
			}
			for _, m := range append([]age.Measure{{ID: Floor}}, Measures...) {
				want := tiny.Rounds
				switch m.ID {
				case Metadata, Size:
					want = 1
				case AgeRate: // of each day
					want = s.Day - append([]int{0}, days...)[i]
				case Open:
					want = tiny.Opens
				}
				if c, ok := s.Samples.Cell(m.ID); !ok || c.Low <= 0 || len(s.Samples[m.ID]) != want {
					t.Errorf("%s, day %d, %s: %v", life.Peer, s.Day, m.ID, s.Samples[m.ID])
				}
			}
		}
	}
}

// wrong is containerd's overlay snapshotter with a fault.
type wrong struct {
	snapshots.Snapshotter
	fault  string
	steps  int
	cancel func()
}

func (w *wrong) Prepare(ctx context.Context, key, parent string, opts ...snapshots.Opt) ([]mount.Mount, error) {
	w.steps++
	if w.fault == "fails" && w.steps == 9 {
		return nil, errors.New("the disk is on fire")
	}
	mounts, err := w.Snapshotter.Prepare(ctx, key, parent, opts...)
	if err == nil && w.fault == "mounts half" && w.steps == 9 {
		mounts = append(mounts, mount.Mount{Type: "no such file system", Source: "none"})
	}
	if err == nil && w.fault == "is interrupted" && w.steps == 9 {
		w.cancel()
	}
	return mounts, err
}

func (w *wrong) Commit(ctx context.Context, name, key string, opts ...snapshots.Opt) error {
	if w.fault == "has no label" {
		opts = nil
	}
	return w.Snapshotter.Commit(ctx, name, key, opts...)
}

func (w *wrong) Remove(ctx context.Context, key string) error {
	switch {
	case w.fault == "loses a snapshot" && key == "build 1 test 0":
		return errors.Join(w.Snapshotter.Remove(ctx, key), w.Snapshotter.Remove(ctx, "build 0 container"))
	case w.fault == "loses it late" && key == "measured 0":
		w.fault = "" // once
		return errors.Join(w.Snapshotter.Remove(ctx, key), w.Snapshotter.Remove(ctx, "build 1 container"))
	case w.fault == "keeps a snapshot" && key == "build 1 test 1":
		return nil
	}
	return w.Snapshotter.Remove(ctx, key)
}

func (w *wrong) View(ctx context.Context, key, parent string, opts ...snapshots.Opt) ([]mount.Mount, error) {
	if info, err := w.Stat(ctx, parent); w.fault == "shows the parent" && err == nil && info.Parent != "" {
		parent = info.Parent
	}
	return w.Snapshotter.View(ctx, key, parent, opts...)
}

func (w *wrong) Mounts(ctx context.Context, key string) ([]mount.Mount, error) {
	mounts, err := w.Snapshotter.Mounts(ctx, key)
	if err == nil && w.fault == "changes a file" && strings.HasSuffix(key, " container") {
		for _, o := range mounts[0].Options {
			if upper, ok := strings.CutPrefix(o, "upperdir="); ok {
				return mounts, errors.Join(os.MkdirAll(filepath.Join(upper, "etc"), 0o700), os.WriteFile(filepath.Join(upper, versionFile), nil, 0o600))
			}
		}
	}
	return mounts, err
}

// TestWrongPeers: a peer that is not what it should be, or fails, ends the run, before it is measured unless it becomes so
// then, and the error says which peer, on which day, and what it was. Nothing stays mounted.
func TestWrongPeers(t *testing.T) {
	for fault, want := range map[string]string{
		"loses a snapshot": `the Active snapshot "build 0 container" is lost; it has `,
		"loses it late":    `the Active snapshot "build 1 container" is lost; it has `,
		"keeps a snapshot": `it has the Active snapshot "build 1 test 1", which was removed or never made`,
		"shows the parent": "snapshot \"build ",
		"has no label":     "Label:}, and has to be {Kind:Committed",
		"changes a file":   "the file etc/version has other content",
		"fails":            "day 1: day 1: step of \"sha256:",
		"mounts half":      "no such file system",
		"is interrupted":   "context canceled",
	} {
		t.Run(fault, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			measured := false
			watcher := quiet
			watcher.Say = func(line string) { measured = measured || strings.Contains(line, "measuring") }
			peer := Peer{Name: "wrong", Open: func(root string) (snapshots.Snapshotter, func() error, error) {
				s, closeIt, err := containerdOverlay()(root)
				return &wrong{s, fault, 0, cancel}, closeIt, err
			}}
			err := Run(ctx, place(t), tiny, []Peer{All()[1], peer}, &age.Result{}, watcher)
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "wrong, day 1: ") || measured != (fault == "loses it late") {
				t.Errorf("%v; want %q", err, want)
			}
			if (fault == "is interrupted") != errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
}

// TestCannotOpen: a store that cannot be opened is named.
func TestCannotOpen(t *testing.T) {
	peer := Peer{Name: "wrong", Open: func(string) (snapshots.Snapshotter, func() error, error) { return nil, nil, errors.New("damaged") }}
	if err := Run(context.Background(), t.TempDir(), tiny, []Peer{peer}, &age.Result{}, quiet); err == nil || err.Error() != "wrong: opening it: damaged" {
		t.Error(err)
	}
}
