package engine

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"holdfast"
	"holdfast/internal/bridge"
	"holdfast/internal/page"
	"holdfast/internal/vfs"
	"holdfast/test/hook"
)

// Reseal changes pages of the current state in place and records a sum before and after, and no test had cut its power.
// Whatever the cut leaves opens, shows what it did, has no fault that the file did not have before, the sum
// among them, and Reseal completes it. What shares a sector with a seal is left out where the disk made garbage of it
// (docs/design.md, A2).
func TestResealCut(t *testing.T) {
	for _, c := range []struct {
		name   string
		data   func(t *testing.T) []byte
		faults bool // that the file has before
	}{
		{"without seals", func(t *testing.T) []byte { return resealSample(t, holdfast.Options{NoSeals: true}, true) }, false},
		{"without seals, killed", func(t *testing.T) []byte { return resealSample(t, holdfast.Options{NoSeals: true}, false) }, false},
		{"without a sum", func(t *testing.T) []byte { return withoutSum(t, resealSample(t, holdfast.Options{}, true)) }, false},
		{"changed in place", func(t *testing.T) []byte { return changedInPlace(t, resealSample(t, holdfast.Options{}, true)) }, true},
		{"changed in place, killed", func(t *testing.T) []byte { return changedInPlace(t, resealSample(t, holdfast.Options{}, false)) }, true},
		{"stale pages", func(t *testing.T) []byte { return stale(t, resealSample(t, holdfast.Options{}, true)) }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			data := c.data(t)
			content, before := looksOf(t, data)
			if len(before) > 0 != c.faults {
				t.Fatalf("the file has the faults %v", before)
			}
			runs := resealRuns(t, data)
			whole := vfs.NewMem("whole")
			_, err := whole.Open().WriteAt(data, 0)
			must(t, err)
			_, err = hook.Reseal(t.Context(), whole.Open(), holdfast.ResealOptions{})
			must(t, err)
			want, _ := looksOf(t, whole.Bytes())
			rng := rand.New(rand.NewPCG(18, 22))
			disks, garbage := 0, 0
			var crash *vfs.Crash
			var cuts [][]byte // judged when Reseal, which holds locks, has returned
			crash = vfs.NewCrash("cut", data, func(kind vfs.Kind) {
				if kind == vfs.KindSync && rng.IntN(2) == 0 { // the disk has it all
					return
				}
				n := 0
				for disk := range crash.Disks(rng, resealPageSize, 3) {
					n++
					if !sameContent(data, disk, runs) {
						if n <= 2 {
							t.Error("Reseal has written more than seals")
						}
						garbage++
						continue
					}
					disks++
					cuts = append(cuts, slices.Clone(disk))
				}
			})
			done, err := hook.Reseal(t.Context(), crash.Open(), holdfast.ResealOptions{})
			must(t, err)
			for _, disk := range cuts {
				resealedAfterCut(t, disk, content, want, before)
			}
			after, faults := looksOf(t, crash.Bytes())
			if after != want || len(faults) > 0 {
				t.Errorf("%+v: the file is %x and would be %x; %v", done, after, want, faults)
			}
			if disks < 15 {
				t.Errorf("%+v: %d disks were looked at, and %d were garbage", done, disks, garbage)
			}
		})
	}
}

// resealedAfterCut judges what a cut has left of a file that had this content and these faults. With Reseal
// done it would have the content want: with faults that is another, since what has a wrong seal is not
// shown.
func resealedAfterCut(t *testing.T, disk []byte, content, want string, before []string) {
	t.Helper()
	found, faults := looksOf(t, disk)
	if len(before) == 0 && found != content {
		t.Fatalf("after the cut the file is %x and was %x: %v", found, content, faults)
	}
	for _, fault := range faults {
		if !slices.Contains(before, fault) {
			t.Fatalf("after the cut there is the fault %q; before there were %q", fault, before)
		}
	}
	mem := vfs.NewMem("after the cut")
	_, err := mem.Open().WriteAt(disk, 0)
	must(t, err)
	done, err := hook.Reseal(t.Context(), mem.Open(), holdfast.ResealOptions{})
	must(t, err)
	if found, faults := looksOf(t, mem.Bytes()); found != want || len(faults) > 0 {
		t.Fatalf("resealed again (%+v) the file is %x and would be %x: %v", done, found, want, faults)
	}
}

// resealRuns are the page runs of a file's newest state.
func resealRuns(t *testing.T, data []byte) (runs []page.Extent) {
	t.Helper()
	mem := vfs.NewMem("runs")
	_, err := mem.Open().WriteAt(data, 0)
	must(t, err)
	db, err := bridge.Open(mem.Open(), &holdfast.Options{ReadOnly: true, NoSeals: true})
	must(t, err)
	must(t, db.View(func(tx *holdfast.Tx) (err error) {
		runs, err = hook.RunsOf(tx)
		return err
	}))
	must(t, db.Close())
	slots := page.DecodeSlots(data, data[resealPageSize:])
	if best, err := slots.Best(); err == nil && slots.Meta[best].Freelist != page.NoFreelist {
		runs = append(runs, page.Extent{Start: slots.Meta[best].Freelist, N: 1})
	}
	return runs
}

const resealPageSize = 1024

// resealSample is a file of some pages, closed or left by a process that was killed.
func resealSample(t *testing.T, options holdfast.Options, closed bool) []byte {
	t.Helper()
	mem := vfs.NewMem("sample")
	options.PageSize, options.SettleDelay = resealPageSize, -1
	db, err := bridge.Open(mem.Open(), &options)
	must(t, err)
	for i := range 8 {
		update(t, db, func(tx *holdfast.Tx) {
			b, err := tx.CreateBucketIfNotExists([]byte("bucket"))
			must(t, err)
			for j := range 12 {
				must(t, b.Put(fmt.Appendf(nil, "key %d", 100+i*8+j), bytes.Repeat([]byte{'a' + byte(i)}, 90)))
			}
			must(t, b.Put([]byte("long"), bytes.Repeat([]byte{'A' + byte(i)}, 2500)))
		})
	}
	data := slices.Clone(mem.Bytes())
	must(t, db.Close())
	if closed {
		data = slices.Clone(mem.Bytes())
	}
	return data
}

// withoutSum is data as a version of Holdfast wrote it that did not record sums.
func withoutSum(t *testing.T, data []byte) []byte {
	t.Helper()
	mem := vfs.NewMem("without a sum")
	_, err := mem.Open().WriteAt(data, 0)
	must(t, err)
	must(t, hook.ForgetSum(mem.Open()))
	return mem.Bytes()
}

// changedInPlace changes values of two leaves, and leaves their seals. No leaf is of the last commits, whose pages are
// known by their hash.
func changedInPlace(t *testing.T, data []byte) []byte { return changed(t, data, false) }

// stale changes values of two leaves, and gives these their seals.
func stale(t *testing.T, data []byte) []byte { return changed(t, data, true) }

func changed(t *testing.T, data []byte, sealed bool) []byte {
	t.Helper()
	n := 0
	for _, run := range resealRuns(t, data) {
		bytesOf := data[int(run.Start)*resealPageSize : int(run.End())*resealPageSize]
		at := max(bytes.Index(bytesOf, []byte("bbbb")), bytes.Index(bytesOf, []byte("cccc")))
		if at < 0 || n == 2 {
			continue
		}
		n++
		bytesOf[at] = 'x'
		if seal, ok := page.SealOf(bytesOf, run.Start); ok && sealed {
			copy(bytesOf[len(bytesOf)-len(seal):], seal[:])
		}
	}
	if n != 2 {
		t.Fatalf("%d leaves were changed", n)
	}
	return data
}

// sameContent tells whether a and b differ only in their metas and in the seals of the runs.
func sameContent(a, b []byte, runs []page.Extent) bool {
	if len(a) != len(b) {
		return false
	}
	a, b = slices.Clone(a[2*resealPageSize:]), slices.Clone(b[2*resealPageSize:])
	for _, run := range runs {
		end := (int(run.End()) - 2) * resealPageSize
		clear(a[end-page.SealSize : end])
		clear(b[end-page.SealSize : end])
	}
	return bytes.Equal(a, b)
}
