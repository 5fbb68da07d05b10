package damage

import (
	"bytes"
	"errors"
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
	bigForm  bool // its freelist is rewritten as one of more than 0xFFFE numbers
	big      bool // it has more than 0xFFFE free pages
	killed   bool // it was not closed
	trailing bool // nor settled: the winning meta is that of the state before the last
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
	}{{!k.synced, "no freelist"}, {k.bigForm, "big form"}, {k.big, "0xFFFF free"}, {k.killed, "killed"}, {k.trailing, "trailing meta"}} {
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
	{stock: true, pageSize: 4096, synced: true},
	{pageSize: 4096, synced: true},
	{stock: true, pageSize: 1024},
	{pageSize: 512, synced: true},
	{stock: true, pageSize: 4096},
	{pageSize: 1024},
	{stock: true, pageSize: 1024, synced: true, bigForm: true},
	{pageSize: 4096, killed: true},
	{stock: true, pageSize: 16384, synced: true},
	{pageSize: 16384, synced: true},
	{pageSize: 1024, killed: true, trailing: true},
	{pageSize: 4096, killed: true, trailing: true},
	{pageSize: 512, synced: true, big: true},
	{stock: true, pageSize: 1024, synced: true, big: true},
}

const firstBig = 14

// sample is a sound file and where in it things are.
type sample struct {
	kind    kind
	data    []byte
	older   [][]byte  // the same file some commits before
	listed  []page.ID // of a trailing meta: the pages that it was written with
	meta    page.Meta
	slot    int // that meta is in
	image   page.Image
	free    map[page.ID]bool
	heads   []page.ID // first pages of the runs that trees use, ascending
	used    map[page.ID]bool
	fields  map[role][]field
	content string // as use hashes it
}

var samples = func() (s [16]func() (*sample, error)) {
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
		var db *bbolt.DB
		if db, err = bbolt.Open(path, 0o600, &bbolt.Options{PageSize: k.pageSize, NoSync: true, NoFreelistSync: !k.synced, FreelistType: bbolt.FreelistArrayType}); err == nil {
			err = grow(s, path, db)
		}
	} else {
		if k.pageSize < page.MinNewPageSize { // which only bbolt makes
			if err := os.WriteFile(path, page.NewFile(k.pageSize, true), 0o600); err != nil {
				return nil, err
			}
		}
		var db *holdfast.DB
		if db, err = holdfast.Open(path, 0o600, &holdfast.Options{PageSize: k.pageSize, NoSync: !k.trailing, SettleDelay: -1, NoFreelistSync: !k.synced}); err == nil {
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

// grow makes the file. Each transaction changes one bucket: where one changes
// several, bbolt takes them in an order of chance, and a seed would not give the
// same file again.
func grow[D database[T], T transaction[B], B bucket[B, C], C cursor](s *sample, path string, db D) error {
	steps := history[B, C](s.kind)
	for i, st := range steps {
		if err := db.Update(func(tx T) error {
			b, err := tx.CreateBucketIfNotExists([]byte(st.bucket))
			if err != nil {
				return err
			}
			if st.edit == nil {
				return tx.DeleteBucket([]byte(st.bucket))
			}
			return st.edit(b)
		}); err != nil {
			return err
		}
		if (i == len(steps)/2 || i == len(steps)*3/4) && !s.kind.big {
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
		return errors.Join(err, db.Close())
	}
	if err := db.Close(); err != nil {
		return err
	}
	data, err := os.ReadFile(path)
	s.data = data
	return err
}

func sampleKey(i int) []byte { return fmt.Appendf(nil, "key%06d", i) }

// filler is a value that is not a row of zeros.
func filler(n int) []byte { return bytes.Repeat([]byte("abc"), n/3+1)[:n] }

// step is a transaction of a sample's history: an edit of a top-level bucket, or,
// if there is none, its end.
type step[B any] struct {
	bucket string
	edit   func(b B) error
}

func history[B bucket[B, C], C cursor](k kind) []step[B] {
	lost := 20 * k.pageSize
	if k.big {
		lost = 70_000 * k.pageSize
	}
	steps := []step[B]{
		{"keys", func(b B) error {
			return times(3000, func(i int) error { return b.Put(sampleKey(i), fmt.Appendf(nil, "the value of key number %d", i)) })
		}},
		{"big", func(b B) error {
			return times(4, func(i int) error { // a branch with overflow pages
				return b.Put(bytes.Repeat([]byte{byte('m' + i)}, min(k.pageSize*3/4, 20000)), []byte("long key"))
			})
		}},
		{"big", func(b B) error { return b.Put([]byte("two"), filler(9*k.pageSize)) }},
		{"gone", func(b B) error { return b.Put([]byte("gone"), make([]byte, lost)) }},
		{"small", func(b B) error { return errors.Join(b.Put([]byte("k"), []byte("v")), b.SetSequence(77)) }},
		{"nest", func(b B) error { return child(b, "deep", 100, 50) }},
		{"nest", func(b B) error { return child(b.Bucket([]byte("deep")), "deeper", 100, 70) }},
		{"nest", func(b B) error { return child(b, "inline", 2, 10) }},
		{"nest", func(b B) error { return child(b, "nothing", 0, 0) }},
	}
	for round := 1; round < 10; round++ {
		steps = append(steps,
			step[B]{"keys", func(b B) error { return editKeys(b, round) }},
			step[B]{"big", func(b B) error { return b.Put([]byte("one"), filler(3*k.pageSize+round)) }},
			step[B]{"nest", func(b B) error {
				return errors.Join(b.SetSequence(uint64(round)), b.Bucket([]byte("deep")).Put(fmt.Appendf(nil, "round %d", round), []byte("s")))
			}},
		)
		if round == 4 {
			steps = append(steps, step[B]{"big", func(b B) error { return b.Delete([]byte("two")) }}, step[B]{bucket: "gone"})
		}
	}
	return steps
}

func times(n int, do func(i int) error) error {
	for i := range n {
		if err := do(i); err != nil {
			return err
		}
	}
	return nil
}

// editKeys changes leaves here and there, and empties some.
func editKeys[B bucket[B, C], C cursor](b B, round int) error {
	for i := 100 * round; i < 3000; i += 700 {
		if err := b.Put(sampleKey(i), fmt.Appendf(nil, "other value %d of %d", round, i)); err != nil {
			return err
		}
	}
	return times(60, func(i int) error { return b.Delete(sampleKey(250*round + i)) })
}

// child makes a nested bucket of n keys with values of size bytes.
func child[B bucket[B, C], C cursor](in B, name string, n, size int) error {
	b, err := in.CreateBucket([]byte(name))
	if err != nil {
		return err
	}
	return errors.Join(b.SetSequence(5), times(n, func(i int) error { return b.Put(sampleKey(i), filler(size)) }))
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
