package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
)

// ProgressStep is how often progress is usually drawn.
const ProgressStep = 100 * time.Millisecond

// Progress shows on a terminal that something takes time.
type Progress struct {
	Writer io.Writer
	What   string
	Total  int64
	Done   func() int64  // how much of Total is done; nil: that is not known
	Bytes  bool          // of so many a second
	Step   time.Duration // how often it is drawn; 0, in tests: at once, too
}

// Start shows it until the function is called that it returns. What is not a terminal shows nothing.
func (p Progress) Start() (stop func()) {
	w, total := p.Writer, p.Total
	if !IsTerminal(w) {
		return func() {}
	}
	if p.Done == nil {
		total = -1
	}
	bar := progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(w), progressbar.OptionSetDescription(p.What), progressbar.OptionSetWidth(20),
		progressbar.OptionClearOnFinish(), progressbar.OptionSetElapsedTime(false), progressbar.OptionSetPredictTime(false),
		progressbar.OptionSpinnerType(14),
		progressbar.OptionSetSpinnerChangeInterval(0)) // drawn below, and by no goroutine of its own
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		speed := Speed{Total: total}
		draw := func() {
			if p.Done == nil {
				_ = bar.Add(1)
				return
			}
			done := min(p.Done(), total)
			if p.Bytes {
				bar.Describe(p.What + " " + speed.Text(time.Now(), done))
			}
			_ = bar.Set64(done)
		}
		if p.Step == 0 {
			_ = bar.RenderBlank()
		}
		tick := time.NewTicker(max(p.Step, time.Millisecond))
		defer tick.Stop()
		for {
			select {
			case <-quit:
				_ = bar.Exit()
				_ = bar.Clear()
				return
			case <-tick.C:
				draw()
			}
		}
	}()
	return func() { close(quit); <-ended }
}

// Bounds of what a rate is computed of: of less than the first it would say nothing, as at the beginning, where what
// is done jumps and no time has passed; of more than the second it would not be that of now.
const (
	speedLeast = time.Second
	speedMost  = 10 * time.Second
)

// Speed is how fast bytes are done.
type Speed struct {
	Total int64

	samples []sample // at most speedMost apart, and at least speedLeast/10
}

type sample struct {
	at   time.Time
	done int64
}

// Text says how much is done by now, and how fast, as soon as that is known.
func (s *Speed) Text(now time.Time, done int64) string {
	text := fmt.Sprintf("%s of %s", Size(done), Size(s.Total))
	if n := len(s.samples); n == 0 || now.Sub(s.samples[n-1].at) >= speedLeast/10 {
		s.samples = append(s.samples, sample{now, done})
	}
	for now.Sub(s.samples[0].at) > speedMost {
		s.samples = s.samples[1:]
	}
	first := s.samples[0]
	passed := now.Sub(first.at)
	if passed < speedLeast || done <= first.done {
		return text
	}
	rate := float64(done-first.done) / passed.Seconds()
	text += fmt.Sprintf(", %s/s", Size(int64(rate)))
	if left := time.Duration(float64(s.Total-done) / rate * float64(time.Second)); left >= time.Second {
		text += fmt.Sprintf(", %s left", left.Round(time.Second))
	}
	return text
}
