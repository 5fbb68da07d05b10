package damage

import (
	"bytes"
	"context"
	"encoding/binary"
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

	"go.etcd.io/bbolt"

	"holdfast"
	"holdfast/internal/page"
	"holdfast/internal/salvage"
)

// saved is a sink that keeps all in memory, by path.
type saved map[string]string

func (s saved) at(p *salvage.Place, key []byte) string {
	return string(bytes.Join(append(p.Path(), key), []byte("/")))
}

func (s saved) Begin(int) error                   { return nil }
func (s saved) Fresh(name string) (string, error) { return name, nil }

func (s saved) Bucket(p *salvage.Place) (bool, error) {
	path := s.at(p, nil)
	if _, ok := s[path]; !ok {
		s[path] = fmt.Sprint("bucket ", p.Sequence)
	}
	return true, nil
}

func (s saved) Put(p *salvage.Place, key, value []byte) (salvage.Outcome, error) {
	path := s.at(p, key)
	if old, ok := s[path]; ok && old != string(value) {
		return salvage.Other, nil
	}
	s[path] = string(value)
	return salvage.Saved, nil
}

// parent is a bucket that buckets are made in.
type parent[B any] interface {
	Bucket(name []byte) B
	CreateBucketIfNotExists(name []byte) (B, error)
	Delete(key []byte) error
	ForEach(fn func(k, v []byte) error) error
	NextSequence() (uint64, error)
	Put(key, value []byte) error
	Sequence() uint64
}

// contentOf is what a transaction sees, as saved keeps it.
func contentOf[T transaction[B], B parent[B]](tx T) saved {
	all := saved{}
	var walk func(at string, b B)
	walk = func(at string, b B) {
		all[at] = fmt.Sprint("bucket ", b.Sequence())
		_ = b.ForEach(func(k, v []byte) error {
			if v == nil {
				walk(at+string(k)+"/", b.Bucket(k))
			} else {
				all[at+string(k)] = string(v)
			}
			return nil
		})
	}
	_ = tx.ForEach(func(name []byte, b B) error {
		walk(string(name)+"/", b)
		return nil
	})
	return all
}

// lifetime is a file and what it held after each of its transactions.
type lifetime struct {
	name   string
	stock  bool
	listed bool // it has a freelist
	data   []byte
	newest int // slot
	states []saved
}

// live has a random history written by an engine.
func live[D database[T], T transaction[B], B parent[B]](db D, l *lifetime, random *rand.Rand) error {
	letters := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte('a' + random.IntN(26))
		}
		return b
	}
	buckets, keys, sizes := 1+random.IntN(6), 20+random.IntN(2000), 10+random.IntN(300)
	deep, inserts := random.IntN(2) == 0, random.IntN(3) > 0
	sequences := random.IntN(3) == 0
	for range 5 + random.IntN(60) {
		err := db.Update(func(tx T) error {
			changes := 1 + random.IntN(3)
			if random.IntN(4) == 0 {
				changes = 1 + random.IntN(300)
			}
			name := fmt.Appendf(nil, "bucket-%d", random.IntN(buckets)) // one: see grow
			inner := fmt.Appendf(nil, "inner-%d", random.IntN(3))
			for range changes {
				b, err := tx.CreateBucketIfNotExists(name)
				if err != nil {
					return err
				}
				if deep && random.IntN(2) == 0 {
					if b, err = b.CreateBucketIfNotExists(inner); err != nil {
						return err
					}
				}
				key := fmt.Appendf(nil, "key-%06d", random.IntN(keys))
				if random.IntN(3) == 0 || !inserts && random.IntN(2) == 0 {
					err = b.Delete(key)
				} else {
					err = b.Put(key, letters(random.IntN(sizes)))
				}
				if err != nil {
					return err
				}
				if sequences {
					if _, err := b.NextSequence(); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		err = db.View(func(tx T) error {
			l.states = append(l.states, contentOf[T, B](tx))
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// makeLifetime makes a file of a kind.
func makeLifetime(t *testing.T, kind int, seed uint64) *lifetime {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 18))
	path := filepath.Join(t.TempDir(), "db")
	l := &lifetime{}
	ps := []int{1024, 4096}[random.IntN(2)]
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	switch kind {
	case 0, 1, 2:
		l.stock = true
		l.name = []string{"bbolt", "bbolt, no freelist", "bbolt, freelist map"}[kind]
		o := &bbolt.Options{PageSize: ps, NoSync: true, NoFreelistSync: kind == 1, FreelistType: bbolt.FreelistArrayType}
		if kind == 2 {
			o.FreelistType = bbolt.FreelistMapType
		}
		db, err := bbolt.Open(path, 0o600, o)
		must(err)
		must(live(db, l, random))
		must(db.Close())
	default:
		l.name = []string{"Holdfast", "Holdfast, no freelist", "Holdfast, vacuumed"}[kind-3]
		db, err := holdfast.Open(path, 0o600, &holdfast.Options{PageSize: ps, NoSync: true, NoFreelistSync: kind == 4})
		must(err)
		must(live(db, l, random))
		if kind == 5 {
			_, err := db.Vacuum(context.Background(), holdfast.VacuumOptions{})
			must(err)
		}
		must(db.Close())
	}
	data, err := os.ReadFile(path)
	must(err)
	l.data = data
	slots := page.DecodeSlots(data[:ps], data[ps:2*ps])
	l.newest, err = slots.Best()
	must(err)
	l.listed = slots.Meta[l.newest].Freelist != page.NoFreelist
	l.name = fmt.Sprintf("%s %d, seed %d", l.name, ps, seed)
	return l
}

const lifetimeKinds = 6

// which tells which state it is that was saved: 0 for the last, 1 for the one before it; -1: none.
func (l *lifetime) which(s saved) int {
	for i := range l.states {
		if maps.Equal(l.states[len(l.states)-1-i], s) {
			return i
		}
	}
	return -1
}

func (l *lifetime) pageSize() int { return int(binary.NativeEndian.Uint32(l.data[24:])) }

// newestState is what which says of a salvage that gives what the file held.
const newestState = 0

const zeroed = "zeroed"

// metaHarms damage nothing but the metas. named: what they say can still be known.
var metaHarms = []struct {
	name   string
	named  bool
	change func(meta []byte, random *rand.Rand)
}{
	{"root's sequence", true, func(m []byte, r *rand.Rand) { scribble(m[40:48], r) }},
	{"root", true, func(m []byte, r *rand.Rand) { scribble(m[32:40], r) }},
	{"checksum", true, func(m []byte, r *rand.Rand) { scribble(m[72:80], r) }},
	{"magic and version", true, func(m []byte, r *rand.Rand) { scribble(m[16:24], r) }},
	{"high-water mark", true, func(m []byte, r *rand.Rand) { scribble(m[56:64], r) }},
	{"freelist", true, func(m []byte, r *rand.Rand) { scribble(m[48:56], r) }},
	{zeroed, false, func(m []byte, _ *rand.Rand) { clear(m) }},
	{"garbage", false, scribble},
}

// scribble makes each byte another one.
func scribble(b []byte, random *rand.Rand) {
	for i := range b {
		b[i] ^= byte(1 + random.IntN(255))
	}
}

// TestSalvageWithoutMetas: with 8 bytes of both metas overwritten, or both zeroed, salvage took
// an old root for that of the database: deleted keys were back, keys of now out of
// place, and thousands of buckets in lost+found, though all pages were there.
//
//	HOLDFAST_LIFETIMES=n  n files of each kind; the log then tells which state was found
//	                      how often where nothing is left of the metas
func TestSalvageWithoutMetas(t *testing.T) {
	files := uint64(6)
	if n, err := strconv.ParseUint(os.Getenv("HOLDFAST_LIFETIMES"), 10, 32); err == nil {
		files = n
	}
	for kind := range lifetimeKinds {
		found := make(map[int]int)
		for seed := range files {
			l := makeLifetime(t, kind, seed)
			for i, h := range metaHarms {
				random := rand.New(rand.NewPCG(seed, uint64(i)))
				for _, slots := range [][]int{{0, 1}, {l.newest}} {
					data := bytes.Clone(l.data)
					for _, slot := range slots {
						h.change(data[slot*l.pageSize():][:l.pageSize()], random)
					}
					state := l.verifyMetas(t, data, fmt.Sprintf("%s of metas %d", h.name, slots), h.named, len(slots) == 1)
					if h.name == zeroed && len(slots) == 2 {
						found[state]++
					}
				}
			}
		}
		t.Logf("kind %d, both metas zeroed: found by age of the state: %v", kind, found)
	}
}

// verifyMetas salvages data, which is damaged in its metas: one, or both. It tells the state that was
// saved, as which does.
func (l *lifetime) verifyMetas(t *testing.T, data []byte, harm string, named, one bool) int {
	t.Helper()
	s := saved{}
	r, err := salvage.Run(t.Context(), bytes.NewReader(data), int64(len(data)), s, salvage.Options{})
	if err != nil {
		t.Fatal(l.name, harm, err)
	}
	found := l.which(s)
	switch {
	case found == newestState:
	case !named && found > newestState && (l.stock || one): // two states in a row cannot always be told apart
	case !named && !l.listed: // nor can states that are mixed, without a freelist
	default:
		t.Errorf("%s, %s: state %d was saved: %+v", l.name, harm, found, r)
	}
	if named && (r.FoundIn != "" || r.Root == 0) {
		t.Errorf("%s, %s: %+v", l.name, harm, r)
	}
	return found
}

// TestSalvageDamagedToo: beside the metas a page is gone. What is saved in its place is that of
// one state.
func TestSalvageDamagedToo(t *testing.T) {
	for _, kind := range []int{0, 3, 5} {
		for seed := range uint64(6) {
			l := makeLifetime(t, kind, seed)
			random := rand.New(rand.NewPCG(seed, 1))
			for range 5 {
				data := bytes.Clone(l.data)
				ps := l.pageSize()
				clear(data[:2*ps])
				id := 2 + random.IntN(len(data)/ps-2)
				clear(data[id*ps:][:ps])
				s := saved{}
				if _, err := salvage.Run(t.Context(), bytes.NewReader(data), int64(len(data)), s, salvage.Options{}); err != nil {
					t.Fatal(l.name, err)
				}
				if !l.within(s) {
					t.Errorf("%s, metas and page %d zeroed: what was saved is of no one state", l.name, id)
				}
			}
		}
	}
}

// TestSalvageRoots: the root of the database is among those that are listed, and salvage takes
// the one that it is given.
func TestSalvageRoots(t *testing.T) {
	for kind := range lifetimeKinds {
		l := makeLifetime(t, kind, 1)
		data := bytes.Clone(l.data)
		clear(data[:2*l.pageSize()])
		list, _, err := salvage.List(t.Context(), bytes.NewReader(data), int64(len(data)), salvage.Options{})
		if err != nil || len(list) == 0 || !list[0].Chosen {
			t.Fatalf("%s: %v, %v", l.name, list, err)
		}
		newest := false
		for _, c := range list {
			s := saved{}
			r, err := salvage.Run(t.Context(), bytes.NewReader(data), int64(len(data)), s, salvage.Options{Root: c.Root})
			if err != nil || r.Root != c.Root || len(r.Doubts) == 0 {
				t.Errorf("%s: root %d: %v, %+v", l.name, c.Root, err, r)
			}
			if newest = newest || l.which(s) == newestState; c.Sound() && r.FoundIn == "" && uint64(len(s)) != c.Keys+c.Buckets {
				t.Errorf("%s: root %d: %d keys and buckets saved, listed were %d and %d", l.name, c.Root, len(s), c.Keys, c.Buckets)
			}
		}
		if !newest {
			t.Errorf("%s: the newest state is not listed: %+v", l.name, list)
		}
		whole, _, err := salvage.List(t.Context(), bytes.NewReader(l.data), int64(len(l.data)), salvage.Options{})
		if err != nil || whole[0].Slot < 0 || !whole[0].Chosen || !whole[0].Sound() || whole[0].Unsure {
			t.Errorf("%s: of the sound file %+v, %v", l.name, whole, err)
		}
	}
	l := makeLifetime(t, 0, 1)
	_, err := salvage.Run(t.Context(), bytes.NewReader(l.data), int64(len(l.data)), saved{}, salvage.Options{Root: 1 << 40})
	if !errors.Is(err, salvage.ErrRoot) {
		t.Errorf("a root beyond the end: %v", err)
	}
}

// within tells whether what is in its place in s is a part of one state.
func (l *lifetime) within(s saved) bool {
	for _, state := range l.states {
		fits := true
		for path, value := range s {
			fits = fits && (strings.HasPrefix(path, "lost+found/") || state[path] == value)
		}
		if fits {
			return true
		}
	}
	return false
}

// TestSalvageOfANewestMeta: a bit was flipped in the newest meta page of a file that was not closed. Salvage saved the
// state before and said that nothing is lost, if the bit was in the word that begins what Holdfast keeps there.
func TestSalvageOfANewestMeta(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	db, err := holdfast.Open(path, 0o600, &holdfast.Options{PageSize: 4096, SettleDelay: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	const commits = 10
	for i := range commits {
		err := db.Update(func(tx *holdfast.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte("b"))
			return errors.Join(err, b.Put(fmt.Appendf(nil, "k%d", i), []byte("v")))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	swapped := slices.Concat(whole[4096:8192], whole[:4096], whole[8192:])
	r, err := salvage.Run(t.Context(), bytes.NewReader(swapped), int64(len(swapped)), saved{}, salvage.Options{})
	if err != nil || len(r.Doubts) == 0 {
		t.Errorf("the meta pages are swapped: %v, %+v", err, r)
	}
	lost := 0
	for slot := range 2 {
		for at := 16; at < 400; at++ {
			data := bytes.Clone(whole)
			data[slot*4096+at] ^= 1 << (at % 8)
			s := saved{}
			r, err := salvage.Run(t.Context(), bytes.NewReader(data), int64(len(data)), s, salvage.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if len(s) == commits+1 {
				continue
			}
			if lost++; len(r.Doubts) == 0 {
				t.Errorf("meta page %d, byte %d: %d of %d keys are saved, and nothing is said to be lost: %+v", slot, at, len(s)-1, commits, r)
			}
		}
	}
	if lost < 50 {
		t.Errorf("%d of the bits lose a commit: the test tests little", lost)
	}
}
