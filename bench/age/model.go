package age

import (
	"hash/crc64"

	"holdfast/bench/age/trace"
)

// Contents says what is in a store: how many keys, and the sum of the checksums
// of all keys with their values.
type Contents struct {
	Keys int
	Sum  uint64
}

// Add adds a key, as Op.Flat has it.
func (c *Contents) Add(flat, value []byte) {
	c.Keys++
	c.Sum += sum(flat, value)
}

var table = crc64.MakeTable(crc64.ECMA)

// sum mixes two checksums, so that sums of several do not cancel each other out.
func sum(flat, value []byte) uint64 {
	s := crc64.Checksum(flat, table) + 0x9e3779b97f4a7c15*(crc64.Checksum(value, table)|1)
	s = (s ^ s>>30) * 0xbf58476d1ce4e5b9
	s = (s ^ s>>27) * 0x94d049bb133111eb
	return s ^ s>>31
}

// Model is what a store has to hold after transactions.
type Model struct {
	Contents
	root bucket
}

// bucket has the checksums of its keys.
type bucket struct {
	keys    map[string]uint64
	buckets map[string]*bucket
}

// Apply is Store.Apply.
func (m *Model) Apply(tx []Op) error {
	for i := range tx {
		m.apply(&tx[i])
	}
	return nil
}

func (m *Model) apply(op *Op) {
	path := op.Bucket
	if op.Do == trace.Drop {
		path = path[:len(path)-1]
	}
	b := &m.root
	for _, name := range path {
		sub := b.buckets[string(name)]
		if sub == nil {
			if op.Do == trace.Delete || op.Do == trace.Drop {
				return
			}
			sub = &bucket{keys: map[string]uint64{}}
			if b.buckets == nil {
				b.buckets = map[string]*bucket{}
			}
			b.buckets[string(name)] = sub
		}
		b = sub
	}
	switch op.Do {
	case trace.Put:
		m.remove(b, string(op.Key))
		s := sum(op.Flat, op.Value)
		b.keys[string(op.Key)] = s
		m.Keys++
		m.Sum += s
	case trace.Delete:
		m.remove(b, string(op.Key))
	case trace.Drop:
		last := string(op.Bucket[len(op.Bucket)-1])
		if sub := b.buckets[last]; sub != nil {
			m.forget(sub)
			delete(b.buckets, last)
		}
	}
}

func (m *Model) remove(b *bucket, key string) {
	if s, ok := b.keys[key]; ok {
		delete(b.keys, key)
		m.Keys--
		m.Sum -= s
	}
}

// forget takes all that is in b off the contents.
func (m *Model) forget(b *bucket) {
	for _, s := range b.keys {
		m.Keys--
		m.Sum -= s
	}
	for _, sub := range b.buckets {
		m.forget(sub)
	}
}
