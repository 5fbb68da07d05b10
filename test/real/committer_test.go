package real

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"holdfast"
	"holdfast/internal/bridge"
	"holdfast/internal/extension"
	"holdfast/internal/page"
	"holdfast/internal/vfs"
)

// What a committer says on its standard output, a line each, with a number.
const (
	saysOpening    = "opening"    // bbolt finds each commit at once: 0 no, 1 with StrictCompat, 2 yes
	saysBegun      = "begun"      // commit n is what comes next
	saysDone       = "done"       // commit n has returned
	saysRolledBack = "rolledback" // the edit n
	saysCompacting = "compacting" // 0: a copy is being written
	saysClosing    = "closing"    // 0
	saysSyncing    = "syncing"    // 0
	saysSynced     = "synced"     // 0: Sync has returned
	saysSettled    = "settled"    // 0: after a while without commits bbolt finds the newest
	saysWriters    = "writers"    // so many commit side by side
	saysGroup      = "group"      // so many commits were written together
	saysVacuuming  = "vacuuming"  // 0: a vacuum has begun
	saysVacuumed   = "vacuumed"   // by so many bytes the file has become shorter
)

// Modes in which a committer commits in a machine whose power is cut.
const (
	modeFull     = "full" // sometimes with StrictCompat
	modePeriodic = "periodic"
	modeNone     = "none"
)

// committer is a process that commits until it is killed.
type committer struct {
	order
	history
	rand *rand.Rand
	db   engine
	call atomic.Int64 // of a file, twice: before and after it
}

// prefix begins each line; recorder is as in order.
var prefix, recorder string

// say writes a line, in one system call: lines do not mix.
func say(what string, n uint64) {
	if recorder != "" {
		mark(recorder, fmt.Sprintf("%s%s %d", prefix, what, n))
	}
	if _, err := fmt.Fprintf(os.Stdout, "%s%s %d\n", prefix, what, n); err != nil {
		os.Exit(3) // nothing listens
	}
}

// runCommitter opens the database and commits the next edits of a history, in
// sessions, until it is killed.
func runCommitter(o order) error {
	c := &committer{order: o, history: history{seed: o.History, large: o.Large, fill: o.Fill}, rand: rand.New(rand.NewPCG(o.Seed, 1))}
	for n := 1; ; n++ {
		if err := c.session(); err != nil || n == o.Sessions {
			return err
		}
	}
}

// session is some commits with one opening of the file.
func (c *committer) session() (err error) {
	o := c.Options
	o.NoFreelistSync = c.rand.IntN(2) == 0
	o.NoSync = c.rand.IntN(10) == 0 // what is in the page cache outlives the process
	o.AllocSize = []int{64 << 10, 256 << 10, 1 << 20}[c.rand.IntN(3)]
	o.StrictCompat = c.rand.IntN(4) == 0
	o.SettleDelay = []time.Duration{-1, -1, 0, time.Millisecond}[c.rand.IntN(4)]
	if c.Mode != "" {
		c.vary(&o)
	}
	switch {
	case o.NoSync || c.Engine == "bbolt":
		say(saysOpening, 2)
	case o.StrictCompat:
		say(saysOpening, 1)
	default:
		say(saysOpening, 0)
	}
	if c.KillAt > 0 {
		c.db, err = c.openSuicidal(o)
	} else {
		c.db, err = open(c.Engine, c.Path, o)
	}
	if err != nil {
		return err
	}
	for range 1 + c.rand.IntN(3) {
		if err := c.burst(); err != nil {
			return err
		}
		if c.Engine == "holdfast" && o.SettleDelay >= 0 && c.rand.IntN(2) == 0 {
			if err := untilSettled(c.Path); err != nil {
				return err
			}
			say(saysSettled, 0)
		}
	}
	if c.rand.IntN(3) == 0 {
		if err := c.compact(); err != nil {
			return err
		}
	}
	say(saysClosing, 0)
	return c.db.close()
}

// vary chooses options for a session in a machine.
func (c *committer) vary(o *openOptions) {
	switch c.Mode {
	case modeFull:
		o.NoSync = false
	case modePeriodic:
		o.NoSync, o.StrictCompat, o.SettleDelay, o.Durability = false, false, 0, holdfast.Periodic
	}
}

// burst has some goroutines commit, others read and call Sync meanwhile.
func (c *committer) burst() error {
	writers, commits := 1, 5+c.rand.IntN(40)
	switch c.rand.IntN(4) {
	case 0, 1:
		writers = 2 + c.rand.IntN(3)
	case 2:
		writers, commits = 64, 1+c.rand.IntN(4)
	}
	say(saysWriters, uint64(writers))
	syncs, vacuums := c.rand.IntN(4), c.rand.IntN(4)
	var wg sync.WaitGroup
	errs := make([]error, writers+3)
	for i := range writers {
		r := rand.New(rand.NewPCG(c.rand.Uint64(), 2))
		wg.Go(func() {
			for range commits {
				if errs[i] = c.commit(r); errs[i] != nil {
					return
				}
			}
		})
	}
	wg.Go(func() { errs[writers] = c.readAlong(5) })
	wg.Go(func() { errs[writers+1] = c.syncAlong(syncs) })
	wg.Go(func() { errs[writers+2] = c.vacuumAlong(vacuums) })
	wg.Wait()
	return errors.Join(errs...)
}

// syncAlong calls Sync while others commit.
func (c *committer) syncAlong(times int) error {
	for range times {
		say(saysSyncing, 0)
		if err := c.db.sync(); err != nil {
			return fmt.Errorf("sync: %w", err)
		}
		say(saysSynced, 0)
	}
	return nil
}

// vacuumAlong makes the file shorter while others commit.
func (c *committer) vacuumAlong(times int) error {
	db, ok := c.db.(holdfastDB)
	for n := 0; ok && n < times; n++ {
		say(saysVacuuming, 0)
		r, err := db.Vacuum(context.Background(), holdfast.VacuumOptions{StepPages: 1 << (2 * n)})
		if err != nil {
			return fmt.Errorf("vacuum: %w", err)
		}
		say(saysVacuumed, uint64(max(0, r.SizeBefore-r.SizeAfter)))
	}
	return nil
}

// untilSettled returns when the meta that bbolt would open describes the newest
// state, while nothing is committed.
func untilSettled(path string) error {
	for range time.Tick(time.Millisecond) {
		trailing, err := isTrailing(path)
		if err == nil && !trailing {
			return nil
		}
		if err != nil && !errors.Is(err, holdfast.ErrChecksum) { // being written
			return err
		}
	}
	return nil
}

// isTrailing tells whether the newest meta of a file describes an older state
// than its extension.
func isTrailing(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	head := make([]byte, page.ExtensionOffset)
	if _, err := f.ReadAt(head, 0); err != nil {
		return false, err
	}
	first, err := page.DecodeMeta(head)
	if err != nil {
		return false, err
	}
	size := int(first.PageSize)
	metas := make([]byte, 2*size)
	if _, err := f.ReadAt(metas, 0); err != nil {
		return false, err
	}
	slots := page.DecodeSlots(metas[:size], metas[size:])
	best, err := slots.Best()
	if err != nil {
		return false, err
	}
	ext, err := extension.Decode(metas[best*size:][:size])
	if errors.Is(err, extension.ErrNone) {
		return false, nil
	}
	return err == nil && ext.Trailing != nil, nil
}

// suicidal is a file whose calls that change it kill the process, one day.
type suicidal struct {
	vfs.File
	c *committer
}

func (c *committer) openSuicidal(o openOptions) (engine, error) {
	file, err := vfs.OpenOS(c.Path, os.O_RDWR|os.O_CREATE, 0o600, nil)
	if err != nil {
		return nil, err
	}
	db, err := bridge.Open(suicidal{file, c}, o.holdfast())
	if err != nil {
		return nil, err
	}
	db.AllocSize = o.AllocSize
	return holdfastDB{db}, nil
}

func (f suicidal) around(call func() error) error {
	f.c.mayDie()
	err := call()
	f.c.mayDie()
	return err
}

// mayDie kills the process when its time has come.
func (c *committer) mayDie() {
	if c.call.Add(1) != int64(c.KillAt) {
		return
	}
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Kill()
	}
	select {}
}

func (f suicidal) WriteAt(p []byte, off int64) (n int, err error) {
	err = f.around(func() error {
		n, err = f.File.WriteAt(p, off)
		return err
	})
	return n, err
}

func (f suicidal) WriteVec(bufs [][]byte, off int64) error {
	return f.around(func() error { return f.File.WriteVec(bufs, off) })
}

func (f suicidal) Sync() error { return f.around(f.File.Sync) }

func (f suicidal) Grow(size int64) error {
	return f.around(func() error { return f.File.Grow(size) })
}

func (f suicidal) Truncate(size int64) error {
	return f.around(func() error { return f.File.Truncate(size) })
}

var errRollback = errors.New("rolled back on purpose")

// commit makes the next edit of the history, or makes it and rolls it back.
func (c *committer) commit(r *rand.Rand) error {
	var n uint64
	err := c.db.update(func(tx transaction) error {
		n = tx.number() + 1
		if err := c.edit(tx.root, n); err != nil {
			return err
		}
		if r.IntN(6) == 0 {
			return errRollback
		}
		say(saysBegun, n)
		return nil
	})
	switch err {
	case nil:
		say(saysDone, n)
		if size := c.db.groupSize(); size > 1 && r.IntN(8) == 0 {
			say(saysGroup, uint64(size))
		}
	case errRollback:
		say(saysRolledBack, n)
		return nil
	}
	return err
}

// readAlong reads everything twice in each of some transactions, while others
// commit: it must find the same.
func (c *committer) readAlong(transactions int) error {
	for range transactions {
		err := c.db.view(func(tx transaction) error {
			first, err := tx.lines()
			if err != nil {
				return err
			}
			second, err := tx.lines()
			return errors.Join(err, compare(second, first))
		})
		if err != nil {
			return fmt.Errorf("reader: %w", err)
		}
	}
	return nil
}

// compact writes a compacted copy and looks whether it has the same content.
func (c *committer) compact() error {
	path := c.Path + ".copy"
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return err
	}
	say(saysCompacting, 0)
	if err := c.db.compactTo(path); err != nil {
		return err
	}
	copied, err := open(c.Engine, path, openOptions{})
	if err != nil {
		return err
	}
	return errors.Join(c.db.view(func(want transaction) error {
		return copied.view(func(got transaction) error {
			a, err := want.lines()
			b, err2 := got.lines()
			return errors.Join(err, err2, compare(b, a), got.check())
		})
	}), copied.close(), os.Remove(path))
}
