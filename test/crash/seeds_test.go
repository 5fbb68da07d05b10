package crash

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"holdfast/test/soak"
)

// runSeeds makes runs side by side, so many with new seeds and four with known ones, or with HOLDFAST_SEED that one.
// run returns what happened, for the message of an error. Together they must have tried as many disks of each kind as least says.
func runSeeds(t *testing.T, count int, least map[string]int, run func(seed uint64, tally *soak.Tally) (log []string, err error)) {
	tally := &soak.Tally{}
	seeds, chosen := soak.Seeds(t, uint64(time.Now().UnixNano()), count)
	if !chosen {
		seeds = append(seeds, 1, 2, 3, 4)
	}
	t.Run("seeds", func(t *testing.T) {
		for _, seed := range seeds {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				if log, err := run(seed, tally); err != nil {
					t.Errorf("HOLDFAST_SEED=%d: %v\nin\n%s", seed, err, strings.Join(log, "\n"))
				}
			})
		}
	})
	t.Log(tally)
	for kind, n := range least {
		if got := tally.Get(kind); got < n && !chosen && !t.Failed() {
			t.Errorf("%s: %d disks, want %d at least", kind, got, n)
		}
	}
}
