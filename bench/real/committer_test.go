package real

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"

	"holdfast"
	"holdfast/internal/vfs"
)

// What a committer says on its standard output, a line each, with a number.
const (
	saysOpening    = "opening"    // 0
	saysBegun      = "begun"      // commit n is what comes next
	saysDone       = "done"       // commit n has returned
	saysRolledBack = "rolledback" // the edit n
	saysCompacting = "compacting" // 0: a copy is being written
	saysClosing    = "closing"    // 0
)

// committer is a process that commits until it is killed.
type committer struct {
	order
	history
	rand *rand.Rand
	db   engine
	call atomic.Int64 // of a file, twice: before and behind it
}

// say writes a line, in one system call: lines do not mix.
func say(what string, n uint64) {
	if _, err := fmt.Fprintf(os.Stdout, "%s %d\n", what, n); err != nil {
		os.Exit(3) // nobody listens
	}
}

// runCommitter opens the database and commits the next edits of a history, in
// sessions, until it is killed.
func runCommitter(o order) error {
	c := &committer{order: o, history: history{seed: o.History, large: o.Large, fill: o.Fill}, rand: rand.New(rand.NewPCG(o.Seed, 1))}
	for {
		if err := c.session(); err != nil {
			return err
		}
	}
}

// session is some commits with one opening of the file.
func (c *committer) session() (err error) {
	say(saysOpening, 0)
	o := c.Options
	o.NoFreelistSync = c.rand.IntN(2) == 0
	o.NoSync = c.rand.IntN(5) == 0 // what is in the page cache outlives the process
	o.AllocSize = []int{64 << 10, 256 << 10, 1 << 20}[c.rand.IntN(3)]
	if c.KillAt > 0 {
		c.db, err = c.openSuicidal(o)
	} else {
		c.db, err = open(c.Engine, c.Path, o)
	}
	if err != nil {
		return err
	}
	writers := 1 + c.rand.IntN(4)
	commits := 5 + c.rand.IntN(40)
	var wg sync.WaitGroup
	errs := make([]error, writers+1)
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
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if c.rand.IntN(3) == 0 {
		if err := c.compact(); err != nil {
			return err
		}
	}
	say(saysClosing, 0)
	return c.db.close()
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
	db, err := holdfast.OpenVFS(suicidal{file, c}, &holdfast.Options{PageSize: o.PageSize, NoFreelistSync: o.NoFreelistSync})
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
