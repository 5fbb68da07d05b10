package prune

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"holdfast/worker/disk"
	"holdfast/worker/snapshot"
)

// Rule is why a policy removes a snapshot.
type Rule uint8

// Rules.
const (
	Unused       Rule = iota + 1 // the policy selects it and has no bounds
	MaxUsed                      // more than MaxUsedSpace is used
	MinFree                      // less than MinFreeSpace is free, or fewer inodes than go with it
	MaxSnapshots                 // there are more than MaxSnapshots
	Room                         // room is needed: MakeRoom
)

// String says it in a word, that of the field of the policy if there is one.
func (r Rule) String() string {
	switch r {
	case Unused:
		return "keepDuration"
	case MaxUsed:
		return "maxUsedSpace"
	case MinFree:
		return "minFreeSpace"
	case MaxSnapshots:
		return "maxSnapshots"
	case Room:
		return "room"
	}
	return fmt.Sprintf("rule %d", uint8(r))
}

// State are the figures that policies compare with their bounds.
type State struct {
	disk.FS          // of the store; free is also what is about to be deleted, and not what is reserved
	Used       int64 // by committed snapshots, metadata, and other files in the store's directory
	UsedInodes int64 // by committed snapshots; 0 where inodes are not counted
	Snapshots  int64
}

// without is the state when n snapshots have gone that take so much each; with n of -1, when one stays after all.
func (s State) without(n int64, u snapshot.Usage) State {
	s.Used -= n * u.Size
	s.Free += n * u.Size
	s.Snapshots -= n
	if s.Inodes > 0 {
		s.UsedInodes -= n * u.Inodes
		s.FreeInodes += n * u.Inodes
	}
	return s
}

// limits are the bounds of a policy in bytes.
type limits struct {
	bounded                    bool
	reserved, maxUsed, minFree int64 // 0: none
	maxSnapshots               int64 // 0: none
	room                       int64 // in place of the bounds, if it is not 0
}

func (p *Policy) limits(size, room int64) limits {
	return limits{bounded: p.bounded(), reserved: p.ReservedSpace.Of(size), maxUsed: p.MaxUsedSpace.Of(size),
		minFree: p.MinFreeSpace.Of(size), maxSnapshots: int64(p.MaxSnapshots), room: room}
}

// broken is the rule by which something must go, 0: nothing must.
func (l *limits) broken(s State) Rule {
	switch {
	case l.reserved > 0 && s.Used <= l.reserved && s.UsedInodes <= s.Share(l.reserved):
		return 0
	case l.room > 0:
		if !s.Has(l.room) {
			return Room
		}
		return 0
	case !l.bounded:
		return Unused
	case l.maxUsed > 0 && s.Used > l.maxUsed:
		return MaxUsed
	case l.minFree > 0 && !s.Has(l.minFree):
		return MinFree
	case l.maxSnapshots > 0 && s.Snapshots > l.maxSnapshots:
		return MaxSnapshots
	}
	return 0
}

// Removal is a snapshot that goes, and why.
type Removal struct {
	snapshot.Candidate
	Policy int   // its number, from 1
	Rule   Rule  // of that policy
	Before State // what the rule was about, before this one
}

// Reason says it for people.
func (r *Removal) Reason(policies []Policy) string {
	p := policies[r.Policy-1]
	text := fmt.Sprintf("policy %d: ", r.Policy)
	switch r.Rule {
	case Unused:
		if p.KeepDuration == 0 {
			return text + "it has no bounds"
		}
		return text + fmt.Sprintf("not used for keepDuration = %v", p.KeepDuration)
	case MaxUsed:
		return text + fmt.Sprintf("%s used, maxUsedSpace = %s", human(r.Before.Used), amount(p.MaxUsedSpace, r.Before.Size))
	case MinFree:
		free := human(r.Before.Free)
		if r.Before.Free >= p.MinFreeSpace.Of(r.Before.Size) {
			free = fmt.Sprintf("%d of %d inodes", r.Before.FreeInodes, r.Before.Inodes)
		}
		return text + fmt.Sprintf("%s free, minFreeSpace = %s", free, amount(p.MinFreeSpace, r.Before.Size))
	case MaxSnapshots:
		return text + fmt.Sprintf("%d snapshots, maxSnapshots = %d", r.Before.Snapshots, p.MaxSnapshots)
	}
	return text + fmt.Sprintf("room is needed, %s and %d inodes are free", human(r.Before.Free), r.Before.FreeInodes)
}

// amount is a size for people.
func amount(s Size, total int64) string {
	if s.Percent == 0 {
		return s.String()
	}
	return fmt.Sprintf("%v (%s)", s, human(s.Of(total)))
}

// planner finds out what goes.
type planner struct {
	policies []Policy
	now      time.Time
	despite  string  // Options.Despite
	room     int64   // 0: the policies' own bounds
	state    State   // as what was given so far leaves it
	after    []State // when each policy has been followed
}

// plan gives what is to go, in that order, until emit returns false. It changes nothing.
func (p *planner) plan(m *snapshot.ReadTx, emit func(*Removal) bool) error {
	totals, err := m.Totals()
	if err != nil {
		return err
	}
	p.state.Used += totals.Usage.Size
	p.state.Snapshots = totals.Snapshots
	if p.state.Inodes > 0 {
		p.state.UsedInodes = totals.Usage.Inodes
	}
	all, err := m.Candidates(p.now, p.despite)
	if err != nil {
		return err
	}
	for i := range p.policies {
		all.Rewind()
		if more, err := p.follow(i, all, emit); err != nil || !more {
			return err
		}
		p.after = append(p.after, p.state)
	}
	return nil
}

// follow plans by one policy.
func (p *planner) follow(i int, all *snapshot.Candidates, emit func(*Removal) bool) (bool, error) {
	policy := &p.policies[i]
	limits := policy.limits(p.state.Size, p.room)
	for {
		rule := limits.broken(p.state)
		if rule == 0 {
			return true, nil
		}
		c, found, err := all.Next()
		if err != nil {
			return false, err
		}
		if !found || policy.young(&c, p.now) { // all that follow are younger
			return true, nil
		}
		if !policy.matches(&c) {
			continue
		}
		if err := all.Take(c); err != nil {
			return false, err
		}
		r := Removal{Candidate: c, Policy: i + 1, Rule: rule, Before: p.state}
		p.state = p.state.without(1, c.Usage)
		if !emit(&r) {
			return false, nil
		}
	}
}

// measure gives the state but for what a ReadTx knows.
func (p *Pruner) measure(ctx context.Context) (s State, err error) {
	// What is to be deleted first: what is deleted in between counts as free twice, and less is
	// removed than could be. The other way round it would be more.
	trash, err := p.store.TrashUsage(ctx)
	if err != nil {
		return s, err
	}
	fs, err := p.disk(p.store.Root())
	if err != nil {
		return s, err
	}
	metadata, other, err := p.besides(p.store.Root())
	if err != nil {
		return s, err
	}
	kept, err := p.store.Quarantined(ctx)
	for _, q := range kept {
		other += q.Usage.Size
	}
	fs.Free += trash.Size
	if fs.Inodes > 0 {
		fs.FreeInodes += trash.Inodes
	}
	return State{FS: fs, Used: metadata + other}, err
}

// unreserved gives the state without what is reserved.
func (p *Pruner) unreserved(ctx context.Context) (State, error) {
	s, err := p.measure(ctx)
	if p.opts.Reserved != nil {
		reserved := p.opts.Reserved()
		s.Free -= reserved
		s.FreeInodes -= s.Share(reserved)
	}
	return s, err
}

// trees are the directories of a store that hold snapshots.
var trees = map[string]bool{"snapshots": true, "new": true, "trash": true, quarantineName: true}

// quarantineName is one of them, which is there if something is in it.
const quarantineName = "quarantine"

const metadataName = "metadata.db"

// besides is what is in a store's directory but for snapshots. It looks at the directory itself, and into those
// that are not the store's.
func besides(root string) (metadata, other int64, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && path != root && trees[d.Name()] && filepath.Dir(path) == root {
			err = fs.SkipDir
		}
		if errors.Is(err, os.ErrNotExist) { // gone meanwhile
			return nil
		}
		if err != nil {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if path == filepath.Join(root, metadataName) {
			metadata += allocated(info)
		} else {
			other += allocated(info)
		}
		return nil
	})
	if err != nil {
		return 0, 0, fmt.Errorf("measure the directory of the store: %w", err)
	}
	return metadata, other, nil
}

// fileSystem is disk.Measure, or what a test has in its place.
type fileSystem func(dir string) (disk.FS, error)
