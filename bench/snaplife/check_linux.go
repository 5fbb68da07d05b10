package snaplife

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
)

// check compares the store with the model: all names, and the content of some snapshots, others on each day.
func (st *stand) check(ctx context.Context, m Model, day int) error {
	got := Model{}
	err := st.s.Walk(ctx, func(_ context.Context, info snapshots.Info) error {
		if _, ok := got[info.Name]; ok {
			return fmt.Errorf("snapshot %q is there twice", info.Name)
		}
		got[info.Name] = Entry{Kind(info.Kind.String()), info.Parent, info.Labels[label]}
		return nil
	})
	if err != nil {
		return fmt.Errorf("walking: %w", err)
	}
	if err := m.Compare(got); err != nil {
		return fmt.Errorf("after day %d: %w", day, err)
	}
	rng := rand.New(rand.NewPCG(2, uint64(day)))
	committed, active := m.Names(Committed), m.Names(Active)
	for range looked {
		name := committed[rng.IntN(len(committed))]
		const key = "look"
		mounts, err := st.s.View(ctx, key, name)
		if err == nil {
			err = st.look(mounts, m.Tree(name))
		}
		if err == nil {
			err = st.s.Remove(ctx, key)
		}
		if err != nil {
			return fmt.Errorf("after day %d, looking into %q: %w", day, name, err)
		}
	}
	name := active[rng.IntN(len(active))]
	mounts, err := st.s.Mounts(ctx, name)
	if err == nil {
		err = st.look(mounts, m.Tree(m[name].Parent))
	}
	if err != nil {
		return fmt.Errorf("after day %d, looking into %q: %w", day, name, err)
	}
	return st.sweep(ctx)
}

func (st *stand) look(mounts []mount.Mount, want Files) error {
	return st.mounted(mounts, func() error {
		got, err := read(st.target)
		if err != nil {
			return err
		}
		return want.Compare(got)
	})
}
