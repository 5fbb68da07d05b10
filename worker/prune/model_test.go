package prune

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"holdfast/worker/disk"
	"holdfast/worker/snapshot"
)

// naive is the reference: what goes, in which order, by which policy and rule, found over a list.
func naive(s *history, policies []Policy, now time.Time, room int64) (gone []string) {
	here := s.all()
	state := State{FS: s.fs, Used: s.base, Snapshots: int64(len(here))}
	for _, c := range here {
		state.Used += c.Usage.Size
		state.UsedInodes += c.Usage.Inodes
	}
	for i, p := range policies {
		for {
			var best *snapshot.Candidate
			for _, c := range here {
				if s.mayGo(here, &c) && selects(&p, &c, now) && (best == nil || c.LastUsed.Before(best.LastUsed)) {
					best = &c
				}
			}
			rule := ruleOf(&p, state, room)
			if best == nil || rule == "" {
				break
			}
			gone = append(gone, fmt.Sprintf("%s/%s %d %s", best.Namespace, best.Name, i+1, rule))
			state.Used -= best.Usage.Size
			state.Free += best.Usage.Size
			state.UsedInodes -= best.Usage.Inodes
			state.FreeInodes += best.Usage.Inodes
			state.Snapshots--
			delete(here, best.Namespace+"/"+best.Name)
		}
	}
	return gone
}

func (s *history) mayGo(here map[string]snapshot.Candidate, c *snapshot.Candidate) bool {
	for _, other := range here {
		if other.Namespace == c.Namespace && other.Parent == c.Name {
			return false
		}
	}
	return c.Kind == snapshot.Committed && c.Namespace != "client" && !c.Pinned && !s.leased[c.Namespace+"/"+c.Name]
}

func selects(p *Policy, c *snapshot.Candidate, now time.Time) bool {
	if c.Labels[LabelKeep] != "" && !p.All {
		return false
	}
	if age := now.Sub(c.LastUsed); p.KeepDuration > 0 && age < time.Duration(p.KeepDuration) {
		return false
	}
	for _, f := range p.Filters {
		switch f.String() {
		case "namespace==a":
			if c.Namespace == "a" {
				return true
			}
		case "labels.team==x":
			if c.Labels["team"] == "x" {
				return true
			}
		case "namespace==b,name~=[0-4]$":
			if c.Namespace == "b" && c.Name[len(c.Name)-1] <= '4' {
				return true
			}
		}
	}
	return len(p.Filters) == 0
}

func ruleOf(p *Policy, s State, room int64) string {
	of := func(z Size) int64 { return z.Bytes + s.Size/100*int64(z.Percent) }
	inodes := func(bytes int64) int64 { // that go with them
		return int64(float64(s.Inodes) * float64(min(bytes, s.Size)) / float64(s.Size))
	}
	few := func(bytes int64) bool { return s.Inodes > 0 && s.FreeInodes < inodes(bytes) }
	if n := of(p.ReservedSpace); n > 0 && s.Used <= n && (s.Inodes == 0 || s.UsedInodes <= inodes(n)) {
		return ""
	}
	if room > 0 {
		if s.Free < room || few(room) {
			return "room"
		}
		return ""
	}
	if p.MaxUsedSpace == (Size{}) && p.MinFreeSpace == (Size{}) && p.MaxSnapshots == 0 {
		return "keepDuration"
	}
	if n := of(p.MaxUsedSpace); n > 0 && s.Used > n {
		return "maxUsedSpace"
	}
	if n := of(p.MinFreeSpace); n > 0 && (s.Free < n || few(n)) {
		return "minFreeSpace"
	}
	if n := int64(p.MaxSnapshots); n > 0 && s.Snapshots > n {
		return "maxSnapshots"
	}
	return ""
}

// history is a store with random snapshots.
type history struct {
	*stand
	rng    *rand.Rand
	base   int64 // bytes besides snapshots
	leased map[string]bool
	times  []time.Time
}

// grow makes random snapshots, with leases, pins, labels and uses.
func (h *history) grow(n int) {
	h.leased = map[string]bool{}
	client, err := h.store.ClientNamespace("client")
	h.must(err)
	namespaces := []*snapshot.Namespace{h.namespace("a"), h.namespace("b"), client}
	made := make([][]string, len(namespaces))
	for i := range n {
		k := h.rng.IntN(len(namespaces))
		t, name, parent := namespaces[k], fmt.Sprint("s", i), ""
		if len(made[k]) > 0 && h.rng.IntN(4) > 0 {
			parent = made[k][h.rng.IntN(len(made[k]))]
		}
		labels := map[string]string{"team": []string{"x", "y"}[h.rng.IntN(2)]}
		if h.rng.IntN(6) == 0 {
			labels[LabelKeep] = "yes"
		}
		h.driver.inodes.Store(1 + h.rng.Int64N(100))
		h.layer(t, name, parent, h.rng.Int64N(1e6), snapshot.WithLabels(labels))
		made[k] = append(made[k], name)
		some := made[k][h.rng.IntN(len(made[k]))]
		switch h.rng.IntN(10) {
		case 0, 1, 2:
			h.must(t.Touch(ctx, some))
		case 3:
			h.must(t.Pin(ctx, some))
		case 4:
			h.must(t.Lease(ctx, "l", some, 0))
			h.leased[t.Name()+"/"+some] = true
		case 5:
			h.must(t.Lease(ctx, "short", some, time.Nanosecond)) // over at once, and not taken away
		case 6:
			_, err := t.View(ctx, fmt.Sprint("view ", i), some)
			h.must(err)
		}
	}
	for _, c := range h.all() {
		h.times = append(h.times, c.LastUsed)
	}
	slices.SortFunc(h.times, time.Time.Compare) // so that a seed gives the same again
	h.base = h.rng.Int64N(1e6)
}

// set puts time and size of the metadata in place of the machine's.
func (h *history) set(p *Pruner, now time.Time) {
	p.now = func() time.Time { return now }
	p.besides = func(string) (int64, int64, error) { return h.base, 0, nil }
}

func (h *history) size(most int64) Size {
	if h.rng.IntN(4) == 0 {
		return Size{Percent: 1 + h.rng.IntN(99)}
	}
	return Size{Bytes: 1 + h.rng.Int64N(most)}
}

// policies are random ones that make sense.
func (h *history) policies() (list []Policy, now time.Time) {
	now = h.times[h.rng.IntN(len(h.times))].Add(time.Hour)
	for range 1 + h.rng.IntN(3) {
		for {
			var p Policy
			for _, text := range []string{"namespace==a", "labels.team==x", "namespace==b,name~=[0-4]$"} {
				if h.rng.IntN(4) == 0 {
					f, err := ParseFilter(text)
					h.must(err)
					p.Filters = append(p.Filters, f)
				}
			}
			p.All = h.rng.IntN(3) == 0
			if h.rng.IntN(2) == 0 {
				p.KeepDuration = Duration(time.Hour)
			}
			if h.rng.IntN(3) == 0 {
				p.ReservedSpace = h.size(h.fs.Size / 4)
			}
			if h.rng.IntN(3) == 0 {
				p.MaxUsedSpace = h.size(h.fs.Size)
			}
			if h.rng.IntN(3) == 0 {
				p.MinFreeSpace = h.size(h.fs.Size)
			}
			if h.rng.IntN(3) == 0 {
				p.MaxSnapshots = Count(1 + h.rng.IntN(60))
			}
			if p.check() == nil {
				list = append(list, p)
				break
			}
		}
	}
	return list, now
}

// seen is a plan, as the reference gives it.
func seen(list []Removal) (text []string) {
	for _, r := range list {
		text = append(text, fmt.Sprintf("%s/%s %d %v", r.Namespace, r.Name, r.Policy, r.Rule))
	}
	return text
}

// TestAgainstNaive: random policies on random stores remove what the reference says, in its order. A dry
// run says so before, and changes nothing; a run that is ended goes on where it was.
func TestAgainstNaive(t *testing.T) {
	rules, removed, plans := map[Rule]int{}, 0, 0
	for seed := range uint64(40) {
		h := &history{stand: newStand(t), rng: rand.New(rand.NewPCG(seed, 7))}
		h.grow(10 + h.rng.IntN(50))
		h.fs = disk.FS{Size: h.base + 60e6, Free: h.rng.Int64N(40e6)}
		if h.rng.IntN(2) == 0 {
			h.fs.Inodes, h.fs.FreeInodes = 6000, h.rng.Int64N(4000)
		}
		for range 12 {
			policies, now := h.policies()
			p := h.pruner(0, policies...)
			h.set(p, now)
			want := naive(h, policies, now, 0)
			before := h.all()
			list, _ := h.dry(p)
			if got := seen(list); !slices.Equal(got, want) {
				t.Fatalf("seed %d: policies %+v:\ngoes  %q\nand should %q", seed, policies, got, want)
			}
			if !maps.EqualFunc(before, h.all(), func(a, b snapshot.Candidate) bool { return a.ID == b.ID && a.LastUsed.Equal(b.LastUsed) }) {
				t.Fatal("the dry run has changed something")
			}
			h.why(p, list)
			plans++
			for _, r := range list {
				rules[r.Rule]++
			}
			h.makeRoomPlan(p, policies, now)
		}
		policies, now := h.policies()
		p := h.pruner(0, policies...)
		h.set(p, now)
		removed += h.run(p)
	}
	t.Logf("%d plans, by rule %v; %d removed", plans, rules, removed)
	if len(rules) < 4 || removed < 50 {
		t.Error("the policies are not varied enough")
	}
}

// makeRoomPlan compares the plan of MakeRoom.
func (h *history) makeRoomPlan(p *Pruner, policies []Policy, now time.Time) {
	room := h.fs.Free + h.rng.Int64N(20e6)
	var list []Removal
	_, err := p.survey(ctx, now, room, func(r *Removal) bool {
		list = append(list, *r)
		return true
	})
	h.must(err)
	if got, want := seen(list), naive(h, policies, now, room); !slices.Equal(got, want) {
		h.Fatalf("room of %d: policies %+v:\ngoes  %q\nand should %q", room, policies, got, want)
	}
	if len(list) == 0 {
		return
	}
	want := list[0].Before.FS
	for _, r := range list {
		want.Free += r.Usage.Size
		if want.Inodes > 0 {
			want.FreeInodes += r.Usage.Inodes
		}
	}
	if got, err := p.Room(ctx, room); err != nil || got != want {
		h.Fatalf("room of %d would make %+v, %v, and should %+v", room, got, err, want)
	}
}

// why compares Why with what goes.
func (h *history) why(p *Pruner, list []Removal) {
	goes := map[snapshot.ID]Rule{}
	for _, r := range list {
		goes[r.ID] = r.Rule
	}
	here := h.all()
	left := maps.Clone(here) // by the next run
	maps.DeleteFunc(left, func(_ string, c snapshot.Candidate) bool { return goes[c.ID] != 0 })
	for range 5 {
		key := slices.Sorted(maps.Keys(here))[h.rng.IntN(len(here))]
		c := here[key]
		a, err := p.Why(ctx, c.Namespace, c.Name)
		h.must(err)
		if (a.Next != nil) != (goes[c.ID] != 0) || a.Next != nil && (a.Next.Rule != goes[c.ID] || len(a.Kept) > 0) || a.Next == nil && len(a.Kept) == 0 {
			h.Fatalf("why %s: %+v; the plan has %v", key, a, goes[c.ID])
		}
		for _, k := range a.Kept {
			if k.Cause == Child && (goes[k.Child.ID] != 0 || len(k.Because) == 0) {
				h.Fatalf("why %s: its child %s keeps it, and goes: %+v", key, k.Child.Name, k)
			}
		}
		if hard := slices.ContainsFunc(a.Kept, func(k Kept) bool { return k.Cause < Spared }); a.Next == nil && hard == h.mayGo(left, &c) {
			h.Fatalf("why %s: %v; that it could go is %v", key, a.Kept, h.mayGo(left, &c))
		}
	}
}

// inodesOf are those of some snapshots.
func inodesOf(list map[string]snapshot.Candidate) (n int64) {
	for _, c := range list {
		n += c.Usage.Inodes
	}
	return n
}

// run removes, interrupted after each transaction, and compares with the dry run.
func (h *history) run(p *Pruner) int {
	h.must(h.store.ExpireLeases(ctx)) // else a run does it, and the records become others
	list, dry := h.dry(p)
	want := h.all()
	for _, r := range list {
		delete(want, r.Namespace+"/"+r.Name)
	}
	p.opts.Hold = time.Nanosecond // one for each transaction
	var total Result
	for {
		ending, cancel := context.WithCancel(ctx)
		n := 0
		p.opts.Progress = func(g Progress) {
			if g.Snapshots+g.SnapshotsLeft+total.Snapshots != dry.Snapshots || g.Bytes+g.BytesLeft+total.Bytes != dry.Bytes {
				h.Errorf("progress %+v after %+v, of %+v", g, total, dry)
			}
			if n++; n == 2 {
				cancel()
			}
		}
		before := h.all()
		r, err := p.Run(ending)
		cancel()
		if err != nil && !errors.Is(err, context.Canceled) {
			h.Fatal(err)
		}
		h.sound()
		if int64(len(before)-len(h.all())) != r.Snapshots {
			h.Fatalf("%d are gone, and the result is %+v", len(before)-len(h.all()), r)
		}
		h.must(h.store.Cleanup(ctx))
		h.fs.Free += r.Bytes
		if h.fs.Inodes > 0 {
			h.fs.FreeInodes += inodesOf(before) - inodesOf(h.all())
		}
		total.Snapshots += r.Snapshots
		total.Bytes += r.Bytes
		if err == nil {
			break
		}
	}
	got := h.all()
	if !slices.Equal(slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want))) {
		h.Fatalf("policies %+v: left %q, and the dry run %q", p.opts.Policies, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
	if total.Bytes != dry.Bytes || total.Snapshots != dry.Snapshots {
		h.Fatalf("removed %+v; the dry run %+v", total, dry)
	}
	return int(total.Snapshots)
}
