package blob

import (
	"context"
	"errors"
	"fmt"
	"iter"
)

// CheckOptions are options of Check.
type CheckOptions struct {
	// Data has the bytes of all chunks read and verified. Without it, those of nodes are,
	// and of leaves the lengths.
	Data bool
	// Roots are the references from outside, each as often as it has been put or
	// retained and not deleted: then users are counted exactly. They are iterated over several
	// times. nil: counts of users are only required to cover leases and ingests.
	// References that are inline are passed over.
	Roots iter.Seq2[Ref, error]
	// Repair mends what can be mended, in the transaction of the store, which must be a writing
	// one without open writers.
	Repair bool
	// Discard has a repair delete what is stored of chunks in use whose content is wrong. They are
	// missing then, and stored again when somebody puts the same content again.
	Discard bool
	// Memory is how many bytes the counting may take. 0: 64 MiB. Where that is not
	// enough for all chunks, there are several passes over the nodes.
	Memory int
}

// CheckStats tells what Check has seen.
type CheckStats struct {
	Leaves, Nodes int64 // in the index
	Bytes         int64 // of these
	Verified      int64 // bytes of them that were read and compared with their addresses
	Dead          int64 // chunks that wait for Collect
	Passes        int   // over all nodes
	Problems      int64
	Repaired      int64
}

// Check verifies a store: that each chunk that is named somewhere is there, that each has
// the counts that follow from the nodes, leases, ingests and roots, that those without any
// are marked as dead, that all bytes belong to one chunk, and that nothing else is in the store. fn is
// called with each problem, unless it is nil; an error that it returns ends the check. The error of Check is that, the context's,
// or that of a file that is damaged itself such that the check cannot go on.
//
// Repair loses no content: bytes that no chunk has become one again, dead if nobody
// names it, or are deleted if there is another sound copy of them. Counts and marks are set right; but while
// nodes cannot be read that are in use, no count of parents is lowered, since their children are not known.
// A chunk whose bytes are missing stays in the index, and its bytes are stored again when somebody puts
// the same content again; so is one whose content is wrong, with Discard. An ingest that lacks a chunk, and what has no meaning, is deleted.
func (s *Store) Check(ctx context.Context, o CheckOptions, fn func(Problem) error) (CheckStats, error) {
	c := checker{s: s, ctx: ctx, o: o, fn: fn}
	if c.o.Memory <= 0 {
		c.o.Memory = 64 << 20
	}
	err := s.flush()
	if err == nil && o.Repair {
		err = s.writable()
	}
	for _, step := range []func() error{c.foreign, c.entries, c.bytes, c.records, c.unreadable, c.counts, c.digests, s.flush} {
		if err == nil {
			err = step()
		}
		if err == nil {
			err = s.tx.Err()
		}
	}
	if err != nil {
		return c.stats, fmt.Errorf("check of a blob store: %w", err)
	}
	return c.stats, nil
}

// checker is a call of Check.
type checker struct {
	s     *Store
	ctx   context.Context
	o     CheckOptions
	fn    func(Problem) error
	stats CheckStats

	// bad are nodes whose children cannot be known; lossy says that some of them are in
	// use, and so counts may be too high.
	bad   map[chunkKey]error
	lossy bool
}

// found reports a problem.
func (c *checker) found(kind ProblemKind, k chunkKey, repaired bool, format string, args ...any) error {
	c.stats.Problems++
	if repaired {
		c.stats.Repaired++
	}
	if c.fn == nil {
		return nil
	}
	return c.fn(Problem{Kind: kind, Chunk: k.addr, Level: k.level, Detail: fmt.Sprintf(format, args...), Repaired: repaired})
}

// foreign finds what does not belong into the bucket of a store.
func (c *checker) foreign() error {
	for key, v := range c.s.bucket.All() {
		_, known := storeNames[string(key)]
		if known && (v == nil) == (string(key) != string(configName)) {
			continue
		}
		if err := c.found(Malformed, chunkKey{}, false, "key %.100q in the bucket of the store", key); err != nil {
			return err
		}
	}
	return nil
}

var storeNames = map[string]struct{}{
	string(configName): {}, string(leavesName): {}, string(packsName): {}, string(indexName): {}, string(deadName): {},
	string(leasesName): {}, string(ingestsName): {}, string(digestsName): {},
}

// each calls fn with the entries of the index from key from on and before to, nil: to the
// end, and bad with each that is malformed, unless it is nil.
func (c *checker) each(from, to []byte, fn func(k chunkKey, e entry) error, bad func(key []byte, err error) error) error {
	n := int64(0)
	for key, v := range c.s.index.Range(from, to) {
		if n++; n%1024 == 0 && c.ctx.Err() != nil {
			return c.ctx.Err()
		}
		k, err := parseKey(key)
		var e entry
		if err == nil {
			e, err = parseEntry(v)
		}
		switch {
		case err == nil:
			err = fn(k, e)
		case bad != nil:
			err = bad(key, err)
		default:
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return c.s.tx.Err()
}

// children calls fn with each child that each node names which can be read.
func (c *checker) children(fn func(parent, child chunkKey, size int64) error) error {
	return c.each(nil, nil, func(k chunkKey, e entry) error {
		if k.level == 0 {
			return nil
		}
		if _, bad := c.bad[k]; bad {
			return nil
		}
		n, err := c.s.loadNode(&k)
		if err != nil {
			return err // it could be read before
		}
		for i := range n.count() {
			child, size := n.child(i)
			if err := fn(k, child, size); err != nil {
				return err
			}
		}
		return nil
	}, nil)
}

// unreadable finds the nodes that cannot be read, and whether they are in use. Those that are not
// are removed by a repair.
func (c *checker) unreadable() error {
	c.bad = map[chunkKey]error{}
	err := c.each(nil, nil, func(k chunkKey, e entry) error {
		c.stats.Bytes += int64(e.length)
		if k.level > 0 || c.o.Data {
			c.stats.Verified += int64(e.length)
		}
		if e.dead() {
			c.stats.Dead++
		}
		if k.level == 0 {
			c.stats.Leaves++
			return nil
		}
		c.stats.Nodes++
		if _, err := c.s.loadNode(&k); err != nil {
			if c.s.tx.Err() != nil {
				return err // the file itself is damaged
			}
			c.bad[k] = err
		}
		return nil
	}, nil)
	if err != nil || len(c.bad) == 0 {
		return err
	}
	used := map[chunkKey]bool{}
	use := func(k chunkKey) error {
		if _, bad := c.bad[k]; bad {
			used[k] = true
		}
		return nil
	}
	if err := c.children(func(_, child chunkKey, _ int64) error { return use(child) }); err != nil {
		return err
	}
	if err := c.users(func(k chunkKey, _ string) error { return use(k) }); err != nil {
		return err
	}
	for k, reason := range c.bad {
		e, ok, err := c.s.lookup(&k)
		if err != nil || !ok {
			return errors.Join(err, fmt.Errorf("chunk %v: %w", k, ErrMissing))
		}
		dead := !used[k] && (c.o.Roots != nil || e.users == 0)
		c.lossy = c.lossy || !dead
		repaired := dead && c.o.Repair
		if repaired {
			if err := c.s.remove(&k, &e); err != nil {
				return err
			}
			delete(c.bad, k)
		} else if c.o.Repair && c.o.Discard && !errors.Is(reason, ErrMissing) {
			if err := c.s.discard(&k); err != nil {
				return err
			}
		}
		if !errors.Is(reason, ErrMissing) {
			if err := c.found(WrongContent, k, repaired, "%v", reason); err != nil {
				return err
			}
		}
	}
	return nil
}
