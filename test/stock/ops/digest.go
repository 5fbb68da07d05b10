package ops

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"strings"
)

// visitor is shown all content of a database in order.
type visitor interface {
	element(key, value []byte)
	enter(name []byte, sequence uint64)
	leave()
}

// digest is a hash over content, independent of the engine.
type digest struct {
	h hash.Hash
	n uint64 // elements
}

func newDigest() *digest { return &digest{h: sha256.New()} }

func (d *digest) element(key, value []byte) {
	d.n++
	var head [16]byte
	binary.LittleEndian.PutUint64(head[0:], uint64(len(key)))
	binary.LittleEndian.PutUint64(head[8:], uint64(len(value)))
	d.h.Write(head[:])
	d.h.Write(key)
	d.h.Write(value)
}

func (d *digest) enter(name []byte, sequence uint64) {
	d.element(name, binary.LittleEndian.AppendUint64(nil, sequence))
}

func (d *digest) leave() { d.element(nil, nil) }

func (d *digest) sum() []byte { return d.h.Sum(nil) }

// lister writes a line for each element.
type lister struct {
	path  []string
	lines []string
}

func (l *lister) element(key, value []byte) {
	hash := sha256.Sum256(value)
	l.lines = append(l.lines, fmt.Sprintf("%s/%s = %d bytes %x", strings.Join(l.path, "/"), short(key), len(value), hash[:4]))
}

func (l *lister) enter(name []byte, sequence uint64) {
	l.path = append(l.path, short(name))
	l.lines = append(l.lines, fmt.Sprintf("%s/ sequence %d", strings.Join(l.path, "/"), sequence))
}

func (l *lister) leave() { l.path = l.path[:len(l.path)-1] }

func short(key []byte) string {
	if len(key) <= 12 {
		return fmt.Sprintf("%q", key)
	}
	hash := sha256.Sum256(key)
	return fmt.Sprintf("%q..(%d bytes, %x)", key[:8], len(key), hash[:4])
}

// Content is a database as a tree of values, for digests of a model.
type Content struct {
	Sequence uint64
	Elements []Element
}

// Element is a key with its value, or with a bucket.
type Element struct {
	Key    []byte
	Value  []byte
	Bucket *Content
}

// Digest is what the operation Dump would give for a database with content c.
func (c *Content) Digest() []byte {
	d := newDigest()
	c.walk(d)
	return d.sum()
}

// List is what the operation List would give.
func (c *Content) List() []string {
	l := &lister{}
	c.walk(l)
	return l.lines
}

// ForEach is what the operation ForEach would give for the bucket c, or
// ForEachBucket.
func (c *Content) ForEach(onlyBuckets bool) (sum []byte, n uint64) {
	d := newDigest()
	for _, e := range c.Elements {
		if !onlyBuckets || e.Bucket != nil {
			d.element(e.Key, e.Value)
		}
	}
	return d.sum(), d.n
}

func (c *Content) walk(v visitor) {
	for _, e := range c.Elements {
		if e.Bucket == nil {
			v.element(e.Key, e.Value)
			continue
		}
		v.enter(e.Key, e.Bucket.Sequence)
		e.Bucket.walk(v)
		v.leave()
	}
}

// dump shows the whole database to v, and counts each bucket's elements going
// backward.
func (r *Runner[D, T, B, C]) dump(tx T, v visitor, op Op, res *Result) error {
	backward := op.N != ForwardOnly
	err := tx.ForEach(func(name []byte, b B) error { return r.dumpBucket(name, b, v, backward) })
	switch v := v.(type) {
	case *digest:
		res.Value, res.N = v.sum(), v.n
	case *lister:
		res.Lines = v.lines
	}
	return err
}

func (r *Runner[D, T, B, C]) dumpBucket(name []byte, b B, v visitor, both bool) error {
	var none B
	v.enter(name, b.Sequence())
	forward := 0
	err := b.ForEach(func(k, value []byte) error {
		forward++
		if value != nil {
			v.element(k, value)
			return nil
		}
		child := b.Bucket(k)
		if child == none && !both {
			v.element(k, nil) // put with a nil value just now
			return nil
		}
		if child == none {
			return fmt.Errorf("%q in %q has no value and is not a bucket", k, name)
		}
		return r.dumpBucket(k, child, v, both)
	})
	if err != nil {
		return err
	}
	v.leave()
	if !both {
		return nil
	}
	backward := 0
	c := b.Cursor()
	for k, _ := c.Last(); k != nil; k, _ = c.Prev() {
		backward++
	}
	if forward != backward {
		return fmt.Errorf("bucket %q has %d elements forward and %d backward", name, forward, backward)
	}
	return nil
}
