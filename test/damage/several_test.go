package damage

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdfast"
	"holdfast/internal/page"
)

// planter puts damages into a file, each on a leaf of its own, and remembers
// what a check has to say of them.
type planter struct {
	s      *sample
	data   []byte
	lost   page.ID   // no branch names it any more
	leaves []page.ID // not used yet, none of them the last of its tree
	want   []string
}

// newPlanter begins with a sound file. Every second leaf of bucket "keys" is
// left as it is, so that damages do not touch each other.
func newPlanter(s *sample) *planter {
	p := &planter{s: s, data: clone(s.data)}
	for _, id := range s.heads {
		pg, err := s.image.Page(id)
		if err != nil || !pg.IsLeaf() || pg.Count() < 4 {
			continue
		}
		first, err := pg.Leaf(0)
		last, err2 := pg.Key(pg.Count() - 1)
		if err == nil && err2 == nil && strings.HasPrefix(string(first.Value), "the value") && string(last) < string(sampleKey(2900)) {
			p.leaves = append(p.leaves, id)
		}
	}
	for i := range p.leaves {
		if 2*i < len(p.leaves) {
			p.leaves[i] = p.leaves[2*i]
		}
	}
	p.leaves = p.leaves[:len(p.leaves)/2]
	return p
}

// leaf takes a leaf and says what a check has to report of it.
func (p *planter) leaf(want string) page.ID {
	id := p.leaves[0]
	p.leaves = p.leaves[1:]
	p.expect(id, want)
	return id
}

func (p *planter) expect(id page.ID, want string) {
	p.want = append(p.want, fmt.Sprintf("page %d: %s", id, want))
}

// header and element set a field of a page's header, and of its element i.
func (p *planter) header(id page.ID, part int, v uint64) {
	set(p.data[p.s.at(id)+headerParts[part].off:], headerParts[part].size, v)
}

func (p *planter) element(id page.ID, i, off int, v uint64) {
	set(p.data[p.elementAt(id, i)+off:], 4, v)
}

func (p *planter) elementAt(id page.ID, i int) int {
	return p.s.at(id) + page.HeaderSize + i*page.LeafElementSize
}

// key changes the first byte of a key.
func (p *planter) key(id page.ID, i int, first byte) {
	at := p.elementAt(id, i)
	p.data[at+int(p.s.get(at+4, 4))] = first
}

func (p *planter) count(id page.ID) int { return int(p.s.get(p.s.at(id)+10, 2)) }

// plant damages one file in every way that a check can tell apart.
func (p *planter) plant() {
	p.header(p.leaf("the page says that it is page 7777"), 0, 7777)
	p.header(p.leaf("has unexpected type/flags: 3 "), 1, 3)
	p.header(p.leaf("60000 elements do not fit"), 2, 60000)
	p.element(p.leaf("element 2 of"), 2, 4, 1<<31)
	p.element(p.leaf("element 3 has unknown flags 0x80"), 3, 0, 0x80)
	p.element(p.leaf("element 1 has an empty key"), 1, 8, 0)
	p.element(p.leaf(""), 2, 0, uint64(page.BucketFlag)) // and the page that the value's text is
	p.want[len(p.want)-1] = "not a page of this database"
	p.key(p.leaf(`key "Aey`), 2, 'A')
	p.key(p.leaf(`key "Bey`), 0, 'B')
	id := p.leaf(`key "zey`)
	p.key(id, p.count(id)-1, 'z')

	// A branch that names a page twice, and so one page not at all.
	last := p.s.fields[branchChild][len(p.s.fields[branchChild])-1]
	twice := page.ID(p.s.get(last.at-page.BranchElementSize, 8))
	p.expect(twice, "the page is used twice")
	p.lost = page.ID(p.s.get(last.at, 8))
	p.expect(p.lost, "unreachable unfreed")
	set(p.data[last.at:], 8, uint64(twice))

	inline := p.s.fields[inlineField]
	set(p.data[inline[len(inline)-1].at:], 4, 1<<30)
	p.expect(inline[len(inline)-1].page, "element ")
}

// free leaves one page out of the freelist and puts one in that is in use.
func (p *planter) free() {
	numbers := p.s.fields[listNumber]
	for i, f := range numbers {
		id := page.ID(p.s.get(f.at, 8))
		next := p.s.meta.HighWater
		if i+1 < len(numbers) {
			next = page.ID(p.s.get(numbers[i+1].at, 8))
		}
		if slices.Contains(p.s.heads, id+1) && id+1 < next && id+1 != p.lost {
			set(p.data[f.at:], 8, uint64(id+1))
			if bytes.Contains(p.data[:p.s.at(2)], []byte("HOLDFAST")) { // it is not the freelist page that is believed
				p.expect(id, "the page is free, but the freelist page")
				p.expect(id+1, "the page is not free, but the freelist page")
			} else {
				p.expect(id, "unreachable unfreed")
				p.expect(id+1, "reachable freed")
			}
			return
		}
	}
	panic("no free page lies before one in use")
}

// Several damages in one file are all reported, each with its page.
func TestSeveralDamages(t *testing.T) {
	for i, k := range kinds[:firstBig] {
		if k.pageSize > 4096 {
			continue // too few leaves
		}
		if k.trailing {
			continue // the state before the last is opened, where other pages are in use
		}
		t.Run(k.String(), func(t *testing.T) {
			s, err := samples[i]()
			if err != nil {
				t.Fatal(err)
			}
			p := newPlanter(s)
			p.plant()
			if k.synced {
				p.free()
			}
			faults := checkFile(t, p.data)
			for _, want := range p.want {
				if !slices.ContainsFunc(faults, func(f string) bool { return strings.Contains(f, want) }) {
					if k.synced || !strings.Contains(want, "unreachable") { // it is not known what is free
						t.Errorf("%q is not reported", want)
					}
				}
			}
			if t.Failed() {
				t.Logf("reported:\n%s", strings.Join(faults, "\n"))
			}
		})
	}
}

// asText writes keys as they are.
type asText struct{}

func (asText) KeyToString(k []byte) string   { return fmt.Sprintf("%q", k) }
func (asText) ValueToString(v []byte) string { return fmt.Sprintf("%q", v) }

// checkFile gives all faults of a file that is opened for reading.
func checkFile(t *testing.T, data []byte) (all []string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := holdfast.Open(path, 0o600, &holdfast.Options{ReadOnly: true, OnDamage: holdfast.DamageIsError})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.View(func(tx *holdfast.Tx) error {
		for fault := range tx.Check(holdfast.WithKVStringer(asText{})) {
			all = append(all, fault.Error())
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}
