package step

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestWiderLimits: who wanted a step that was just running got that run's failure, also if it failed of
// limits that were not its own: a build with an hour failed since another one had given the same step a
// second.
func TestWiderLimits(t *testing.T) {
	natives(t, func(s *stand) {
		dir := s.cache("count")
		step := sh("base", "echo ran >>/count/runs; echo begin; while ! test -e /count/go; do sleep 0.01; done; echo end")
		step.Mounts = []Mount{{Cache: "count", Target: "/count"}}
		type ended struct {
			*Result
			err error
			log bytes.Buffer
		}
		var all [3]ended
		limits := []time.Duration{3 * time.Second, 0, time.Second}
		done := make(chan int)
		for i := range all {
			mine := step
			mine.Limits.Time = limits[i]
			go func() {
				all[i].Result, all[i].err = s.Run(s.ctx, mine, &all[i].log)
				done <- i
			}()
			for begun := time.Now(); s.waiting() != i+1; time.Sleep(time.Millisecond) {
				if time.Since(begun) > time.Minute {
					s.Fatalf("%d wait", s.waiting())
				}
			}
		}
		for range 2 { // the first, and the one with less
			if i := <-done; i == 1 {
				s.Errorf("the one without limits ended: %v", all[i].err)
			}
		}
		untilTrue(s, func() bool {
			b, _ := os.ReadFile(filepath.Join(dir, "runs"))
			return string(b) == "ran\nran\n"
		})
		must(s, os.WriteFile(filepath.Join(dir, "go"), nil, 0o644))
		<-done
		for _, i := range []int{0, 2} {
			if !errors.Is(all[i].err, ErrTime) || all[i].log.String() != "begin\n" {
				s.Errorf("%d: %v, %q", i, all[i].err, &all[i].log)
			}
		}
		if err := all[1].err; err != nil || string(all[1].Output) != "begin\nend\n" {
			s.Fatalf("%+v, %v", all[1].Result, err)
		}
		if log := all[1].log.String(); strings.Count(log, "begin\n") != 2 || !strings.Contains(log, "within narrower limits") || !strings.HasSuffix(log, "begin\nend\n") {
			s.Errorf("%q", log)
		}
		must(s, os.Remove(filepath.Join(dir, "go")))
		s.clean()
	})
}

// waiting is how many want a step that is under way.
func (s *stand) waiting() (n int) {
	s.Runner.mu.Lock()
	defer s.Runner.mu.Unlock()
	for _, f := range s.flights {
		n += f.waiters
	}
	return n
}

func untilTrue(s *stand, is func() bool) {
	s.Helper()
	for begun := time.Now(); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Since(begun) > time.Minute {
			s.Fatal("it does not come")
		}
	}
}

// TestNarrower: each limit counts for itself, and none is the widest.
func TestNarrower(t *testing.T) {
	none := Limits{}
	for _, l := range []Limits{{Memory: 1}, {CPU: 0.5}, {Pids: 7}, {Time: 1}, {Disk: 1}} {
		wider := Limits{Memory: 2 * l.Memory, CPU: 2 * l.CPU, Pids: 2 * l.Pids, Time: 2 * l.Time, Disk: 2 * l.Disk}
		if !narrower(&l, &none) || narrower(&none, &l) || !narrower(&l, &wider) || narrower(&wider, &l) || narrower(&l, &l) {
			t.Errorf("%+v", l)
		}
	}
	if more := (Limits{Pids: 2 * DefaultPids}); narrower(&more, &none) || !narrower(&none, &more) {
		t.Error("processes without a limit are the default")
	}
}

// TestReserve: room was reserved for steps that waited for others to run, and who waited for a step got the error of another's
// reservation.
func TestReserve(t *testing.T) {
	natives(t, func(s *stand) {
		refused := errors.New("refused")
		began, end := make(chan bool), make(chan bool)
		step := sh("base", "echo ran")
		step.Reserve = func(context.Context) (func(), error) {
			close(began)
			<-end
			return nil, refused
		}
		first := make(chan error)
		go func() {
			_, err := s.Run(s.ctx, step, nil)
			first <- err
		}()
		<-began
		released := false
		step.Reserve = func(context.Context) (func(), error) { return func() { released = true }, nil }
		second := make(chan error)
		go func() {
			_, err := s.Run(s.ctx, step, nil)
			second <- err
		}()
		untilTrue(s, func() bool { return s.waiting() == 2 })
		close(end)
		if err := <-first; !errors.Is(err, refused) {
			s.Error(err)
		}
		if err := <-second; err != nil || !released {
			s.Error(err, released)
		}
	})
}

// TestHoldPruned: who had waited for the run of another, and wanted the result held longer, failed if it was pruned just then, though
// the step had succeeded.
func TestHoldPruned(t *testing.T) {
	natives(t, func(s *stand) {
		gone := &Result{Snapshot: ID{}.Snapshot()}
		if err := s.holdLonger(s.ctx, &flight{step: &Step{Hold: -1}}, &Step{Hold: time.Hour}, gone); err != nil {
			s.Error(err)
		}
	})
}
