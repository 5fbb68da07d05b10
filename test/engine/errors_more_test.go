package engine

import (
	"fmt"
	"math"
	"os"

	"holdfast"
	"holdfast/internal/page"
)

// Further rows of docs/errors.md, with the errors that bbolt does not know.
func init() {
	sentinels["ErrTooDeep"] = holdfast.ErrTooDeep
	sentinels["ErrTooLarge"] = holdfast.ErrTooLarge

	// A file of zeros is what a crash can leave of a new one. Of that length it
	// becomes a database, of any other it is none.
	openCases["zeros"] = func(r *errorRow) {
		ps := os.Getpagesize()
		for _, n := range []int{3 * ps, 4 * ps} {
			r.try(fmt.Sprint(n, " bytes"), make([]byte, n), func(path string) error {
				if err := openUse(path, holdfast.Options{}, useEverything); err != nil {
					return err
				}
				return openUse(path, holdfast.Options{ReadOnly: true}, useEverything)
			})
		}
	}
	openCases["zeros-read-only"] = func(r *errorRow) {
		r.try("zeros", make([]byte, 4*os.Getpagesize()), func(path string) error {
			return openUse(path, holdfast.Options{ReadOnly: true}, nil)
		})
	}
	openCases["zeros-other-length"] = func(r *errorRow) {
		ps := os.Getpagesize()
		for _, n := range []int{5 * ps, 64 * ps} {
			r.tryOpen(fmt.Sprint(n, " bytes"), make([]byte, n))
		}
	}
	openCases["label-absurd"] = func(r *errorRow) {
		for _, label := range []page.Label{1 << 63, math.MaxUint64 - 1} {
			s := newSample(r)
			s.setMetas(func(m *page.Meta) { m.Label = label + m.Label%2 })
			r.tryOpen(fmt.Sprint(uint64(label)), s.data)
		}
	}
	// Met by a walk or a check, not by each use: one inline bucket is readable.
	treeCases["inline-in-inline"] = func(r *errorRow) {
		path := func(list page.ID) []byte { return readFile(r, damagedFile(r.T, [][]byte{bomb(4)}, list)) }
		r.tryUse("with a freelist", path(2), checkOnly)
		r.try("to be scanned", path(page.NoFreelist), func(path string) error {
			return openUse(path, holdfast.Options{}, checkOnly)
		})
	}
	keyCases["too-deep"] = func(r *errorRow) {
		r.try("10,001 levels", newSample(r).data, func(path string) error {
			return openUse(path, holdfast.Options{}, func(db *holdfast.DB) error {
				return db.Update(func(tx *holdfast.Tx) error {
					b := small(tx)
					for range 20_000 {
						var err error
						if b, err = b.CreateBucket([]byte("b")); err != nil {
							return err
						}
					}
					return nil
				})
			})
		})
	}
}
