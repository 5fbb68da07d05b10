package snapshot_test

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"

	"holdfast"
	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/copy"
)

// measuring is a driver that measures committed snapshots only when it may.
type measuring struct {
	*copy.Driver
	may   chan struct{}
	calls *atomic.Int64
}

func newMeasuring() measuring { return measuring{copy.New(), make(chan struct{}), &atomic.Int64{}} }

func (m measuring) Usage(ctx context.Context, t snapshot.Tree) (snapshot.Usage, error) {
	m.calls.Add(1)
	select {
	case <-m.may:
		return m.Driver.Usage(ctx, t)
	case <-ctx.Done():
		return snapshot.Usage{}, ctx.Err()
	}
}

// TestMeasureLater: Commit counted the files in a snapshot, in the middle of a writing transaction of its caller: 55 ms of 30,000.
// With MeasureLater it does not measure; what is measured then is what Commit would have found, in the totals, too.
func TestMeasureLater(t *testing.T) {
	m := newMeasuring()
	s := open(t, t.TempDir(), snapshot.Options{Driver: m})
	n := namespace(t, s, "t")
	layer(t, n, "one", "", snapshot.MeasureLater())
	if u := stat(t, n, "one").Usage; u != (snapshot.Usage{}) {
		t.Errorf("%+v before it was measured", u)
	}
	sound(t, s)
	layer(t, n, "removed", "", snapshot.MeasureLater())
	if err := n.Remove(ctx, "removed"); err != nil {
		t.Fatal(err)
	}
	sound(t, s)
	close(m.may)
	if err := s.Measured(ctx); err != nil {
		t.Fatal(err)
	}
	want, err := m.Driver.Usage(ctx, snapshot.Tree{Layer: snapshot.Layer{ID: 1, Dir: s.Root() + "/snapshots/" + stat(t, n, "one").ID.String()}})
	if err != nil || want.Inodes < 2 {
		t.Fatalf("%+v, %v", want, err)
	}
	totals, err := s.Totals(ctx)
	if got := stat(t, n, "one").Usage; err != nil || got != want || totals.Usage != want {
		t.Errorf("%+v of %+v, and the totals are %+v, %v", got, want, totals, err)
	}
	before := m.calls.Load()
	if u, err := n.Usage(ctx, "one"); err != nil || u != want || m.calls.Load() != before {
		t.Errorf("%+v, %v: a measured snapshot was measured again", u, err)
	}
	sound(t, s)
}

// TestMeasureLaterReopened: what was not measured when a store was closed, or its process killed, is when it is opened again;
// and Usage is right meanwhile.
func TestMeasureLaterReopened(t *testing.T) {
	root := t.TempDir()
	for _, end := range []func(*snapshot.Store){func(s *snapshot.Store) { _ = s.Close() }, (*snapshot.Store).Crash} {
		m := newMeasuring()
		s := open(t, root, snapshot.Options{Driver: m})
		n := namespace(t, s, "t")
		layer(t, n, "one", "", snapshot.MeasureLater())
		end(s)
		m = newMeasuring()
		s = open(t, root, snapshot.Options{Driver: m})
		n = namespace(t, s, "t")
		told := make(chan snapshot.Usage)
		go func() { // beside the background
			u, err := n.Usage(ctx, "one")
			if err != nil {
				t.Error(err)
			}
			told <- u
		}()
		close(m.may)
		if u := <-told; u.Inodes < 2 {
			t.Errorf("it takes %+v", u)
		}
		if err := errors.Join(s.Measured(ctx)); err != nil || stat(t, n, "one").Usage.Inodes < 2 {
			t.Errorf("%+v, %v", stat(t, n, "one"), err)
		}
		sound(t, s)
		if err := errors.Join(n.Remove(ctx, "one"), s.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPruneUnmeasured: what pruning has removed before it was measured counted as nothing that is to be deleted, so the next pruning
// removed more than it had to.
func TestPruneUnmeasured(t *testing.T) {
	m := newMeasuring()
	s := open(t, t.TempDir(), snapshot.Options{Driver: m})
	n := namespace(t, s, "t")
	layer(t, n, "one", "", snapshot.MeasureLater())
	for m.calls.Load() == 0 { // so it is not deleted
	}
	one := stat(t, n, "one")
	if removed, err := s.Prune(ctx, []snapshot.Doomed{{ID: one.ID, LastUsed: one.LastUsed}}); err != nil || len(removed) != 1 {
		t.Fatal(removed, err)
	}
	if u, err := s.TrashUsage(ctx); err != nil || u.Inodes < 2 || u.Size == 0 {
		t.Errorf("%+v are to be deleted, %v", u, err)
	}
	close(m.may)
}

// stacked notes the parents with which committed snapshots are measured.
type stacked struct {
	*copy.Driver
	parents map[snapshot.ID][]snapshot.Layer
}

func (d stacked) Usage(ctx context.Context, t snapshot.Tree) (snapshot.Usage, error) {
	d.parents[t.ID] = t.Parents
	return d.Driver.Usage(ctx, t)
}

// TestMeasureLaterParents: a driver may need the parents to measure, as that of ZFS does.
func TestMeasureLaterParents(t *testing.T) {
	d := stacked{copy.New(), map[snapshot.ID][]snapshot.Layer{}}
	s := open(t, t.TempDir(), snapshot.Options{Driver: d})
	n := namespace(t, s, "t")
	layer(t, n, "one", "")
	layer(t, n, "two", "one", snapshot.MeasureLater())
	if err := s.Measured(ctx); err != nil {
		t.Fatal(err)
	}
	if p := d.parents[stat(t, n, "two").ID]; len(p) != 1 || p[0].ID != stat(t, n, "one").ID {
		t.Errorf("measured with the parents %+v", p)
	}
}

// unfinishing cannot finish.
type unfinishing struct{ *copy.Driver }

func (unfinishing) Finished(snapshot.Layer) bool { return false }

func (unfinishing) Finish(context.Context, snapshot.Layer) error { return errors.New("no room") }

// TestMeasureLaterUnfinished: a snapshot that cannot be finished, as with a full disk, was never measured.
func TestMeasureLaterUnfinished(t *testing.T) {
	s := open(t, t.TempDir(), snapshot.Options{Driver: unfinishing{copy.New()}})
	n := namespace(t, s, "t")
	layer(t, n, "one", "", snapshot.MeasureLater())
	if err := errors.Join(s.Finished(ctx), s.Measured(ctx)); err != nil {
		t.Error(err)
	}
	if u := stat(t, n, "one").Usage; u.Inodes < 2 {
		t.Errorf("it takes %+v", u)
	}
}

// failingOnce cannot measure the first time, and does not come to an end then.
type failingOnce struct{ measuring }

func (d failingOnce) Usage(ctx context.Context, t snapshot.Tree) (snapshot.Usage, error) {
	if d.calls.Load() == 0 {
		d.calls.Add(1)
		return snapshot.Usage{}, errors.New("no luck")
	}
	return d.measuring.Usage(ctx, t)
}

// TestMeasuredCanceled: Measured went on when its context had ended, for as long as a snapshot takes.
func TestMeasuredCanceled(t *testing.T) {
	d := failingOnce{newMeasuring()}
	s := open(t, t.TempDir(), snapshot.Options{Driver: d})
	layer(t, namespace(t, s, "t"), "one", "", snapshot.MeasureLater())
	for d.calls.Load() == 0 { // the background, which tries no more
	}
	canceled, cancel := context.WithCancel(ctx)
	done := make(chan error)
	go func() { done <- s.Measured(canceled) }()
	for d.calls.Load() == 1 {
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestUsageRemoved: Usage of a snapshot that was not measured, and was removed meanwhile, was the error that there is no such file.
func TestUsageRemoved(t *testing.T) {
	d := failingOnce{newMeasuring()}
	s := open(t, t.TempDir(), snapshot.Options{Driver: d})
	n := namespace(t, s, "t")
	layer(t, n, "one", "", snapshot.MeasureLater())
	for d.calls.Load() == 0 { // the background, which tries no more
	}
	told := make(chan error)
	go func() {
		_, err := n.Usage(ctx, "one")
		told <- err
	}()
	for d.calls.Load() == 1 {
	}
	if err := n.Remove(ctx, "one"); err != nil { // its directory stays until it was measured
		t.Fatal(err)
	}
	close(d.may)
	if err := <-told; !errors.Is(err, snapshot.ErrNotFound) {
		t.Error(err)
	}
}

// TestMeasureLaterOfPrepare: it is for Commit.
func TestMeasureLaterOfPrepare(t *testing.T) {
	s := open(t, t.TempDir(), snapshot.Options{Driver: copy.New()})
	n := namespace(t, s, "t")
	if _, err := n.Prepare(ctx, "active", "", snapshot.MeasureLater()); !errors.Is(err, snapshot.ErrInvalid) {
		t.Error(err)
	}
}

// busyStore is a driver that, each time it measures one, has another snapshot committed.
type busyStore struct {
	*copy.Driver
	calls  atomic.Int64
	commit func(name string)
}

const busyCommits = 500

func (d *busyStore) Usage(ctx context.Context, t snapshot.Tree) (snapshot.Usage, error) {
	if n := d.calls.Add(1); n < busyCommits {
		d.commit(strconv.FormatInt(n, 10))
	}
	return d.Driver.Usage(ctx, t)
}

// TestMeasuredWhileCommits: Measured had no end while further snapshots were committed.
func TestMeasuredWhileCommits(t *testing.T) {
	d := &busyStore{Driver: copy.New()}
	s := open(t, t.TempDir(), snapshot.Options{Driver: d, Durability: holdfast.None})
	n := namespace(t, s, "t")
	d.commit = func(name string) { layer(t, n, name, "", snapshot.MeasureLater()) }
	d.commit("first")
	if err := s.Measured(ctx); err != nil {
		t.Fatal(err)
	}
	if d.calls.Load() >= busyCommits {
		t.Errorf("%d snapshots were measured", d.calls.Load())
	}
}

// slowFirst is a driver that does not come to an end with the first snapshot.
type slowFirst struct {
	*copy.Driver
	begun chan struct{}
}

func (d slowFirst) Usage(ctx context.Context, t snapshot.Tree) (snapshot.Usage, error) {
	if t.ID > 1 {
		return d.Driver.Usage(ctx, t)
	}
	d.begun <- struct{}{}
	<-ctx.Done()
	return snapshot.Usage{}, ctx.Err()
}

// TestMeasuredPrunable: it does not wait for what is a client's.
func TestMeasuredPrunable(t *testing.T) {
	d := slowFirst{copy.New(), make(chan struct{})}
	s := open(t, t.TempDir(), snapshot.Options{Driver: d})
	client, err := s.ClientNamespace("client")
	if err != nil {
		t.Fatal(err)
	}
	layer(t, client, "one", "", snapshot.MeasureLater())
	<-d.begun
	n := namespace(t, s, "t")
	layer(t, n, "two", "", snapshot.MeasureLater())
	if err := s.MeasuredPrunable(ctx); err != nil || stat(t, n, "two").Usage.Inodes < 2 {
		t.Errorf("%+v, %v", stat(t, n, "two"), err)
	}
}
