package step

import (
	"fmt"
	"sync/atomic"

	"holdfast/worker/internal/idmap"
)

// A way is how a step runs: by which runtime, and whether with a user namespace.
type way struct {
	name     string // of the runtime
	runtime  opened
	ids      idmap.Map   // that steps have outside; none: they have no user namespaces
	unmapped atomic.Bool // they cannot have them, after all
}

// wayKey is what is asked for.
type wayKey struct {
	runtime  Runtime
	usersOff bool
}

// wayOf is the way of a step. What a runtime needs is made when a step first asks for it.
func (r *Runner) wayOf(s *Step) (*way, error) {
	key := wayKey{s.Runtime, s.UserNamespaces == UserNamespacesOff || r.opt.UserNamespaces == UserNamespacesOff}
	if key.runtime == nil {
		key.runtime = r.opt.Runtime
	}
	r.wayMu.Lock()
	defer r.wayMu.Unlock()
	if w := r.ways[key]; w != nil {
		return w, nil
	}
	if r.isClosed() {
		return nil, fmt.Errorf("step: %w", ErrClosed)
	}
	e := *r.environment
	e.usersOff = key.usersOff
	o, err := key.runtime.open(&e)
	if err != nil {
		return nil, fmt.Errorf("step: runtime %s: %w", key.runtime.Name(), err)
	}
	w := &way{name: key.runtime.Name(), runtime: o, ids: o.ids()}
	r.ways[key] = w
	return w, nil
}

// closeWays closes what wayOf has opened. No step runs any more.
func (r *Runner) closeWays() {
	r.wayMu.Lock()
	defer r.wayMu.Unlock()
	for _, w := range r.ways {
		w.runtime.close()
	}
}

func (r *Runner) isClosed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed
}

// idsFor are the ids of steps of a user; none if they cannot all be mapped.
func (w *way) idsFor(u *User) idmap.Map {
	if w.unmapped.Load() || !covers(w.ids, u) {
		return idmap.Map{}
	}
	return w.ids
}
