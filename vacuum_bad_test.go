package holdfast_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"holdfast"
)

// In steps of one page the root page alone was a step. Where no free page lay before
// it, each piece of the walk ended behind it and the next began there, until the walk
// had met more pages than the file has: a *CorruptError of a sound file.
func TestVacuumInSmallSteps(t *testing.T) {
	for pages := 1; pages <= 4; pages++ {
		for _, n := range []int{30, 300, 3000} {
			t.Run(fmt.Sprint(pages, n), func(t *testing.T) {
				db, err := holdfast.Open(filepath.Join(t.TempDir(), "db"), 0o600, &holdfast.Options{NoSync: true, PageSize: 1024})
				must(t, err)
				defer db.Close()
				all := func(int) bool { return true }
				fillAndDelete(t, db, "b", n, 300, all)
				_, err = db.Vacuum(context.Background(), holdfast.VacuumOptions{})
				must(t, err)
				reader := begin(t, db, false) // of whose pages none can be used
				fillAndDelete(t, db, "b", n, 300, all)
				want := content(t, db)
				for range 2 {
					_, err = db.Vacuum(context.Background(), holdfast.VacuumOptions{StepPages: pages})
					must(t, err)
				}
				must(t, reader.Rollback())
				if content(t, db) != want {
					t.Error("the content is another")
				}
				checkDB(t, db)
			})
		}
	}
}
