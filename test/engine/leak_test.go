package engine

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"holdfast"
	"holdfast/internal/page"
)

// The shortest history in which stock bbolt v1.5.0 leaks pages: a bucket that
// came with pages is deleted after a bucket was made in it.
func TestStockLeak(t *testing.T) {
	for _, noList := range []bool{false, true} {
		path := tempPath(t)
		options := &holdfast.Options{NoFreelistSync: noList, PageSize: 4096}
		db := open(t, path, options)
		update(t, db, func(tx *holdfast.Tx) {
			n1 := createBucket(t, createBucket(t, tx, "b1"), "n1")
			put(t, n1, "k", string(make([]byte, 1927)))
		})
		update(t, db, func(tx *holdfast.Tx) {
			put(t, createBucket(t, tx.Bucket([]byte("b1")), "n0"), "k", "small")
			must(t, tx.DeleteBucket([]byte("b1")))
		})
		checkDB(t, db)
		must(t, db.Close())
		db = open(t, path, options)
		checkDB(t, db)
		must(t, db.Close())
	}
}

// model is a bucket as nested maps.
type model struct {
	sequence uint64
	values   map[string]string
	buckets  map[string]*model
}

func newModel() *model { return &model{values: map[string]string{}, buckets: map[string]*model{}} }

func (m *model) clone() *model {
	c := newModel()
	c.sequence = m.sequence
	for k, v := range m.values {
		c.values[k] = v
	}
	for k, b := range m.buckets {
		c.buckets[k] = b.clone()
	}
	return c
}

func (m *model) names() []string {
	var names []string
	for name := range m.buckets {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// pairs is what a cursor over the bucket meets.
func (m *model) pairs() []pair {
	var all []pair
	for k, v := range m.values {
		all = append(all, pair{key: k, value: v})
	}
	for k := range m.buckets {
		all = append(all, pair{key: k, bucket: true})
	}
	slices.SortFunc(all, func(a, b pair) int { return bytes.Compare([]byte(a.key), []byte(b.key)) })
	return all
}

// compare fails the test unless b holds what the model does.
func (m *model) compare(t *testing.T, where string, b *holdfast.Bucket) {
	t.Helper()
	if b == nil {
		t.Fatalf("%s: no such bucket", where)
	}
	if got := b.Sequence(); got != m.sequence && where != "" {
		t.Fatalf("%s: sequence %d, want %d", where, got, m.sequence)
	}
	if got, want := collect(b.All()), m.pairs(); !slices.Equal(got, want) {
		t.Fatalf("%s: %d keys, want %d; or they differ", where, len(got), len(want))
	}
	for name, in := range m.buckets {
		in.compare(t, where+"/"+name, b.Bucket([]byte(name)))
	}
}

// history makes random changes to a database and to the model of it.
type history struct {
	t   *testing.T
	rng *rand.Rand
	tx  *holdfast.Tx
	top *model // as the transaction sees it
}

// place is a bucket with its model.
type place struct {
	b *holdfast.Bucket
	m *model
}

func (h *history) root() place { return place{h.tx.Cursor().Bucket(), h.top} }

// somewhere is a bucket at random, not the top level.
func (h *history) somewhere() (place, bool) {
	at, found := h.root(), false
	for len(at.m.buckets) > 0 && (!found || h.rng.IntN(3) > 0) {
		names := at.m.names()
		name := names[h.rng.IntN(len(names))]
		at, found = place{at.b.Bucket([]byte(name)), at.m.buckets[name]}, true
		if at.b == nil {
			h.t.Fatalf("bucket %s is missing", name)
		}
	}
	return at, found
}

// anywhere is somewhere or the top level.
func (h *history) anywhere() place {
	if h.rng.IntN(3) == 0 {
		return h.root()
	}
	if at, ok := h.somewhere(); ok {
		return at
	}
	return h.root()
}

func (h *history) key() string { return fmt.Sprintf("k%03d", h.rng.IntN(150)) }

// value has a size at which something changes: tiny, near the inline limit, a
// page, several pages.
func (h *history) value() string {
	sizes := []int{0, 5, 50, 200, 230, 255, 500, 990, 1024, 1927, 3000, 9000}
	size := sizes[h.rng.IntN(len(sizes))]
	if h.rng.IntN(20) > 0 {
		size = min(size, 255)
	}
	return string(randomBytes(h.rng, max(0, size+h.rng.IntN(7)-3)))
}

// step makes one change.
func (h *history) step() {
	t, at := h.t, h.anywhere()
	bucketName := fmt.Sprintf("b%d", h.rng.IntN(4))
	switch h.rng.IntN(12) {
	case 0, 1: // create
		if at.m.buckets[bucketName] == nil {
			b := createBucket(t, at.b, bucketName)
			in := newModel()
			at.m.buckets[bucketName] = in
			if h.rng.IntN(2) == 0 {
				v := h.value()
				put(t, b, "first", v)
				in.values["first"] = v
			}
		}
	case 2: // delete a bucket
		if at.m.buckets[bucketName] != nil && h.rng.IntN(2) == 0 {
			must(t, at.b.DeleteBucket([]byte(bucketName)))
			delete(at.m.buckets, bucketName)
		}
	case 3: // move one
		to := h.anywhere()
		moved := at.m.buckets[bucketName]
		if moved == nil || to.m.buckets[bucketName] != nil || moved.contains(to.m) {
			return
		}
		must(t, at.b.MoveBucket([]byte(bucketName), to.b))
		delete(at.m.buckets, bucketName)
		to.m.buckets[bucketName] = moved
	case 4: // delete many keys
		if at, ok := h.somewhere(); ok {
			c := at.b.Cursor()
			for k, v := c.First(); k != nil; k, v = c.Next() {
				if v != nil && h.rng.IntN(4) > 0 {
					delete(at.m.values, string(k))
					must(t, c.Delete())
				}
			}
		}
	case 5: // count
		if at, ok := h.somewhere(); ok {
			n, err := at.b.NextSequence()
			must(t, err)
			at.m.sequence++
			if n != at.m.sequence {
				t.Fatalf("NextSequence gives %d, want %d", n, at.m.sequence)
			}
		}
	case 6: // put many keys
		if at, ok := h.somewhere(); ok {
			for range h.rng.IntN(40) {
				k, v := h.key(), h.value()
				put(t, at.b, k, v)
				at.m.values[k] = v
			}
		}
	case 7, 8:
		if at, ok := h.somewhere(); ok {
			k := h.key()
			must(t, at.b.Delete([]byte(k)))
			delete(at.m.values, k)
		}
	default:
		if at, ok := h.somewhere(); ok {
			k, v := h.key(), h.value()
			put(t, at.b, k, v)
			at.m.values[k] = v
		}
	}
}

func (m *model) contains(other *model) bool {
	if m == other {
		return true
	}
	for _, b := range m.buckets {
		if b.contains(other) {
			return true
		}
	}
	return false
}

// No history of creating, nesting, moving and deleting buckets, of values of
// all sizes and of rollbacks leaks a page or loses a key: after each commit the
// whole file is checked, and compared with a model, also after opening again.
func TestNoLeaks(t *testing.T) {
	for _, pageSize := range []int{512, 1024, 4096} {
		for _, noList := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d, without list %t", pageSize, noList), func(t *testing.T) {
				t.Parallel()
				randomHistory(t, &holdfast.Options{PageSize: pageSize, NoSync: true, NoFreelistSync: noList})
			})
		}
	}
}

func randomHistory(t *testing.T, options *holdfast.Options) {
	rng := random(t)
	path := tempPath(t)
	db := open(t, path, options)
	truth := newModel()
	var readers []*holdfast.Tx
	for round := range 250 {
		h := &history{t: t, rng: rng, top: truth.clone()}
		h.tx = begin(t, db, true)
		for range rng.IntN(60) {
			h.step()
		}
		if rng.IntN(8) == 0 { // also what is not committed reads right
			h.top.compare(t, "", h.root().b)
		}
		if rng.IntN(6) == 0 {
			must(t, h.tx.Rollback())
		} else {
			must(t, h.tx.Commit())
			truth = h.top
		}
		if rng.IntN(5) == 0 {
			readers = append(readers, begin(t, db, false))
		}
		if n := len(readers); n > 0 && rng.IntN(5) == 0 {
			must(t, readers[n-1].Rollback())
			readers = readers[:n-1]
		}
		view(t, db, func(tx *holdfast.Tx) {
			for err := range tx.Check() {
				t.Fatalf("round %d: %v", round, err)
			}
			truth.compare(t, "", tx.Cursor().Bucket())
		})
		if rng.IntN(15) == 0 {
			for _, tx := range readers {
				must(t, tx.Rollback())
			}
			readers = nil
			must(t, db.Close())
			db = open(t, path, options)
			view(t, db, func(tx *holdfast.Tx) {
				checkTx(t, tx)
				truth.compare(t, "", tx.Cursor().Bucket())
			})
		}
	}
	for _, tx := range readers {
		must(t, tx.Rollback())
	}
	// When everything is deleted only what an empty database needs is in use.
	update(t, db, func(tx *holdfast.Tx) {
		for name := range truth.buckets {
			must(t, tx.DeleteBucket([]byte(name)))
		}
	})
	update(t, db, func(tx *holdfast.Tx) { createBucket(t, tx, "last") })
	var pages int
	view(t, db, func(tx *holdfast.Tx) { checkTx(t, tx); pages = int(tx.Size()) / db.Info().PageSize })
	s := db.Stats()
	records := 8 * max(2, pages/64+1) // of free pages, at most
	if used := pages - s.FreePageN - s.PendingPageN; used > 2+1+8+records {
		t.Errorf("%d of %d pages are in use by an empty database", used, pages)
	}
}

// The pages of the freelist that a slot names are freed when that slot is written
// again, which may be by Close, into the list that it is just writing. Sessions
// of few commits are those in which that happens.
func TestFewCommitsPerSession(t *testing.T) {
	for first := range 4 {
		path := tempPath(t)
		must(t, os.WriteFile(path, page.NewFile(page.MinPageSize, true), 0o600))
		for session := range 12 {
			db := open(t, path, &holdfast.Options{NoFreelistSync: session%5 == 4})
			checkDB(t, db)
			for n := range (first + session) % 4 {
				update(t, db, func(tx *holdfast.Tx) {
					b, err := tx.CreateBucketIfNotExists([]byte("b"))
					must(t, err)
					must(t, b.Put([]byte("k"), make([]byte, 100+1000*n)))
				})
			}
			must(t, db.Close())
		}
	}
}
