package engine

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"holdfast"
	"holdfast/internal/page"
)

// samplePageSize is small, so that few keys make a tree of some height.
const samplePageSize = 1024

// sample is the content of a database with branches, leaves, overflow pages,
// nested and inline buckets and a freelist page of several numbers, and where
// in it things are.
type sample struct {
	data []byte
	meta page.Meta
	keys page.ID // root of bucket "keys": a branch over branches or leaves
	big  page.ID // root of bucket "big": a leaf with overflow pages
	nest page.ID // root of bucket "nest": a leaf with buckets only
	deep page.ID // root of bucket "nest/deep"
	busy page.ID // a page that is in use, not a root
}

var sampleOnce = sync.OnceValues(makeSample)

// newSample gives a copy of the sample, to be damaged. It is as bbolt writes a
// file: the metas say nothing of free pages, and no page has a seal, which would
// tell of any damage before anything else does.
func newSample(t testing.TB) *sample {
	t.Helper()
	s := recordedSample(t)
	for slot := range 2 {
		clear(s.data[slot*samplePageSize:][page.ExtensionOffset:samplePageSize])
	}
	return s
}

// recordedSample is the sample as Holdfast leaves it, but for seals.
func recordedSample(t testing.TB) *sample {
	t.Helper()
	s, err := sampleOnce()
	must(t, err)
	c := *s
	c.data = append([]byte{}, s.data...)
	return &c
}

func makeSample() (*sample, error) {
	dir, err := os.MkdirTemp("", "holdfast")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "db")
	db, err := holdfast.Open(path, 0o600, &holdfast.Options{PageSize: samplePageSize, NoSeals: true})
	if err != nil {
		return nil, err
	}
	if err := db.Update(fillSample); err != nil {
		return nil, err
	}
	// Holes that are not neighbours, for the freelist.
	for i := 0; i < 3000; i += 500 {
		if err := db.Update(func(tx *holdfast.Tx) error {
			return tx.Bucket([]byte("keys")).Put(sampleKey(i), []byte("other"))
		}); err != nil {
			return nil, err
		}
	}
	s := &sample{}
	if err := db.View(func(tx *holdfast.Tx) error {
		s.keys = tx.Bucket([]byte("keys")).Root()
		s.big = tx.Bucket([]byte("big")).Root()
		s.nest = tx.Bucket([]byte("nest")).Root()
		s.deep = tx.Bucket([]byte("nest")).Bucket([]byte("deep")).Root()
		return nil
	}); err != nil {
		return nil, err
	}
	if err := db.Close(); err != nil {
		return nil, err
	}
	if s.data, err = os.ReadFile(path); err != nil {
		return nil, err
	}
	slots := page.DecodeSlots(s.data, s.data[samplePageSize:])
	best, err := slots.Best()
	s.meta = slots.Meta[best]
	s.busy = s.child(s.keys, 1)
	return s, err
}

func sampleKey(i int) []byte { return fmt.Appendf(nil, "key%06d", i) }

func fillSample(tx *holdfast.Tx) error {
	for _, name := range []string{"keys", "big", "nest", "small"} {
		if _, err := tx.CreateBucket([]byte(name)); err != nil {
			return err
		}
	}
	keys, big, nest := tx.Bucket([]byte("keys")), tx.Bucket([]byte("big")), tx.Bucket([]byte("nest"))
	for i := range 3000 {
		if err := keys.Put(sampleKey(i), fmt.Appendf(nil, "value of %d", i)); err != nil {
			return err
		}
	}
	if err := big.Put([]byte("big"), make([]byte, 10_000)); err != nil {
		return err
	}
	deep, err := nest.CreateBucket([]byte("deep"))
	if err != nil {
		return err
	}
	for i := range 100 {
		if err := deep.Put(sampleKey(i), make([]byte, 50)); err != nil {
			return err
		}
	}
	inline, err := nest.CreateBucket([]byte("inline"))
	if err != nil {
		return err
	}
	if err := inline.Put([]byte("k"), []byte("v")); err != nil {
		return err
	}
	return tx.Bucket([]byte("small")).Put([]byte("k"), []byte("v"))
}

// page gives the bytes from page id on.
func (s *sample) page(id page.ID) []byte { return s.data[int(id)*samplePageSize:] }

func (s *sample) parse(id page.ID) page.Page {
	m := page.NewImage(s.data, samplePageSize, s.meta.HighWater)
	p, err := m.Page(id)
	if err != nil {
		panic(err)
	}
	return p
}

// child is the i-th child of branch id.
func (s *sample) child(id page.ID, i int) page.ID {
	_, c, err := s.parse(id).Branch(i)
	if err != nil {
		panic(err)
	}
	return c
}

// leaf is the first leaf below page id.
func (s *sample) leaf(id page.ID) page.ID {
	for !s.parse(id).IsLeaf() {
		id = s.child(id, 0)
	}
	return id
}

// setMetas changes both metas, with right checksums.
func (s *sample) setMetas(change func(m *page.Meta)) {
	slots := page.DecodeSlots(s.data, s.data[samplePageSize:])
	for i := range slots.Meta {
		change(&slots.Meta[i])
		page.EncodeMeta(s.data[i*samplePageSize:][:samplePageSize], page.ID(i), slots.Meta[i], nil)
	}
}

// Places in a page and in its element i.
const (
	offID       = 0
	offFlags    = 8
	offCount    = 10
	offOverflow = 12
	offLeafPos  = page.HeaderSize + 4
	offLeafKey  = page.HeaderSize + 8
	offLeafVal  = page.HeaderSize + 12
	offChild    = page.HeaderSize + 8
)

func (s *sample) set16(id page.ID, off int, v uint16) {
	binary.NativeEndian.PutUint16(s.page(id)[off:], v)
}

func (s *sample) set32(id page.ID, off int, v uint32) {
	binary.NativeEndian.PutUint32(s.page(id)[off:], v)
}

func (s *sample) set64(id page.ID, off int, v uint64) {
	binary.NativeEndian.PutUint64(s.page(id)[off:], v)
}

// bucketValue is the value of the nested bucket name in leaf id.
func (s *sample) bucketValue(id page.ID, name string) []byte {
	p := s.parse(id)
	i, ok, err := p.Search([]byte(name))
	if err != nil || !ok {
		panic(fmt.Sprintf("no %s in page %d", name, id))
	}
	e, err := p.Leaf(i)
	if err != nil {
		panic(err)
	}
	return e.Value
}

// writeSample puts the sample into a file.
func writeSample(t testing.TB) string {
	t.Helper()
	path := tempPath(t)
	must(t, os.WriteFile(path, newSample(t).data, 0o600))
	return path
}
