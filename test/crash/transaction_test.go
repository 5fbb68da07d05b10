package crash

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"holdfast"
	"holdfast/internal/bridge"
	"holdfast/internal/vfs"
)

var errRollback = errors.New("rolled back on purpose")

// transactions does one transaction, or several at once.
func (r *run) transactions(steps []Step) error {
	errs := make([]error, len(steps))
	if len(steps) > 1 {
		r.set(func() { r.together, r.edited = len(steps), 0 })
		if r.options.Strict { // each begins when the one before is durable
			r.set(func() { r.together = 0 })
		}
	}
	var wg sync.WaitGroup
	for i, s := range steps {
		if len(steps) == 1 {
			errs[i] = r.update(s)
			break
		}
		wg.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					err := fmt.Errorf("panic: %v\n%s", p, debug.Stack())
					r.set(func() { r.panicked = err })
				}
			}()
			errs[i] = r.update(s)
		})
	}
	wg.Wait()
	r.set(func() { r.together = 0 })
	if err := r.panicked; err != nil {
		r.db = nil // whose locks are not given up any more
		return err
	}
	if r.file.isDead() {
		return r.die()
	}
	if r.failed == "write" && len(steps) == 1 && steps[0].Rollback && errs[0] == errRollback {
		r.set(func() { // what was written by the goroutine is given up with all else
			r.past.failed, r.exposed = r.failed, r.exposed && r.leftExposed
		})
		r.tally.Add("failed write after a rollback")
		return r.live()
	}
	if r.failed != "" {
		for _, err := range errs {
			if err != nil && err != errRollback {
				return r.afterFailure(err)
			}
		}
		return r.afterFailure(nil)
	}
	committed := 0
	for _, err := range errs {
		if err == nil {
			committed++
		} else if err != errRollback {
			return fmt.Errorf("update: %w", err)
		}
	}
	if committed == 0 { // what was appended is in the file, and nothing names it
		r.set(func() { r.exposed = r.exposed && r.leftExposed })
	}
	if len(steps) == 1 && r.flushes == 2 && !r.options.Strict && !r.wasExposed {
		r.tally.Add("two flushes for want of room")
	}
	return r.live()
}

// acknowledge says that the nth transaction has succeeded, and so have those before
// it.
func (r *run) acknowledge(nth int) {
	for len(r.pending) > 0 && r.pending[0].nth <= nth {
		// One that changed nothing has written nothing.
		changed := r.pending[0].acked != r.version.acked
		if !r.acking && changed && r.options.durability() == holdfast.Full {
			r.behind, r.acking = nil, true
		}
		r.wasExposed = r.wasExposed || changed && r.noSync
		if !r.options.Strict {
			r.behind = append(r.behind, r.version)
		}
		if r.options.durability() == holdfast.Periodic {
			r.soft = append(r.soft, r.version)
		}
		r.version, r.pending = r.pending[0], r.pending[1:]
		r.acks = append(r.acks, r.version)
		r.settled = false
	}
}

// abort takes what has failed off what is under way, all but the first so many. With the power off the disk
// that was chosen may hold it all the same, whatever the engine was told afterwards. The caller holds mu.
func (r *run) abort(but int) {
	if r.file.dead {
		r.torn = append(r.torn, r.pending[but:]...)
	}
	r.pending = r.pending[:but:but]
}

// update does a transaction. Others may be prepared and not durable when it
// begins: it stands on them.
func (r *run) update(s Step) error {
	edited := sync.OnceFunc(func() {
		r.set(func() { r.edited++ })
		r.wake.Broadcast()
	})
	defer edited()
	nth := 0
	err := r.db.Update(func(tx *holdfast.Tx) error {
		defer edited()
		var base *node
		r.set(func() {
			for len(r.pending) > 0 && r.pending[len(r.pending)-1].id >= tx.ID() { // aborted, or nothing was changed
				r.abort(len(r.pending) - 1)
			}
			if base = r.state; len(r.pending) > 0 {
				base = r.pending[len(r.pending)-1].state
			}
			if s.Together {
				was := r.step
				r.step = s
				r.step.Kind, r.step.Seed, r.step.Cut, r.step.Disk, r.step.Kill = was.Kind, was.Seed, was.Cut, was.Disk, was.Kill
				r.step.Fail, r.step.FailSync, r.step.Die = was.Fail, was.FailSync, was.Die
			}
		})
		r.set(func() { r.editing = !s.Together })
		err := applyTo(tx, s.Edits)
		r.set(func() { r.editing = false })
		if err != nil {
			return err
		}
		if s.Rollback {
			r.set(func() { r.past.rollback = true })
			return errRollback
		}
		next := base.clone()
		next.apply(s.Edits)
		content := next.content()
		r.set(func() {
			r.done++
			nth = r.done
			r.pending = append(r.pending, version{nth, tx.ID(), next, content})
			if content == base.content() { // it may flush, and nothing else is edited meanwhile: see handle.Sync
				r.edited = r.together
			}
		})
		return nil
	})
	if err == nil {
		r.set(func() { r.acknowledge(nth) })
	}
	return err
}

// afterFailure comes after a transaction or a Sync in which a call on the file
// failed.
func (r *run) afterFailure(err error) error {
	r.set(func() { r.past.failed = r.failed })
	if err == nil {
		return fmt.Errorf("a %s failed, and the %s succeeded", r.failed, r.step.Kind)
	}
	if !errors.Is(err, errInjected) {
		return fmt.Errorf("a %s failed with %q, and the %s with %w", r.failed, errInjected, r.step.Kind, err)
	}
	if !errors.Is(err, holdfast.ErrStopped) {
		if r.failed == "sync" {
			return fmt.Errorf("a flush failed, and writing goes on: %w", err)
		}
		r.set(func() { // it has not happened, and wrote to free pages only
			if len(r.pending) > 0 && r.step.Together {
				r.tally.Add("failed write inside a group")
			}
			r.abort(0)
			r.exposed = r.exposed && r.leftExposed
		})
		return r.live()
	}
	r.set(func() { r.powered = true }) // what was not flushed may be gone
	again := r.db.Update(func(tx *holdfast.Tx) error { return applyTo(tx, again) })
	if !errors.Is(again, holdfast.ErrStopped) {
		return fmt.Errorf("the writer was stopped by %w, but the next transaction gives: %w", err, again)
	}
	content, _, err := viewed(r.db, r.leaks)
	if err != nil {
		return err
	}
	if _, err := r.expected(content, false, true); err != nil {
		return fmt.Errorf("after a failed flush a reader sees\n%s\nacknowledged:\n%s", content, r.acked)
	}
	if err := r.release(len(r.readers)); err != nil {
		return err
	}
	if r.step.Die {
		r.set(func() { r.file.dead = true })
		return r.die()
	}
	if err := r.db.Close(); err != nil {
		return fmt.Errorf("close after a failed flush: %w", err)
	}
	r.db = nil
	r.set(func() { r.lying = false })
	return r.open(r.options)
}

// live looks at the database that is open, and at its readers.
func (r *run) live() error {
	pending := r.db.Stats().PendingPageN
	content, _, err := viewed(r.db, r.leaks)
	if err != nil {
		return err
	}
	if content != r.acked {
		return fmt.Errorf("the database holds\n%s\nacknowledged:\n%s", content, r.acked)
	}
	if len(r.readers) == 0 && pending != 0 && (r.settled || r.options.Strict) {
		return fmt.Errorf("%d pages wait for readers, and there is none", pending)
	}
	for _, h := range r.readers {
		if err := h.look(); err != nil {
			return err
		}
	}
	return nil
}

// stock has bbolt open the file, whatever the page cache and the disk hold of
// it, do a transaction and close it. What it leaves is on the disk.
func (r *run) stock(s Step) error {
	// bbolt does not find a second meta at 512 bytes, nor know a creation that
	// was cut short; and it ends the process on pages that a lost flush mixed up.
	if r.db != nil || !r.created || r.unsure || r.script.PageSize < 1024 {
		return nil
	}
	path := filepath.Join(r.dir, "stock.db")
	if err := os.WriteFile(path, r.disk.Bytes(), 0o600); err != nil {
		return err
	}
	defer os.Remove(path)
	if err := r.stockSession(path, s); err != nil {
		return fmt.Errorf("bbolt: %w", err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	r.set(func() {
		r.disk = vfs.NewCrash("crash.db", data, r.event)
		r.exposed, r.past.stock = false, true
	})
	return r.inherit(data)
}

func (r *run) stockSession(path string, s Step) error {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout: time.Minute, PageSize: r.script.PageSize, NoSync: true, NoFreelistSync: s.NoFreelistSync,
	})
	if err != nil {
		return err
	}
	defer db.Close()
	var content string
	if err := db.View(func(tx *bbolt.Tx) (err error) {
		content, err = contentOf(tx)
		return err
	}); err != nil {
		return err
	}
	if err := r.settleOn(content, true); err != nil {
		return err
	}
	next := r.state.clone()
	next.apply(s.Edits)
	if err := db.Update(func(tx *bbolt.Tx) error { return applyTo(tx, s.Edits) }); err != nil {
		return err
	}
	r.set(func() { r.version = version{state: next, acked: next.content()} })
	return db.Close()
}

// inherit notes the pages that bbolt has lost.
func (r *run) inherit(data []byte) error {
	db, err := bridge.Open(vfs.NewCrash("inherited.db", data, nil).Open(), &holdfast.Options{ReadOnly: true, PreLoadFreelist: true})
	if err != nil {
		return fmt.Errorf("open what bbolt left: %w", err)
	}
	defer db.Close()
	content, lost, err := viewed(db, everyLeak)
	if err == nil && content != r.acked {
		err = fmt.Errorf("what bbolt left holds\n%s\nand not\n%s", content, r.acked)
	}
	r.leaks = lost
	return err
}
