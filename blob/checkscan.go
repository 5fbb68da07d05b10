package blob

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"holdfast"
	"holdfast/internal/bridge"
)

// gap is a part of a bucket that cannot be read, because the file is damaged there: the keys after from and
// before to; nil: from the beginning, to the end.
type gap struct{ from, to []byte }

func (g *gap) has(key []byte) bool {
	return (g.from == nil || bytes.Compare(key, g.from) > 0) && (g.to == nil || bytes.Compare(key, g.to) < 0)
}

var (
	errEnough  = errors.New("enough") // ends a scan
	errChanged = errors.New("the store has changed meanwhile")
)

// try runs fn, which reads. damage: the file is damaged where it did; then what fn returned means nothing.
func (c *checker) try(fn func() error) (damage, err error) {
	damage = bridge.Probe(c.s.tx, func() { err = fn() })
	if damage == nil {
		return nil, err
	}
	if errors.Is(damage, holdfast.ErrTxClosed) {
		return nil, damage
	}
	c.hurt(damage)
	return damage, nil
}

// hurt remembers that something could not be read. From then on nothing is repaired: whatever seems to be
// too much, or not to be there, may be so only because of what was not seen.
func (c *checker) hurt(damage error) {
	if c.damage == nil {
		c.damage = damage
	}
	c.o.Repair, c.lossy = false, true
}

// scan calls fn with the keys of a bucket from from on and before to, nil: to the end. A part that cannot be
// read is reported, once, and passed over. What fn reads elsewhere it must try.
func (c *checker) scan(name string, b *holdfast.Bucket, from, to []byte, fn func(key, v []byte) error) error {
	for {
		var last []byte
		var err error
		damage := bridge.Probe(c.s.tx, func() {
			cursor := b.Cursor()
			for key, v := cursor.Seek(from); key != nil && (to == nil || bytes.Compare(key, to) < 0); key, v = cursor.Next() {
				last = append(last[:0], key...)
				if err = fn(key, v); err != nil {
					return
				}
			}
		})
		switch {
		case err == errEnough:
			return nil
		case err != nil || damage == nil:
			return err
		case errors.Is(damage, holdfast.ErrTxClosed):
			return damage
		}
		if err := c.ctx.Err(); err != nil {
			return err
		}
		c.hurt(damage)
		if last == nil {
			last = from
		}
		from = c.after(b, last)
		if err := c.gap(name, gap{last, from}, damage); err != nil || from == nil {
			return err
		}
	}
}

// after finds a key from which on a bucket can be read again, after key, where it cannot; nil if there
// is none. It is found by its first 8 bytes: so close after damage, what can be read may be passed over too.
func (c *checker) after(b *holdfast.Bucket, key []byte) []byte {
	at := func(x uint64) []byte { return binary.BigEndian.AppendUint64(nil, x) }
	readable := func(x uint64) bool { return bridge.Probe(c.s.tx, func() { b.Cursor().Seek(at(x)) }) == nil }
	var prefix [8]byte
	copy(prefix[:], key)
	low, high := binary.BigEndian.Uint64(prefix[:]), uint64(math.MaxUint64)
	if low == high {
		return nil // what there is has no other first bytes
	}
	for step := uint64(1); low < high; step *= 2 {
		next := low + min(step, high-low)
		if readable(next) {
			high = next
			break
		}
		if low = next; low == math.MaxUint64 {
			return nil
		}
	}
	for high-low > 1 {
		if middle := low + (high-low)/2; readable(middle) {
			high = middle
		} else {
			low = middle
		}
	}
	if !readable(high) {
		return nil
	}
	return at(high)
}

// gap reports a gap, unless it was met before.
func (c *checker) gap(name string, g gap, damage error) error {
	known := c.gaps[name]
	for i := range known {
		k := &known[i]
		if before(g.from, k.to, false) && before(k.from, g.to, false) {
			if before(g.from, k.from, true) {
				k.from = g.from
			}
			if k.to != nil && (g.to == nil || bytes.Compare(k.to, g.to) < 0) {
				k.to = g.to
			}
			return nil
		}
	}
	if c.gaps == nil {
		c.gaps = map[string][]gap{}
	}
	c.gaps[name] = append(known, g)
	where := "from the beginning"
	if g.from != nil {
		where = fmt.Sprintf("after %x", g.from[:min(len(g.from), keySize)])
	}
	if g.to != nil {
		where += fmt.Sprintf(" to %x", g.to)
	}
	return c.found(Unreadable, chunkKey{}, false, "%s, %s: %v", name, where, damage)
}

// before compares ends of gaps: a, where one begins, with b, where one ends, or begins too.
func before(a, b []byte, begins bool) bool {
	switch {
	case a == nil:
		return true
	case b == nil:
		return !begins
	}
	return bytes.Compare(a, b) < 0
}

// inGap tells whether a key of a bucket lies where it cannot be read.
func (c *checker) inGap(name string, key []byte) bool {
	for i := range c.gaps[name] {
		if c.gaps[name][i].has(key) {
			return true
		}
	}
	return false
}

// unindexed tells whether the entry of a chunk, if there is one, cannot be read.
func (c *checker) unindexed(k *chunkKey) bool {
	key := k.encode()
	return c.inGap(string(indexName), key[:]) || c.inGap(string(recentName), key[:])
}

// scanIndex is scan for both buckets of the index, as one. twice: the entry is of recent, and the large bucket has one of the
// key, too. Then that one counts, as for indexed, unless it is malformed.
func (c *checker) scanIndex(from, to []byte, fn indexFunc) error {
	b := c.s.fresh()
	recent := recentScan{c: c, b: b, next: from, to: to, ended: b == nil}
	enough := false
	err := c.scan(string(indexName), c.s.index, from, to, func(key, v []byte) error {
		twice, err := recent.upTo(key, fn)
		if err == nil {
			err = fn(c.s.index, key, v, false)
		}
		if err == nil && twice {
			_, malformed := parseEntry(v)
			err = recent.take(fn, malformed == nil)
		}
		enough = enough || err == errEnough
		return err
	})
	if err == nil && !enough {
		if _, err = recent.upTo(nil, fn); err == errEnough {
			err = nil
		}
	}
	return err
}

// indexFunc is called with an entry of the bucket b of the index.
type indexFunc func(b *holdfast.Bucket, key, v []byte, twice bool) error

// recentScan reads recent in pieces, along with a scan of the large bucket.
type recentScan struct {
	c     *checker
	b     *holdfast.Bucket
	next  []byte // where it goes on
	to    []byte
	ended bool

	piece []struct{ key, v []byte }
	at    int
}

// recentPiece is how many entries are held.
const recentPiece = 256

// upTo calls fn with all before key, nil: all there are. twice: key itself is the next.
func (r *recentScan) upTo(key []byte, fn indexFunc) (twice bool, err error) {
	for {
		for r.at < len(r.piece) {
			if key != nil {
				if order := bytes.Compare(r.piece[r.at].key, key); order >= 0 {
					return order == 0, nil
				}
			}
			if err := r.take(fn, false); err != nil {
				return false, err
			}
		}
		if r.ended {
			return false, nil
		}
		if r.c.s.fresh() != r.b || r.c.s.elsewhere != r.c.elsewhere {
			return false, errChanged // another Store of the transaction may have moved some of it
		}
		if err := r.read(); err != nil {
			return false, err
		}
	}
}

// take calls fn with the next entry.
func (r *recentScan) take(fn indexFunc, twice bool) error {
	e := &r.piece[r.at]
	r.at++
	return fn(r.b, e.key, e.v, twice)
}

// read takes up the next piece.
func (r *recentScan) read() error {
	r.piece, r.at, r.ended = r.piece[:0], 0, true
	return r.c.scan(string(recentName), r.b, r.next, r.to, func(key, v []byte) error {
		if len(r.piece) == recentPiece {
			if err := goesOn(r.next, key); err != nil {
				return err
			}
			r.next, r.ended = bytes.Clone(key), false
			return errEnough
		}
		r.piece = append(r.piece, struct{ key, v []byte }{bytes.Clone(key), bytes.Clone(v)})
		return nil
	})
}

// survey reads all of the store, before a repair: where the file is damaged, nothing is repaired.
func (c *checker) survey() error {
	if !c.o.Repair {
		return nil
	}
	return c.surveyBucket(storeItself, c.s.bucket)
}

const storeItself = "the store"

func (c *checker) surveyBucket(name string, b *holdfast.Bucket) error {
	return c.scan(name, b, nil, nil, func(key, v []byte) error {
		if v != nil {
			return nil
		}
		var child *holdfast.Bucket
		damage, err := c.try(func() error { child = b.Bucket(key); return nil })
		if child == nil || damage != nil || err != nil {
			return err
		}
		return c.surveyBucket(inside(name, key), child)
	})
}

// inside names a bucket in a bucket.
func inside(name string, key []byte) string {
	if name == storeItself {
		return string(key)
	}
	return fmt.Sprintf("%s %.100q", name, key)
}

// record opens a bucket in a bucket of records, which is read in the order of its keys; nil: it is none.
func (c *checker) record(all *holdfast.Bucket, id []byte) (b *holdfast.Bucket, damage, err error) {
	damage, err = c.try(func() error { b = all.Bucket(id); return nil })
	return b, damage, err
}

// records opens one of the store's buckets of records; nil if there is none, or it cannot be read.
func (c *checker) recordsIn(name []byte) (b *holdfast.Bucket, err error) {
	_, err = c.try(func() error {
		b, err = c.s.child(name)
		return err
	})
	return b, err
}
