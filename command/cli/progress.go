package cli

import (
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

// Start shows it until the function is called that it returns. What is no terminal shows nothing.
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
		progressbar.OptionShowBytes(p.Bytes), progressbar.OptionClearOnFinish(),
		progressbar.OptionSetElapsedTime(p.Bytes), progressbar.OptionSetPredictTime(p.Bytes), progressbar.OptionSpinnerType(14),
		progressbar.OptionSetSpinnerChangeInterval(0)) // drawn below, and by no goroutine of its own
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		draw := func() {
			if p.Done == nil {
				_ = bar.Add(1)
			} else {
				_ = bar.Set64(min(p.Done(), total))
			}
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
