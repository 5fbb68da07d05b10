package ops

import (
	"encoding/binary"
	"io"
	"os"
	"reflect"
)

// inspect calls x.Inspect and digests the tree that it returns. The engines'
// types for it differ in name only; bbolt before 1.4 has none.
func inspect(x any, res *Result) {
	method := reflect.ValueOf(x).MethodByName("Inspect")
	if !method.IsValid() {
		res.Err = Unsupported
		return
	}
	d := newDigest()
	digestStructure(d, method.Call(nil)[0])
	res.Value, res.N = d.sum(), d.n
}

func digestStructure(d *digest, s reflect.Value) {
	d.enter([]byte(s.FieldByName("Name").String()), uint64(s.FieldByName("KeyN").Int()))
	children := s.FieldByName("Children")
	for i := range children.Len() {
		digestStructure(d, children.Index(i))
	}
	d.leave()
}

// Inspect is what the operation Inspect would give for the bucket c.
func (c *Content) Inspect() (sum []byte, n uint64) {
	d := newDigest()
	c.structure(d, []byte("root"))
	return d.sum(), d.n
}

func (c *Content) structure(d *digest, name []byte) {
	keys := uint64(0)
	for _, e := range c.Elements {
		if e.Bucket == nil {
			keys++
		}
	}
	d.enter(name, keys)
	for _, e := range c.Elements {
		if e.Bucket != nil {
			e.Bucket.structure(d, e.Key)
		}
	}
	d.leave()
}

// bucketStats takes those of a bucket's statistics that do not depend on how an
// engine lays out its pages.
func bucketStats(b any, res *Result) {
	stats := reflect.ValueOf(b).MethodByName("Stats").Call(nil)[0]
	res.N = uint64(stats.FieldByName("KeyN").Int())
	res.Value = binary.LittleEndian.AppendUint64(nil, uint64(stats.FieldByName("BucketN").Int()))
	res.HasValue = true
}

// Stats is what the operation BucketStats would give for the bucket c: the
// elements in it and in the buckets in it, and the number of these and itself.
func (c *Content) Stats() (value []byte, keys uint64) {
	keys, buckets := c.count()
	return binary.LittleEndian.AppendUint64(nil, buckets), keys
}

func (c *Content) count() (keys, buckets uint64) {
	keys, buckets = uint64(len(c.Elements)), 1
	for _, e := range c.Elements {
		if e.Bucket != nil {
			k, b := e.Bucket.count()
			keys, buckets = keys+k, buckets+b
		}
	}
	return keys, buckets
}

// writeTo writes what tx sees to a new file.
func writeTo(tx any, path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = tx.(interface {
		WriteTo(w io.Writer) (int64, error)
	}).WriteTo(file)
	return err
}
