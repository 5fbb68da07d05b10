package blob

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"holdfast"
)

// The entry of a leaf stood under a key with one bit flipped. A repair found that nothing names that key
// and that the bytes are not its own: it deleted them with Discard, and Collect did without. They were the
// only sound copy of the leaf. They become those of the leaf again, of a node too, and under a key of
// another level.
func TestRepairOfWrongKey(t *testing.T) {
	wrong := map[string]func(k chunkKey) chunkKey{
		"bit":   func(k chunkKey) chunkKey { k.addr[7] ^= 4; return k },
		"level": func(k chunkKey) chunkKey { k.level++; return k },
	}
	for name, spoil := range wrong {
		for _, o := range []CheckOptions{{}, {Data: true}, {Discard: true}, {Data: true, Discard: true}} {
			for which := range 12 {
				db := newStore(t, Options{LeafSize: MinLeafSize, Compression: Compression(which % 2)})
				must(t, db.Update(func(tx *holdfast.Tx) error {
					d := someStore(t, openIn(tx), inEither)
					k := d.wrongKeyed(which / 2)
					e := d.entry(k)
					d.unlink(k)
					bad := spoil(k)
					must(t, d.putEntry(&bad, &e))
					o.Repair, o.Roots, o.Memory = true, d.roots(), 3000
					_, mended := problems(t, reopened(t, tx), o)
					d.Store = reopened(t, tx)
					for more := true; more; {
						_, again, err := d.Collect(1 << 20)
						must(t, err)
						more = again
					}
					if err := checkClean(reopened(t, tx), CheckOptions{Data: true, Roots: d.roots()}); err != nil {
						t.Errorf("%s of %d, %+v: %v\nthe repair:\n%s", name, which, o, err, mended)
					}
					if n := len(readable(d)); n != len(d.refs) {
						t.Errorf("%s of %d, %+v: %d of %d blobs can be read", name, which, o, n, len(d.refs))
					}
					return nil
				}))
			}
		}
	}
}

// wrongKeyed are chunks of all kinds: a leaf, one in a pack, nodes, the root, one that is put, one of an ingest.
func (d *damaged) wrongKeyed(which int) chunkKey {
	k := d.tree.key()
	root := value(d.t, must2(d.loadNode(&k)), nil)
	low, _ := root.child(0)
	return []chunkKey{d.child(5), d.short.key(), low, k, d.refs[2].key(), {addr: d.options.sum(random(5, MinLeafSize))}}[which]
}

// wreckages are what happens to a store in a random history; each changes one thing.
var wreckages = []struct {
	name string
	do   func(h *wreck)
}{
	{"key of an entry", func(h *wreck) {
		k := h.anyChunk()
		e := h.entry(k)
		h.unlink(k)
		k.addr[h.rng.IntN(32)] ^= 1 << h.rng.IntN(8)
		must(h.t, h.putEntry(&k, &e))
	}},
	{"level of an entry", func(h *wreck) {
		k := h.anyChunk()
		e := h.entry(k)
		other := k
		if other.level = uint8(h.rng.IntN(3)); other == k {
			return
		}
		h.unlink(k)
		must(h.t, h.putEntry(&other, &e))
	}},
	{"entry gone", func(h *wreck) { h.unlink(h.anyChunk()) }},
	{"entry lost", func(h *wreck) { h.change(h.anyChunk(), func(e *entry) { e.id = 0 }) }},
	{"id of an entry", func(h *wreck) {
		id := uint64(1 + h.rng.IntN(200))
		h.change(h.anyChunk(), func(e *entry) { e.id = id })
	}},
	{"bucket of an entry", func(h *wreck) { h.change(h.anyChunk(), func(e *entry) { e.packed = !e.packed }) }},
	{"two entries swapped", func(h *wreck) {
		a, b := h.anyChunk(), h.anyChunk()
		ea, eb := h.entry(a), h.entry(b)
		h.change(a, func(e *entry) { e.id, e.packed, e.length, e.stored = eb.id, eb.packed, eb.length, eb.stored })
		h.change(b, func(e *entry) { e.id, e.packed, e.length, e.stored = ea.id, ea.packed, ea.length, ea.stored })
	}},
	{"length of an entry", func(h *wreck) { h.change(h.anyChunk(), func(e *entry) { e.length = h.rng.IntN(2000) }) }},
	{"length as compressed", func(h *wreck) { h.change(h.anyChunk(), func(e *entry) { e.stored = h.rng.IntN(1000) }) }},
	{"counts of an entry", func(h *wreck) {
		h.change(h.anyChunk(), func(e *entry) { e.parents, e.users, e.leased = h.rng.Uint64N(3), h.rng.Uint64N(2), 0 })
	}},
	{"mark", func(h *wreck) { must(h.t, setMark(h.damaged, h.anyChunk(), h.rng.IntN(2) == 0)) }},
	{"bytes gone", func(h *wreck) {
		if b, id := h.anyBytes(); b != nil {
			must(h.t, b.Delete(id))
		}
	}},
	{"bytes wrong", func(h *wreck) {
		if b, id := h.anyBytes(); b != nil {
			must(h.t, b.Put(id, flip(bytes.Clone(b.Get(id)))))
		}
	}},
	{"bytes elsewhere", func(h *wreck) {
		if b, id := h.anyBytes(); b != nil {
			p := bytes.Clone(b.Get(id))
			must(h.t, b.Delete(id))
			must(h.t, b.Put(h.nextID(b, id), p))
		}
	}},
	{"bytes twice", func(h *wreck) {
		if b, id := h.anyBytes(); b != nil {
			must(h.t, b.Put(h.nextID(b, id), bytes.Clone(b.Get(id))))
		}
	}},
}

// wreck is a store that is being damaged.
type wreck struct {
	*damaged
	rng      *rand.Rand
	contents map[int][]byte     // of the blobs, by their index in refs
	before   map[Address][]byte // all bytes
	log      []string
}

func (h *wreck) anyChunk() chunkKey {
	var all []chunkKey
	for key, v := range h.indexAll() {
		if _, err := parseEntry(v); err == nil {
			all = append(all, parseKey2(key))
		}
	}
	return all[h.rng.IntN(len(all))]
}

func (h *wreck) anyBytes() (*holdfast.Bucket, []byte) {
	b, id := h.bytesOf(h.anyChunk())
	if b.Get(id) == nil {
		return nil, nil
	}
	return b, id
}

// nextID is an id of a bucket that is not in use, for the bytes that have the id.
func (h *wreck) nextID(b *holdfast.Bucket, id []byte) []byte {
	next, err := h.takeID(b == h.packs, h.isFrame(b == h.packs, binary.BigEndian.Uint64(id)))
	must(h.t, err)
	return binary.BigEndian.AppendUint64(nil, next)
}

// stored are the chunks whose bytes are somewhere in the store, whatever the index says.
func (h *wreck) stored() map[Address][]byte {
	all := map[Address][]byte{}
	for _, b := range []*holdfast.Bucket{h.leaves, h.packs} {
		for id, v := range b.All() {
			if p, ok := h.contentAt(spot{b == h.packs, binary.BigEndian.Uint64(id)}, v, nil); ok {
				all[h.options.sum(p)] = p
			}
		}
	}
	return all
}

// whole tells whether all of a blob is there.
func (h *wreck) whole(all map[Address][]byte, k chunkKey) bool {
	p, ok := all[k.addr]
	if !ok || k.level == 0 {
		return ok
	}
	n, err := parseNode(p, k.level, h.options.shape())
	if err != nil {
		return false
	}
	for i := range n.count() {
		if child, _ := n.child(i); !h.whole(all, child) {
			return false
		}
	}
	return true
}

// newWreck fills a store and damages it.
func newWreck(t testing.TB, tx *holdfast.Tx, rng *rand.Rand) *wreck {
	h := &wreck{damaged: someStore(t, openIn(tx), placings[rng.IntN(len(placings))]), rng: rng, contents: map[int][]byte{}}
	for i, ref := range h.refs {
		var content bytes.Buffer
		_, err := must2(h.Reader(ref)).WriteTo(&content)
		must(t, err)
		h.contents[i] = content.Bytes()
	}
	h.before = h.stored()
	for range 1 + rng.IntN(1+rng.IntN(12)) {
		d := wreckages[rng.IntN(len(wreckages))]
		h.log = append(h.log, d.name)
		d.do(h)
	}
	h.Store = reopened(t, tx)
	return h
}

func (h *wreck) repair(o CheckOptions) {
	o.Repair, o.Roots, o.Memory = true, h.roots(), 1<<(8+h.rng.IntN(16))
	_, text := problems(h.t, reopened(h.t, h.tx), o)
	h.log = append(h.log, fmt.Sprintf("repair, data %v, discard %v:\n%s", o.Data, o.Discard, text))
	h.Store = reopened(h.t, h.tx)
}

func (h *wreck) collect() {
	for more := true; more; {
		n, again, _ := h.Collect(1 << 20) // damaged chunks are an error of it
		more = again && n > 0
	}
	h.log = append(h.log, "collect")
	h.Store = reopened(h.t, h.tx)
}

// must fails the test unless each of the blobs can be read.
func (h *wreck) must(what string, possible []int) error {
	for _, i := range possible {
		if err := reads(reopened(h.t, h.tx), h.refs[i], h.contents[i]); err != nil {
			return fmt.Errorf("%s: blob %d, %v: %w\n%s", what, i, h.refs[i], err, strings.Join(h.log, "\n"))
		}
	}
	return nil
}

// run damages a store and mends it: whatever is somewhere in it is read after a repair, and after what it leaves as
// dead has been collected. What is put again is read, with a repair or without.
func (h *wreck) run() error {
	all := h.stored()
	var possible, every []int
	for i, ref := range h.refs {
		every = append(every, i)
		if h.whole(all, ref.key()) {
			possible = append(possible, i)
		}
	}
	if h.rng.IntN(3) > 0 {
		if h.rng.IntN(2) == 0 { // without Data, what is not lacking may be missed, but is not lost
			h.repair(CheckOptions{Discard: h.rng.IntN(2) == 0})
			// A dead entry that was swapped names the bytes of another chunk, which only a repair with Data notices.
			if !slices.Contains(h.log, "two entries swapped") {
				h.collect()
			}
		}
		h.repair(CheckOptions{Data: true, Discard: h.rng.IntN(2) == 0})
		if err := h.must("after a repair", possible); err != nil {
			return err
		}
		h.collect()
		if err := h.must("after a collection", possible); err != nil {
			return err
		}
		whole := true
		for addr := range h.before {
			whole = whole && all[addr] != nil
		}
		if whole {
			if err := checkClean(reopened(h.t, h.tx), CheckOptions{Data: true, Roots: h.roots()}); err != nil {
				return fmt.Errorf("after a repair of what is all there: %w\n%s", err, strings.Join(h.log, "\n"))
			}
		}
	}
	h.VerifyStored(true)
	for i := range h.contents {
		if _, err := h.Put(h.contents[i]); err != nil {
			return fmt.Errorf("put: %w\n%s", err, strings.Join(h.log, "\n"))
		}
	}
	if err := h.flush(); err != nil {
		return fmt.Errorf("put: %w\n%s", err, strings.Join(h.log, "\n"))
	}
	return h.must("after a put", every)
}

// Random damage against an oracle that looks for bytes by their hashes. HOLDFAST_BLOB_SEED=n runs one.
func TestDamageHistories(t *testing.T) {
	var seeds []uint64
	for i := range uint64(60) {
		seeds = append(seeds, i, uint64(time.Now().UnixNano())+i)
	}
	if v, err := strconv.ParseUint(os.Getenv("HOLDFAST_BLOB_SEED"), 10, 64); err == nil {
		seeds = []uint64{v}
	}
	for _, seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 11))
		db := newStore(t, Options{LeafSize: MinLeafSize, Compression: Compression(rng.IntN(2))})
		must(t, db.Update(func(tx *holdfast.Tx) error {
			if err := newWreck(t, tx, rng).run(); err != nil {
				t.Errorf("HOLDFAST_BLOB_SEED=%d: %v", seed, err)
			}
			return nil
		}))
	}
}
