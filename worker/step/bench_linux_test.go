package step

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// counts are how many snapshots there are: few, as many as the worker had that gave rise to
// all this, and few again, to see what the machine does.
var counts = []int{10, 33787, 10}

// fill commits n snapshots, without steps.
func (s *stand) fill(n int) {
	s.Helper()
	for i := range n {
		name := fmt.Sprint("other ", i)
		_, err := s.namespace.Prepare(s.ctx, name+" active", "base")
		must(s, err)
		must(s, s.namespace.Commit(s.ctx, name, name+" active"))
	}
}

// median reports what a round takes, and what one and nine of ten take at most.
func median(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2])/1000, "median-µs")
	b.ReportMetric(float64(took[len(took)/10])/1000, "p10-µs")
	b.ReportMetric(float64(took[len(took)*9/10])/1000, "p90-µs")
}

// BenchmarkOwnTime is what a step takes whose command does nothing: all of it is our own time. The
// result is removed outside of it.
func BenchmarkOwnTime(b *testing.B) {
	for i, n := range counts {
		b.Run(fmt.Sprintf("snapshots=%d#%d", n, i), func(b *testing.B) {
			s := newStand(b, Options{Concurrency: 20})
			s.fill(n)
			for _, name := range []string{"native", "init", "runc"} {
				must(b, s.Runner.Close())
				s.opt.Runtime = runtimeNamed(name)
				var err error
				s.Runner, err = New(s.ctx, s.opt)
				must(b, err)
				for _, clients := range []int{1, 20} {
					b.Run(fmt.Sprintf("%s/clients=%d", name, clients), func(b *testing.B) { ownTime(b, s, clients) })
				}
			}
		})
	}
}

func ownTime(b *testing.B, s *stand, clients int) {
	var mu sync.Mutex
	var took []time.Duration
	round := func(i int) {
		step := Step{Base: "base", Command: []string{"/bin/true"}, Env: []string{fmt.Sprint("N=", time.Now().UnixNano(), "-", i)}}
		begin := time.Now()
		res, err := s.Run(s.ctx, step, nil)
		d := time.Since(begin)
		if err != nil {
			b.Error(err)
			return
		}
		if err := s.namespace.Remove(s.ctx, res.Snapshot); err != nil {
			b.Error(err)
		}
		mu.Lock()
		took = append(took, d)
		mu.Unlock()
	}
	round(0)
	took = took[:0]
	b.ResetTimer()
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			for i := range (b.N + c) / clients {
				round(i + 1)
			}
		})
	}
	wg.Wait()
	if len(took) > 0 {
		median(b, took)
	}
}

// BenchmarkBareRunc is runc by itself, on a directory.
func BenchmarkBareRunc(b *testing.B) {
	needRoot(b)
	dir := b.TempDir()
	must(b, os.MkdirAll(filepath.Join(dir, "rootfs/bin"), 0o755))
	program, err := exec.LookPath("busybox")
	must(b, err)
	text, err := os.ReadFile(program)
	must(b, err)
	must(b, os.WriteFile(filepath.Join(dir, "rootfs/bin/true"), text, 0o755))
	spec := exec.Command("runc", "spec")
	spec.Dir = dir
	must(b, spec.Run())
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	must(b, err)
	edited := strings.Replace(strings.Replace(string(config), `"sh"`, `"/bin/true"`, 1), `"terminal": true`, `"terminal": false`, 1)
	must(b, os.WriteFile(filepath.Join(dir, "config.json"), []byte(edited), 0o600))
	var took []time.Duration
	for b.Loop() {
		begin := time.Now()
		out, err := exec.Command("runc", "--root", filepath.Join(dir, "state"), "run", "--bundle", dir, "holdfast-bench").CombinedOutput()
		took = append(took, time.Since(begin))
		if err != nil {
			b.Fatalf("%v: %s", err, out)
		}
	}
	median(b, took)
}

// BenchmarkHit is what a result takes that is there, held for the next step on it and not.
func BenchmarkHit(b *testing.B) {
	for _, hold := range []time.Duration{-1, DefaultHold} {
		b.Run(fmt.Sprint("hold=", max(hold, 0)), func(b *testing.B) {
			s := newStand(b, Options{Hold: hold})
			step := sh("base", "echo hit")
			s.ok(step)
			b.ReportAllocs()
			for b.Loop() {
				if res := s.ok(step); !res.Hit {
					b.Fatalf("%+v", res)
				}
			}
		})
	}
}
