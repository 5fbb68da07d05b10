package crash

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"holdfast"
)

// value is a letter, so many times.
type value struct {
	size   int
	letter byte
}

// node is a bucket of the model.
type node struct {
	sequence uint64
	values   map[string]value
	buckets  map[string]*node
}

func newNode() *node { return &node{values: map[string]value{}, buckets: map[string]*node{}} }

func (n *node) clone() *node {
	c := &node{sequence: n.sequence, values: maps.Clone(n.values), buckets: map[string]*node{}}
	for name, b := range n.buckets {
		c.buckets[name] = b.clone()
	}
	return c
}

// at is the bucket at path, which is created if it is not there.
func (n *node) at(path string) *node {
	for name := range strings.SplitSeq(path, "/") {
		if n.buckets[name] == nil {
			n.buckets[name] = newNode()
		}
		n = n.buckets[name]
	}
	return n
}

// outer is the path of the bucket that holds the one at path, which is name in it.
func outer(path string) (dir, name string) {
	i := strings.LastIndexByte(path, '/')
	return path[:max(i, 0)], path[i+1:]
}

func key(i int) string { return fmt.Sprintf("k%d", i) }

// appendedKey is a key that is behind those of lower numbers, and behind all of key.
func appendedKey(i int) string { return fmt.Sprintf("m%08d", i) }

func (n *node) apply(edits []Edit) {
	for _, e := range edits {
		if e.Op == "drop" {
			b := n
			dir, name := outer(e.Path)
			if dir != "" {
				b = n.at(dir)
			}
			delete(b.buckets, name)
			continue
		}
		if e.Op == "spill" {
			continue
		}
		b := n.at(e.Path)
		for k := range e.N {
			switch e.Op {
			case "put":
				b.values[key(e.Key+k)] = value{e.Size, e.Letter}
			case "del":
				delete(b.values, key(e.Key+k))
			case "append":
				b.values[appendedKey(e.Key+k)] = value{e.Size, e.Letter}
			}
		}
		if e.Op == "seq" {
			b.sequence++
		}
	}
}

// content is the model as contentOf writes it.
func (n *node) content() string {
	var s strings.Builder
	for _, name := range slices.Sorted(maps.Keys(n.buckets)) {
		fmt.Fprintf(&s, "%s:", name)
		n.buckets[name].write(&s)
	}
	s.WriteString(emptyContent)
	return s.String()
}

func (n *node) write(s *strings.Builder) {
	fmt.Fprintf(s, "{%d ", n.sequence)
	// Keys begin with k or m, and buckets with n.
	for _, k := range slices.Sorted(maps.Keys(n.values)) {
		v := n.values[k]
		if v.size == 0 {
			v.letter = '-'
		}
		fmt.Fprintf(s, "%s=%d%c ", k, v.size, v.letter)
	}
	for _, name := range slices.Sorted(maps.Keys(n.buckets)) {
		fmt.Fprintf(s, "%s:", name)
		n.buckets[name].write(s)
	}
	s.WriteString("}")
}

// emptyContent is the content of a new database.
const emptyContent = "."

// reader is what contentOf needs of a transaction of either engine.
type reader[B bucket[B]] interface {
	ForEach(fn func(name []byte, b B) error) error
}

// writer is what applyTo needs of one.
type writer[B bucket[B]] interface {
	Bucket(name []byte) B
	CreateBucketIfNotExists(name []byte) (B, error)
	DeleteBucket(name []byte) error
}

type bucket[B any] interface {
	comparable
	Bucket(name []byte) B
	CreateBucketIfNotExists(name []byte) (B, error)
	DeleteBucket(name []byte) error
	Put(key, value []byte) error
	Delete(key []byte) error
	NextSequence() (uint64, error)
	Sequence() uint64
	ForEach(fn func(k, v []byte) error) error
}

// applyTo does to tx what apply does to the model.
func applyTo[B bucket[B]](tx writer[B], edits []Edit) error {
	for _, e := range edits {
		if err := applyOne(tx, e); err != nil {
			return fmt.Errorf("%s: %w", e, err)
		}
	}
	return nil
}

func applyOne[B bucket[B]](tx writer[B], e Edit) error {
	switch e.Op {
	case "drop":
		return drop(tx, e.Path)
	case "spill":
		if ours, ok := any(tx).(*holdfast.Tx); ok {
			_, err := ours.Spill(0)
			return err
		}
		return nil
	}
	b, err := open(tx, e.Path)
	if err != nil {
		return err
	}
	for k := range e.N {
		switch e.Op {
		case "put":
			err = b.Put([]byte(key(e.Key+k)), bytes.Repeat([]byte{e.Letter}, e.Size))
		case "del":
			err = b.Delete([]byte(key(e.Key + k)))
		case "append":
			err = appendTo(b, []byte(appendedKey(e.Key+k)), bytes.Repeat([]byte{e.Letter}, e.Size))
		}
		if err != nil {
			return err
		}
	}
	if e.Op == "seq" {
		_, err = b.NextSequence()
	}
	return err
}

// appendTo appends, and forgets key and value; bbolt puts. Of transactions at the same time
// the one with the higher keys may be the first: then the others put too.
func appendTo[B bucket[B]](b B, key, value []byte) error {
	to, ok := any(b).(*holdfast.Bucket)
	if !ok {
		return b.Put(key, value)
	}
	err := to.Append(key, value)
	if errors.Is(err, holdfast.ErrUnordered) {
		return b.Put(key, value)
	}
	clear(key)
	clear(value)
	return err
}

// open opens the bucket at path and creates it if it is not there.
func open[B bucket[B]](tx writer[B], path string) (b B, err error) {
	for i, name := range strings.Split(path, "/") {
		if i == 0 {
			b, err = tx.CreateBucketIfNotExists([]byte(name))
		} else {
			b, err = b.CreateBucketIfNotExists([]byte(name))
		}
		if err != nil {
			return b, err
		}
	}
	return b, nil
}

func drop[B bucket[B]](tx writer[B], path string) error {
	var none B
	dir, name := outer(path)
	if dir == "" {
		if tx.Bucket([]byte(name)) == none {
			return nil
		}
		return tx.DeleteBucket([]byte(name))
	}
	b, err := open(tx, dir)
	if err != nil || b.Bucket([]byte(name)) == none {
		return err
	}
	return b.DeleteBucket([]byte(name))
}

// contentOf writes all that a transaction sees as text.
func contentOf[B bucket[B]](tx reader[B]) (string, error) {
	var s strings.Builder
	err := tx.ForEach(func(name []byte, b B) error {
		fmt.Fprintf(&s, "%s:", name)
		return writeBucket(&s, b, 0)
	})
	s.WriteString(emptyContent)
	return s.String(), err
}

// nodeOf is all that a transaction sees, as a model.
func nodeOf[B bucket[B]](tx reader[B]) (*node, error) {
	n := newNode()
	return n, tx.ForEach(func(name []byte, b B) error {
		n.buckets[string(name)] = newNode()
		return readBucket(n.buckets[string(name)], b)
	})
}

func readBucket[B bucket[B]](n *node, b B) error {
	n.sequence = b.Sequence()
	return b.ForEach(func(k, v []byte) error {
		switch {
		case v == nil:
			n.buckets[string(k)] = newNode()
			return readBucket(n.buckets[string(k)], b.Bucket(k))
		case len(v) == 0:
			n.values[string(k)] = value{}
		default:
			n.values[string(k)] = value{len(v), v[0]}
		}
		return nil
	})
}

func writeBucket[B bucket[B]](s *strings.Builder, b B, depth int) error {
	var none B
	if b == none {
		return fmt.Errorf("a bucket cannot be opened")
	}
	if depth > 10 { // as in a cycle
		return fmt.Errorf("a bucket is deeper than any that was created")
	}
	fmt.Fprintf(s, "{%d ", b.Sequence())
	err := b.ForEach(func(k, v []byte) error {
		if v == nil {
			fmt.Fprintf(s, "%s:", k)
			return writeBucket(s, b.Bucket(k), depth+1)
		}
		first := byte('-')
		if len(v) > 0 {
			first = v[0]
		}
		if !bytes.Equal(v, bytes.Repeat([]byte{first}, len(v))) {
			return fmt.Errorf("value of %q is a mixture", k)
		}
		fmt.Fprintf(s, "%s=%d%c ", k, len(v), first)
		return nil
	})
	s.WriteString("}")
	return err
}
