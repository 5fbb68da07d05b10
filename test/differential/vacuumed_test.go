package differential

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strings"

	"holdfast"
	"holdfast/test/stock/ops"
)

// vacuumed has Holdfast make the file shorter, whoever wrote it, and all engines look at
// it: as a kill of the process leaves it, once it is settled, and as Close leaves it.
func (r *run) vacuumed(file string, engines []*Follower, rng *rand.Rand) {
	r.t.Helper()
	fatal := func(err error) {
		r.t.Helper()
		if err != nil {
			r.t.Fatalf("seed %d, step %d: vacuum: %v", r.h.Seed, r.steps, err)
		}
	}
	db, err := OpenHoldfast(file, ops.Options{PageSize: pageSize(r.h.Seed), NoFreelistSync: rng.IntN(2) == 0})
	fatal(err)
	result, err := db.Vacuum(context.Background(), holdfast.VacuumOptions{StepPages: 1 + rng.IntN(16)})
	fatal(err)
	data, err := os.ReadFile(file)
	fatal(err)
	fatal(db.Close())
	r.tally.Add("vacuum")
	if result.SizeAfter < result.SizeBefore {
		r.tally.Add("vacuum made it shorter")
	}
	killed := file + ".killed"
	fatal(os.WriteFile(killed, data, 0o600))
	_, err = holdfast.Settle(killed, holdfast.SettleOptions{})
	if damage := (*holdfast.CorruptError)(nil); errors.As(err, &damage) && r.isLeak(err) {
		// It is a copy of a file in use, and so checked: a page that bbolt has leaked is a fault then (docs/decisions/006).
		r.tally.Add("refused for what bbolt leaked")
		r.handOver(engines[0], file, engines, true)
		return
	}
	fatal(err)
	for _, e := range engines {
		for id := range r.inspect(e, killed) {
			if !r.leaks[id] {
				r.t.Fatalf("seed %d, step %d: killed behind a vacuum, page %s is lost for %s", r.h.Seed, r.steps, id, e.Name)
			}
		}
	}
	r.handOver(engines[0], file, engines, true)
}

// isLeak tells whether an error is that a page is lost which was lost before.
func (r *run) isLeak(err error) bool {
	for id := range r.leaks {
		if strings.Contains(err.Error(), "(page "+id+": unreachable unfreed:") {
			return true
		}
	}
	return false
}
