package mount

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// foreignCounts are how many mounts the host has that are not ours: few, and as many as
// the worker had that gave rise to all this. Few again, to see what the machine does.
var foreignCounts = []int{10, 33787, 10}

// foreign mounts n binds of directories of a tmpfs in the host's namespace, which is that
// of this program alone, until the function returned is called.
func foreign(b testing.TB, n int) (remove func()) {
	needRoot(b)
	dir := filepath.Join(base, "foreign")
	must(b, os.MkdirAll(dir, 0o700))
	must(b, unix.Mount("foreign", dir, "tmpfs", 0, "nr_inodes=0"))
	for i := range n - 1 {
		at := filepath.Join(dir, fmt.Sprint(i))
		must(b, os.Mkdir(at, 0o700))
		must(b, unix.Mount(at, at, "", unix.MS_BIND, ""))
	}
	return func() { must(b, unix.Unmount(dir, unix.MNT_DETACH)) }
}

// each runs a benchmark with each number of foreign mounts, and reports the median of what
// a round took.
func each(b *testing.B, f func(*testing.B, *stand) func()) {
	for i, n := range foreignCounts {
		b.Run(fmt.Sprintf("foreign=%d#%d", n, i), func(b *testing.B) {
			defer foreign(b, n)()
			s := newStand(b, Options{})
			round := f(b, s)
			round()
			took := make([]time.Duration, 0, 1000)
			for b.Loop() {
				begin := time.Now()
				round()
				took = append(took, time.Since(begin))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2])/1000, "median-µs")
			b.ReportMetric(float64(took[len(took)*99/100])/1000, "p99-µs")
		})
	}
}

func BenchmarkOverlayToWrite(b *testing.B) {
	each(b, func(b *testing.B, s *stand) func() {
		_, options := s.work("up")
		spec := overlay([]string{s.layer("a"), s.layer("b")}, options...)
		return func() { s.benchFree(s.benchGet(spec)) }
	})
}

func BenchmarkOverlayInStepNamespace(b *testing.B) {
	each(b, func(b *testing.B, s *stand) func() {
		_, options := s.work("up")
		spec := overlay([]string{s.layer("a"), s.layer("b")}, options...)
		n, err := s.StepNamespace()
		must(b, err)
		return func() {
			h := s.benchGet(spec)
			_, err := h.Attach(n, "")
			must(b, err)
			s.benchFree(h)
		}
	})
}

func BenchmarkOverlayInHost(b *testing.B) {
	each(b, func(b *testing.B, s *stand) func() {
		_, options := s.work("up")
		spec := overlay([]string{s.layer("a"), s.layer("b")}, options...)
		return func() {
			h := s.benchGet(spec)
			_, err := h.Attach(s.Host(), "")
			must(b, err)
			s.benchFree(h)
		}
	})
}

func BenchmarkShared(b *testing.B) {
	each(b, func(b *testing.B, s *stand) func() {
		spec := overlay([]string{s.layer("a"), s.layer("b")})
		return func() { s.benchGet(spec).Release() }
	})
}

// A step starts in a mount namespace of its own, a copy of that which it is started from.
func BenchmarkStartFromStepNamespace(b *testing.B) {
	each(b, func(b *testing.B, s *stand) func() {
		n, err := s.StepNamespace()
		must(b, err)
		return func() { startTrue(b, n) }
	})
}

func BenchmarkStartFromHost(b *testing.B) {
	each(b, func(b *testing.B, s *stand) func() {
		return func() { startTrue(b, s.Host()) }
	})
}

func BenchmarkMakeStepNamespace(b *testing.B) {
	each(b, func(b *testing.B, s *stand) func() {
		return func() {
			n, err := newNamespace(s.kernel.dir, "holdfast-test", s.kernel.keep)
			must(b, err)
			n.close()
		}
	})
}

func startTrue(b *testing.B, n *Namespace) {
	cmd := exec.Command("/bin/true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	must(b, n.Start(cmd))
	must(b, cmd.Wait())
}

// benchGet and benchFree are get and free without what a test needs in addition.
func (s *stand) benchGet(spec Spec) *Handle {
	h, err := s.Acquire(s.ctx, spec)
	must(s, err)
	return h
}

func (s *stand) benchFree(h *Handle) {
	h.Release()
	must(s, h.Wait(s.ctx))
}

// Twenty at once: an overlay to write, attached in the step namespace, a program, and all of it
// given back.
func BenchmarkTwenty(b *testing.B) {
	for i, n := range foreignCounts {
		b.Run(fmt.Sprintf("foreign=%d#%d", n, i), func(b *testing.B) {
			defer foreign(b, n)()
			s := newStand(b, Options{})
			steps, err := s.StepNamespace()
			must(b, err)
			lower := s.layer("a")
			var specs [20]Spec
			for g := range specs {
				_, options := s.work(fmt.Sprint("up", g))
				specs[g] = overlay([]string{lower}, options...)
			}
			b.ResetTimer()
			var wg sync.WaitGroup
			for g := range specs {
				wg.Go(func() {
					for range (b.N + g) / len(specs) {
						h := s.benchGet(specs[g])
						_, err := h.Attach(steps, "")
						must(b, err)
						startTrue(b, steps)
						s.benchFree(h)
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(s.Stats().Parks), "parks")
		})
	}
}
