package blob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"holdfast"
)

// Each page of a file with a store is damaged. Check names what cannot be read, finds nothing else wrong, for nothing
// else is, and goes on behind it; of what it names, all that cannot be read is a part. A repair changes nothing.
func TestCheckDamagedPages(t *testing.T) {
	for _, where := range placings {
		t.Run(string(where), func(t *testing.T) { checkDamagedPages(t, where) })
	}
}

func checkDamagedPages(t *testing.T, where whereabouts) {
	db := newStore(t, small[0])
	var d *damaged
	must(t, db.Update(func(tx *holdfast.Tx) error {
		d = someStore(t, openIn(tx), where)
		for i := range 400 { // so that the index has several pages
			d.refs = append(d.refs, must2(d.Put(random(uint64(1000+i), 30))))
		}
		return nil
	}))
	chunks := int64(0)
	view(t, db, func(s *Store) {
		u := must2(s.Usage())
		chunks = u.Leaves + u.Nodes
	})
	path := db.Path()
	must(t, db.Close())
	whole := must2(os.ReadFile(path))
	named, silent, partial := 0, 0, 0 // partial: some chunks can be looked at, and some not
	for at := 2 * 4096; at < len(whole); at += 4096 {
		file := slices.Clone(whole)
		file[at+100] ^= 1
		must(t, os.WriteFile(path, file, 0o600))
		db, err := holdfast.Open(path, 0o600, &holdfast.Options{NoSync: true})
		if err != nil {
			continue
		}
		looked := int64(0)
		n, err := checkPage(t, db, d, &looked)
		if looked > 0 && looked < chunks {
			partial++
		}
		switch {
		case err != nil:
			t.Errorf("page %d: %v", at/4096, err)
		case n > 0:
			named++
		default:
			silent++
		}
		must(t, db.Close())
	}
	t.Logf("%d pages were named, %d were not; chunks were missed with %d", named, silent, partial)
	if named < 30 || partial < 3 {
		t.Errorf("only %d pages were named: the test tests nothing", named)
	}
}

// checkPage checks a file with a damaged page, and gives how often Check names it.
func checkPage(t *testing.T, db *holdfast.DB, d *damaged, looked *int64) (named int, err error) {
	unnamed := errors.New("found")
	for _, o := range []CheckOptions{
		{Data: true, Digests: true, Roots: rootsOf(d.refs...)},
		{Data: true, Roots: rootsOf(d.refs...), Memory: 3000},
		{},
	} {
		opened, found := false, 0
		err := db.View(func(tx *holdfast.Tx) error {
			s, err := openAny(tx.Bucket(storeName))
			if err != nil {
				return err
			}
			opened = true
			stats, err := s.Check(context.Background(), o, func(p Problem) error {
				if found++; p.Kind != Unreadable {
					return fmt.Errorf("%w: %v", unnamed, p)
				}
				return nil
			})
			if err == nil && tx.Err() != nil {
				err = errors.New("the transaction has kept the damage")
			}
			if err == nil && o.Data && found == 0 {
				err = readsAll(s, d.refs)
			}
			*looked = max(*looked, stats.Leaves+stats.Nodes)
			return err
		})
		if !opened {
			return 0, nil // the bucket itself is not there
		}
		if err != nil {
			return 0, fmt.Errorf("%+v: %w", o, err)
		}
		if named = max(named, found); found == 0 {
			continue
		}
		o.Repair, o.Discard = true, true
		changed := false
		err = db.Update(func(tx *holdfast.Tx) error {
			stats, err := openIn(tx).Check(context.Background(), o, func(p Problem) error {
				changed = changed || p.Repaired
				return nil
			})
			if stats.Repaired != 0 || changed {
				return errors.New("something was repaired")
			}
			var damage *holdfast.CorruptError
			if !errors.As(err, &damage) {
				return fmt.Errorf("the repair: %w", err)
			}
			return nil
		})
		var damage *holdfast.CorruptError
		if !errors.As(err, &damage) {
			return 0, fmt.Errorf("repair with %+v: %w", o, err)
		}
	}
	return named, nil
}

// readsAll reads all blobs.
func readsAll(s *Store, refs []Ref) error {
	for _, ref := range refs {
		r, err := s.Reader(ref)
		if err == nil {
			_, err = r.WriteTo(discard{})
		}
		if err != nil {
			return fmt.Errorf("nothing is named, and blob %v cannot be read: %w", ref, err)
		}
	}
	return nil
}

// Roots gives the damage of its transaction as its last error, also what another call has met, as its
// documentation says: what came before may not be all.
func TestRootsAfterDamage(t *testing.T) {
	db := newStore(t, Options{LeafSize: MinLeafSize})
	whole := random(1, 200_000)
	update(t, db, func(s *Store) { must2(s.Put(whole)) })
	path := db.Path()
	must(t, db.Close())
	file := must2(os.ReadFile(path))
	at := bytes.Index(file, whole[100*MinLeafSize:][:200])
	if at < 0 {
		t.Fatal("the leaf is not in the file")
	}
	file[at] ^= 1
	must(t, os.WriteFile(path, file, 0o600))
	db = must2(holdfast.Open(path, 0o600, &holdfast.Options{NoSync: true}))
	var damage *holdfast.CorruptError
	err := db.View(func(tx *holdfast.Tx) error {
		s := openIn(tx)
		roots := func() (n int, last error) {
			for _, err := range s.Roots() {
				if last = err; err == nil {
					n++
				}
			}
			return n, last
		}
		if n, err := roots(); n != 1 || err != nil {
			t.Errorf("%d roots, %v", n, err)
		}
		for ref := range s.Roots() {
			if err := readsAll(s, []Ref{ref}); !errors.As(err, &damage) {
				t.Errorf("reading: %v", err)
			}
			break
		}
		if n, err := roots(); n != 1 || !errors.As(err, &damage) {
			t.Errorf("behind the damage: %d roots, %v", n, err)
		}
		return nil
	})
	if !errors.As(err, &damage) {
		t.Errorf("the transaction: %v", err)
	}
	must(t, db.Close())
}
