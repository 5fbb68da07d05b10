package real

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"math/rand/v2"
	"slices"
)

// container holds buckets: a transaction or a bucket, of an engine or of the
// model.
type container interface {
	// child opens the bucket name and creates it first if there is none.
	child(name string) (bucket, error)
	// drop deletes the bucket name, if there is one.
	drop(name string) error
}

// bucket holds keys, too.
type bucket interface {
	container
	put(key string, value []byte) error
	remove(key string) error
	next() error
}

// The key that holds the number of the newest commit, in a bucket of its own.
const (
	numberBucket = "number"
	numberKey    = "n"
)

// A history is a sequence of edits that depends on nothing but its seed: edit
// n+1 leads from the content after n commits to that after n+1.
type history struct {
	seed uint64
	// large is the length of the longest values, in bytes.
	large int
	// fill is the length of a further value that each edit puts under a key of
	// its own; 0: none. Edit purge deletes them all and does nothing else. Both
	// may be set while the history goes on.
	fill  int
	purge uint64
}

// fillBucket holds the values that only purge deletes.
const fillBucket = "fill"

// edit makes edit n in root.
func (h history) edit(root container, n uint64) error {
	if err := h.editContent(root, n); err != nil {
		return err
	}
	b, err := root.child(numberBucket)
	if err != nil {
		return err
	}
	return b.put(numberKey, binary.BigEndian.AppendUint64(nil, n))
}

func (h history) editContent(root container, n uint64) error {
	if n == h.purge {
		return root.drop(fillBucket)
	}
	if h.fill > 0 {
		b, err := root.child(fillBucket)
		if err != nil {
			return err
		}
		if err := b.put(fmt.Sprintf("%08d", n), bytes.Repeat([]byte{byte(n)}, h.fill)); err != nil {
			return err
		}
	}
	r := rand.New(rand.NewPCG(h.seed, n))
	for range 1 + r.IntN(3) {
		name := fmt.Sprintf("b%d", r.IntN(4))
		if r.IntN(25) == 0 {
			if err := root.drop(name); err != nil {
				return err
			}
			continue
		}
		b, err := root.child(name)
		if err != nil {
			return err
		}
		if err := h.editBucket(r, b, 0); err != nil {
			return err
		}
	}
	return nil
}

func (h history) editBucket(r *rand.Rand, b bucket, depth int) error {
	for range r.IntN(20) {
		key := fmt.Sprintf("k%03d", r.IntN(300))
		var err error
		switch r.IntN(12) {
		case 0, 1, 2:
			err = b.remove(key)
		case 3:
			err = b.next()
		case 4:
			if depth == 2 {
				continue
			}
			name := fmt.Sprintf("nested%d", r.IntN(3))
			if r.IntN(4) == 0 {
				err = b.drop(name)
				break
			}
			var child bucket
			if child, err = b.child(name); err == nil {
				err = h.editBucket(r, child, depth+1)
			}
		default:
			err = b.put(key, h.value(r))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// value is one whose mixture with another shows.
func (h history) value(r *rand.Rand) []byte {
	size := r.IntN(200)
	if r.IntN(20) == 0 {
		size = r.IntN(h.large)
	}
	return bytes.Repeat([]byte{byte('a' + r.IntN(26)), byte(r.IntN(256)), byte(r.IntN(256))}, 1+size/3)
}

// node is a bucket of the model; the root of it is the content of a file.
type node struct {
	values   map[string][]byte
	children map[string]*node
	sequence uint64
}

func newNode() *node { return &node{values: map[string][]byte{}, children: map[string]*node{}} }

func (n *node) child(name string) (bucket, error) {
	c := n.children[name]
	if c == nil {
		c = newNode()
		n.children[name] = c
	}
	return c, nil
}

func (n *node) drop(name string) error {
	delete(n.children, name)
	return nil
}

func (n *node) put(key string, value []byte) error {
	n.values[key] = value
	return nil
}

func (n *node) remove(key string) error {
	delete(n.values, key)
	return nil
}

func (n *node) next() error {
	n.sequence++
	return nil
}

// model is the content after number commits of a history.
type model struct {
	history
	root   *node
	number uint64
}

func newModel(h history) *model { return &model{history: h, root: newNode()} }

// forward goes on to the content after number commits.
func (m *model) forward(number uint64) error {
	if number < m.number {
		return fmt.Errorf("content of commit %d, after that of %d was seen", number, m.number)
	}
	for m.number < number {
		m.number++
		if err := m.edit(m.root, m.number); err != nil {
			return err
		}
	}
	return nil
}

// clone is a copy that goes on by itself.
func (m *model) clone() *model {
	c := *m
	c.root = m.root.clone()
	return &c
}

func (n *node) clone() *node {
	c := &node{values: maps.Clone(n.values), children: map[string]*node{}, sequence: n.sequence}
	for name, child := range n.children {
		c.children[name] = child.clone()
	}
	return c
}

// lines is the content as text, a line for each key and bucket.
func (m *model) lines() []string { return m.root.lines(nil, "") }

func (n *node) lines(to []string, path string) []string {
	names := slices.Collect(maps.Keys(n.values))
	names = slices.AppendSeq(names, maps.Keys(n.children))
	slices.Sort(names)
	for _, name := range names {
		if c := n.children[name]; c != nil {
			to = append(to, bucketLine(path, []byte(name), c.sequence))
			to = c.lines(to, path+name+"/")
		} else {
			to = append(to, valueLine(path, []byte(name), n.values[name]))
		}
	}
	return to
}

func bucketLine(path string, name []byte, sequence uint64) string {
	return fmt.Sprintf("%s%s/ sequence %d", path, name, sequence)
}

func valueLine(path string, key, value []byte) string {
	return fmt.Sprintf("%s%s: %d bytes %08x", path, key, len(value), crc32.ChecksumIEEE(value))
}

// compare tells where two contents differ first.
func compare(got, want []string) error {
	for i := range max(len(got), len(want)) {
		if i >= len(got) {
			return fmt.Errorf("content ends before %q (%d lines, want %d)", want[i], len(got), len(want))
		}
		if i >= len(want) {
			return fmt.Errorf("content goes on with %q (%d lines, want %d)", got[i], len(got), len(want))
		}
		if got[i] != want[i] {
			return fmt.Errorf("content has %q, want %q", got[i], want[i])
		}
	}
	return nil
}
