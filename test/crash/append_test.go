package crash

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/test/soak"
)

// appendHistories is the number of histories of an ordinary run.
const appendHistories = 16

// generateAppends is the script of seed with transactions that also append: values of one
// to twenty pages, and small ones.
func generateAppends(seed uint64) Script {
	s := generate(seed)
	r := rand.New(rand.NewPCG(seed, 7))
	next := 0
	for i := range s.Steps {
		step := &s.Steps[i]
		if step.Kind != "tx" && step.Kind != "stock" || r.IntN(3) > 0 {
			continue
		}
		// A flush there waits for the edits of all: see handle.Sync. The first that appends
		// flushes amid its own.
		if step.Together || step.During {
			continue
		}
		path := fmt.Sprintf("a%d", r.IntN(2))
		var edits []Edit
		if r.IntN(10) == 0 {
			edits = append(edits, Edit{Op: "drop", Path: path})
		}
		for range 1 + r.IntN(3) {
			e := Edit{Op: "append", Path: path, Key: next, N: 1, Size: s.PageSize + r.IntN(2*s.PageSize), Letter: byte('a' + r.IntN(26))}
			switch r.IntN(6) {
			case 0:
				e.Size = s.PageSize + r.IntN(19*s.PageSize)
			case 1, 2, 3:
				e.N, e.Size = 1+r.IntN(20), r.IntN(s.PageSize/4)
			}
			edits = append(edits, e)
			next += e.N
		}
		if r.IntN(2) == 0 {
			step.Edits = append(edits, step.Edits...)
		} else {
			step.Edits = append(step.Edits, edits...)
		}
	}
	return s
}

// generateSpills is generateAppends with transactions that are written early.
func generateSpills(seed uint64) Script {
	s := generateAppends(seed)
	r := rand.New(rand.NewPCG(seed, 8))
	for i := range s.Steps {
		step := &s.Steps[i]
		if step.Kind != "tx" || step.Together || step.During {
			continue
		}
		for at := len(step.Edits); at > 0; at-- {
			if r.IntN(3) == 0 {
				step.Edits = slices.Insert(step.Edits, at, Edit{Op: "spill", Path: "all"})
			}
		}
	}
	return s
}

// TestPowerCutAppending runs histories with transactions that append, and TestPowerCutSpilling with such
// as are written early.
func TestPowerCutAppending(t *testing.T) { powerCuts(t, generateAppends, "appending") }
func TestPowerCutSpilling(t *testing.T)  { powerCuts(t, generateSpills, "spilling") }

func powerCuts(t *testing.T, generate func(uint64) Script, what string) {
	tally := &soak.Tally{}
	var failed atomic.Bool
	seeds, chosen := soak.Seeds(t, uint64(time.Now().UnixNano()), appendHistories)
	t.Run("seeds", func(t *testing.T) {
		for _, seed := range seeds {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				dir, err := os.MkdirTemp("", "holdfast-crash")
				if err != nil {
					t.Fatal(err)
				}
				defer os.RemoveAll(dir)
				script := generate(seed)
				fail := runScript(dir, script, tally)
				if fail == nil || failed.Swap(true) {
					return
				}
				report(t, seed, dir, script, fail)
			})
		}
	})
	t.Log(tally)
	for _, what := range []string{what, "written early"} {
		if n := tally.Get(what); n < 30 && !chosen {
			t.Errorf("%d disks: %s, want 30 at least", n, what)
		}
	}
}

// What a transaction appends without a flush, and then gives up, is in the file and no
// part of any state: an oracle that took it for a commit without a flush wanted the next
// commit to flush before it writes.
func TestGivenUpWithoutAFlush(t *testing.T) {
	script, err := Parse(`pagesize 4096
open seed=1
nosync seed=1 nosync
tx seed=1 rollback
 append b0 k1 n=1 70000l
nosync seed=1
tx seed=1
 put b0 k1 n=1 10a
close
`)
	if err != nil {
		t.Fatal(err)
	}
	tally := &soak.Tally{}
	if fail := runScript(t.TempDir(), script, tally); fail != nil {
		t.Fatal(fail)
	}
	if tally.Get("lost for want of a flush") == 0 || tally.Get("one flush") == 0 {
		t.Errorf("the script does not write early, or commits nothing: %s", tally)
	}
}
