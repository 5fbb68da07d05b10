package damage

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"go.etcd.io/bbolt"

	"holdfast"
	"holdfast/internal/page"
)

// kind is a way to make a file.
type kind struct {
	stock    bool
	pageSize int
	synced   bool // it has a freelist page
	hashmap  bool // how bbolt kept its free pages
	bigForm  bool // its freelist is rewritten as one of more than 0xFFFE numbers
	big      bool // it has more than 0xFFFE free pages
	killed   bool // it was not closed
}

func (k kind) String() string {
	s := "Holdfast"
	if k.stock {
		s = "bbolt"
	}
	s = fmt.Sprintf("%s %d", s, k.pageSize)
	for _, is := range []struct {
		on   bool
		text string
	}{{!k.synced, "no freelist"}, {k.hashmap, "hashmap"}, {k.bigForm, "big form"}, {k.big, "0xFFFF free"}, {k.killed, "killed"}} {
		if is.on {
			s += ", " + is.text
		}
	}
	return s
}

// kinds are the files that are mutated. Those before firstBig are small.
var kinds = []kind{
	{pageSize: 1024, synced: true},
	{stock: true, pageSize: 1024, synced: true},
	{stock: true, pageSize: 4096, synced: true, hashmap: true},
	{pageSize: 4096, synced: true},
	{stock: true, pageSize: 1024},
	{pageSize: 512, synced: true},
	{stock: true, pageSize: 4096, hashmap: true},
	{pageSize: 1024},
	{stock: true, pageSize: 1024, synced: true, bigForm: true},
	{pageSize: 4096, killed: true},
	{stock: true, pageSize: 16384, synced: true},
	{pageSize: 16384, synced: true},
	{pageSize: 512, synced: true, big: true},
	{stock: true, pageSize: 1024, synced: true, big: true},
}

const firstBig = 12

// sample is a sound file and where in it things are.
type sample struct {
	kind    kind
	data    []byte
	older   [][]byte // the same file some commits before
	meta    page.Meta
	slot    int // that meta is in
	image   page.Image
	free    map[page.ID]bool
	heads   []page.ID // first pages of the runs that trees use, ascending
	used    map[page.ID]bool
	fields  map[role][]field
	content string // as use hashes it
}

var samples = func() (s [14]func() (*sample, error)) {
	for i, k := range kinds {
		s[i] = sync.OnceValues(func() (*sample, error) { return makeSample(k) })
	}
	return s
}()

func makeSample(k kind) (*sample, error) {
	dir, err := os.MkdirTemp("", "holdfast")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	s := &sample{kind: k}
	path := filepath.Join(dir, "db")
	if k.stock {
		freelist := bbolt.FreelistArrayType
		if k.hashmap {
			freelist = bbolt.FreelistMapType
		}
		var db *bbolt.DB
		if db, err = bbolt.Open(path, 0o600, &bbolt.Options{PageSize: k.pageSize, NoSync: true, NoFreelistSync: !k.synced, FreelistType: freelist}); err == nil {
			err = grow(s, path, db)
		}
	} else {
		var db *holdfast.DB
		if db, err = holdfast.Open(path, 0o600, &holdfast.Options{PageSize: k.pageSize, NoSync: true, NoFreelistSync: !k.synced}); err == nil {
			db.AllocSize = 64 << 10
			err = grow(s, path, db)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("make a file of %v: %w", k, err)
	}
	if err := s.analyse(); err != nil {
		return nil, fmt.Errorf("look at a file of %v: %w", k, err)
	}
	// The content is what a walk through the sound file gives.
	if err := os.WriteFile(path, s.data, 0o600); err != nil {
		return nil, err
	}
	r := holdfastEngine(path, int64(len(s.data))).use()
	if r.detected() || r.Worse != "" {
		return nil, fmt.Errorf("the file of %v is not sound: %+v", k, r)
	}
	s.content = r.Content
	return s, nil
}

// commits is the number of transactions in a sample's history.
const commits = 10

func grow[D database[T], T transaction[B], B bucket[B, C], C cursor](s *sample, path string, db D) error {
	for step := range commits {
		if err := db.Update(func(tx T) error { return edit[T, B, C](tx, s.kind, step) }); err != nil {
			return err
		}
		if (step == 3 || step == 6) && !s.kind.big {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			s.older = append(s.older, data)
		}
	}
	if s.kind.killed {
		data, err := os.ReadFile(path)
		s.data = data
		return firstOf(err, db.Close())
	}
	if err := db.Close(); err != nil {
		return err
	}
	data, err := os.ReadFile(path)
	s.data = data
	return err
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func sampleKey(i int) []byte { return fmt.Appendf(nil, "key%06d", i) }

// edit is transaction step of each sample's history.
func edit[T transaction[B], B bucket[B, C], C cursor](tx T, k kind, step int) error {
	if step == 0 {
		return create[T, B, C](tx, k)
	}
	keys, big, nest := tx.Bucket([]byte("keys")), tx.Bucket([]byte("big")), tx.Bucket([]byte("nest"))
	var errs []error
	for i := 100 * step; i < 3000; i += 700 { // leaves here and there
		errs = append(errs, keys.Put(sampleKey(i), fmt.Appendf(nil, "other value %d of %d", step, i)))
	}
	for i := range 60 { // and some that go empty
		errs = append(errs, keys.Delete(sampleKey(250*step+i)))
	}
	errs = append(errs, big.Put([]byte("one"), text3(3*k.pageSize+step)), nest.SetSequence(uint64(step)),
		nest.Bucket([]byte("deep")).Put(fmt.Appendf(nil, "step %d", step), []byte("s")))
	if step == 4 {
		errs = append(errs, big.Delete([]byte("two")), tx.DeleteBucket([]byte("gone")))
	}
	return firstOf(errs...)
}

// text3 is a value that is no row of zeros.
func text3(n int) []byte { return bytes.Repeat([]byte("abc"), n/3+1)[:n] }

func create[T transaction[B], B bucket[B, C], C cursor](tx T, k kind) error {
	b := map[string]B{}
	for _, name := range []string{"keys", "big", "nest", "small", "gone"} {
		var err error
		if b[name], err = tx.CreateBucketIfNotExists([]byte(name)); err != nil {
			return err
		}
	}
	var errs []error
	for i := range 3000 {
		errs = append(errs, b["keys"].Put(sampleKey(i), fmt.Appendf(nil, "the value of key number %d", i)))
	}
	for i := range 4 { // a branch with overflow pages
		errs = append(errs, b["big"].Put(bytes.Repeat([]byte{byte('m' + i)}, min(k.pageSize*3/4, 20000)), []byte("long key")))
	}
	errs = append(errs, b["big"].Put([]byte("one"), text3(3*k.pageSize)), b["big"].Put([]byte("two"), text3(9*k.pageSize)))
	lost := 20 * k.pageSize
	if k.big {
		lost = 70_000 * k.pageSize
	}
	errs = append(errs, b["gone"].Put([]byte("gone"), make([]byte, lost)), b["small"].Put([]byte("k"), []byte("v")),
		b["small"].SetSequence(77), nested(b["nest"]))
	return firstOf(errs...)
}

// nested fills a bucket with buckets: of pages, inline, empty.
func nested[B bucket[B, C], C cursor](nest B) error {
	deep, err := nest.CreateBucket([]byte("deep"))
	if err != nil {
		return err
	}
	deeper, err := deep.CreateBucket([]byte("deeper"))
	if err != nil {
		return err
	}
	inline, err := nest.CreateBucket([]byte("inline"))
	if err != nil {
		return err
	}
	_, err = nest.CreateBucket([]byte("nothing"))
	errs := []error{err, inline.Put([]byte("a"), []byte("value a")), inline.Put([]byte("b"), []byte("value b")), inline.SetSequence(5)}
	for i := range 100 {
		errs = append(errs, deep.Put(sampleKey(i), text3(50)), deeper.Put(sampleKey(i), text3(70)))
	}
	return firstOf(errs...)
}

// holdfastEngine and stockEngine use the file at path, of size bytes.
func holdfastEngine(path string, size int64) *engine[*holdfast.DB, *holdfast.Tx, *holdfast.Bucket, *holdfast.Cursor] {
	return &engine[*holdfast.DB, *holdfast.Tx, *holdfast.Bucket, *holdfast.Cursor]{
		open: func() (*holdfast.DB, error) {
			return holdfast.Open(path, 0o600, &holdfast.Options{NoSync: true})
		},
		check: func(tx *holdfast.Tx) <-chan error { return tx.Check() },
		size:  size,
	}
}

func stockEngine(path string, size int64) *engine[*bbolt.DB, *bbolt.Tx, *bbolt.Bucket, *bbolt.Cursor] {
	return &engine[*bbolt.DB, *bbolt.Tx, *bbolt.Bucket, *bbolt.Cursor]{
		open: func() (*bbolt.DB, error) {
			return bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true})
		},
		check: func(tx *bbolt.Tx) <-chan error { return tx.Check() },
		size:  size,
	}
}
