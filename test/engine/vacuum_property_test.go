package engine

import (
	"context"
	"fmt"
	"testing"

	"holdfast"
)

// Random histories with a vacuum now and then, in steps of all sizes and beside readers:
// the content is that of a model, each page is used once or free, readers see what
// they saw, and without readers the file is about as short as a compacted copy.
func TestVacuumHistories(t *testing.T) {
	for _, pageSize := range []int{512, 1024, 4096, 65536} {
		for _, noList := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d, without list %t", pageSize, noList), func(t *testing.T) {
				t.Parallel()
				vacuumHistory(t, &holdfast.Options{PageSize: pageSize, NoSync: true, NoFreelistSync: noList})
			})
		}
	}
}

// seen is a reader and what it must see.
type seen struct {
	tx *holdfast.Tx
	m  *model
}

func vacuumHistory(t *testing.T, options *holdfast.Options) {
	rng := random(t)
	path := tempPath(t)
	db := open(t, path, options)
	truth := newModel()
	var readers []seen
	look := func(where string) {
		t.Helper()
		view(t, db, func(tx *holdfast.Tx) {
			for err := range tx.Check() {
				t.Fatalf("%s: %v", where, err)
			}
			truth.compare(t, "", tx.Cursor().Bucket())
		})
		for _, r := range readers {
			r.m.compare(t, "", r.tx.Cursor().Bucket())
		}
	}
	release := func() {
		for _, r := range readers {
			must(t, r.tx.Rollback())
		}
		readers = nil
	}
	for round := range 60 {
		for range 1 + rng.IntN(8) {
			h := &history{t: t, rng: rng, top: truth.clone()}
			h.tx = begin(t, db, true)
			for range rng.IntN(60) {
				h.step()
			}
			must(t, h.tx.Commit())
			truth = h.top
		}
		if rng.IntN(3) == 0 {
			readers = append(readers, seen{begin(t, db, false), truth})
		}
		if rng.IntN(3) == 0 {
			release()
		}
		_, err := db.Vacuum(context.Background(), holdfast.VacuumOptions{StepPages: 1 + rng.IntN(64)})
		must(t, err)
		look(fmt.Sprint("round ", round))
		if rng.IntN(6) > 0 {
			continue
		}
		release()
		if _, err := db.Vacuum(context.Background(), holdfast.VacuumOptions{}); err != nil {
			t.Fatal(err)
		}
		if size, compacted := length(t, db), compactSize(t, db); float64(size) > 1.1*float64(compacted)+max(64<<10, 24*float64(options.PageSize)) {
			t.Errorf("round %d: the file has %d bytes, a compacted copy %d", round, size, compacted)
		}
		if rng.IntN(2) == 0 {
			must(t, db.Close())
			db = open(t, path, options)
			look("opened again")
		}
	}
	release()
}
