package snapshot

import (
	"bytes"
	"context"
	"fmt"
)

// Check compares the indices of the metadata with the records that they follow from, and
// returns what is wrong. It takes time in proportion to the number of snapshots. It does
// not look at content.
func (s *Store) Check(ctx context.Context) (problems []error, err error) {
	err = s.view("check", func(t *txn) error {
		c := checker{t: t, ctx: ctx, counts: map[bucket]int{}}
		err := c.run()
		problems = c.problems
		return err
	})
	if err != nil {
		return problems, fmt.Errorf("check: %w", err)
	}
	return problems, nil
}

type checker struct {
	t        *txn
	ctx      context.Context
	sum      totals
	last     syncState
	counts   map[bucket]int // entries that each index must have
	problems []error
}

func (c *checker) wrongf(format string, args ...any) {
	c.problems = append(c.problems, corruptf(format, args...))
}

func (c *checker) run() error {
	v, err := c.t.get(inMeta, keySync)
	if err != nil {
		return err
	}
	if c.last, err = parseSyncState(v); err != nil {
		c.wrongf("%v", err)
	}
	if err := c.each(inSnapshots, c.snapshot); err != nil {
		return err
	}
	if err := c.each(inLeases, c.lease); err != nil {
		return err
	}
	for _, n := range []bucket{inIDs, inChildren, inUsed, inLeased, inExpiries, inVerified, inUnmeasured} {
		have := 0
		if err := c.each(n, func(_, _ []byte) error { have++; return nil }); err != nil {
			return err
		}
		if have != c.counts[n] {
			c.wrongf("bucket %s has %d entries; the snapshots and leases have %d", bucketNames[n], have, c.counts[n])
		}
	}
	if v, err = c.t.get(inMeta, keyTotals); err != nil {
		return err
	}
	if sum, err := parseTotals(v); err != nil || sum != c.sum {
		c.wrongf("totals are %+v (%v), and should be %+v", sum, err, c.sum)
	}
	return nil
}

func (c *checker) each(n bucket, fn func(k, v []byte) error) error {
	return c.t.scan(n, nil, nil, func(k, v []byte) (bool, error) {
		if err := c.ctx.Err(); err != nil {
			return false, err
		}
		return true, fn(k, v)
	})
}

// expect counts an entry that an index must have, and looks whether it has it.
func (c *checker) expect(n bucket, key, value []byte) error {
	c.counts[n]++
	v, err := c.t.get(n, key)
	if err == nil && (v == nil || !bytes.Equal(v, value)) {
		c.wrongf("bucket %s has %x for %x; it should be %x", bucketNames[n], v, key, value)
	}
	return err
}

// snapshot checks a record with what follows from it.
func (c *checker) snapshot(k, v []byte) error {
	r, err := parseRecord(v)
	if err != nil {
		c.wrongf("%q: %v", k, err)
		return nil
	}
	namespace, _, err := splitKey(k)
	if err != nil {
		c.wrongf("%v", err)
		return nil
	}
	c.sum.snapshots++
	if r.kind == Committed {
		c.sum.committed++
		c.sum.usage.Size += r.usage.Size
		c.sum.usage.Inodes += r.usage.Inodes
	}
	if r.commit > c.last.commit {
		c.wrongf("%q: commit number %d; the last one is %d", k, r.commit, c.last.commit)
	}
	if err := c.expect(inIDs, number(uint64(r.id)), k); err != nil {
		return err
	}
	if v, err := c.t.get(inTrash, number(uint64(r.id))); err != nil {
		return err
	} else if v != nil {
		c.wrongf("%q: its ID %v is among the removed ones", k, r.id)
	}
	listed, err := c.t.prunable(k, &r)
	if err != nil {
		return err
	}
	if listed != r.listed() {
		c.wrongf("%q: that it can be pruned is %v, the record says %v", k, listed, r.listed())
	}
	if listed {
		if err := c.expect(inUsed, numbers(r.used, uint64(r.id)), []byte{}); err != nil {
			return err
		}
	}
	if due, ok := r.due(); ok {
		if err := c.expect(inVerified, numbers(due, uint64(r.id)), []byte{}); err != nil {
			return err
		}
	}
	if r.flags&flagUnmeasured != 0 {
		if err := c.expect(inUnmeasured, number(uint64(r.id)), []byte{}); err != nil {
			return err
		}
	}
	return c.parent(k, namespace, &r)
}

func (c *checker) parent(k []byte, namespace string, r *record) error {
	if r.parent == 0 {
		return nil
	}
	if err := c.expect(inChildren, numbers(uint64(r.parent), uint64(r.id)), []byte{}); err != nil {
		return err
	}
	key, p, err := c.t.byID(r.parent)
	if err != nil {
		c.wrongf("%q: its parent: %v", k, err)
		return nil
	}
	if theirs, _, _ := splitKey(key); theirs != namespace || p.kind != Committed {
		c.wrongf("%q: its parent %q is %v", k, key, p.kind)
	}
	return nil
}

// lease checks a lease with what follows from it.
func (c *checker) lease(k, v []byte) error {
	if len(k) < 9 || k[len(k)-9] != 0 {
		c.wrongf("key of a lease: %q", k)
		return nil
	}
	namespace, name, err := splitKey(k[:len(k)-9])
	if err != nil {
		c.wrongf("key of a lease: %q", k)
		return nil
	}
	id, _, _ := fixed("lease", k[len(k)-8:], 1)
	l := lease{id: ID(id), namespace: namespace, name: name}
	if l.expires, _, err = fixed("lease", v, 1); err != nil {
		c.wrongf("%v", err)
		return nil
	}
	key, _, err := c.t.byID(l.id)
	if err != nil {
		c.wrongf("lease %q: %v", name, err)
		return nil
	}
	if theirs, _, _ := splitKey(key); theirs != namespace {
		c.wrongf("lease %q of namespace %q on %q", name, namespace, key)
	}
	if l.expires != 0 {
		if err := c.expect(inExpiries, l.byTime(), []byte{}); err != nil {
			return err
		}
	}
	return c.expect(inLeased, l.bySnapshot(), v)
}
