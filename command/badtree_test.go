package command_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
	"testing"

	"holdfast"
	"holdfast/blob"
	"holdfast/internal/page"
)

// tree is the content of a database with a branch over leaves, overflow pages, nested and
// inline buckets and a freelist page, and where in it things are. It is as bbolt writes it:
// without seals and without what Holdfast adds to the meta pages.
type tree struct {
	data []byte
	meta page.Meta
	keys page.ID // root of bucket "keys": a branch over leaves
	nest page.ID // root of bucket "nest": a leaf with buckets only
}

const treePage = 1024

func treeKey(i int) []byte { return fmt.Appendf(nil, "key%06d", i) }

func fillTree(tx *holdfast.Tx) error {
	bucket := func(name string) (*holdfast.Bucket, error) { return tx.CreateBucketIfNotExists([]byte(name)) }
	keys, err := bucket("keys")
	if err != nil {
		return err
	}
	for i := 0; i < 300 && err == nil; i++ {
		err = keys.Put(treeKey(i), fmt.Appendf(nil, "value of %d", i))
	}
	big, err1 := bucket("big")
	nest, err2 := bucket("nest")
	small, err3 := bucket("small")
	if err := firstErr(err, err1, err2, err3); err != nil {
		return err
	}
	deep, err1 := nest.CreateBucket([]byte("deep"))
	inline, err2 := nest.CreateBucket([]byte("inline"))
	if err := firstErr(err1, err2, big.Put([]byte("big"), make([]byte, 5000)), small.Put([]byte("k"), []byte("v"))); err != nil {
		return err
	}
	for i := range 40 {
		if err := deep.Put(treeKey(i), make([]byte, 50)); err != nil {
			return err
		}
	}
	return inline.Put([]byte("k"), []byte("v"))
}

// blobRef names the blob of treeBlob, by the beginning of its SHA-256.
var blobRef = fmt.Sprintf("%x", sha256.Sum256(treeBlob))[:12]

// treeBlob is a blob of one leaf.
var treeBlob = []byte("a blob of one leaf")

// fillStore makes a store with that blob and one of several leaves.
func fillStore(tx *holdfast.Tx) error {
	b, err := tx.CreateBucket([]byte("store"))
	if err != nil {
		return err
	}
	s, err := blob.Create(b, blob.Options{LeafSize: blob.MinLeafSize})
	if err != nil {
		return err
	}
	_, err1 := s.Put(treeBlob)
	_, err2 := s.Put(bytes.Repeat([]byte("several leaves "), 200))
	return firstErr(err1, err2)
}

func firstErr(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// makeTree makes a file at path with options, and gives its bytes; with left, as the end of its
// process leaves them.
func makeTree(t *testing.T, path string, options holdfast.Options, left bool) *tree {
	t.Helper()
	options.PageSize = treePage
	db, err := holdfast.Open(path, 0o600, &options)
	check(t, err)
	check(t, db.Update(fillTree))
	for i := 0; i < 300; i += 60 { // holes that are not neighbours, for the freelist
		check(t, db.Update(func(tx *holdfast.Tx) error {
			return tx.Bucket([]byte("keys")).Put(treeKey(i), []byte("other"))
		}))
	}
	s := &tree{}
	check(t, db.View(func(tx *holdfast.Tx) error {
		s.keys, s.nest = tx.Bucket([]byte("keys")).Root(), tx.Bucket([]byte("nest")).Root()
		return nil
	}))
	if left {
		s.data, err = os.ReadFile(path)
		check(t, err)
	}
	check(t, db.Close())
	if !left {
		s.data, err = os.ReadFile(path)
		check(t, err)
	}
	slots := page.DecodeSlots(s.data, s.data[treePage:])
	best, err := slots.Best()
	check(t, err)
	s.meta = slots.Meta[best]
	return s
}

// stripped is a copy as bbolt would have written it.
func (s *tree) stripped() *tree {
	c := *s
	c.data = bytes.Clone(s.data)
	for slot := range 2 {
		clear(c.data[slot*treePage:][page.ExtensionOffset:treePage])
	}
	return &c
}

// Places in a page and in its first element.
const (
	offID       = 0
	offFlags    = 8
	offCount    = 10
	offOverflow = 12
	offPos      = page.HeaderSize + 4
	offKeyLen   = page.HeaderSize + 8
	offValueLen = page.HeaderSize + 12
	offChild    = page.HeaderSize + 8
)

func (s *tree) page(id page.ID) []byte { return s.data[int(id)*treePage:] }

func (s *tree) set16(id page.ID, off int, v uint16) {
	binary.NativeEndian.PutUint16(s.page(id)[off:], v)
}

func (s *tree) set32(id page.ID, off int, v uint32) {
	binary.NativeEndian.PutUint32(s.page(id)[off:], v)
}

func (s *tree) set64(id page.ID, off int, v uint64) {
	binary.NativeEndian.PutUint64(s.page(id)[off:], v)
}

// setMetas changes both metas, with right checksums.
func (s *tree) setMetas(change func(m *page.Meta)) *tree {
	slots := page.DecodeSlots(s.data, s.data[treePage:])
	for i := range slots.Meta {
		change(&slots.Meta[i])
		page.EncodeMeta(s.data[i*treePage:][:treePage], page.ID(i), slots.Meta[i], nil)
	}
	return s
}

func (s *tree) parse(id page.ID) page.Page {
	image := page.NewImage(s.data, treePage, s.meta.HighWater)
	p, err := image.Page(id)
	if err != nil {
		panic(err)
	}
	return p
}

func (s *tree) child(id page.ID, i int) page.ID {
	_, c, err := s.parse(id).Branch(i)
	if err != nil {
		panic(err)
	}
	return c
}

// leaf is the first leaf of bucket keys.
func (s *tree) leaf() page.ID { return s.child(s.keys, 0) }

// value is the value of name in leaf id: of a bucket, its header.
func (s *tree) value(id page.ID, name string) []byte {
	p := s.parse(id)
	i, ok, err := p.Search([]byte(name))
	if err != nil || !ok {
		panic(fmt.Sprintf("no %s in page %d: %v", name, id, err))
	}
	e, err := p.Leaf(i)
	if err != nil {
		panic(err)
	}
	return e.Value
}
