package crash

import (
	"fmt"
	"strings"
	"testing"

	"holdfast/test/soak"
)

// scattered is a script whose commits free and take many pages that do not touch:
// the record of free pages outgrows the meta page, goes to log runs, and these to
// snapshots.
func scattered(seed uint64) string {
	var s strings.Builder
	fmt.Fprintf(&s, "pagesize 512\nopen seed=%d nofreelistsync\ntx seed=%d\n put b0 k0 n=500 60a\n", seed, seed)
	for i := range uint64(30) {
		hit := ""
		if i%10 == 9 {
			hit = []string{" kill=3", " cut=2 disk=3", " fail=2", " failsync=1"}[(i/10+seed)%4]
		}
		fmt.Fprintf(&s, "tx seed=%d%s\n", seed+i, hit)
		for j := range uint64(9) {
			fmt.Fprintf(&s, " put b0 k%d n=1 %d%c\n", (i*53+j*71+seed*17)%500, 30+(i+j)%60, 'b'+byte(i%20))
		}
		if hit != "" {
			fmt.Fprintf(&s, "open seed=%d nofreelistsync\n", seed+i)
		}
	}
	s.WriteString("close\nopen\nclose\n")
	return s.String()
}

// TestRunsOfFreePages cuts the power while log runs and snapshots are written, and
// given up for others.
func TestRunsOfFreePages(t *testing.T) {
	tally := &soak.Tally{}
	t.Run("scripts", func(t *testing.T) {
		for seed := range uint64(4) {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				script, err := Parse(scattered(1 + 100*seed))
				if err != nil {
					t.Fatal(err)
				}
				if fail := runScript(t.TempDir(), script, tally); fail != nil {
					t.Fatalf("%v\n\nin this script (HOLDFAST_SCRIPT=file runs it again):\n\n%s", fail, script)
				}
			})
		}
	})
	t.Log(tally)
	for feature, least := range map[string]int{"opened with log runs": 4, "opened with a snapshot": 3, "disks": 500} {
		if n := tally.Get(feature); n < least {
			t.Errorf("%s: %d, want %d at least", feature, n, least)
		}
	}
}
