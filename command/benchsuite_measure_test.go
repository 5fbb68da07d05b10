package command

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"math"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"holdfast"
)

// TestDurations: each time is counted within a thirty-second of itself, and quantiles are
// those of what was counted.
func TestDurations(t *testing.T) {
	for _, ns := range []int64{0, 1, 31, 32, 63, 64, 65, 127, 128, 999, 1e3, 123456, 1e9, 3600e9, math.MaxInt64} {
		i := timesBucket(ns)
		if i >= timesBuckets {
			t.Fatalf("%d ns: bucket %d", ns, i)
		}
		if off := math.Abs(float64(timesValue(i)) - float64(ns)); off > float64(ns)/timesParts {
			t.Errorf("%d ns is counted as %d", ns, timesValue(i))
		}
		if ns > 0 && timesBucket(ns-1) > i {
			t.Errorf("%d ns is counted above %d", ns-1, ns)
		}
	}
	if i := timesBucket(-1); i != 0 {
		t.Errorf("a clock that goes back: bucket %d", i)
	}
	var a, b durations
	if q := a.quantile(0.5); q != 0 {
		t.Errorf("the median of nothing is %d", q)
	}
	for i := range 1000 { // 1 to 1000 µs
		d := &a
		if i%2 == 0 {
			d = &b
		}
		d.add(time.Duration(i+1) * time.Microsecond)
	}
	a.addAll(&b)
	for q, want := range map[float64]float64{0: 1e3, 0.5: 500e3, 0.99: 990e3, 1: 1e6} {
		if got := float64(a.quantile(q)); math.Abs(got-want) > want/timesParts {
			t.Errorf("the quantile %g is %g ns, want about %g", q, got, want)
		}
	}
	if a.n != 1000 || a.longest != 1e6 || a.quantile(1) > a.longest {
		t.Errorf("%d times, the longest of %d ns", a.n, a.longest)
	}
}

func newSuite(t *testing.T, f benchSuiteFlags) *benchSuite {
	return &benchSuite{call: &call{app: &app{}, cmd: &cobra.Command{}}, ctx: t.Context(), flags: f}
}

// TestMeasureCount: so many operations are done, whoever does them, and one by each if time
// counts and is over at once.
func TestMeasureCount(t *testing.T) {
	for workers, f := range map[int]benchSuiteFlags{1: {count: 1}, 7: {count: 1000}, 64: {count: 3}, 9: {time: 1}} {
		var done atomic.Int64
		p := phase{share: 1, workers: workers, rest: time.Nanosecond}
		r, err := newSuite(t, f).measure(p, func(int) error { done.Add(1); return nil })
		want := f.count
		if want == 0 {
			want = int64(workers)
		}
		if err != nil || done.Load() != want || r.n != want || r.took <= 0 {
			t.Errorf("%d workers, %+v: %d done, %d counted in %s, %v", workers, f, done.Load(), r.n, r.took, err)
		}
	}
}

// TestMeasureFails: the error of one ends all, and so does the end of the context.
func TestMeasureFails(t *testing.T) {
	failure := errors.New("failure")
	s := newSuite(t, benchSuiteFlags{time: time.Hour})
	_, err := s.measure(phase{share: 1, workers: 3}, func(w int) error {
		if w == 1 {
			return failure
		}
		return nil
	})
	if !errors.Is(err, failure) {
		t.Errorf("got %v", err)
	}
	if _, err := s.turns("", 1, clock(func() error { return nil }), clock(func() error { return failure })); !errors.Is(err, failure) {
		t.Errorf("got %v", err)
	}
	if _, err := s.beside(func() error { return failure })(); !errors.Is(err, failure) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s.ctx = ctx
	end := s.beside(func() error { return nil })
	if _, err := s.measure(phase{share: 1, workers: 3}, func(int) error { cancel(); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if r, err := end(); err != nil || r.n < 1 {
		t.Errorf("beside: %d done, %v", r.n, err)
	}
}

// TestLostWrites: a file that lacks something of what was acknowledged is an error.
func TestLostWrites(t *testing.T) {
	db, err := holdfast.Open(filepath.Join(t.TempDir(), "x.db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := fillSmall(db); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := db.Update(commitKey); err != nil {
			t.Fatal(err)
		}
	}
	for n, want := range map[int64]error{1: errMissing, 2: nil, 3: errMissing} {
		if err := committed(db, demoSmall, n); !errors.Is(err, want) {
			t.Errorf("of %d commits: %v", n, err)
		}
	}
	for n, want := range map[int64]error{demoKeys - 1: errMissing, demoKeys: nil, demoKeys + 1: errMissing} {
		if err := keysThere(db, demoSmall, n); !errors.Is(err, want) {
			t.Errorf("of %d keys: %v", n, err)
		}
	}
	if err := errors.Join(committed(db, demoBig, 0)); !errors.Is(err, errMissing) {
		t.Errorf("without the bucket: %v", err)
	}
	if err := keysThere(db, demoBig, 0); !errors.Is(err, errMissing) {
		t.Errorf("without the bucket: %v", err)
	}
}

// TestSteady: a disk that took half as long again for a flush, or more, is told of.
func TestSteady(t *testing.T) {
	for _, c := range []struct {
		before, after int64
		steady        bool
	}{{100, 100, true}, {100, 149, true}, {149, 100, true}, {100, 151, false}, {151, 100, false}, {100, 1000, false}} {
		w := &workloadReport{FlushBefore: c.before, FlushAfter: c.after, Rows: []*suiteRow{{}}, ratio: "x"}
		var out bytes.Buffer
		cmd := &cobra.Command{}
		cmd.SetOut(&out)
		s := &benchSuite{call: &call{app: &app{}, cmd: cmd, out: bufio.NewWriter(&out)}}
		s.printWorkload(w)
		if told := strings.Contains(out.String(), "The disk changed its pace meanwhile: "); w.steady() != c.steady || told == c.steady {
			t.Errorf("%d and %d ns: %s", c.before, c.after, &out)
		}
	}
}
