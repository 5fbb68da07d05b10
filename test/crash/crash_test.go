package crash

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/test/soak"
)

// minimums are the disks that an ordinary run must have tried, by what was going
// on when the power went; the last three are failures.
var minimums = map[string]int{
	"creation":               50,
	"reader open":            500,
	"several writers":        200,
	"growth":                 50,
	"large value":            200,
	"nested buckets":         500,
	"deletes":                500,
	"bucket deletes":         100,
	"rollback before":        200,
	"reopened":               200,
	"opening":                40,
	"closing":                40,
	"stock in between":       200,
	"goes on after a cut":    200,
	"goes on after two cuts": 10,
	"goes on after a kill":   200,
	"recovered twice":        500,
	"NoSync":                 100,
	"durable after NoSync":   50,
	"write error before":     100,
	"flush error before":     100,
	"opened by bbolt":        500,
	"lost flush":             2,
	"failure in Open":        1,
	"failure in Close":       1,

	"one flush":                    1000,
	"strict":                       300,
	"settling":                     10,
	"group of several":             100,
	"bbolt one flush behind":       30,
	"Periodic":                     300,
	"Periodic, not the newest":     50,
	"opened by record":             20,
	"opened by scan":               2,
	"opened with a trailing meta":  5,
	"two flushes for want of room": 1,
	"Periodic, several commits since the flush": 50,

	"vacuum under way":                   1000,
	"vacuum under way, reader open":      300,
	"vacuum under way, commit under way": 30,
	"vacuum under way, Periodic":         100,
	"vacuum under way, strict":           100,
	"vacuum of what was left":            100,
	"truncation":                         50,
	"truncation, reader open":            10,
	"behind a truncation":                200,
}

// histories of an ordinary run.
const histories = 72

// TestPowerCut runs histories and asserts how many disks they tried.
func TestPowerCut(t *testing.T) {
	c := &campaign{}
	seeds, chosen := soak.Seeds(t, uint64(time.Now().UnixNano()), histories)
	t.Run("seeds", func(t *testing.T) {
		for _, seed := range seeds {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				if c.failed.Load() {
					t.Skip("another one has failed")
				}
				c.history(t, seed)
			})
		}
	})
	t.Log(&c.tally)
	for feature, least := range minimums {
		if n := c.tally.Get(feature); n < least && !chosen && !c.failed.Load() {
			t.Errorf("%s: %d disks, want %d at least", feature, n, least)
		}
	}
}

// TestSoak runs histories for as long as HOLDFAST_SOAK says; without it, one.
func TestSoak(t *testing.T) {
	c := &campaign{}
	d := soak.Duration(t)
	seed := uint64(time.Now().UnixNano())
	if d == 0 {
		c.history(t, seed)
		return
	}
	soak.For(d, seed, os.Stderr, c.tally.String, func(seed uint64) bool { return c.history(t, seed) })
}

// TestScript runs the script in the file that HOLDFAST_SCRIPT names; without
// it, one that has every kind of step.
func TestScript(t *testing.T) {
	text := everyStep
	if file := os.Getenv("HOLDFAST_SCRIPT"); file != "" {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text = string(data)
	}
	script, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	tally := &soak.Tally{}
	if fail := runScript(t.TempDir(), script, tally); fail != nil {
		t.Error(fail)
	}
	t.Log(tally)
}

func runScript(dir string, s Script, tally *soak.Tally) *failure {
	return (&run{script: s, tally: tally, dir: dir}).do()
}

// campaign is a number of histories.
type campaign struct {
	tally  soak.Tally
	failed atomic.Bool
}

// history runs the history of a seed; false: it failed. Of the first to fail a
// short script that fails too is printed.
func (c *campaign) history(t *testing.T, seed uint64) bool {
	dir, err := os.MkdirTemp("", "holdfast-crash")
	if err != nil {
		t.Error(err)
		return false
	}
	defer os.RemoveAll(dir)
	script := generate(seed)
	fail := runScript(dir, script, &c.tally)
	if fail == nil {
		return true
	}
	if c.failed.Swap(true) {
		t.Errorf("HOLDFAST_SEED=%d: %v", seed, fail)
		return false
	}
	report(t, seed, dir, script, fail)
	return false
}

// report says how the script of a seed fails, and gives a short one that fails too. With
// HOLDFAST_SHRINK=0 it does not look for one: who plants a defect knows it.
func report(t *testing.T, seed uint64, dir string, script Script, fail *failure) {
	t.Helper()
	if os.Getenv("HOLDFAST_SHRINK") == "0" {
		t.Errorf("HOLDFAST_SEED=%d: %v", seed, fail)
		return
	}
	short, how := shrink(script, fail, 20*time.Second, func(s Script) *failure {
		return runScript(dir, s, &soak.Tally{})
	})
	t.Errorf("HOLDFAST_SEED=%d: %v\n\nA short script that fails (HOLDFAST_SCRIPT=file runs it again):\n\n%s\n%v", seed, fail, short, how)
}
