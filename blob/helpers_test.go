package blob

import (
	"bytes"
	"fmt"
	"iter"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"holdfast"
)

var storeName = []byte("blobs")

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// value gives the result of a call that must not fail.
func value[T any](t testing.TB, v T, err error) T {
	t.Helper()
	must(t, err)
	return v
}

func openDB(t testing.TB) *holdfast.DB {
	t.Helper()
	db, err := holdfast.Open(filepath.Join(t.TempDir(), "db"), 0o600, &holdfast.Options{NoSync: true, PageSize: 4096})
	must(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

// newStore makes a database with an empty store.
func newStore(t testing.TB, o Options) *holdfast.DB {
	t.Helper()
	db := openDB(t)
	must(t, db.Update(func(tx *holdfast.Tx) error {
		b, err := tx.CreateBucket(storeName)
		if err != nil {
			return err
		}
		_, err = Create(b, o)
		return err
	}))
	return db
}

// update runs fn with the store in a writing transaction, and afterwards checks the store.
func update(t testing.TB, db *holdfast.DB, fn func(s *Store)) {
	t.Helper()
	must(t, db.Update(func(tx *holdfast.Tx) error {
		s := openIn(tx)
		fn(s)
		return nil
	}))
	view(t, db, func(s *Store) { checkStore(t, s) })
}

func view(t testing.TB, db *holdfast.DB, fn func(s *Store)) {
	t.Helper()
	must(t, db.View(func(tx *holdfast.Tx) error {
		fn(openIn(tx))
		return nil
	}))
}

func openIn(tx *holdfast.Tx) *Store {
	s, err := openAny(tx.Bucket(storeName))
	if err != nil {
		panic(err)
	}
	return inChunks(s)
}

// putInline is Put for a value that the reference holds if it can.
func putInline(s *Store, p []byte) Ref {
	s.InlineUpTo(MaxInline)
	defer s.InlineUpTo(-1)
	return must2(s.Put(p))
}

// inChunks has short values stored, too: most tests are of these.
func inChunks(s *Store) *Store {
	s.InlineUpTo(-1)
	return s
}

// random gives n bytes that depend on the seed only. Those of one seed in three cannot be compressed; the others are letters.
func random(seed uint64, n int) []byte {
	p := noise(seed, n)
	if seed%3 != 0 {
		for i := range p {
			p[i] = 'a' + p[i]%16
		}
	}
	return p
}

// noise gives n bytes that depend on the seed only, and cannot be compressed.
func noise(seed uint64, n int) []byte {
	p := make([]byte, n)
	var key [32]byte
	key[0], key[1], key[2], key[3] = byte(seed), byte(seed>>8), byte(seed>>16), 1
	_, _ = rand.NewChaCha8(key).Read(p)
	return p
}

// small are options whose trees become high with little content.
var small = []Options{
	{LeafSize: MinLeafSize},
	{LeafSize: MinLeafSize, Algorithm: BLAKE3},
	{LeafSize: MinLeafSize, Chunking: FastCDC},
	{LeafSize: MinLeafSize, Compression: Zstd},
	{LeafSize: MinLeafSize, Algorithm: BLAKE3, Chunking: FastCDC, Compression: ZstdBetter},
	{LeafSize: MinLeafSize, Key: testKey},
	{LeafSize: MinLeafSize, Chunking: FastCDC, Compression: Zstd, Key: testKey},
}

func (o Options) String() string {
	return fmt.Sprintf("%v-%v-%d-%v-%v", o.Algorithm, o.Chunking, o.LeafSize, o.Compression, o.Key)
}

// checkStore recomputes what the counts of nodes say, compares all bytes with their
// addresses, and looks whether each chunk has an entry and each unused one its mark.
func checkStore(t testing.TB, s *Store) (chunks int) {
	t.Helper()
	type chunk struct {
		entry
		parents uint64
	}
	found := map[chunkKey]*chunk{}
	ids := map[string]bool{}
	must(t, onlyOnce(s))
	for k, v := range s.indexAll() {
		key := value(t, parseKey2(k), nil)
		e, err := parseEntry(v)
		must(t, err)
		found[key] = &chunk{entry: e}
		id := fmt.Sprint(e.packed, e.id)
		if ids[id] {
			t.Errorf("two entries for chunk %s", id)
		}
		ids[id] = true
	}
	for k, c := range found {
		p, err := s.loadEntry(&k, &c.entry)
		must(t, err)
		if got := (s.isLeaf(&k, len(p)) || len(p) > maxGathered && !c.packed) && c.stored == 0; got == c.packed {
			t.Errorf("chunk of %d bytes in the wrong bucket", len(p))
		}
		if k.level > 0 {
			n, err := parseNode(p, k.level, s.options.shape())
			must(t, err)
			for i := range n.count() {
				child, _ := n.child(i)
				if found[child] == nil {
					t.Errorf("child %v of level %d is not there", child.addr, child.level)
					continue
				}
				found[child].parents++
			}
		}
		key := k.encode()
		if marked := s.dead.Get(key[:]) != nil; marked != c.dead() {
			t.Errorf("chunk %v marked as unused: %v, its counts %d and %d", k.addr, marked, c.entry.parents, c.users)
		}
	}
	for _, state := range s.ingests() {
		must(t, state.err)
		for _, k := range state.chunks() {
			if found[k] == nil {
				t.Errorf("chunk %v, on which an ingest stands, is not there", k)
				continue
			}
			found[k].parents++
		}
	}
	for k, c := range found {
		if c.parents != c.entry.parents {
			t.Errorf("chunk %v of level %d has %d parents, its entry says %d", k.addr, k.level, c.parents, c.entry.parents)
		}
	}
	stored := 0
	for _, b := range []*holdfast.Bucket{s.leaves, s.packs} {
		for range b.All() {
			stored++
		}
	}
	if stored != len(found) {
		t.Errorf("%d chunks are stored, %d in the index", stored, len(found))
	}
	for k := range s.dead.All() {
		if found[value(t, parseKey2(k), nil)] == nil {
			t.Errorf("a mark of a chunk that is not there")
		}
	}
	return len(found)
}

func parseKey2(b []byte) chunkKey {
	k, err := parseKey(b)
	if err != nil {
		panic(err)
	}
	return k
}

// indexAll iterates over the index.
func (s *Store) indexAll() iter.Seq2[[]byte, []byte] {
	return func(yield func(key, v []byte) bool) {
		c := s.seekIndex(nil)
		for key, v := c.next(); key != nil && yield(key, v); key, v = c.next() {
		}
	}
}

// content dumps all that is in the store.
func content(t testing.TB, s *Store) []byte {
	t.Helper()
	var out bytes.Buffer
	for k, v := range s.indexAll() {
		fmt.Fprintf(&out, "%x %x\n", k, v)
	}
	for _, b := range []*holdfast.Bucket{s.leaves, s.packs, s.dead} {
		for k, v := range b.All() {
			fmt.Fprintf(&out, "%x %x\n", k, v)
		}
		fmt.Fprintln(&out)
	}
	return out.Bytes()
}

// rootsOf are the roots of a check.
func rootsOf(refs ...Ref) iter.Seq2[Ref, error] {
	return func(yield func(Ref, error) bool) {
		for _, ref := range refs {
			if !yield(ref, nil) {
				return
			}
		}
	}
}
