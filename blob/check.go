package blob

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"

	"holdfast"
)

// CheckOptions are options of Check.
type CheckOptions struct {
	// Data has the bytes of all chunks read and verified. Without it, those of nodes are,
	// and of leaves the lengths.
	Data bool
	// Digests has each blob whose SHA-256 as a whole is recorded read as a whole, and the digest
	// compared: once more than Data reads it.
	Digests bool
	// Roots are the references from outside, each as often as it has been put or
	// retained and not deleted: then users are counted exactly. They are iterated over several
	// times. nil: counts of users are only required to cover leases and ingests.
	// References that are inline are passed over.
	Roots iter.Seq2[Ref, error]
	// Repair mends what can be mended, in the transaction of the store, which must be a writing
	// one. Nothing may be put into the store, or deleted, before it has ended.
	Repair bool
	// Discard has a repair take off chunks in use what is stored of them if it is wrong. They are
	// missing then, and stored again when the same content is put again. What was taken off is another chunk's, or dead.
	Discard bool
	// Memory is how many bytes the counting may take. 0: 64 MiB. Where that is not
	// enough for all chunks, there are several passes over the nodes.
	Memory int
}

// CheckStats tells what Check has seen.
type CheckStats struct {
	Leaves, Nodes int64 // in the index
	Bytes         int64 // of these, before compression
	Verified      int64 // bytes of them that were read and compared with their addresses
	Dead          int64 // chunks that wait for Collect
	Passes        int   // over all nodes
	Digests       int64 // of whole blobs that were computed again
	Problems      int64
	Repaired      int64
}

// Check verifies a store: that each chunk that is named somewhere is there, that each has the counts that
// follow from the nodes, leases, ingests and roots, that those without any are marked as dead, that all
// bytes belong to one chunk, and that nothing else is in the store. What Writers and Ingests of this Store
// hold that are open is counted too; where another Store of the transaction has something open, or has not
// flushed, the check is refused (ErrUnfinished). fn is called with each problem, unless it is nil; an error
// that it returns ends the check. The error of Check is that, the context's, or one of Roots.
//
// Where the file itself is damaged (holdfast.CorruptError), that is a problem, Unreadable, with what cannot
// be read as far as that is known; the check goes on with the rest. Of counts, only those that are too low
// are problems then. In a transaction that only reads, Tx.Err does not have the damage afterwards.
//
// Repair loses no content: bytes that no chunk has become one again, dead if nothing names it, or are
// deleted if there is another sound copy of them, which is read for that. What stands under a wrong key, or
// with another chunk's entry, is given to the chunk whose it is; without Data leaves are read for that if
// something is lacking. Counts and marks are set right; but while nodes cannot be read that are in use, no
// count of parents is lowered, since their children are not known. What entries of two chunks have
// exchanged only Data notices: if one of them is dead, collect after a repair with Data, not before. A
// chunk whose bytes are missing stays in the index, and its bytes are stored again when a caller puts the
// same content again; so is one whose content is wrong, with Discard. An ingest that lacks a chunk, and
// what has no meaning, is deleted. On a file that is damaged itself nothing is repaired: problems are
// reported, and the error of Check is the first damage.
func (s *Store) Check(ctx context.Context, o CheckOptions, fn func(Problem) error) (CheckStats, error) {
	if !s.tx.Writable() {
		s = s.unverified()
	}
	c := checker{s: s, ctx: ctx, o: o, fn: fn}
	if c.o.Memory <= 0 {
		c.o.Memory = 64 << 20
	}
	err := firstError(s.flush(), s.alone())
	s.fresh()
	c.changes, c.elsewhere = s.changes, s.elsewhere
	if s.tx.Writable() { // else several goroutines may use s, and nothing is moved
		s.checking = true
		defer func() { s.checking = false }()
	}
	if err == nil && o.Repair {
		err = s.writable()
	}
	for _, step := range []func() error{
		c.survey, c.foreign, c.freed, c.entries, c.seek, c.bytes, c.records, c.unreadable, c.counts, c.late, c.digests, s.flush,
	} {
		if err == nil {
			err = step()
		}
	}
	if err == nil && o.Repair && c.damage != nil {
		c.stats.Repaired = 0
		err = fmt.Errorf("nothing is repaired: %w", c.damage)
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
	// use, or that something else could not be read, and so counts may be too high.
	bad   map[chunkKey]error
	lossy bool

	search bool    // leaves are read too, for what is lacking
	again  bool    // all problems have been reported
	given  int     // to how many chunks bytes were given
	strays []stray // of the window of bytes
	loose  []spot  // to be looked at by tidy

	// Of the Store, when the check began.
	changes, elsewhere uint64

	waiting []freedID // bytes that wait for Collect, in their order

	gaps   map[string][]gap // of buckets, by their names
	damage error            // of the file, that was met first
}

// unchanged is the error of a repair after something has been put into the store or deleted since it began,
// by the caller's function perhaps: what was counted is not so any more.
func (c *checker) unchanged() error {
	if c.o.Repair && c.s.changes != c.changes {
		return errChanged
	}
	return nil
}

// seek finds out whether a repair has to read leaves, if it does not in any case.
func (c *checker) seek() (err error) {
	if c.o.Repair {
		if c.search = c.o.Data; !c.search {
			c.search, err = c.lacking()
		}
	}
	return err
}

// late is for what the counts have shown to be dead. What has become another chunk's is counted again.
func (c *checker) late() error {
	if !c.o.Repair {
		return nil
	}
	c.again = true
	defer func() { c.again = false }()
	for tries := 0; len(c.strays) > 0 && tries <= maxLevel; tries++ {
		given := c.given
		if err := c.rehome(); err != nil {
			return err
		}
		if err := c.tidy(); err != nil {
			return err
		}
		if c.given == given {
			break
		}
		if err := c.counts(); err != nil {
			return err
		}
	}
	return nil
}

// found reports a problem.
func (c *checker) found(kind ProblemKind, k chunkKey, repaired bool, format string, args ...any) error {
	return c.report(Problem{Kind: kind, Chunk: k.addr, Level: k.level, Repaired: repaired}, format, args...)
}

// wrong reports a chunk whose content is wrong.
func (c *checker) wrong(k chunkKey, repaired, discarded bool, format string, args ...any) error {
	return c.report(Problem{Kind: WrongContent, Chunk: k.addr, Level: k.level, Repaired: repaired, Discarded: discarded}, format, args...)
}

func (c *checker) report(p Problem, format string, args ...any) error {
	if c.again {
		return nil
	}
	c.stats.Problems++
	if p.Repaired {
		c.stats.Repaired++
	}
	if c.fn == nil {
		return nil
	}
	p.Detail = fmt.Sprintf(format, args...)
	return c.fn(p)
}

// foreign finds what does not belong into the bucket of a store.
func (c *checker) foreign() error {
	return c.scan(storeItself, c.s.bucket, nil, nil, func(key, v []byte) error {
		_, known := storeNames[string(key)]
		if known && (v == nil) == (string(key) != string(configName)) {
			return nil
		}
		return c.found(Malformed, chunkKey{}, false, "key %.100q in the bucket of the store", key)
	})
}

var storeNames = map[string]struct{}{
	string(configName): {}, string(leavesName): {}, string(packsName): {}, string(indexName): {}, string(deadName): {}, string(recentName): {},
	string(leasesName): {}, string(ingestsName): {}, string(digestsName): {}, string(freedName): {},
}

// each calls fn with the entries of the index from key from on and before to, nil: to the
// end, and bad with each that is malformed, unless it is nil.
func (c *checker) each(from, to []byte, fn func(k chunkKey, e entry) error, bad func(b *holdfast.Bucket, key []byte, err error) error) error {
	n := int64(0)
	return c.scanIndex(from, to, func(b *holdfast.Bucket, key, v []byte, twice bool) error {
		if n++; n%1024 == 0 && c.ctx.Err() != nil {
			return c.ctx.Err()
		}
		k, err := parseKey(key)
		var e entry
		if err == nil {
			e, err = parseEntry(v)
		}
		if err == nil && twice {
			err = corruptf("chunk %v stands in both buckets of the index", k)
		}
		switch {
		case err == nil:
			return fn(k, e)
		case bad != nil:
			return bad(b, key, err)
		}
		return nil
	})
}

// loadNode loads a node. damage: that of the file there.
func (c *checker) loadNode(k *chunkKey) (n node, damage, err error) {
	damage, err = c.try(func() (err error) {
		n, err = c.s.loadNode(k)
		return err
	})
	return n, damage, err
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
		n, damage, err := c.loadNode(&k)
		if damage != nil || err != nil {
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
		_, damage, err := c.loadNode(&k)
		switch {
		case damage != nil:
			c.bad[k] = damage
			return c.unreadableBytes(k, &e, damage)
		case err != nil:
			c.bad[k] = err
		}
		return nil
	}, nil)
	if err != nil || len(c.bad) == 0 {
		return err
	}
	return c.badNodes()
}

// unreadableBytes reports bytes of a chunk that the file does not give, unless that was reported.
func (c *checker) unreadableBytes(k chunkKey, e *entry, damage error) error {
	if c.inGap(bytesName(e.packed), binary.BigEndian.AppendUint64(nil, e.id)) {
		return nil
	}
	return c.found(Unreadable, k, false, "%s %d: %v", bytesWord(e.packed), e.id, damage)
}

// badNodes finds out which nodes that cannot be read are in use.
func (c *checker) badNodes() error {
	used := map[chunkKey]bool{}
	use := func(k chunkKey) {
		if _, bad := c.bad[k]; bad {
			used[k] = true
		}
	}
	err := c.children(func(_, child chunkKey, _ int64) error { use(child); return nil })
	for _, each := range []func(func(k chunkKey) error) error{c.ingested, c.leased, c.s.held} {
		if err == nil {
			err = each(func(k chunkKey) error { use(k); return nil })
		}
	}
	if err == nil {
		err = c.roots(func(k chunkKey, _ int64) error { use(k); return nil })
	}
	if err != nil {
		return err
	}
	for k, reason := range c.bad {
		var damage *holdfast.CorruptError
		if errors.As(reason, &damage) {
			continue // reported
		}
		e, ok, err := c.s.probe(&k)
		if err != nil || !ok {
			return errors.Join(err, fmt.Errorf("chunk %v: %w", k, ErrMissing))
		}
		dead := !used[k] && (c.o.Roots != nil || e.users == 0)
		c.lossy = c.lossy || !dead
		repaired, discarded := dead && c.o.Repair, false
		if repaired {
			if err := c.takeOff(&k, &e); err != nil {
				return err
			}
			delete(c.bad, k)
		} else if c.o.Repair && c.o.Discard && !errors.Is(reason, ErrMissing) {
			if err := c.takeAway(&k, spot{e.packed, e.id}); err != nil {
				return err
			}
			discarded = true
		}
		if !errors.Is(reason, ErrMissing) {
			if err := c.wrong(k, repaired, discarded, "%v", reason); err != nil {
				return err
			}
		}
	}
	return c.tidy()
}
