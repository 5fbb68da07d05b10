package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"holdfast"
	"holdfast/internal/bridge"
	"holdfast/internal/delta"
	"holdfast/internal/page"
	"holdfast/test/hook"
)

// Random histories: what bridge.Compare and CompareKeys find between two held states, of neighbouring transactions and of
// others, is what a walk of all pages and keys of both finds.
func TestDeltaHistories(t *testing.T) {
	for _, pageSize := range []int{512, 1024, 4096} {
		t.Run(fmt.Sprint(pageSize), func(t *testing.T) {
			t.Parallel()
			deltaHistory(t, openNew(t, pageSize))
		})
	}
}

func deltaHistory(t *testing.T, db *holdfast.DB) {
	rng := random(t)
	truth := newModel()
	held := []seen{{begin(t, db, false), truth}}
	for range 150 {
		h := &history{t: t, rng: rng, top: truth.clone()}
		h.tx = begin(t, db, true)
		for range rng.IntN(40) {
			h.step()
		}
		must(t, h.tx.Commit())
		truth = h.top
		if rng.IntN(4) == 0 {
			_, err := db.Vacuum(context.Background(), holdfast.VacuumOptions{StepPages: 1 + rng.IntN(32)})
			must(t, err)
		}
		now := seen{begin(t, db, false), truth}
		sameDelta(t, held[len(held)-1].tx, now.tx)
		other := held[rng.IntN(len(held))]
		sameDelta(t, other.tx, now.tx)
		sameDelta(t, now.tx, other.tx)
		sameDelta(t, now.tx, now.tx)
		if held = append(held, now); len(held) > 4 {
			must(t, held[0].tx.Rollback())
			held = held[1:]
		}
	}
	for _, s := range held {
		must(t, s.tx.Rollback())
	}
}

// sameDelta compares a comparison with that of all there is.
func sameDelta(t *testing.T, a, b *holdfast.Tx) {
	t.Helper()
	c, err := bridge.Compare(context.Background(), a, b)
	must(t, err)
	wantGone, wantNew := onlyRuns(t, a, b), onlyRuns(t, b, a)
	gone, added := deltaRuns(c, delta.Before), deltaRuns(c, delta.After)
	if !slices.Equal(gone, wantGone) || !slices.Equal(added, wantNew) {
		t.Fatalf("given up %v, want %v; new %v, want %v", gone, wantGone, added, wantNew)
	}
	if c.Gone.Total() != total(wantGone) || c.New.Total() != total(wantNew) {
		t.Fatalf("%+v given up, want %d pages; %+v new, want %d", c.Gone, total(wantGone), c.New, total(wantNew))
	}
	if a.ID() == b.ID() && c.Read != 0 {
		t.Fatalf("%d pages were read to compare a state with itself", c.Read)
	}
	for _, values := range []bool{false, true} {
		var got []string
		must(t, bridge.CompareKeys(context.Background(), a, b, values, func(c *delta.Change) error {
			got = append(got, changeLine(c, values))
			return nil
		}))
		slices.Sort(got)
		if want := changeLines(contentsOf(t, a), contentsOf(t, b), values); !slices.Equal(got, want) {
			t.Fatalf("changes %q\nwant %q", got, want)
		}
	}
}

func total(runs []page.Extent) (n uint64) {
	for _, e := range runs {
		n += e.N
	}
	return n
}

func byStart(a, b page.Extent) int { return int(a.Start) - int(b.Start) }

func deltaRuns(c *delta.Comparison, side delta.Side) (runs []page.Extent) {
	c.EachRun(side, func(e page.Extent, _ bool) { runs = append(runs, e) })
	slices.SortFunc(runs, byStart)
	return runs
}

// onlyRuns are the runs of a that b has not.
func onlyRuns(t *testing.T, a, b *holdfast.Tx) []page.Extent {
	t.Helper()
	runs, err := hook.RunsOf(a)
	must(t, err)
	others, err := hook.RunsOf(b)
	must(t, err)
	runs = slices.DeleteFunc(runs, func(e page.Extent) bool { return slices.Contains(others, e) })
	slices.SortFunc(runs, byStart)
	return runs
}

// holding is a key's value, or a bucket with its sequence.
type holding struct {
	bucket   bool
	value    string
	sequence uint64
}

// contentsOf are all keys and buckets, by path and name.
func contentsOf(t *testing.T, tx *holdfast.Tx) map[string]holding {
	all := map[string]holding{}
	var walk func(path string, b *holdfast.Bucket)
	walk = func(path string, b *holdfast.Bucket) {
		must(t, b.ForEach(func(k, v []byte) error {
			name := path + "/" + string(k)
			if v != nil {
				all[name] = holding{value: string(v)}
				return nil
			}
			in := b.Bucket(k)
			all[name] = holding{bucket: true, sequence: in.Sequence()}
			walk(name, in)
			return nil
		}))
	}
	walk("", tx.Cursor().Bucket())
	return all
}

// changeLines are the changes from a to b as changeLine writes them, sorted.
func changeLines(a, b map[string]holding, values bool) (lines []string) {
	for name := range maps.Keys(a) {
		was := a[name]
		if is, ok := b[name]; !ok || is.bucket != was.bucket {
			lines = append(lines, line(delta.Removed, name, was.bucket, was.value, "", values))
		} else if is != was {
			text := line(delta.Changed, name, was.bucket, was.value, is.value, values)
			if was.bucket {
				text += fmt.Sprint(was.sequence, is.sequence)
			}
			lines = append(lines, text)
		}
	}
	for name := range maps.Keys(b) {
		if was, ok := a[name]; !ok || was.bucket != b[name].bucket {
			lines = append(lines, line(delta.Added, name, b[name].bucket, "", b[name].value, values))
		}
	}
	slices.Sort(lines)
	return lines
}

func line(kind delta.Kind, name string, bucket bool, before, after string, values bool) string {
	text := fmt.Sprintf("%d %s %t %d %d", kind, name, bucket, len(before), len(after))
	if values {
		text += fmt.Sprintf(" %q %q", before, after)
	}
	return text
}

func changeLine(c *delta.Change, values bool) string {
	name := ""
	for _, b := range c.Path {
		name += "/" + string(b)
	}
	name += "/" + string(c.Key)
	before, after := string(c.Old), string(c.New)
	if !values {
		before, after = string(make([]byte, c.OldBytes)), string(make([]byte, c.NewBytes))
	}
	text := line(c.Kind, name, c.Bucket, before, after, values)
	if c.Bucket && c.Kind == delta.Changed {
		text += fmt.Sprint(c.OldSequence, c.NewSequence)
	}
	return text
}

// What a small commit changes in a large database is found without a look at the rest.
func TestDeltaCost(t *testing.T) {
	const keys, most = 100_000, 40 // pages of 100,000 keys: thousands
	db := openNew(t, 4096)
	update(t, db, func(tx *holdfast.Tx) {
		b := createBucket(t, createBucket(t, tx.Cursor().Bucket(), "outer"), "inner")
		for i := range keys {
			put(t, b, fmt.Sprintf("key-%06d", i), "a value of some length")
		}
		for i := range 1000 { // beside it, in pages of their own and not
			put(t, createBucket(t, tx.Cursor().Bucket(), fmt.Sprintf("other-%04d", i)), "k", string(make([]byte, i*2)))
		}
	})
	inner := func(tx *holdfast.Tx) *holdfast.Bucket { return tx.Bucket([]byte("outer")).Bucket([]byte("inner")) }
	for name, change := range map[string]func(tx *holdfast.Tx){
		"put":    func(tx *holdfast.Tx) { put(t, inner(tx), "key-054321", "another") },
		"add":    func(tx *holdfast.Tx) { put(t, inner(tx), "zzz", "new") },
		"delete": func(tx *holdfast.Tx) { must(t, inner(tx).Delete([]byte("key-000000"))) },
		"bucket": func(tx *holdfast.Tx) { createBucket(t, tx.Cursor().Bucket(), "new") },
		"higher": func(tx *holdfast.Tx) {
			for i := range 2000 { // beyond the height of the tree of buckets
				put(t, createBucket(t, tx.Cursor().Bucket(), fmt.Sprintf("s-%05d", i)), "k", "")
			}
		},
	} {
		a := begin(t, db, false)
		update(t, db, change)
		b := begin(t, db, false)
		c, err := bridge.Compare(context.Background(), a, b)
		must(t, err)
		if limit := most + 4*c.New.Total(); c.Read > limit {
			t.Errorf("%s: %d pages were read, at most %d are in proportion to %+v", name, c.Read, limit, c.New)
		}
		if name == "put" && c.New.Total() > 10 {
			t.Errorf("a put makes %+v", c.New)
		}
		must(t, a.Rollback())
		must(t, b.Rollback())
	}
}

// FuzzDelta compares two damaged files as two states of one: no panic, no hang, no error but damage, and work and memory in
// proportion to the files.
func FuzzDelta(f *testing.F) {
	f.Add([]byte{}, []byte{})
	f.Add([]byte{5, 0}, []byte{0, 0})
	for i := range 24 { // a bit in the headers, and in what they name
		a := []byte{0, 0, byte(8 + i%8), byte(4 * i), 0, 1 << (i % 8)}
		b := []byte{0, 0, byte(16 + i), byte(4 * (i % 30)), byte(i % 2), 0x80 >> (i % 8)}
		f.Add(a, b)
		f.Add([]byte{}, b)
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		var states [2]delta.State
		size := 0
		for i, recipe := range [][]byte{a, b} {
			data := mutate(t, recipe)
			size += len(data)
			pages := page.ID(len(data) / samplePageSize)
			image := page.NewImage(data, samplePageSize, pages)
			root := newSample(t).meta.Root
			if len(recipe) > 6 { // any page can be the root
				root = page.ID(recipe[6]) % (pages + 1)
			}
			states[i] = delta.State{Source: &image, Root: root, HighWater: pages}
		}
		n := allocated(func() {
			must(t, within(t, "compare", func() error {
				c, err := delta.Compare(context.Background(), states[0], states[1])
				if err == nil && c.Read > uint64(66*size/samplePageSize) {
					return fmt.Errorf("%d pages were read of %d", c.Read, size/samplePageSize)
				}
				seen := 0
				keys := delta.Keys(context.Background(), states[0], states[1], true, func(*delta.Change) error {
					seen++
					return nil
				})
				if seen > size { // an element takes 16 bytes, in two states
					return fmt.Errorf("%d changes in %d bytes", seen, size)
				}
				return errors.Join(notDamage("compare", err), notDamage("compare the keys", keys))
			}))
		})
		if limit := uint64(allocBase + allocTimes*size); n > limit {
			t.Fatalf("%d bytes allocated for files of %d, at most %d are in proportion", n, size, limit)
		}
	})
}
