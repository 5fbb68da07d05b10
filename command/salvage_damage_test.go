package command_test

import (
	"bytes"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"holdfast"
	"holdfast/internal/page"
)

// salvageFile is a file that the tests damage.
type salvageFile struct {
	name     string
	pageSize int
	options  holdfast.Options
	open     bool // as it is while a program uses it
	noFree   bool // nothing tells which pages are free
}

var salvageFiles = []salvageFile{
	{"512", 512, holdfast.Options{}, false, false},
	{"1024", 1024, holdfast.Options{}, false, false},
	{"4096", 4096, holdfast.Options{}, false, false},
	{"65536", 65536, holdfast.Options{}, false, false},
	{"in use", 1024, holdfast.Options{SettleDelay: -1}, true, false},
	{"strict", 1024, holdfast.Options{StrictCompat: true}, false, false},
	{"without freelist", 1024, holdfast.Options{NoFreelistSync: true}, false, false},
	{"without seals", 1024, holdfast.Options{NoSeals: true}, false, false},
	{"nothing known", 1024, holdfast.Options{NoFreelistSync: true, StrictCompat: true}, false, true},
}

// make makes the file: nested and inline buckets, long values, sequences, trees of
// three levels, pages that were freed.
func (f salvageFile) make(t testing.TB) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	options := f.options
	options.PageSize = f.pageSize
	smallPages(t, path, f.pageSize)
	db, err := holdfast.Open(path, 0o600, &options)
	if err != nil {
		t.Fatal(err)
	}
	db.AllocSize = 1 // as short as can be
	random := rand.New(rand.NewPCG(7, uint64(f.pageSize)))
	filler := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte('a' + random.IntN(26))
		}
		return b
	}
	small := max(f.pageSize/24, 30)
	for round := range 3 {
		err := db.Update(func(tx *holdfast.Tx) error {
			put := func(b *holdfast.Bucket, prefix string, n, size int) {
				for i := range n {
					if random.IntN(3) >= round { // later rounds change some
						must0(t, b.Put(fmt.Appendf(nil, "%s-%05d", prefix, i), filler(size)))
					}
				}
			}
			deep := bucketAt(t, tx, "deep")
			put(deep, "d", 700, small)
			must0(t, deep.SetSequence(uint64(round)+5))
			nested := bucketAt(t, tx, "nest")
			put(nested, "n", 60, small)
			for i := range 4 {
				put(bucketAt(t, tx, "nest", fmt.Sprintf("m-sub-%d", i)), fmt.Sprintf("s%d", i), 30, small)
				put(bucketAt(t, tx, "nest", "inline"), "i", 2, 5)
			}
			put(bucketAt(t, tx, "long"), "l", 5, 3*f.pageSize+100)
			put(bucketAt(t, tx, "plain"), "p", 40, small)
			return bucketAt(t, tx, "empty").SetSequence(3)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if !f.open {
		must0(t, db.Close())
	}
	data, err := os.ReadFile(path)
	must0(t, err)
	if f.open {
		must0(t, db.Close())
	}
	if f.noFree {
		for slot := range 2 {
			clear(data[slot*f.pageSize+page.ExtensionOffset : (slot+1)*f.pageSize])
		}
	}
	return data
}

func must0(t testing.TB, err error) {
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
}

func bucketAt(t testing.TB, tx *holdfast.Tx, names ...string) *holdfast.Bucket {
	b, err := tx.CreateBucketIfNotExists([]byte(names[0]))
	must0(t, err)
	for _, name := range names[1:] {
		b, err = b.CreateBucketIfNotExists([]byte(name))
		must0(t, err)
	}
	return b
}

// harm is a kind of damage: it changes page id of data, may shorten it, and tells which
// pages it has damaged.
type harm struct {
	name string
	do   func(data []byte, ps int, id page.ID, random *rand.Rand) ([]byte, []page.ID)
}

func at(data []byte, ps int, id page.ID) []byte { return data[int(id)*ps : (int(id)+1)*ps] }

const (
	swapped    = "swapped"
	copiedOver = "copied over"
)

var harms = []harm{
	{"zeroed", func(data []byte, ps int, id page.ID, _ *rand.Rand) ([]byte, []page.ID) {
		clear(at(data, ps, id))
		return data, []page.ID{id}
	}},
	{"garbage", func(data []byte, ps int, id page.ID, random *rand.Rand) ([]byte, []page.ID) {
		p := at(data, ps, id)
		for i := range p {
			p[i] = byte(random.Uint32())
		}
		return data, []page.ID{id}
	}},
	{"bit", func(data []byte, ps int, id page.ID, random *rand.Rand) ([]byte, []page.ID) {
		at(data, ps, id)[random.IntN(ps)] ^= 1 << random.IntN(8)
		return data, []page.ID{id}
	}},
	{"header", func(data []byte, ps int, id page.ID, random *rand.Rand) ([]byte, []page.ID) {
		for i := range page.HeaderSize {
			at(data, ps, id)[i] = byte(random.Uint32())
		}
		return data, []page.ID{id}
	}},
	{swapped, func(data []byte, ps int, id page.ID, random *rand.Rand) ([]byte, []page.ID) {
		other := (id + 1 + page.ID(random.IntN(len(data)/ps-1))) % page.ID(len(data)/ps)
		a, b := at(data, ps, id), at(data, ps, other)
		tmp := bytes.Clone(a)
		copy(a, b)
		copy(b, tmp)
		return data, []page.ID{id, other}
	}},
	{copiedOver, func(data []byte, ps int, id page.ID, random *rand.Rand) ([]byte, []page.ID) {
		other := (id + 1 + page.ID(random.IntN(len(data)/ps-1))) % page.ID(len(data)/ps)
		copy(at(data, ps, id), at(data, ps, other))
		return data, []page.ID{id}
	}},
	{"cut off", func(data []byte, ps int, id page.ID, _ *rand.Rand) ([]byte, []page.ID) {
		var gone []page.ID
		for p := id; int(p) < len(data)/ps; p++ {
			gone = append(gone, p)
		}
		return data[:int(id)*ps], gone
	}},
}

// verifyDamaged salvages a damaged file and says what is wrong with the result.
func (f salvageFile) verifyDamaged(whole, data []byte, damaged []page.ID, harm string) []string {
	s, err := salvageBytes(data, false)
	if err != nil {
		if len(data) < 3*f.pageSize { // nothing is left
			return nil
		}
		return []string{err.Error()}
	}
	if s.PageSize != int64(f.pageSize) {
		return []string{fmt.Sprintf("page size %d", s.PageSize)}
	}
	set := make(map[page.ID]bool)
	for _, id := range damaged {
		set[id] = true
	}
	if s.Root == 0 {
		return nil
	}
	want := oracleOf(whole, f.pageSize, s.Root)
	s.replaced = harm == swapped || harm == copiedOver
	lone := harm != "cut off" && harm != swapped && !f.noFree
	return s.verify(want, set, !f.options.NoSeals && !f.hidesSeal(whole, data, damaged), lone)
}

// hidesSeal tells whether the damage of one page has made it one without a seal: one changed bit can do that in the length of
// the last element (see hasSealRoom in internal/page). What happened: the test failed when pages lay elsewhere, and the bit met that length.
func (f salvageFile) hidesSeal(whole, data []byte, damaged []page.ID) bool {
	if len(damaged) != 1 || len(data) != len(whole) {
		return false
	}
	from := int(damaged[0]) * f.pageSize
	to := from + f.pageSize
	changed := 0
	for i := from; i < to; i++ {
		changed += bits.OnesCount8(whole[i] ^ data[i])
	}
	return changed == 1 && page.CheckSeal(whole[from:to], damaged[0]) == page.Sealed && page.CheckSeal(data[from:to], damaged[0]) == page.Unsealed
}

// TestSalvageEachPage damages each page of each file in each way.
func TestSalvageEachPage(t *testing.T) {
	for _, f := range salvageFiles {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			whole := f.make(t)
			s, err := salvageBytes(whole, false)
			must0(t, err)
			want := oracleOf(whole, f.pageSize, s.Root)
			if !s.Sound() || len(s.held) != len(want) || len(s.found) > 0 || len(want) < 800 {
				t.Fatalf("of a sound file %d of %d are saved: %+v", len(s.held), len(want), s.Report)
			}
			for _, fault := range s.verify(want, nil, true, true) {
				t.Fatal(fault)
			}
			random := rand.New(rand.NewPCG(1, 2))
			for _, h := range harms {
				for id := range page.ID(len(whole) / f.pageSize) {
					if h.name == "cut off" && id%7 != 0 || f.pageSize > 4096 && id%5 != 0 {
						continue
					}
					data, damaged := h.do(bytes.Clone(whole), f.pageSize, id, random)
					for _, fault := range f.verifyDamaged(whole, data, damaged, h.name) {
						t.Errorf("page %d %s: %s", id, h.name, fault)
					}
				}
				if t.Failed() {
					return
				}
			}
		})
	}
}

// TestSalvageRandom damages several pages at once.
func TestSalvageRandom(t *testing.T) {
	for i, f := range salvageFiles {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			whole := f.make(t)
			for seed := range uint64(60_000 / f.pageSize) {
				random := rand.New(rand.NewPCG(seed, uint64(i)))
				data, damaged, done := bytes.Clone(whole), []page.ID(nil), ""
				for range 2 + random.IntN(6) {
					h := harms[random.IntN(len(harms)-1)] // not cut off
					id := page.ID(random.IntN(len(data) / f.pageSize))
					var more []page.ID
					data, more = h.do(data, f.pageSize, id, random)
					damaged, done = append(damaged, more...), fmt.Sprint(done, " ", id, " ", h.name)
				}
				for _, fault := range f.verifyDamaged(whole, data, damaged, swapped) {
					t.Errorf("seed %d,%s: %s", seed, done, fault)
				}
			}
		})
	}
}

// FuzzSalvage changes any bytes of a file: salvage ends, whatever they are.
func FuzzSalvage(f *testing.F) {
	whole := salvageFiles[0].make(f)
	f.Add(uint32(0), []byte("x"), true)
	f.Add(uint32(16), make([]byte, 600), false)
	f.Fuzz(func(t *testing.T, offset uint32, change []byte, all bool) {
		data := bytes.Clone(whole)
		copy(data[int(offset)%len(data):], change)
		if s, err := salvageBytes(data, all); err == nil && s.Keys > 5000 {
			t.Errorf("%d keys saved", s.Keys)
		}
		if len(change) > 32 { // as a file of its own
			_, _ = salvageBytes(change, all)
		}
	})
}
