package real

import (
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// What a committer in a machine says besides.
const (
	saysVerified = "verified" // the file is right; n is the newest commit
	saysCounted  = "counted"  // 1, and a name: something was seen
	saysTick     = "tick"     // tickTime has passed, and the disk has answered
	saysRests    = "rests"    // 0: nothing will be committed for a while
	saysGoesOn   = "goeson"   // 0
	saysBroken   = "broken"   // 0: nothing was promised of the file, and it is damaged
)

const (
	periodicDelay = 100 * time.Millisecond
	tickTime      = periodicDelay
	// ticksUntilFlushed is how many ticks after a commit in modePeriodic it must be on
	// the disk; after as many again bbolt must find it.
	ticksUntilFlushed = 10
)

func init() {
	roles["power"] = runPower
}

// runPower verifies what a power cut has left of a file, and goes on to commit until
// the next one, unless the order says Stop.
func runPower(o order) error {
	seed := rand.New(rand.NewPCG(o.Seed, 3))
	f := &killFile{rand: seed, order: o, counts: map[string]int{}, model: newModel(history{seed: o.History, large: o.Large})}
	h := heard{done: o.Done, floor: o.Floor, begun: o.Done + 1<<20}
	if err := f.verifyCut(h); err != nil {
		return fmt.Errorf("commits acknowledged up to %d, for bbolt up to %d: %w", h.done, h.floor, err)
	}
	for what := range f.counts {
		say(saysCounted+" "+what+":", 1)
	}
	say(saysVerified, f.model.number)
	switch {
	case o.Stop:
		return nil
	case o.Mode == modeNone:
		return (&committer{order: o, history: f.model.history, rand: seed}).unflushed()
	case o.Mode == modePeriodic:
		go tick(o.Path + ".tick")
	}
	return runCommitter(o)
}

// verifyCut verifies the file. Of one in modeNone that had commits since its last Sync nothing
// is promised, and the oracle is only that no engine of ours panics. One that had no commits
// may not be there, or half. Both begin anew.
func (f *killFile) verifyCut(h heard) error {
	o := f.order
	if o.Done > 0 && !o.Anything {
		return f.verify(h)
	}
	if _, err := os.Stat(o.Path); os.IsNotExist(err) {
		return nil
	}
	s, err := f.lookAtCopy("holdfast", openOptions{})
	if err == nil {
		err = f.matches(s)
	}
	if err != nil && !o.Anything {
		return err
	} else if err != nil {
		say(saysBroken, 0)
	}
	f.model = newModel(f.model.history)
	return os.Remove(o.Path)
}

// matches tells whether what was found is what some number of commits give.
func (f *killFile) matches(s sight) error {
	if s.number > f.order.Done+1<<20 {
		return fmt.Errorf("the number of the state is %d", s.number)
	}
	if err := f.model.forward(s.number); err != nil {
		return err
	}
	return compare(s.lines, f.model.lines())
}

// tick says how the time passes, for as long as the disk answers.
func tick(path string) {
	f, err := os.Create(path)
	for n := uint64(1); err == nil; n++ {
		time.Sleep(tickTime)
		if _, err = f.WriteAt([]byte{byte(n)}, 0); err == nil {
			err = f.Sync()
		}
		if err == nil {
			say(saysTick, n)
		}
	}
	say(fmt.Sprintf("fault %q", err), 0)
}

// unflushed commits without flushing, calls Sync, and rests; and so on.
func (c *committer) unflushed() error {
	o := c.Options
	o.NoSync, o.SettleDelay = true, -1
	db, err := open(c.Engine, c.Path, o)
	if err != nil {
		return err
	}
	c.db = db
	for {
		say(saysGoesOn, 0)
		// It must have been heard before something is written.
		if err := unix.IoctlSetInt(int(os.Stdout.Fd()), unix.TCSBRK, 1); err != nil {
			return fmt.Errorf("drain the terminal: %w", err)
		}
		for range 5 + c.rand.IntN(20) {
			if err := c.commit(c.rand); err != nil {
				return err
			}
		}
		if err := c.db.sync(); err != nil {
			return err
		}
		say(saysRests, 0)
		time.Sleep(time.Duration(c.rand.IntN(400)) * time.Millisecond)
	}
}
