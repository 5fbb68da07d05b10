package crash

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"time"

	"holdfast"
	"holdfast/internal/bridge"
	"holdfast/internal/extension"
	"holdfast/internal/page"
	"holdfast/internal/vfs"
	"holdfast/test/hook"
	"holdfast/test/soak"
)

// run runs a script.
type run struct {
	script Script
	tally  *soak.Tally // counts disks by what was going on
	dir    string      // where bbolt opens disks
	lies   bool        // the disk forgets to flush, for tests of the test

	disk    *vfs.Crash
	file    *handle
	db      *holdfast.DB // nil: closed
	options Step         // of the last open
	readers []held
	leaks   leaks // pages that bbolt has lost

	wake    *sync.Cond // edited, with mu
	mu      sync.Mutex // guards what follows; the disk calls back from where it is written
	step    Step       // that is running
	last    bool       // it is the last
	calls   int        // that changed the file in this step
	flushes int        // of these
	chosen  []byte     // disk with which the history goes on
	fault   error      // the first that a disk showed

	failed     string // the call that failed in this step
	failedMeta bool   // it wrote a meta
	failing    bool   // it is a flush, and under way

	version           // last acknowledged
	pending []version // on top of it, prepared or about to be, oldest first
	torn    []version // that were under way when the power went, and have failed since
	behind  []version // acknowledged before, one of which bbolt may find
	acking  bool      // some of the running step is acknowledged
	soft    []version // acknowledged with Periodic and followed by others since the last flush
	powered bool      // the power, or a flush, failed since the file was last open: one of soft may be what is left
	done    int       // transactions
	acks    []version // acknowledged since the last vacuum began
	settled bool      // nothing has been committed since bbolt would find all
	created bool      // Open has returned for the first time
	// Of the transactions that run at once, how many there are, and how many have
	// done their edits.
	together, edited int
	editing          bool  // a transaction that runs alone has not done its edits yet
	panicked         error // one of them
	noSync           bool
	exposed          bool // something was written without a flush and has to be flushed
	wasExposed       bool // when the running step began, or by a commit of it
	leftExposed      bool // the same, or by one of vacuum's, and nothing was flushed since: it stays so if another one fails
	unsure           bool // and a flush of it failed: see lost_test.go
	lying            bool // since then the file was not closed
	past             past
}

// version is what a transaction made of the database.
type version struct {
	nth   int // in the order of all transactions; numbers are given again after an abort
	id    int // of the transaction
	state *node
	acked string // its content
}

// past is what has happened before the running step.
type past struct {
	sessions   int
	recoveries int // since the last clean close
	killed     bool
	adopted    bool // what was found after a flush had failed
	rollback   bool
	stock      bool
	switched   bool // the last flush was the first after commits without any
	failed     string
	growth     bool // in the running step
	cutOff     bool // the file was cut off, and that is not flushed
	truncated  bool // it was cut off since it was opened
}

// held is a reading transaction and what it saw at first.
type held struct {
	tx      *holdfast.Tx
	content string
}

// failure is where a script fails.
type failure struct {
	step int
	err  error
}

func (f *failure) Error() string { return fmt.Sprintf("step %d: %v", f.step+1, f.err) }

// newDisk makes an empty file; of a script with pages that Holdfast gives no new database, one
// that bbolt has made.
func (r *run) newDisk() {
	var content []byte
	if r.created = r.script.PageSize < page.MinNewPageSize; r.created {
		content = page.NewFile(r.script.PageSize, true)
	}
	r.disk = vfs.NewCrash("crash.db", content, r.event)
}

// start makes what a script begins with.
func (r *run) start() {
	r.version, r.leaks = version{state: newNode(), acked: emptyContent}, leaks{}
	r.wake = sync.NewCond(&r.mu)
	r.newDisk()
}

// do runs the script; nil: everything was as it has to be.
func (r *run) do() (fail *failure) {
	r.start()
	at := 0
	defer func() {
		if p := recover(); p != nil {
			fail = &failure{at, fmt.Errorf("panic: %v\n%s", p, debug.Stack())}
		}
	}()
	for at < len(r.script.Steps) {
		n := r.group(at)
		r.begin(r.script.Steps[at], at+n == len(r.script.Steps))
		err := r.one(r.script.Steps[at : at+n])
		r.mu.Lock()
		err = errors.Join(r.fault, err)
		r.mu.Unlock()
		if err != nil {
			r.end()
			return &failure{at + n - 1, err}
		}
		at += n
	}
	r.end()
	return nil
}

// group is the number of steps from at on that run at once.
func (r *run) group(at int) int {
	n := 1
	if first := r.script.Steps[at]; first.Kind == "tx" && first.Together {
		for at+n < len(r.script.Steps) && r.script.Steps[at+n].Kind == "tx" && r.script.Steps[at+n].Together {
			n++
		}
	} else if first.Kind == "vacuum" {
		for at+n < len(r.script.Steps) && r.script.Steps[at+n].During {
			n++
		}
	}
	return n
}

func (r *run) begin(s Step, last bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.step, r.last, r.calls, r.flushes = s, last, 0, 0
	r.failed, r.failedMeta, r.failing = "", false, false
	r.wasExposed, r.leftExposed = r.exposed, r.exposed
	r.past.growth, r.acking = false, false
}

func (r *run) one(steps []Step) error {
	switch s := steps[0]; s.Kind {
	case "open":
		return r.open(s)
	case "stock":
		return r.stock(s)
	case "tx":
		if r.db == nil && r.past.sessions > 0 {
			// Without an open of its own.
			if err := r.open(Step{NoFreelistSync: r.options.NoFreelistSync, Strict: r.options.Strict, Periodic: r.options.Periodic}); err != nil || r.db == nil {
				return err
			}
		}
		if r.db == nil {
			return nil
		}
		return r.transactions(steps)
	case "vacuum":
		if r.db == nil {
			return nil
		}
		return r.vacuum(steps)
	default:
		if r.db == nil {
			return nil
		}
		return r.simple(s)
	}
}

func (r *run) simple(s Step) error {
	switch s.Kind {
	case "reader":
		tx, err := r.db.Begin(false)
		if err != nil {
			return err
		}
		content, err := contentOf(tx)
		r.readers = append(r.readers, held{tx, content})
		return err
	case "release":
		return r.release(1)
	case "nosync":
		r.db.NoSync = s.NoSync
		r.set(func() { r.noSync = s.NoSync })
		return nil
	case "sync":
		err := r.db.Sync()
		if r.file.isDead() {
			return r.die()
		}
		if r.failed != "" {
			return r.afterFailure(err)
		}
		r.set(r.settles)
		return errors.Join(err, r.live())
	}
	return r.close()
}

func (r *run) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

// release ends the n oldest readers, if there are so many. They still see what
// they saw.
func (r *run) release(n int) error {
	for ; n > 0 && len(r.readers) > 0; n-- {
		if err := r.readers[0].look(); err != nil {
			return err
		}
		if err := r.endReader(r.readers[0]); err != nil {
			return err
		}
		r.readers = r.readers[1:]
	}
	return nil
}

func (r *run) endReader(h held) error {
	err := h.tx.Rollback()
	if errors.Is(err, holdfast.ErrStopped) && r.powered && r.options.durability() == holdfast.Periodic {
		r.tally.Add("reader told that its state was lost")
		err = nil
	}
	return err
}

// look tells whether a reader still sees what it saw, and can copy the file.
func (h held) look() error {
	content, err := contentOf(h.tx)
	if err == nil && content != h.content {
		err = fmt.Errorf("a reader sees\n%s\nand saw at first\n%s", content, h.content)
	}
	if err == nil {
		if _, err = h.tx.WriteTo(io.Discard); errors.Is(err, holdfast.ErrStopped) {
			err = nil
		}
	}
	return err
}

// open opens the database. What it holds settles what became of the commit
// under way when the power went or the process died.
func (r *run) open(s Step) error {
	if r.db != nil {
		return nil
	}
	r.set(func() {
		r.noSync = false // opening flushes whatever the options say
		r.past.sessions++
		r.past.cutOff, r.past.truncated = false, false
	})
	r.file = &handle{File: r.disk.Open(), r: r}
	if s.Ahead {
		r.file.File = r.disk.OpenAhead(32 << 10)
	}
	found, before := r.disk.Bytes(), r.failed
	db, err := bridge.Open(r.file, &holdfast.Options{
		PageSize: r.script.PageSize, NoFreelistSync: s.NoFreelistSync, NoSync: s.NoSync, StrictCompat: s.Strict,
		Durability: s.durability(), PeriodicDelay: time.Hour, PeriodicBytes: 32 << 10,
		SettleDelay: -1, // sync does it, where the script says
	})
	r.db, r.options = db, s
	if err == nil {
		hook.WriteEarly(db, 1, 0) // no history has a transaction as long as those that write early otherwise
	}
	switch {
	case r.file.isDead():
		if err == nil {
			r.set(func() { r.created = true })
		}
		return r.die()
	case r.failed != before:
		return r.failedOpen(err)
	case err == nil:
	case r.unsure:
		r.tally.Add("damage found after a lost flush")
		r.startAnew()
		return nil
	case r.unborn(err, found):
		r.startAnew()
		return nil
	default:
		return fmt.Errorf("open: %w", err)
	}
	if r.db.AllocSize = 16 << 10; s.Ahead { // then the file often grows again
		r.db.AllocSize = r.script.PageSize
	}
	r.set(func() { r.created, r.noSync = true, s.NoSync })
	r.tally.Add("opened by " + string(db.Stats().OpenPath))
	r.countRuns(found)
	if r.unsure {
		return r.adopt()
	}
	return r.settle()
}

// countRuns tells how the free pages of a file that was opened are recorded.
func (r *run) countRuns(data []byte) {
	ps := r.script.PageSize
	if len(data) < 2*ps {
		return
	}
	slots := page.DecodeSlots(data[:ps], data[ps:2*ps])
	best, err := slots.Best()
	if err != nil {
		return
	}
	ext, err := extension.Decode(data[best*ps:][:ps])
	if err != nil {
		return
	}
	if ext.Trailing != nil {
		r.tally.Add("opened with a trailing meta")
	}
	if ext.Free != nil && len(ext.Free.Logs) > 0 {
		r.tally.Add("opened with log runs")
	}
	if ext.Free != nil && ext.Free.Snapshot.Pages > 0 {
		r.tally.Add("opened with a snapshot")
	}
}

// failedOpen comes after an Open in which a call on the file failed.
func (r *run) failedOpen(err error) error {
	r.set(func() { r.past.failed, r.lying, r.powered = r.failed, false, r.powered || r.failed == "sync" })
	r.tally.Add("failure in Open")
	if err == nil {
		return fmt.Errorf("a %s failed, and Open succeeded", r.failed)
	}
	if !errors.Is(err, errInjected) {
		return fmt.Errorf("a %s failed with %q, and Open with %w", r.failed, errInjected, err)
	}
	return nil
}

// unborn tells whether err is that of a file whose creation was cut short in
// such a way that there is garbage in it. Nothing else was. A file without any
// is opened, or its creation done again.
func (r *run) unborn(err error, disk []byte) bool {
	return !r.created && (err == holdfast.ErrInvalid || err == holdfast.ErrChecksum) && r.garbage(disk)
}

// garbage tells whether a sector of disk is neither zero nor what creation
// writes there.
func (r *run) garbage(disk []byte) bool {
	const sector = 512
	created := vfs.NewMem("created.db")
	db, err := bridge.Open(created.Open(), &holdfast.Options{PageSize: r.script.PageSize, NoFreelistSync: true})
	if err == nil {
		err = db.Close()
	}
	if err != nil {
		return false
	}
	content := created.Bytes()
	for at := 0; at < len(disk); at += sector {
		piece := disk[at:min(at+sector, len(disk))]
		written := at+len(piece) <= len(content) && bytes.Equal(piece, content[at:at+len(piece)])
		if !written && !bytes.Equal(piece, make([]byte, len(piece))) {
			return true
		}
	}
	return false
}

func (r *run) settle() error {
	content, lost, err := viewed(r.db, r.leaks)
	if err != nil {
		return err
	}
	if err := r.settleOn(content, false); err != nil {
		return err
	}
	r.leaks = lost
	return nil
}

// settleOn goes on with what Holdfast, or bbolt, has found.
func (r *run) settleOn(content string, stock bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	state, err := r.expected(content, stock, r.powered)
	r.powered = false
	if err == nil {
		r.version, r.pending, r.torn = version{state: state, acked: content}, nil, nil
		r.settles()
	}
	return err
}

// settles says that the newest meta is one that bbolt understands. The caller
// holds mu.
func (r *run) settles() { r.behind, r.soft, r.settled = nil, nil, true }

// close closes the database.
func (r *run) close() error {
	if err := r.release(len(r.readers)); err != nil {
		return err
	}
	err := r.db.Close()
	if r.file.isDead() {
		return r.die()
	}
	r.db = nil
	if r.failed == "" {
		r.set(func() {
			r.past.recoveries, r.past.adopted = 0, false
			r.settles()
		})
		return err
	}
	r.set(func() { r.past.failed, r.lying, r.powered = r.failed, false, r.powered || r.failed == "sync" })
	r.tally.Add("failure in Close")
	switch {
	case err != nil && !errors.Is(err, errInjected):
		return fmt.Errorf("a %s failed with %q, and Close with %w", r.failed, errInjected, err)
	case err == nil && (r.failed == "sync" || r.failedMeta):
		// Without its freelist page a file is as good; Close need not tell.
		return fmt.Errorf("a %s failed, and Close succeeded", r.failed)
	}
	return nil
}

// die ends a session in which the power went or the process died.
func (r *run) die() error {
	for _, h := range r.readers {
		h.tx.Rollback()
	}
	r.readers = nil
	if r.db != nil {
		_ = r.db.Close() // the file is gone
	}
	r.db = nil
	if r.lying && r.chosen == nil {
		r.tally.Add("killed after a lost flush")
		r.startAnew()
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lying = false
	if r.chosen == nil {
		r.past.killed = true
		return nil
	}
	r.disk = vfs.NewCrash("crash.db", r.chosen, r.event)
	r.chosen, r.exposed, r.powered = nil, false, true
	r.past.recoveries++
	return nil
}

// end closes everything, without looking.
func (r *run) end() {
	r.mu.Lock()
	if r.file != nil {
		r.file.dead = true
	}
	r.mu.Unlock()
	if r.db != nil {
		_ = r.die()
	}
}
