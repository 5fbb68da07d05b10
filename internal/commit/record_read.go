package commit

import (
	"cmp"
	"fmt"
	"slices"

	"holdfast/internal/extension"
	"holdfast/internal/page"
	"holdfast/internal/space"
)

// ReadRun reads what means something of a run of a record, from the disk.
type ReadRun func(extension.Run) ([]byte, error)

// ReadRecord makes the free set of the state of m from what an extension says, and the
// record that goes on from there with hasher. Any error means that it is not to be believed.
func ReadRecord(ext *extension.Extension, m page.Meta, pageSize int, hasher *extension.Hasher, read ReadRun) (*space.Space, Record, error) {
	rec := Record{Hasher: hasher, Free: *ext.Free, Known: hasher != nil}
	old, err := extension.NewHasher(ext.Key)
	if err != nil {
		return nil, rec, err
	}
	high := m.HighWater
	load := space.Load(high)
	sound := func(r *extension.Run, purpose extension.Purpose) ([]byte, error) {
		if uint64(r.Bytes) > RecordLimit(purpose, high, pageSize) {
			return nil, page.Corruptf(r.Start, "a record of free pages of %d bytes", r.Bytes)
		}
		b, err := read(*r)
		if err != nil {
			return nil, err
		}
		if old.Sum(purpose, r.Start, b) != r.Hash {
			return nil, page.Corruptf(r.Start, "the checksum of a record of free pages does not hold")
		}
		if rec.Hasher != nil {
			r.Hash = rec.Hasher.Sum(purpose, r.Start, b)
		}
		return b, nil
	}
	free := &rec.Free
	free.Logs = slices.Clone(free.Logs)
	if free.Snapshot.Pages > 0 {
		b, err := sound(&free.Snapshot, extension.OfSnapshot)
		if err == nil {
			err = extension.Snapshot(b, high, load.Put, load.PutBits)
		}
		if err != nil {
			return nil, rec, err
		}
	}
	for i := range free.Logs {
		if rec.log, err = sound(&free.Logs[i], extension.OfLog); err == nil {
			err = extension.Log(rec.log, pageSize, high, load.Take, load.Put)
		}
		if err != nil {
			return nil, rec, err
		}
	}
	if err := extension.Changes(free.Inline, high, load.Take, load.Put); err != nil {
		return nil, rec, err
	}
	free.Inline = slices.Clone(free.Inline)
	sp := load.Space()
	if err := rec.check(ext, m, sp); err != nil {
		return nil, rec, err
	}
	return sp, rec, nil
}

// RecordLimit is the most bytes that a run of records may have.
func RecordLimit(purpose extension.Purpose, high page.ID, pageSize int) uint64 {
	if purpose == extension.OfSnapshot {
		return extension.MaxSnapshot(high)
	}
	return uint64(maxLogBytes + maxChange + 4*pageSize) // runs and chunks are whole pages
}

// check tells whether the free set sp can be that of the state of m.
func (r *Record) check(ext *extension.Extension, m page.Meta, sp *space.Space) error {
	if n := sp.FreeCount(); n != r.Free.Count {
		return fmt.Errorf("the record has %d free pages and says that there are %d", n, r.Free.Count)
	}
	if sp.IsUnused(m.Root) {
		return page.Corruptf(m.Root, "the root page is recorded as free")
	}
	lists := slices.Clone(ext.Lists)
	if id := m.Freelist; id != page.NoFreelist {
		if !slices.ContainsFunc(lists, func(e page.Extent) bool { return e.Start == id }) {
			return page.Corruptf(id, "the freelist page is not recorded as one")
		}
	}
	for e := range r.Runs() {
		lists = append(lists, e)
	}
	for _, e := range lists {
		if e.N == 0 || e.Start < page.FirstDataPage || e.Start >= m.HighWater || e.N > uint64(m.HighWater-e.Start) || sp.AnyUnused(e) {
			return page.Corruptf(e.Start, "%d pages from here on are recorded as in use and as free, or do not exist", e.N)
		}
	}
	slices.SortFunc(lists, func(a, b page.Extent) int { return cmp.Compare(a.Start, b.Start) })
	for i := 1; i < len(lists); i++ {
		if lists[i].Start < lists[i-1].End() {
			return page.Corruptf(lists[i].Start, "two records of free pages, or freelists, lie upon each other")
		}
	}
	return nil
}
