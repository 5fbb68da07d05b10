package crash

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"

	"holdfast"
	"holdfast/internal/page"
)

// vacuums tells whether the script has a vacuum.
func (r *run) vacuums() bool {
	return slices.ContainsFunc(r.script.Steps, func(s Step) bool { return s.Kind == "vacuum" })
}

// longEnough is an error if the file is too short for what one of its slots says:
// whichever of them a power failure leaves, its pages have to be there. (What a
// trailing meta says beyond that, opening it tells.)
func (r *run) longEnough(disk []byte) error {
	ps := r.script.PageSize
	if !r.created || len(disk) < 2*ps {
		return nil
	}
	slots := page.DecodeSlots(disk[:ps], disk[ps:2*ps])
	for slot, m := range slots.Meta {
		if high := int64(m.HighWater) * int64(ps); slots.Err[slot] == nil && high > int64(len(disk)) {
			return fmt.Errorf("the file has %d bytes, and the meta in slot %d wants %d", len(disk), slot, high)
		}
	}
	return nil
}

// vacuum does a vacuum, and in its pauses, or at the same time, what is to be done
// during it.
func (r *run) vacuum(steps []Step) error {
	s, during := steps[0], steps[1:]
	r.set(func() { r.acks = []version{r.version} })
	b := &beside{r: r, steps: during}
	var concurrent sync.WaitGroup
	if s.Together {
		r.set(func() { r.together, r.edited = 0, 0 })
		for range during {
			concurrent.Go(b.next)
		}
	}
	result, err := r.db.Vacuum(context.Background(), holdfast.VacuumOptions{StepPages: s.Pages, Progress: func(holdfast.VacuumProgress) {
		if !s.Together {
			b.wait()
		}
	}})
	concurrent.Wait()
	if result.SizeAfter < result.SizeBefore && err == nil {
		r.tally.Add("vacuum made the file shorter")
	}
	r.set(func() { r.settled = false })
	for err == nil && !r.file.isDead() && b.wait() { // there were too few pauses
	}
	if r.panicked != nil {
		r.db = nil
		return r.panicked
	}
	errs := append(slices.DeleteFunc(b.errs, func(err error) bool { return err == nil || err == errRollback }), err)
	if r.file.isDead() {
		return r.die()
	}
	if r.failed != "" {
		return r.afterFailure(errs[0])
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("vacuum: %w", err)
	}
	if slices.ContainsFunc(during, func(s Step) bool { return s.Kind == "release" }) {
		// It may have ended behind vacuum's last transaction, and it is a writer that
		// lets go what readers held.
		tx, err := r.db.Begin(true)
		if err == nil {
			err = tx.Rollback()
		}
		if err != nil {
			return fmt.Errorf("begin and roll back behind a vacuum: %w", err)
		}
	}
	return r.live()
}

// beside is steps that are done beside a vacuum.
type beside struct {
	r     *run
	mu    sync.Mutex
	steps []Step
	errs  []error
}

// wait does the next step in a goroutine of its own, and waits for it; false: there is
// none.
func (b *beside) wait() bool {
	if len(b.steps) == 0 {
		return false
	}
	var w sync.WaitGroup
	w.Go(b.next)
	w.Wait()
	return true
}

func (b *beside) next() {
	b.mu.Lock()
	s := b.steps[0]
	b.steps = b.steps[1:]
	b.mu.Unlock()
	defer func() {
		if p := recover(); p != nil {
			err := fmt.Errorf("panic: %v\n%s", p, debug.Stack())
			b.r.set(func() { b.r.panicked = err })
		}
	}()
	err := b.r.beside(s)
	b.mu.Lock()
	b.errs = append(b.errs, err)
	b.mu.Unlock()
}

// visible tells whether a reader may see the content that began when r.acks[from] was
// the last that was acknowledged: since then others may have been, and where writers run
// at the same time, one whose Update has not returned yet is visible too. The caller
// holds mu.
func (r *run) visible(content string, from int) bool {
	may := r.acks[from:]
	if r.step.Together {
		may = slices.Concat(may, r.pending)
	} else {
		may = may[len(may)-1:]
	}
	return slices.ContainsFunc(may, func(v version) bool { return v.acked == content })
}

// beside does a step beside a vacuum.
func (r *run) beside(s Step) error {
	switch s.Kind {
	case "tx":
		r.set(func() { r.acking = false })
		err := r.update(s)
		if err != nil && err != errRollback && !errors.Is(err, holdfast.ErrStopped) {
			r.set(func() { r.abort(0) }) // numbers are given again, also to vacuum
		}
		return err
	case "sync":
		return r.db.Sync()
	case "reader":
		from := 0
		r.set(func() { from = len(r.acks) - 1 })
		tx, err := r.db.Begin(false)
		if err != nil {
			return err
		}
		content, err := contentOf(tx)
		r.set(func() {
			if err == nil && !r.visible(content, from) && r.failed == "" && r.panicked == nil {
				err = fmt.Errorf("a reader beside a vacuum sees\n%s\nacknowledged:\n%s", content, r.acked)
			}
			r.readers = append(r.readers, held{tx, content})
		})
		return err
	case "release":
		var oldest []held
		r.set(func() {
			if len(r.readers) > 0 {
				oldest, r.readers = r.readers[:1:1], r.readers[1:]
			}
		})
		for _, h := range oldest {
			if err := errors.Join(h.look(), r.endReader(h)); err != nil {
				return err
			}
		}
	case "nosync":
		return r.simple(s)
	}
	return nil
}
