package snapshot_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"holdfast"
	"holdfast/worker/snapshot"
)

// TestDamagedMetadata changes entries of the metadata at random: whatever is asked then gives an answer
// or an error, Check notices what it can, and nothing panics or runs for ever.
func TestDamagedMetadata(t *testing.T) {
	root := t.TempDir()
	s := open(t, root, snapshot.Options{Driver: nothing{}, Durability: holdfast.None})
	n := namespace(t, s, "t")
	parent := ""
	for i := range 12 {
		name := fmt.Sprint("layer ", i)
		if _, err := n.Prepare(ctx, name+" active", parent); err != nil {
			t.Fatal(err)
		}
		if err := n.Commit(ctx, name, name+" active", snapshot.WithLabels(map[string]string{"a": "b"})); err != nil {
			t.Fatal(err)
		}
		if err := n.Lease(ctx, "l", name, time.Duration(i%2)*time.Hour); err != nil {
			t.Fatal(err)
		}
		if i%3 != 0 {
			parent = name
		}
	}
	if err := errors.Join(n.ReleaseAll(ctx, "l"), n.Lease(ctx, "l", "layer 3", time.Hour), n.Remove(ctx, "layer 6"), s.Close()); err != nil {
		t.Fatal(err)
	}
	noticed := 0
	for seed := range uint64(150) {
		undo := damage(t, root, rand.New(rand.NewPCG(seed, 0)))
		if useDamaged(t, root) {
			noticed++
		}
		undo()
	}
	t.Logf("%d of 150 noticed", noticed)
	if noticed < 100 {
		t.Errorf("only %d of 150 damages were noticed", noticed)
	}
	s = open(t, root, snapshot.Options{Driver: nothing{}})
	if _, err := s.Reconciled(ctx); err != nil {
		t.Error(err)
	}
}

type entry struct{ bucket, key, value []byte }

// content is all that is in the metadata.
func content(t *testing.T, db *holdfast.DB) (all []entry) {
	t.Helper()
	err := db.View(func(tx *holdfast.Tx) error {
		return tx.ForEach(func(name []byte, b *holdfast.Bucket) error {
			return b.ForEach(func(k, v []byte) error {
				all = append(all, entry{slices.Clone(name), slices.Clone(k), slices.Clone(v)})
				return nil
			})
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// damage changes one entry, and returns what puts all back.
func damage(t *testing.T, root string, rng *rand.Rand) (undo func()) {
	t.Helper()
	path := filepath.Join(root, "metadata.db")
	change := func(fn func(*holdfast.DB)) {
		db, err := holdfast.Open(path, 0o600, &holdfast.Options{Durability: holdfast.None})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		fn(db)
	}
	var before []entry
	change(func(db *holdfast.DB) {
		before = content(t, db)
		e := before[rng.IntN(len(before))]
		err := db.Update(func(tx *holdfast.Tx) error {
			b := tx.Bucket(e.bucket)
			switch rng.IntN(5) {
			case 0:
				return b.Delete(e.key)
			case 1:
				return b.Put(e.key, e.value[:rng.IntN(len(e.value)+1)])
			case 2:
				return b.Put(append(slices.Clone(e.key), byte(rng.IntN(256))), e.value)
			case 3:
				other := before[rng.IntN(len(before))]
				return b.Put(e.key, other.value)
			}
			v := append(slices.Clone(e.value), 0)
			v[rng.IntN(len(v))] ^= 1 << rng.IntN(8)
			return b.Put(e.key, v)
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	return func() {
		change(func(db *holdfast.DB) {
			after := content(t, db)
			err := db.Update(func(tx *holdfast.Tx) error {
				for _, e := range after {
					if err := tx.Bucket(e.bucket).Delete(e.key); err != nil {
						return err
					}
				}
				for _, e := range before {
					if err := tx.Bucket(e.bucket).Put(e.key, e.value); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// useDamaged does a bit of everything, and tells whether anything was found to be wrong.
func useDamaged(t *testing.T, root string) (noticed bool) {
	t.Helper()
	s, err := snapshot.Open(root, snapshot.Options{Driver: nothing{}, Durability: holdfast.None})
	if err != nil {
		return true
	}
	defer s.Close()
	n := namespace(t, s, "t")
	problems, err := s.Check(ctx)
	noticed = err != nil || len(problems) > 0
	_, err = s.Reconciled(ctx)
	noticed = noticed || err != nil
	var list []snapshot.Doomed
	_ = s.Prunable(ctx, func(c snapshot.Candidate) bool {
		list = append(list, snapshot.Doomed{ID: c.ID, LastUsed: c.LastUsed})
		return true
	})
	_, _ = s.Prune(ctx, list)
	_ = n.Walk(ctx, func(snapshot.Info) error { return nil })
	for i := range 12 {
		name := fmt.Sprint("layer ", i)
		_, _ = n.Stat(ctx, name)
		_, _ = n.View(ctx, "view of "+name, name)
		_, _ = n.Mounts(ctx, "view of "+name)
		_ = n.Remove(ctx, "view of "+name)
		_, _ = n.Prepare(ctx, "new", name)
		_ = n.Commit(ctx, "new layer", "new")
		_, _ = n.Children(ctx, name)
		_, _ = n.Usage(ctx, name)
		_ = n.Lease(ctx, "m", name, time.Hour)
		_ = n.Remove(ctx, "new layer")
	}
	_ = s.ExpireLeases(ctx)
	_ = n.ReleaseAll(ctx, "m")
	_ = n.ReleaseAll(ctx, "l")
	_, _ = s.Totals(ctx)
	return noticed
}
