package blob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"holdfast"
)

var histories = []Options{
	{LeafSize: MinLeafSize, Algorithm: SHA256, Chunking: FixedSize},
	{LeafSize: MinLeafSize, Algorithm: BLAKE3, Chunking: FixedSize},
	{LeafSize: MinLeafSize, Algorithm: SHA256, Chunking: FastCDC},
	{LeafSize: 3000, Algorithm: SHA256, Chunking: FixedSize},
	{LeafSize: 3000, Algorithm: SHA256, Chunking: FixedSize, Compression: Zstd},
	{LeafSize: MinLeafSize, Algorithm: BLAKE3, Chunking: FastCDC, Compression: ZstdBetter},
	{LeafSize: 3000, Algorithm: KeyedBLAKE3, Chunking: FixedSize, Key: testKey},
	{LeafSize: MinLeafSize, Algorithm: KeyedBLAKE3, Chunking: FastCDC, Compression: Zstd, Key: testKey},
}

// Random histories against a model. After each commit the counts of each chunk are compared,
// and Check finds nothing. HOLDFAST_BLOB_SEED=n runs one history.
func TestHistories(t *testing.T) {
	seeds := []uint64{1, 2, 3, 4, 5, 6, uint64(time.Now().UnixNano()), uint64(time.Now().UnixNano()) + 1}
	if v, err := strconv.ParseUint(os.Getenv("HOLDFAST_BLOB_SEED"), 10, 64); err == nil {
		seeds = []uint64{v}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			h := newHistory(t, seed)
			for range 40 {
				if err := h.step(); err != nil {
					t.Fatalf("HOLDFAST_BLOB_SEED=%d: %v\nin\n%s", seed, err, strings.Join(h.log, "\n"))
				}
			}
		})
	}
}

// history is a random history.
type history struct {
	t        *testing.T
	rng      *rand.Rand
	db       *holdfast.DB
	path     string
	places   [][]byte // names of the buckets in which the store lies
	m        *model
	contents []*text
	log      []string

	// In a transaction:
	s, other  *Store
	ingests   map[string]*Ingest
	written   map[string]*text // of these
	collected bool             // nothing dead may be left
}

func newHistory(t *testing.T, seed uint64) *history {
	rng := rand.New(rand.NewPCG(seed, 7))
	o := histories[rng.IntN(len(histories))]
	h := &history{t: t, rng: rng, path: filepath.Join(t.TempDir(), "db"), places: [][]byte{[]byte("blobs")}, m: newModel(o)}
	h.open()
	t.Cleanup(func() { h.db.Close() })
	must(t, h.db.Update(func(tx *holdfast.Tx) error {
		b, err := tx.CreateBucket(h.places[0])
		if err != nil {
			return err
		}
		s, err := Create(b, o)
		if err != nil {
			return err
		}
		// In how large a store the history takes place: how often entries leave recent depends on it.
		return s.came([]uint64{0, 20, 200, farChunks}[rng.IntN(4)])
	}))
	for _, content := range someContents(rng, h.m) {
		h.contents = append(h.contents, h.m.text(content))
	}
	h.note("%v", o)
	return h
}

// someContents are contents that share much with each other.
func someContents(rng *rand.Rand, m *model) (all []string) {
	leaf := m.o.LeafSize
	base := string(random(rng.Uint64N(3), 300*leaf))
	all = append(all, "", "a", base[:leaf-1], base[:leaf], base[:leaf+1], base[:126*leaf], base[:126*leaf+1], base[:127*leaf], base)
	for range 8 {
		begin := rng.IntN(4) * rng.IntN(leaf)
		all = append(all, base[begin:begin+rng.IntN(200*leaf)])
	}
	for range 4 { // one place changed, and something inserted
		at := rng.IntN(len(base))
		all = append(all, base[:at]+"x"+base[at+1:], base[:at]+"inserted"+base[at:])
	}
	// Three levels, of few different leaves.
	period := string(random(9, 7*leaf))
	all = append(all, strings.Repeat(period, 126*126/7+40)+"end")
	// The bytes of a node.
	nodes := 0
	m.tree(m.text(base))
	for k := range m.chunks {
		if k.level > 0 && nodes < 2 {
			nodes++
			all = append(all, "HFN1"+string(k.addr[:]))
		}
	}
	b := append([]byte("HFN1"), 1, 0, 2, 0)
	b = append(b, make([]byte, 8)...)
	b[8], b[9] = byte(2*leaf), byte(2*leaf>>8)
	for i := range 2 {
		sum := m.o.sum([]byte(base[i*leaf : (i+1)*leaf]))
		b = append(b, sum[:]...)
	}
	return append(all, base[:2*leaf], string(b))
}

func (h *history) note(format string, args ...any) {
	h.log = append(h.log, fmt.Sprintf(format, args...))
}

func (h *history) open() {
	db, err := holdfast.Open(h.path, 0o600, &holdfast.Options{NoSync: true, PageSize: 4096})
	must(h.t, err)
	h.db = db
}

// store opens the store, wherever it lies.
func (h *history) store(tx *holdfast.Tx) (*Store, error) {
	b := tx.Bucket(h.places[0])
	for _, name := range h.places[1:] {
		b = b.Bucket(name)
	}
	s, err := openAny(b)
	if err == nil {
		s.InlineUpTo(-1)
	}
	return s, err
}

func (h *history) content() *text { return h.contents[h.rng.IntN(len(h.contents))] }

// step is a transaction, or something besides.
func (h *history) step() error {
	switch h.rng.IntN(12) {
	case 0:
		h.note("reopen")
		if err := h.db.Close(); err != nil {
			return err
		}
		h.open()
	case 1:
		h.note("vacuum")
		if _, err := h.db.Vacuum(context.Background(), holdfast.VacuumOptions{Hurry: true}); err != nil {
			return err
		}
	case 2:
		if err := h.move(); err != nil {
			return err
		}
	case 3:
		h.note("Collect")
		stats, err := Collect(context.Background(), h.db, h.store, CollectOptions{})
		if err != nil || stats.Damaged != 0 {
			return fmt.Errorf("%+v: %w", stats, err)
		}
		h.m.state.expire()
		h.collected = true
	default:
		if err := h.transaction(); err != nil {
			return err
		}
	}
	return h.check()
}

// move moves the store into another bucket.
func (h *history) move() error {
	h.note("move")
	return h.db.Update(func(tx *holdfast.Tx) error {
		name := h.places[len(h.places)-1]
		if len(h.places) == 1 {
			dst, err := tx.CreateBucketIfNotExists([]byte("inside"))
			if err != nil {
				return err
			}
			h.places = [][]byte{[]byte("inside"), name}
			return tx.MoveBucket(name, nil, dst)
		}
		h.places = [][]byte{name}
		return tx.MoveBucket(name, tx.Bucket([]byte("inside")), nil)
	})
}

var errRollback = errors.New("rolled back")

func (h *history) transaction() error {
	before := h.m.state.clone()
	back := h.rng.IntN(6) == 0
	h.collected = false
	err := h.db.Update(func(tx *holdfast.Tx) (err error) {
		if h.s, err = h.store(tx); err != nil {
			return err
		}
		if h.other, err = h.store(tx); err != nil {
			return err
		}
		h.ingests, h.written = map[string]*Ingest{}, map[string]*text{}
		for range 1 + h.rng.IntN(12) {
			if err := h.op(); err != nil {
				return err
			}
		}
		if back {
			return errRollback
		}
		return nil
	})
	if back && errors.Is(err, errRollback) {
		h.note("rollback")
		h.m.state, err = before, nil
	}
	return err
}

// ops are what a transaction does, with how often.
var ops = []struct {
	weight int
	do     func(h *history) error
}{
	{8, (*history).put}, {6, (*history).write}, {2, (*history).abort}, {1, (*history).abandon}, {1, (*history).second},
	{9, (*history).delete}, {3, (*history).retain}, {3, (*history).collect}, {4, (*history).lease}, {2, (*history).release},
	{9, (*history).ingest}, {1, (*history).read}, {2, (*history).foresee},
	{3, (*history).sway}, {2, (*history).swap}, {2, (*history).spill}, {1, (*history).mend},
}

func (h *history) op() error {
	sum := 0
	for _, o := range ops {
		sum += o.weight
	}
	n := h.rng.IntN(sum)
	for _, o := range ops {
		if n -= o.weight; n < 0 {
			return o.do(h)
		}
	}
	panic("weights")
}

// same tells whether a content got the reference that it must have.
func (h *history) same(content *text, ref Ref, err error) error {
	if want := h.m.tree(content); err == nil && want != ref {
		err = fmt.Errorf("%d bytes are %v, not %v", len(content.string), ref, want)
	}
	return err
}

func (h *history) put() error {
	content := h.content()
	h.note("put %d bytes", len(content.string))
	ref, err := h.s.Put([]byte(content.string))
	h.m.state.users[content]++
	return h.same(content, ref, err)
}

// pieces writes a content in pieces of random sizes.
func (h *history) pieces(w interface{ Write([]byte) (int, error) }, content string) error {
	for len(content) > 0 {
		n := min(len(content), 1+h.rng.IntN(1+h.rng.IntN(64*h.m.o.LeafSize)))
		if _, err := w.Write([]byte(content[:n])); err != nil {
			return err
		}
		content = content[n:]
	}
	return nil
}

func (h *history) write() error {
	content := h.content()
	h.note("write %d bytes", len(content.string))
	w := h.s.Writer()
	if h.rng.IntN(2) == 0 {
		w.Digest(true)
	}
	if err := h.pieces(w, content.string); err != nil {
		return err
	}
	ref, err := w.Commit()
	h.m.state.users[content]++
	return h.same(content, ref, err)
}

func (h *history) abort() error {
	content := h.content()
	h.note("write %d bytes and abort", len(content.string))
	w := h.s.Writer()
	h.m.tree(content)
	h.m.standsOn(content)
	if err := h.pieces(w, content.string); err != nil {
		return err
	}
	if h.rng.IntN(2) == 0 {
		if err := h.s.flush(); err != nil {
			return err
		}
	}
	w.Abort()
	return nil
}

// abandon leaves a writer open.
func (h *history) abandon() error {
	content := h.content()
	h.note("write %d bytes and leave it", len(content.string))
	h.m.tree(content)
	h.m.standsOn(content)
	return h.pieces(h.s.Writer(), content.string)
}

// second uses another Store on the same bucket.
func (h *history) second() error {
	content := h.content()
	h.note("put %d bytes with another Store", len(content.string))
	ref, err := h.other.Put([]byte(content.string))
	if err == nil {
		err = h.other.flush() // or the first would not see it
	}
	h.m.state.users[content]++
	return h.same(content, ref, err)
}

func (h *history) delete() error {
	content := h.content()
	h.note("delete %d bytes", len(content.string))
	users := h.m.state.users[content] // and not leases
	err := h.s.Delete(h.m.tree(content))
	if users == 0 {
		if !errors.Is(err, ErrNotFound) {
			return fmt.Errorf("delete of %d bytes that are not there: %w", len(content.string), err)
		}
		return nil
	}
	h.m.state.users[content]--
	return err
}

func (h *history) retain() error {
	content := h.content()
	h.note("retain %d bytes", len(content.string))
	err := h.s.Retain(h.m.tree(content))
	if !h.held(content) {
		if !errors.Is(err, ErrNotFound) {
			return fmt.Errorf("retain of %d bytes that are not there: %w", len(content.string), err)
		}
		return nil
	}
	h.m.state.users[content]++
	return err
}

// foresee asks what a Collect would remove after some deletions, and compares with what it does.
func (h *history) foresee() error {
	var refs []Ref
	var gone []string
	for range h.rng.IntN(4) {
		if content := h.content(); h.m.state.users[content] > 0 {
			h.note("foresee the delete of %d bytes", len(content.string))
			h.m.state.users[content]--
			refs = append(refs, h.m.tree(content))
		}
	}
	for name := range h.m.state.ingests {
		// One that is open holds what it stands on, whatever is given up of what it has saved.
		if h.rng.IntN(3) == 0 && h.ingests[name] == nil {
			h.note("and of %s", name)
			gone = append(gone, name)
		}
	}
	chunks, bytes, err := h.s.Reclaimable(refs, gone...)
	if err != nil {
		return err
	}
	for _, ref := range refs {
		if err := h.s.Delete(ref); err != nil {
			return err
		}
	}
	for _, name := range gone {
		in := h.ingests[name]
		if in == nil {
			if in, err = h.s.Ingest(name, IngestOptions{}); err != nil {
				return err
			}
		}
		if err := in.Abort(); err != nil {
			return err
		}
	}
	if _, err := h.s.expire(&look{}, time.Now(), 1<<30); err != nil {
		return err
	}
	for _, name := range append(gone, slices.Collect(maps.Keys(h.m.state.ended))...) {
		delete(h.ingests, name)
		delete(h.m.state.ingests, name)
		delete(h.m.state.ended, name)
	}
	h.m.state.expire()
	before, err := h.s.Usage()
	if err != nil {
		return err
	}
	removed, _, err := h.s.Collect(1 << 30)
	if err != nil {
		return err
	}
	after, err := h.s.Usage()
	freed := before.LeafBytes + before.NodeBytes - after.LeafBytes - after.NodeBytes
	if int64(removed) != chunks || freed != bytes {
		return fmt.Errorf("%d bytes in %d chunks were freed, and %d in %d foreseen", freed, removed, bytes, chunks)
	}
	return err
}

// sway has entries of recent moved by the next flush, or the store seem to be of another size: so large that new
// chunks come to recent, or to the large bucket beside it.
func (h *history) sway() error {
	if recent := h.s.fresh(); recent != nil && h.rng.IntN(2) == 0 {
		h.note("much is to be moved")
		return recent.SetSequence(h.rng.Uint64()<<comeBits | 1<<47)
	}
	size := []uint64{0, 300, farChunks, 1 << 40}[h.rng.IntN(4)]
	h.note("a store of %d chunks", size)
	if err := h.s.came(1 << 41); err != nil {
		return err
	}
	return h.s.dead.SetSequence(h.s.index.Sequence()&comeMask - size)
}

// swap goes on with the other Store.
func (h *history) swap() error {
	h.note("the other Store")
	if err := errors.Join(h.s.flush(), h.other.flush()); err != nil {
		return err
	}
	for name, in := range h.ingests {
		if err := in.Save(); err != nil {
			return err
		}
		h.m.state.ingests[name] = h.written[name]
		delete(h.m.state.ended, name)
		delete(h.ingests, name)
	}
	err := h.s.flush()
	h.s, h.other = h.other, h.s
	return err
}

func (h *history) spill() error {
	_, err := h.s.tx.Spill(0)
	h.note("spill")
	return err
}

// mend has a repair look for what is wrong in the middle of the transaction.
func (h *history) mend() error {
	h.note("repair")
	if err := h.other.flush(); err != nil {
		return err
	}
	if h.other.open != nil {
		if _, err := h.s.Check(context.Background(), CheckOptions{Repair: true}, nil); !errors.Is(err, ErrUnfinished) {
			return fmt.Errorf("a repair beside the open writer of another Store: %w", err)
		}
		return nil
	}
	return checkClean(h.s, CheckOptions{Data: true, Repair: true, Roots: h.m.roots(), Memory: 1 << (8 + h.rng.IntN(16))})
}

// held tells whether a chunk is there and not dead: dead nodes that were not collected
// hold their children.
func (h *history) held(content *text) bool {
	if h.m.has(content) {
		return true
	}
	k := h.m.tree(content).key()
	e, ok, err := h.s.lookup(&k)
	return err == nil && ok && e.parents > 0
}

func (h *history) collect() error {
	limit := 1 + h.rng.IntN(1+h.rng.IntN(400))
	h.note("collect %d", limit)
	// What has expired goes first, and this one transaction may give back a part of a lease only.
	if _, err := h.s.expire(&look{}, time.Now(), 1<<30); err != nil {
		return err
	}
	for name := range h.m.state.ended {
		delete(h.ingests, name)
	}
	h.m.state.expire()
	removed, _, err := h.s.Collect(limit)
	if removed > limit {
		return fmt.Errorf("%d removed", removed)
	}
	return err
}

func (h *history) lease() error {
	id := fmt.Sprint("lease ", h.rng.IntN(4))
	expires := time.Time{}
	delete(h.m.state.expired, id)
	switch h.rng.IntN(3) {
	case 0:
		expires = time.Unix(1000, 0)
		h.m.state.expired[id] = true
	case 1:
		expires = time.Now().Add(1000 * time.Hour)
	}
	h.note("%s expires %v", id, expires)
	l, err := h.s.Lease(id, expires)
	if err != nil {
		return err
	}
	if h.m.state.leases[id] == nil {
		h.m.state.leases[id] = map[*text]bool{}
	}
	for range h.rng.IntN(4) {
		content := h.content()
		h.note("holds %d bytes", len(content.string))
		there := h.held(content)
		err := l.Add(h.m.tree(content))
		if there != (err == nil) {
			return fmt.Errorf("lease of %d bytes, which are there: %v: %w", len(content.string), there, err)
		}
		if there {
			h.m.state.leases[id][content] = true
		}
	}
	return nil
}

func (h *history) release() error {
	id := fmt.Sprint("lease ", h.rng.IntN(4))
	h.note("release %s", id)
	l, err := h.s.Lease(id, time.Time{})
	if err != nil {
		return err
	}
	delete(h.m.state.leases, id)
	delete(h.m.state.expired, id)
	return l.Release()
}

// ingest begins or goes on with an ingest, and does one thing with it.
func (h *history) ingest() error {
	which := h.rng.IntN(3)
	name := fmt.Sprint("ingest ", which)
	content := h.contents[(which*5+3)%len(h.contents)]
	in := h.ingests[name]
	if in == nil {
		var err error
		if in, err = h.s.Ingest(name, IngestOptions{Lifetime: time.Duration(h.rng.IntN(2)) * 1000 * time.Hour}); err != nil {
			return err
		}
		saved := h.m.state.ingests[name]
		if saved == nil {
			saved = h.m.text("")
		}
		if in.Offset() != int64(len(saved.string)) {
			return fmt.Errorf("%s is at %d, not %d", name, in.Offset(), len(saved.string))
		}
		h.ingests[name], h.written[name], h.m.state.ingests[name] = in, saved, saved
	}
	switch n := h.rng.IntN(20); {
	case n < 14:
		done := len(h.written[name].string)
		more := h.rng.IntN(1 + h.rng.IntN(len(content.string)-done+1))
		h.note("%s: write %d of %d bytes from %d on", name, more, len(content.string), done)
		if err := h.pieces(in, content.string[done:done+more]); err != nil {
			return err
		}
		h.written[name] = h.m.text(content.string[:done+more])
		h.m.standsOn(h.written[name])
		h.m.tree(h.written[name])
		if h.rng.IntN(2) == 0 {
			h.note("%s: save", name)
			h.m.state.ingests[name] = h.written[name]
			delete(h.m.state.ended, name)
			if err := in.Save(); err != nil || in.state.options.Lifetime == 0 || h.rng.IntN(3) > 0 {
				return err
			}
			h.note("%s: was saved long ago", name)
			h.m.state.ended[name] = true
			return savedAt(in, 1000)
		}
	case n < 18:
		h.note("%s: commit", name)
		if h.rng.IntN(2) == 0 {
			if err := h.pieces(in, content.string[len(h.written[name].string):]); err != nil {
				return err
			}
			h.written[name] = content
		}
		ref, err := in.Commit()
		content = h.written[name]
		h.m.state.users[content]++
		delete(h.ingests, name)
		delete(h.m.state.ingests, name)
		delete(h.m.state.ended, name)
		return h.same(content, ref, err)
	default:
		h.note("%s: abort", name)
		delete(h.ingests, name)
		delete(h.m.state.ingests, name)
		delete(h.m.state.ended, name)
		return in.Abort()
	}
	return nil
}

// savedAt has an ingest saved at another time.
func savedAt(in *Ingest, unix int64) error {
	b, err := in.bucket()
	if err != nil {
		return err
	}
	state, err := in.s.loadIngest([]byte(in.name), b)
	if err != nil {
		return err
	}
	state.saved = unix
	return in.s.putIngest([]byte(in.name), b, &state)
}

func (h *history) read() error {
	content := h.content()
	if !h.m.has(content) {
		return nil
	}
	h.note("read %d bytes", len(content.string))
	r, err := h.s.Reader(h.m.tree(content))
	if err != nil {
		return err
	}
	var got bytes.Buffer
	if _, err := r.WriteTo(&got); err != nil || got.String() != content.string {
		return fmt.Errorf("%d bytes have become %d others: %w", len(content.string), got.Len(), err)
	}
	return nil
}

// check compares the store with the model.
func (h *history) check() error {
	collected := h.collected
	h.collected = false
	return h.db.View(func(tx *holdfast.Tx) error {
		for err := range tx.Check() {
			return err
		}
		s, err := h.store(tx)
		if err != nil {
			return err
		}
		if err := h.m.compare(s, collected); err != nil {
			return err
		}
		if err := checkClean(s, CheckOptions{Data: true, Roots: h.m.roots(), Memory: 1 << (8 + h.rng.IntN(16))}); err != nil {
			return err
		}
		if h.rng.IntN(4) == 0 {
			return h.m.read(s)
		}
		return nil
	})
}

// checkClean is the error of a check, or the problems that it finds.
func checkClean(s *Store, o CheckOptions) error {
	var problems []error
	_, err := s.Check(context.Background(), o, func(p Problem) error {
		problems = append(problems, errors.New(p.String()))
		return nil
	})
	return errors.Join(append(problems, err)...)
}
