package snaplife

import (
	"context"
	"errors"
	"fmt"

	"holdfast/bench/age"
)

// Run lives the life with each peer, in directories that it makes in dir and does not remove. It needs root: it mounts.
// Nothing is mounted any more when it returns, unless its error says so. It adds to the result, in which it sets
// the configuration, the measures and the lives.
func Run(ctx context.Context, dir string, c Config, peers []Peer, r *age.Result, w age.Watcher) (err error) {
	if err := c.Check(); err != nil {
		return err
	}
	r.Config, r.Measures, r.About = age.Config{Schedule: c.Schedule}, Measures, about(&c)
	run := &run{Config: c, dir: dir, life: NewLife(c.Schedule), model: Model{}, say: w.Say}
	defer func() {
		for _, st := range run.stands {
			if closeErr := st.close(); closeErr != nil {
				err = errors.Join(err, fmt.Errorf("%s: closing it: %w", st.Name, closeErr))
			}
		}
	}()
	for i, p := range peers {
		r.Lives = append(r.Lives, age.PeerLife{Peer: p.Name, Note: p.Note})
		st, err := newStand(dir, i, p)
		if err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
		run.stands, run.lives = append(run.stands, st), append(run.lives, NewLife(c.Schedule))
	}
	for stretch, day := range c.Measured() {
		if err := run.stretch(ctx, stretch, day); err != nil {
			return err
		}
		for i, st := range run.stands {
			r.Lives[i].Stretches = append(r.Lives[i].Stretches, age.Stretch{Day: day, Cycles: run.life.Live(), Keys: len(run.model), Samples: st.samples})
		}
		if err := w.Measured(r); err != nil {
			return err
		}
	}
	return nil
}

// run is what Run works with.
type run struct {
	Config
	dir    string
	stands []*stand
	lives  []*Life // of the stands
	life   *Life   // of the model
	model  Model
	say    func(string)
}

// stretch lets all stores live up to a day, and measures them.
func (r *run) stretch(ctx context.Context, stretch, day int) error {
	days := day - r.life.day
	for range days {
		if err := r.life.Day(r.model.Apply); err != nil {
			return err
		}
	}
	each := func(turn int, what string, fn func(i int, st *stand) error) error {
		for i := range r.stands {
			at := (i + turn) % len(r.stands) // not always after the same one
			st := r.stands[at]
			r.say(fmt.Sprintf("day %d of %d: %s, %s", day, r.Days, what, st.Name))
			if err := settle(r.dir); err != nil {
				return err
			}
			if err := fn(at, st); err != nil {
				return fmt.Errorf("%s, day %d: %w", st.Name, day, err)
			}
		}
		return nil
	}
	err := each(stretch, "living", func(i int, st *stand) error {
		st.samples = age.Samples{}
		if err := st.age(ctx, r.lives[i], days); err != nil {
			return err
		}
		if err := st.check(ctx, r.model, day); err != nil {
			return err
		}
		return st.sizes()
	})
	for turn := 0; turn < r.Opens && err == nil; turn++ {
		err = each(turn, "opening", func(_ int, st *stand) error { return st.reopen(ctx, r.life.Image()) })
	}
	for turn := 0; turn < r.Rounds && err == nil; turn++ {
		err = each(turn, "measuring", func(_ int, st *stand) error { return st.round(ctx, r.Steps, r.life.Image(), r.model) })
	}
	if err != nil {
		return err
	}
	return each(0, "comparing", func(_ int, st *stand) error { return st.check(ctx, r.model, day) })
}
