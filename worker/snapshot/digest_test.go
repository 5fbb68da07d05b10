package snapshot_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast"
	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/copy"
)

// contentOf is the file that layer has made.
func contentOf(t testing.TB, n *snapshot.Namespace, name string) string {
	t.Helper()
	info, err := n.Stat(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(n.Store().Root(), "snapshots", info.ID.String(), "fs", name)
}

// flip changes a bit of a file, and nothing else of it.
func flip(t testing.TB, path string) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	_, err = f.ReadAt(b, 0)
	b[0] ^= 1
	_, writeErr := f.WriteAt(b, 0)
	if err := errors.Join(err, writeErr, f.Close(), os.Chtimes(path, time.Now(), info.ModTime())); err != nil {
		t.Fatal(err)
	}
}

func stat(t testing.TB, n *snapshot.Namespace, name string) snapshot.Info {
	t.Helper()
	info, err := n.Stat(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func digested(t testing.TB, s *snapshot.Store) {
	t.Helper()
	if err := s.Digested(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestDigest(t *testing.T) {
	s := open(t, t.TempDir(), snapshot.Options{})
	n := namespace(t, s, "t")
	layer(t, n, "plain", "")
	want(t, "one without a digest", n.Verify(ctx, "plain"), snapshot.ErrNoDigest)
	if _, err := n.Prepare(ctx, "active", ""); err != nil {
		t.Fatal(err)
	}
	want(t, "an active one", n.Verify(ctx, "active"), snapshot.ErrKind)
	want(t, "none", n.Verify(ctx, "none"), snapshot.ErrNotFound)
	if err := n.Commit(ctx, "asked", "active", snapshot.WithDigest()); err != nil {
		t.Fatal(err)
	}
	digested(t, s)
	asked := stat(t, n, "asked")
	if asked.Digest == (snapshot.Digest{}) || asked.Verified.IsZero() || asked.Damaged {
		t.Errorf("%+v", asked)
	}
	if d, err := n.Digest(ctx, "asked"); err != nil || d != asked.Digest || !strings.HasPrefix(d.String(), "sha256:") {
		t.Errorf("%v, %v", d, err)
	}
	if d, err := n.Digest(ctx, "plain"); err != nil || d == asked.Digest || d != stat(t, n, "plain").Digest {
		t.Errorf("%v, %v", d, err)
	}
	for _, name := range []string{"asked", "plain"} {
		before := stat(t, n, name).Verified
		if err := n.Verify(ctx, name); err != nil || !stat(t, n, name).Verified.After(before) {
			t.Errorf("%v; it was verified at %v, before at %v", err, stat(t, n, name).Verified, before)
		}
	}
	sound(t, s)
	if err := errors.Join(n.Remove(ctx, "asked"), n.Remove(ctx, "plain"), s.Cleanup(ctx)); err != nil {
		t.Fatal(err)
	}
	sound(t, s)
	if p, err := s.Scrub(ctx, snapshot.ScrubOptions{}); err != nil || p.Looked+p.Digests+p.Failed != 0 {
		t.Errorf("of nothing: %+v, %v", p, err)
	}
}

// noDigests is a driver that has none.
type noDigests struct{ snapshot.Driver }

func TestDigestUnsupported(t *testing.T) {
	_, err := snapshot.Open(t.TempDir(), snapshot.Options{Driver: noDigests{copy.New()}, Digests: true})
	want(t, "a store", err, snapshot.ErrUnsupported)
	s := open(t, t.TempDir(), snapshot.Options{Driver: noDigests{copy.New()}})
	n := namespace(t, s, "t")
	layer(t, n, "a", "")
	_, err = n.Digest(ctx, "a")
	want(t, "a digest", err, snapshot.ErrUnsupported)
	if _, err := n.Prepare(ctx, "b active", "a"); err != nil {
		t.Fatal(err)
	}
	want(t, "a commit", n.Commit(ctx, "b", "b active", snapshot.WithDigest()), snapshot.ErrUnsupported)
	if err := n.Commit(ctx, "b", "b active"); err != nil {
		t.Error(err)
	}
}

// TestQuarantine: nothing is made of a damaged snapshot or of what stands on it, also after opening
// again, until it is as it was, or trusted, or removed.
func TestQuarantine(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, snapshot.Options{Digests: true})
	n := namespace(t, s, "t")
	layer(t, n, "base", "")
	layer(t, n, "top", "base")
	layer(t, n, "other", "")
	if _, err := n.View(ctx, "view", "top"); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Prepare(ctx, "active", "top"); err != nil {
		t.Fatal(err)
	}
	digested(t, s)
	refused := func(when string, bad bool) {
		t.Helper()
		should := error(nil)
		if bad {
			should = snapshot.ErrDamaged
		}
		_, err := n.Mounts(ctx, "view")
		want(t, when+": mounts of a view", err, should)
		_, err = n.Mounts(ctx, "active")
		want(t, when+": mounts of an active one", err, should)
		for _, parent := range []string{"base", "top"} {
			_, err = n.Prepare(ctx, "new", parent)
			want(t, when+": an active one on "+parent, err, should)
			_, err = n.View(ctx, "new view", parent)
			want(t, when+": a view of "+parent, err, should)
			if !bad {
				if err := errors.Join(n.Remove(ctx, "new"), n.Remove(ctx, "new view")); err != nil {
					t.Error(err)
				}
			}
		}
		if _, err := n.View(ctx, "unconcerned", "other"); err != nil {
			t.Error(err)
		}
		if err := n.Remove(ctx, "unconcerned"); err != nil {
			t.Error(err)
		}
		if info := stat(t, n, "base"); info.Damaged != bad || !errors.Is(info.Unusable(), should) {
			t.Errorf("%s: %+v", when, info)
		}
		sound(t, s)
	}
	file := contentOf(t, n, "base")
	refused("before", false)
	flip(t, file)
	refused("before it is found", false)
	err := n.Verify(ctx, "base")
	want(t, "a bit that was changed", err, snapshot.ErrDamaged)
	if err == nil || !strings.Contains(err.Error(), `"base"`) || !strings.Contains(err.Error(), stat(t, n, "base").Digest.String()) {
		t.Errorf("it does not name what is damaged: %v", err)
	}
	refused("after", true)
	want(t, "a commit", n.Commit(ctx, "top 2", "active"), snapshot.ErrDamaged)
	if err := n.Verify(ctx, "top"); err != nil {
		t.Errorf("the one above: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, root, snapshot.Options{Digests: true})
	n = namespace(t, s, "t")
	refused("after opening again", true)

	flip(t, file) // put back
	refused("before it is looked at", true)
	if err := n.Verify(ctx, "base"); err != nil {
		t.Error(err)
	}
	refused("put back", false)

	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	want(t, "without a file", n.Verify(ctx, "base"), snapshot.ErrDamaged)
	was := stat(t, n, "base").Digest
	if err := n.Trust(ctx, "base"); err != nil {
		t.Fatal(err)
	}
	digested(t, s)
	refused("trusted", false)
	if info := stat(t, n, "base"); info.Digest == was || info.Digest == (snapshot.Digest{}) || n.Verify(ctx, "base") != nil {
		t.Errorf("after Trust: %+v, was %v", info, was)
	}

	if err := os.RemoveAll(filepath.Dir(contentOf(t, n, "other"))); err != nil {
		t.Fatal(err)
	}
	want(t, "without its directory", n.Verify(ctx, "other"), snapshot.ErrDamaged)
	if err := errors.Join(n.Remove(ctx, "other"), s.Cleanup(ctx)); err != nil {
		t.Error(err)
	}
	sound(t, s)
}

// TestVerifyDistrusted: one whose commit may not have been flushed can be used again when its content is that
// of its digest, and gets none before.
func TestVerifyDistrusted(t *testing.T) {
	if !deferredWorks {
		t.Skip("SyncDeferred is for Linux")
	}
	defer snapshot.SetBootID("")
	defer snapshot.SetFlushDelay(0)
	snapshot.SetFlushDelay(time.Hour)
	snapshot.SetBootID("one")
	root := t.TempDir()
	s := open(t, root, snapshot.Options{Sync: snapshot.SyncDeferred})
	n := namespace(t, s, "t")
	for _, name := range []string{"whole", "broken", "plain"} {
		layer(t, n, name, "")
		if name == "plain" {
			continue
		}
		if _, err := n.Digest(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	s.Crash()
	snapshot.SetBootID("two")
	s = open(t, root, snapshot.Options{Sync: snapshot.SyncDeferred})
	n = namespace(t, s, "t")
	flip(t, contentOf(t, n, "broken"))
	want(t, "broken", n.Verify(ctx, "broken"), snapshot.ErrDamaged)
	_, err := n.Digest(ctx, "plain")
	want(t, "a digest of what may be incomplete", err, snapshot.ErrDistrusted)
	_, err = n.View(ctx, "view", "whole")
	want(t, "before", err, snapshot.ErrDistrusted)
	if err := n.Verify(ctx, "whole"); err != nil {
		t.Error(err)
	}
	if _, err := n.View(ctx, "view", "whole"); err != nil {
		t.Error(err)
	}
	sound(t, s)
}

// TestDigestAfterCrash: a digest that was to be computed is, after opening again; and a store from before
// there were digests can be opened.
func TestDigestAfterCrash(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, snapshot.Options{Driver: slow{copy.New()}, Digests: true})
	n := namespace(t, s, "t")
	layer(t, n, "a", "")
	s.Crash()
	s = open(t, root, snapshot.Options{Driver: copy.New()})
	n = namespace(t, s, "t")
	digested(t, s)
	if stat(t, n, "a").Digest == (snapshot.Digest{}) {
		t.Error("no digest after a crash")
	}
	if err := errors.Join(n.Verify(ctx, "a"), n.Remove(ctx, "a"), s.Cleanup(ctx)); err != nil {
		t.Fatal(err)
	}
	layer(t, n, "b", "")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := holdfast.Open(filepath.Join(root, "metadata.db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *holdfast.Tx) error {
		return errors.Join(tx.DeleteBucket([]byte("verified")), tx.DeleteBucket([]byte("unmeasured")))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	s = open(t, root, snapshot.Options{})
	if _, err := namespace(t, s, "t").Digest(ctx, "b"); err != nil {
		t.Error(err)
	}
	sound(t, s)
}

// slow is a driver that never gets done with a digest.
type slow struct{ *copy.Driver }

func (slow) Digest(ctx context.Context, _ snapshot.Layer, _ snapshot.DigestOptions) (snapshot.Digest, error) {
	<-ctx.Done()
	return snapshot.Digest{}, ctx.Err()
}

func TestScrub(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, snapshot.Options{Digests: true})
	n := namespace(t, s, "t")
	const layers = 12
	for i := range layers {
		layer(t, n, fmt.Sprint(i), "")
	}
	digested(t, s)
	damaged := map[string]bool{"2": true, "9": true}
	for name := range damaged {
		flip(t, contentOf(t, n, name))
	}
	before := stat(t, n, "11").Verified.Add(time.Nanosecond)

	// Interrupted after each snapshot, it goes on, and looks at each once.
	seen := map[string]int{}
	looked := 0
	for rounds := 0; looked < layers; rounds++ {
		if rounds > layers {
			t.Fatalf("%d looked at in %d rounds", looked, rounds)
		}
		stop, cancel := context.WithCancel(ctx)
		p, err := s.Scrub(stop, snapshot.ScrubOptions{Before: before, Progress: func(snapshot.ScrubProgress) { cancel() }})
		want(t, "interrupted", err, context.Canceled)
		if p.Looked != 1 || p.Bytes == 0 || p.Failed+p.Digests != 0 {
			t.Fatalf("%+v", p)
		}
		looked += p.Looked
		for _, d := range p.Damaged {
			want(t, d.Name, d.Err, snapshot.ErrDamaged)
			seen[d.Namespace+"/"+d.Name]++
		}
		cancel()
		if rounds == layers/2 {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = open(t, root, snapshot.Options{Digests: true})
			n = namespace(t, s, "t")
		}
	}
	if len(seen) != 2 || seen["t/2"] != 1 || seen["t/9"] != 1 {
		t.Errorf("found %v", seen)
	}
	p, err := s.Scrub(ctx, snapshot.ScrubOptions{Before: before})
	if err != nil || p.Looked != 0 {
		t.Errorf("once more with the same time: %+v, %v", p, err)
	}
	if p, err = s.Scrub(ctx, snapshot.ScrubOptions{}); err != nil || p.Looked != layers || len(p.Damaged) != 2 {
		t.Errorf("once more: %+v, %v", p, err)
	}
	for i := range layers {
		if info := stat(t, n, fmt.Sprint(i)); info.Damaged != damaged[info.Name] {
			t.Errorf("%+v", info)
		}
	}
	sound(t, s)
}

// TestScrubRate: what is read in a time is bounded.
func TestScrubRate(t *testing.T) {
	s := open(t, t.TempDir(), snapshot.Options{Digests: true})
	n := namespace(t, s, "t")
	for i := range 4 {
		layer(t, n, fmt.Sprint(i), "")
	}
	digested(t, s)
	began := time.Now()
	p, err := s.Scrub(ctx, snapshot.ScrubOptions{Rate: 10000})
	if took := time.Since(began); err != nil || took < time.Duration(p.Bytes-100)*100*time.Microsecond {
		t.Errorf("%+v in %v, %v", p, took, err)
	}
	stop, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	if _, err := s.Scrub(stop, snapshot.ScrubOptions{Rate: 1}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a slow one that is interrupted: %v", err)
	}
}

// TestDigestInBackground: the store computes digests by itself.
func TestDigestInBackground(t *testing.T) {
	looked := make(chan struct{}, 2)
	s := open(t, t.TempDir(), snapshot.Options{Digests: true, Observe: func(op string, _ int) {
		if op == "looked" {
			looked <- struct{}{}
		}
	}})
	n := namespace(t, s, "t")
	for _, name := range []string{"a", "b"} {
		layer(t, n, name, "")
		<-looked
		if stat(t, n, name).Digest == (snapshot.Digest{}) {
			t.Errorf("%s has no digest", name)
		}
	}
}

// TestScrubBeforeLater: with a Before that has not come yet, what was looked at was due again at once: Scrub had no
// end.
func TestScrubBeforeLater(t *testing.T) {
	s := open(t, t.TempDir(), snapshot.Options{Digests: true})
	n := namespace(t, s, "t")
	for i := range 3 {
		layer(t, n, fmt.Sprint(i), "")
	}
	digested(t, s)
	stop, cancel := context.WithCancel(ctx)
	defer cancel()
	p, err := s.Scrub(stop, snapshot.ScrubOptions{Before: time.Now().Add(time.Hour), Progress: func(p snapshot.ScrubProgress) {
		if p.Looked > 3 {
			cancel()
		}
	}})
	if err != nil || p.Looked != 3 {
		t.Errorf("%+v, %v", p, err)
	}
}
