package prune

import (
	"context"
	"fmt"
	"time"

	"holdfast/worker/snapshot"
)

// Cause is why a snapshot stays.
type Cause uint8

// Causes.
const (
	InUse    Cause = iota + 1 // it is active or a view: it is being worked with
	Client                    // its namespace is a client, which removes by itself
	Pinned                    // Namespace.Pin
	Leased                    // Namespace.Lease
	Child                     // something that stands on it stays
	Spared                    // a policy does not select it
	Young                     // used less than keepDuration ago
	Within                    // the bounds of a policy are kept without its going
	NoPolicy                  // there is no policy
)

// Kept is a reason why a snapshot stays. Which fields are set depends on the cause.
type Kept struct {
	Cause   Cause
	Lease   string             // Leased
	Until   time.Time          // Leased: when the lease is over; zero: never. Young: when it is old enough
	Child   snapshot.Candidate // Child: the nearest that is not kept by children of its own only
	Because []Kept             // Child: what keeps that one
	Policy  int                // Spared, Young, Within: its number, from 1
	State   State              // Within: what the policy compares with its bounds
}

// Answer is what Why has found.
type Answer struct {
	snapshot.Candidate

	// Next is set if the next run would remove it.
	Next *Removal

	// Kept are the reasons why it stays, if it does. What of them names policies, says why none of them
	// removes it; the others each keep it whatever the policies say.
	Kept []Kept

	// More is set if there are more snapshots that keep it, as its descendants, than Kept names.
	More bool
}

const (
	mostChildren = 10   // that are named
	mostVisited  = 1000 // descendants that are looked at
)

// Why tells whether the next run would remove a snapshot, and otherwise what keeps it. It changes nothing, and
// takes as long as DryRun. snapshot.ErrNotFound if there is none of that name.
func (p *Pruner) Why(ctx context.Context, namespace, name string) (*Answer, error) {
	w := inquiry{p: p, now: p.now(), goes: map[snapshot.ID]bool{}}
	state, err := p.unreserved(ctx)
	if err == nil {
		err = p.store.Read(ctx, func(m *snapshot.ReadTx) error { return w.run(m, state, namespace, name) })
	}
	if err != nil {
		return nil, fmt.Errorf("why snapshot %q of namespace %q stays: %w", name, namespace, err)
	}
	return &w.answer, nil
}

// inquiry answers Why.
type inquiry struct {
	p       *Pruner
	m       *snapshot.ReadTx
	now     time.Time
	answer  Answer
	goes    map[snapshot.ID]bool // what the next run removes
	after   []State              // when each policy has been followed
	visited int
}

func (w *inquiry) run(m *snapshot.ReadTx, state State, namespace, name string) (err error) {
	w.m = m
	if w.answer.Candidate, err = m.Stat(namespace, name); err != nil {
		return err
	}
	plan := planner{policies: w.p.opts.Policies, now: w.now, despite: w.p.opts.Despite, state: state}
	err = plan.plan(m, func(r *Removal) bool {
		w.goes[r.ID] = true
		if r.ID == w.answer.ID {
			w.answer.Next = r
		}
		return true
	})
	if err != nil || w.answer.Next != nil {
		return err
	}
	w.after = plan.after
	if w.answer.Kept, err = w.held(&w.answer.Candidate); err != nil {
		return err
	}
	if err := w.children(w.answer.ID); err != nil || len(w.answer.Kept) > 0 {
		return err
	}
	w.answer.Kept = w.policies(&w.answer.Candidate)
	return nil
}

// held is what keeps a snapshot but for children, whatever the policies say.
func (w *inquiry) held(c *snapshot.Candidate) (kept []Kept, err error) {
	if c.Kind != snapshot.Committed {
		kept = append(kept, Kept{Cause: InUse})
	}
	if w.m.IsClient(c.Namespace) {
		kept = append(kept, Kept{Cause: Client})
	}
	if c.Pinned {
		kept = append(kept, Kept{Cause: Pinned})
	}
	leases, err := w.m.Leases(c.ID, w.now)
	for _, l := range leases {
		kept = append(kept, Kept{Cause: Leased, Lease: l.Lease, Until: l.Expires})
	}
	return kept, err
}

// children adds the nearest descendants that keep a snapshot: those which stay for another reason than
// their own children.
func (w *inquiry) children(id snapshot.ID) error {
	level := []snapshot.ID{id}
	for len(level) > 0 {
		var next []snapshot.ID
		for _, parent := range level {
			var inner error
			err := w.m.Children(parent, func(c snapshot.Candidate) bool {
				var descend bool
				descend, inner = w.child(&c)
				if descend {
					next = append(next, c.ID)
				}
				return inner == nil && !w.answer.More
			})
			if err == nil {
				err = inner
			}
			if err != nil || w.answer.More {
				return err
			}
		}
		level = next
	}
	return nil
}

// child looks at one descendant. It is to be descended into if only its own children keep it.
func (w *inquiry) child(c *snapshot.Candidate) (descend bool, err error) {
	if w.goes[c.ID] {
		return false, nil
	}
	if w.visited++; w.visited > mostVisited || len(w.answer.Kept) >= mostChildren {
		w.answer.More = true
		return false, nil
	}
	because, err := w.held(c)
	if err != nil {
		return false, err
	}
	if len(because) == 0 {
		// If something stands on it that stays, that is what keeps it.
		err = w.m.Children(c.ID, func(g snapshot.Candidate) bool {
			descend = !w.goes[g.ID]
			return !descend
		})
		if err != nil || descend {
			return descend, err
		}
		because = w.policies(c)
	}
	w.answer.Kept = append(w.answer.Kept, Kept{Cause: Child, Child: *c, Because: because})
	return false, nil
}

// policies is why no policy removes a snapshot that could be removed.
func (w *inquiry) policies(c *snapshot.Candidate) (kept []Kept) {
	for i := range w.p.opts.Policies {
		policy := &w.p.opts.Policies[i]
		k := Kept{Policy: i + 1}
		switch {
		case !policy.matches(c):
			k.Cause = Spared
		case policy.young(c, w.now):
			k.Cause = Young
			used := c.LastUsed
			if used.After(w.now) {
				used = w.now
			}
			k.Until = used.Add(time.Duration(policy.KeepDuration))
		default:
			k.Cause, k.State = Within, w.after[i]
		}
		kept = append(kept, k)
	}
	if len(kept) == 0 {
		kept = append(kept, Kept{Cause: NoPolicy})
	}
	return kept
}

// String says it for people.
func (k Kept) String() string {
	switch k.Cause {
	case InUse:
		return "it is not committed: it is a base, or in use"
	case Client:
		return "its namespace is a client, which removes what it does not need by itself"
	case Pinned:
		return "it is pinned"
	case Leased:
		if k.Until.IsZero() {
			return fmt.Sprintf("the lease %q, which has no end", k.Lease)
		}
		return fmt.Sprintf("the lease %q, until %s", k.Lease, k.Until.Format(time.RFC3339))
	case Child:
		text := fmt.Sprintf("the snapshot %q stands on it, and stays: ", k.Child.Name)
		for i, b := range k.Because {
			if i > 0 {
				text += "; "
			}
			text += b.String()
		}
		return text
	case Spared:
		return fmt.Sprintf("policy %d does not select it", k.Policy)
	case Young:
		return fmt.Sprintf("policy %d keeps it until %s, if it is not used", k.Policy, k.Until.Format(time.RFC3339))
	case Within:
		return fmt.Sprintf("policy %d has its bounds kept: %s used, %s free, %d snapshots", k.Policy, human(k.State.Used), human(k.State.Free), k.State.Snapshots)
	}
	return "there is no policy"
}
