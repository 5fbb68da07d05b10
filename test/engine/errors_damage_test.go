package engine

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"testing"

	"holdfast"
	"holdfast/internal/page"
)

// freelistCases are the rows of docs/errors.md about the freelist page. Each
// damages the sample's, of which there are several numbers on one page.
var freelistCases = map[string]func(*errorRow){
	"freelist-type": func(r *errorRow) {
		r.tryFreelist(func(s *sample, list page.ID) { s.set16(list, offFlags, page.FlagLeaf) })
		r.tryFreelist(func(s *sample, list page.ID) { s.set16(list, offFlags, page.FlagFreelist|page.FlagLeaf) })
	},
	"freelist-number": func(r *errorRow) {
		r.tryFreelist(func(s *sample, list page.ID) { s.set64(list, offID, uint64(list)+1) })
	},
	"freelist-unordered": func(r *errorRow) {
		r.tryFreelist(func(s *sample, list page.ID) {
			b := s.page(list)[page.HeaderSize:]
			first, second := [8]byte(b), [8]byte(b[8:])
			copy(b, second[:])
			copy(b[8:], first[:])
		})
	},
	"freelist-twice": func(r *errorRow) {
		r.tryFreelist(func(s *sample, list page.ID) {
			b := s.page(list)[page.HeaderSize:]
			copy(b[8:16], b[:8])
		})
	},
	"freelist-range": func(r *errorRow) {
		for _, id := range []uint64{0, 1} {
			r.tryFreelist(func(s *sample, list page.ID) { s.set64(list, page.HeaderSize, id) })
		}
		for _, id := range []uint64{0, 1 << 40, math.MaxUint64} {
			r.tryFreelist(func(s *sample, list page.ID) {
				last := page.HeaderSize + 8*(int(page.DecodeHeader(s.page(list)).Count)-1)
				s.set64(list, last, max(id, uint64(s.meta.HighWater)))
			})
		}
	},
	"freelist-count": func(r *errorRow) {
		r.tryFreelist(func(s *sample, list page.ID) { s.set16(list, offCount, (samplePageSize-page.HeaderSize)/8+1) })
		for _, n := range []uint64{(samplePageSize - page.HeaderSize) / 8, 1 << 40, math.MaxUint64/8 + 2, math.MaxUint64} {
			r.tryFreelist(func(s *sample, list page.ID) {
				s.set16(list, offCount, 0xFFFF)
				s.set64(list, page.HeaderSize, n)
			})
		}
	},
	"freelist-overflow": func(r *errorRow) {
		for _, n := range []uint32{uint32(newSample(r).meta.HighWater), math.MaxUint32} {
			r.tryFreelist(func(s *sample, list page.ID) { s.set32(list, offOverflow, n) })
		}
	},
	"freelist-lists-used": func(r *errorRow) {
		s := newSample(r)
		setFreelist(s, func(ids []page.ID) []page.ID { return append(ids, s.busy) })
		r.tryUse("a leaf", s.data, checkOnly)
		s = newSample(r)
		setFreelist(s, func(ids []page.ID) []page.ID { return append(ids, s.meta.Freelist) })
		r.tryUse("the list itself", s.data, checkOnly)
	},
	"freelist-leaves-out": func(r *errorRow) {
		s := newSample(r)
		setFreelist(s, func(ids []page.ID) []page.ID { return ids[1:] })
		r.tryUse("one left out", s.data, checkOnly)
	},
}

// tryFreelist damages the freelist page and opens the file in each way that
// reads it.
func (r *errorRow) tryFreelist(damage func(s *sample, list page.ID)) {
	r.Helper()
	s := newSample(r)
	damage(s, s.meta.Freelist)
	for way, options := range ways {
		if !options.ReadOnly || options.PreLoadFreelist {
			r.try(way, s.data, func(path string) error { return openUse(path, options, nil) })
			continue
		}
		r.try(way, s.data, func(path string) error {
			db, err := holdfast.Open(path, 0o600, &options)
			if err != nil {
				return fmt.Errorf("a reader needs no freelist: %v", err)
			}
			defer db.Close()
			return checkOnly(db) // which does
		})
	}
}

// setFreelist rewrites the freelist page.
func setFreelist(s *sample, change func(ids []page.ID) []page.ID) {
	m := page.NewImage(s.data, samplePageSize, s.meta.HighWater)
	free, _, err := m.Freelist(s.meta.Freelist)
	if err != nil {
		panic(err)
	}
	var ids []page.ID
	for _, e := range free {
		for id := e.Start; id < e.End(); id++ {
			ids = append(ids, id)
		}
	}
	ids = change(ids)
	set := map[page.ID]bool{}
	for _, id := range ids {
		set[id] = true
	}
	run := s.page(s.meta.Freelist)[:samplePageSize]
	page.EncodeFreelist(run, s.meta.Freelist, 0, uint64(len(ids)), func(yield func(page.Extent) bool) {
		for id := range s.meta.HighWater {
			if set[id] && !yield(page.Extent{Start: id, N: 1}) {
				return
			}
		}
	}, false)
}

// readEverything reads the database in every way that the API has, and returns
// the damage that was met.
func readEverything(db *holdfast.DB) error {
	err := db.View(func(tx *holdfast.Tx) error {
		r := reader{tx: tx}
		for c, k := topLevel(tx); k != nil; k, _ = c.Next() {
			r.bucket(tx.Bucket(k), 0)
		}
		if err := tx.ForEach(func(name []byte, b *holdfast.Bucket) error { return r.forEach(b, 0) }); !errors.Is(err, tx.Err()) {
			return fmt.Errorf("ForEach returned %v, Err %v", err, tx.Err())
		}
		tx.Inspect()
		for id := range int(tx.Size() / samplePageSize) {
			if _, err := tx.Page(id); err != nil && err != holdfast.ErrFreePagesNotLoaded {
				r.note(err)
			}
		}
		if _, err := tx.WriteTo(io.Discard); err != nil {
			return err
		}
		if tx.Err() == nil {
			return r.err
		}
		return nil // View returns what the transaction keeps
	})
	if err != nil {
		return err
	}
	return nil
}

// reader goes through buckets, which on a damaged file may be anywhere.
type reader struct {
	tx  *holdfast.Tx
	err error
}

const readerDepth = 3

func (r *reader) note(err error) {
	if r.err == nil {
		r.err = err
	}
}

func topLevel(tx *holdfast.Tx) (*holdfast.Cursor, []byte) {
	c := tx.Cursor()
	k, _ := c.First()
	return c, k
}

func (r *reader) bucket(b *holdfast.Bucket, depth int) {
	if b == nil || depth > readerDepth {
		return
	}
	n := 0
	for k, v := range b.All() {
		n++
		if v == nil {
			r.bucket(b.Bucket(k), depth+1)
		} else if got := b.Get(k); string(got) != string(v) && r.tx.Err() == nil {
			r.note(fmt.Errorf("Get(%q) gives %q, the cursor %q", k, got, v))
		}
	}
	back := 0
	for range b.Backward() {
		back++
	}
	if n != back && r.tx.Err() == nil {
		r.note(fmt.Errorf("%d keys forward, %d backward", n, back))
	}
	c := b.Cursor()
	for i := 0; i < 3000; i += 100 {
		c.Seek(sampleKey(i))
		c.Prev()
		b.Get(sampleKey(i))
	}
	if depth == 0 {
		b.Stats()
		b.Inspect()
	}
	b.Sequence()
}

func (r *reader) forEach(b *holdfast.Bucket, depth int) error {
	if depth > readerDepth {
		return nil
	}
	return b.ForEach(func(k, v []byte) error {
		if child := b.Bucket(k); child != nil {
			return r.forEach(child, depth+1)
		}
		return nil
	})
}

// checkOnly is the first fault that Tx.Check reports, with the file's name.
func checkOnly(db *holdfast.DB) error {
	return db.View(func(tx *holdfast.Tx) error {
		for err := range tx.Check() {
			return fmt.Errorf("%s is damaged: %w", db.Path(), err)
		}
		return nil
	})
}

// useEverything reads everything, checks, and tries to change what it can, in
// transactions that have read everything before, so that no change is made to
// a damaged file.
func useEverything(db *holdfast.DB) error {
	errRead, errCheck := readEverything(db), checkOnly(db)
	if (errRead == nil) != (errCheck == nil) {
		return fmt.Errorf("reading gives %v, checking %v", errRead, errCheck)
	}
	if db.IsReadOnly() {
		return errRead
	}
	errWrite := changeEverything(db)
	if (errRead == nil) != (errWrite == nil) {
		return fmt.Errorf("reading gives %v, writing %v", errRead, errWrite)
	}
	return errRead
}

var errAgain = errors.New("not wanted")

// changeEverything changes and deletes what there is, and rolls it back if no
// damage was met.
func changeEverything(db *holdfast.DB) error {
	err := db.Update(func(tx *holdfast.Tx) error {
		var names [][]byte
		for c, k := topLevel(tx); k != nil; k, _ = c.Next() {
			names = append(names, append([]byte{}, k...))
		}
		r := reader{tx: tx}
		for _, name := range names {
			b := tx.Bucket(name)
			r.bucket(b, 0)
			if b == nil {
				continue
			}
			for i := 0; i < 3000; i += 37 {
				_ = b.Put(sampleKey(i), make([]byte, 1500))
				_ = b.Delete(sampleKey(i + 1))
			}
			c := b.Cursor()
			for k, _ := c.First(); k != nil && tx.Err() == nil; k, _ = c.Next() {
				_ = c.Delete()
			}
		}
		for _, name := range names {
			_ = tx.DeleteBucket(name)
		}
		if tx.Err() == nil {
			return errAgain
		}
		return nil // Commit must refuse
	})
	if err == errAgain {
		return nil
	}
	return err
}

// Close gave a file its last transaction id plus one, and it could not be opened
// again.
func TestCloseAtTheLastID(t *testing.T) {
	s := newSample(t)
	s.setMetas(func(m *page.Meta) { m.Freelist, m.Label = page.NoFreelist, page.MaxLabel })
	path := tempPath(t)
	must(t, os.WriteFile(path, s.data, 0o600))
	for range 2 {
		db, err := holdfast.Open(path, 0o600, nil)
		must(t, err)
		must(t, db.Close())
	}
}
