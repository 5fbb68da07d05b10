package command_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"holdfast"
	"holdfast/command"
	"holdfast/internal/page"
)

// surgeryReport is what surgery says as JSON.
type surgeryReport struct {
	File      string   `json:"file"`
	Output    string   `json:"output"`
	Operation string   `json:"operation"`
	Settled   bool     `json:"settled"`
	Changed   bool     `json:"changed"`
	Abandoned bool     `json:"freelist_abandoned"`
	Pages     []uint64 `json:"changed_pages"`
	Done      []string `json:"done"`
	Warnings  []string `json:"warnings"`
}

// operate runs surgery on a file and makes out.db. The file stays as it is.
func operate(t *testing.T, file string, args ...string) (r surgeryReport) {
	t.Helper()
	before := snapshot(t, file)
	all := append([]string{"surgery"}, args...)
	check(t, json.Unmarshal([]byte(must(t, append(all, file, "--output", "out.db", "--force", "--json")...)), &r))
	if after := snapshot(t, file); after != before {
		t.Errorf("%v: the source changed: before\n%s\nafter\n%s", args, before, after)
	}
	if r.File != file || r.Output != "out.db" || r.Done == nil || r.Warnings == nil || r.Pages == nil || !r.Changed {
		t.Errorf("%v: %+v", args, r)
	}
	return r
}

// sound sees that out.db passes a check, that no seal is wrong or missing in it, and
// that commits go on from there.
func sound(t *testing.T) {
	t.Helper()
	var c struct {
		OK    bool     `json:"ok"`
		Notes []string `json:"notes"`
		Seals struct {
			Sealed, Unsealed, Wrong int
		} `json:"seals"`
	}
	check(t, json.Unmarshal([]byte(must(t, "check", "out.db", "--json")), &c))
	if !c.OK || len(c.Notes) != 0 || c.Seals.Wrong+c.Seals.Unsealed != 0 || c.Seals.Sealed == 0 {
		t.Errorf("check: %+v", c)
	}
	before := content(t, "out.db")
	db, err := holdfast.Open("out.db", 0o600, nil)
	check(t, err)
	for range 3 {
		check(t, db.Update(func(tx *holdfast.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte("new bucket"))
			check(t, err)
			return b.Put([]byte("k"), make([]byte, 3000))
		}))
	}
	check(t, db.Update(func(tx *holdfast.Tx) error { return tx.DeleteBucket([]byte("new bucket")) }))
	check(t, db.Close())
	if after := content(t, "out.db"); after != before {
		t.Errorf("after commits: before\n%s\nafter\n%s", before, after)
	}
}

// noExtensions sees that nothing is left behind the metas.
func noExtensions(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	check(t, err)
	for slot := range 2 {
		if ext := data[slot*samplePage:][page.ExtensionOffset:samplePage]; len(bytes.Trim(ext, "\x00")) > 0 {
			t.Errorf("something is left behind meta %d", slot)
		}
	}
}

// makeClosed makes closed.db as makeLeft makes left.db, and closes it.
func makeClosed(t *testing.T) {
	t.Helper()
	makeLeft(t)
	data, err := os.ReadFile("left.db")
	check(t, err)
	check(t, os.WriteFile("closed.db", data, 0o600))
	db, err := holdfast.Open("closed.db", 0o600, nil)
	check(t, err)
	check(t, db.Update(func(tx *holdfast.Tx) error { return tx.Bucket([]byte("b")).Put([]byte("closed"), nil) }))
	check(t, db.Close())
}

// pagesOf lists pages of a type in a file, each with its elements.
func pagesOf(t *testing.T, file, kind string) (ids []uint64, elements map[uint64]int) {
	t.Helper()
	var all []struct {
		Page     uint64
		Elements int
	}
	check(t, json.Unmarshal([]byte(must(t, "pages", file, "--type", kind, "--json")), &all))
	elements = map[uint64]int{}
	for _, p := range all {
		ids = append(ids, p.Page)
		elements[p.Page] = p.Elements
	}
	return ids, elements
}

// Whatever file surgery is given, what it leaves is a sound database, if it was one, of
// which bbolt sees the same as Holdfast.
func TestSurgeryLeavesSoundFiles(t *testing.T) {
	dir := withSample(t)
	makeClosed(t)
	for _, file := range []string{"sample.db", "closed.db", "left.db", "torn.db"} {
		t.Run(file, func(t *testing.T) {
			want := content(t, file)
			settled := file == "left.db" || file == "torn.db"
			r := operate(t, file, "freelist", "abandon")
			if r.Operation != "freelist abandon" || !r.Abandoned || r.Settled != settled || !slices.Equal(r.Pages, []uint64{0, 1}) {
				t.Errorf("%+v", r)
			}
			noExtensions(t, "out.db")
			if got := content(t, "out.db"); got != want {
				t.Errorf("abandon: %s, want %s", got, want)
			}
			sound(t)

			operate(t, file, "freelist", "abandon")
			check(t, os.Rename("out.db", "without.db"))
			if r := operate(t, "without.db", "freelist", "rebuild"); r.Abandoned || r.Operation != "freelist rebuild" {
				t.Errorf("%+v", r)
			}
			wantIn(t, run(t, "info", "out.db"), 0, "for bbolt there is the freelist in page", "")
			if got := content(t, "out.db"); got != want {
				t.Errorf("rebuild: %s, want %s", got, want)
			}
			sound(t)

			for _, kind := range []string{"leaf", "branch"} {
				ids, elements := pagesOf(t, file, kind)
				for _, id := range ids {
					if elements[id] > 0 {
						clearing(t, file, id, elements[id], settled)
					}
				}
			}
		})
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 6 {
		t.Errorf("there are %v %v", entries, err)
	}
}

// clearing clears a page of n elements in all ways.
func clearing(t *testing.T, file string, id uint64, n int, settled bool) {
	t.Helper()
	text := fmt.Sprint(id)
	args := [][]string{
		{"clear-page", "--pageId", text},
		{"clear-page-elements", "--pageId", text, "--from-index", "0", "--to-index", "1"},
		{"clear-page-elements", "--pageId", text, "--from-index", fmt.Sprint(n - 1), "--to-index", "-1"},
		{"clear-page-elements", "--pageId", text, "--from-index", fmt.Sprint(n / 2), "--to-index", fmt.Sprint(n/2 + 1)},
	}
	for i, a := range args {
		r := operate(t, file, a...)
		if !r.Abandoned || r.Settled != settled || r.Pages[0] != id {
			t.Errorf("%+v", r)
		}
		noExtensions(t, "out.db")
		data, err := os.ReadFile("out.db")
		check(t, err)
		h := page.DecodeHeader(data[id*samplePage:])
		if want := []int{0, n - 1, n - 1, n - 1}[i]; int(h.Count) != want {
			t.Errorf("%v: %d elements are left, want %d", a, h.Count, want)
		}
		all := data[id*samplePage:][:(uint64(h.Overflow)+1)*samplePage]
		if state := page.CheckSeal(all, page.ID(id)); state != page.Sealed {
			t.Errorf("%v: seal %v", a, state)
		}
		if found := run(t, "check", "out.db"); (i < 2 || n == 1) && found.code != 0 { // what the branch above says does not fit
			wantIn(t, found, command.ExitDamaged, fmt.Sprintf("page %d: ", id), "")
			want := "with which the branch above names the page"
			if h.Count == 0 {
				want = "leaf without elements below a branch"
			}
			wantIn(t, found, command.ExitDamaged, want, "")
			wantIn(t, found, command.ExitDamaged, "\n1 fault, ", "")
			if len(r.Warnings) != 1 {
				t.Errorf("%v: %+v", a, r)
			}
			must(t, "compact", "out.db", "-o", "compact.db")
			check(t, os.Rename("compact.db", "out.db"))
		}
		sound(t)
	}
}

// The elements that are not cleared stay, in their order, whatever their size.
func TestSurgeryClearsElements(t *testing.T) {
	for _, c := range []struct {
		sizes []int // of values, in a page of 1024 bytes and, maybe, of overflow
		from  int
		to    int
		pages int // that are left
	}{
		{[]int{100, 100, 3000}, 2, 3, 1},
		{[]int{100, 100, 3000}, 2, -1, 1},
		{[]int{3000, 100, 100}, 0, 1, 1},
		{[]int{100, 3000, 100}, 1, 2, 1},
		{[]int{100, 3000, 100}, 0, 1, 4},
		{[]int{100, 3000, 100}, 2, 3, 4},
		{[]int{100, 3000, 100}, 0, 3, 1},
		{[]int{100, 900, 900, 0, 900, 100}, 1, 3, 2},
		{[]int{1024 - 16 - 16 - 1, 5}, 1, 2, 1}, // what is left fills the page: no room for a seal
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			withSample(t)
			withLeaf(t, c.sizes)
			const id = page.ID(30)
			r := operate(t, "sample.db", "clear-page-elements", "--pageId", fmt.Sprint(id), "--from-index", fmt.Sprint(c.from), "--to-index", fmt.Sprint(c.to))
			if (len(r.Warnings) > 0) != (c.from == 0) { // which a branch above may name
				t.Errorf("%+v", r)
			}
			data, err := os.ReadFile("out.db")
			check(t, err)
			left := data[int(id)*samplePage:]
			h := page.DecodeHeader(left)
			left = left[:(int(h.Overflow)+1)*samplePage]
			p, err := page.Parse(left, id)
			check(t, err)
			if _, packed := p.Packed(); !packed || int(p.Pages()) != c.pages {
				t.Errorf("%d pages are left, want %d; packed: %t", p.Pages(), c.pages, packed)
			}
			to := c.to
			if to < 0 {
				to = len(c.sizes)
			}
			var want, got []string
			for i, size := range c.sizes {
				if i < c.from || i >= to {
					want = append(want, fmt.Sprint(i, size))
				}
			}
			for i := range p.Count() {
				e, err := p.Leaf(i)
				check(t, err)
				got = append(got, fmt.Sprint(string(e.Key), " ", len(e.Value)))
			}
			if strings.Join(got, ",") != strings.Join(want, ",") {
				t.Errorf("left are %q, want %q", got, want)
			}
			room := int(p.End()) <= len(left)-page.SealSize
			if state := page.CheckSeal(left, id); (state == page.Sealed) != room || state == page.WrongSeal {
				t.Errorf("seal %v, room for one: %t", state, room)
			}
			must(t, "check", "out.db")
		})
	}
}

// withLeaf makes of sample.db a database with one bucket in page 30, of which the values
// have these sizes under the keys 0, 1, ... The root bucket is page 29.
func withLeaf(t *testing.T, sizes []int) {
	t.Helper()
	size := page.HeaderSize
	for _, n := range sizes {
		size += page.LeafElementSize + 1 + n
	}
	pages := (size + page.SealSize + samplePage - 1) / samplePage
	both := make([]byte, (1+pages)*samplePage)
	header := make([]byte, page.BucketHeaderSize)
	page.EncodeBucket(header, page.Bucket{Root: 30})
	root := page.NewLeaf(both[:samplePage], 29, 1, 0)
	root.Leaf(page.BucketFlag, []byte("b"), header)
	root.Finish(true)
	e := page.NewLeaf(both[samplePage:], 30, len(sizes), uint32(pages-1))
	for i, n := range sizes {
		e.Leaf(0, fmt.Append(nil, i), bytes.Repeat([]byte{byte(i)}, n))
	}
	e.Finish(true)
	damage(t, "sample.db", func(data []byte) []byte {
		m, err := page.DecodeMeta(data)
		check(t, err)
		m.Root, m.Freelist, m.HighWater = 29, page.NoFreelist, page.ID(30+pages)
		page.EncodeMeta(data[:samplePage], 0, m, nil)
		m.Label--
		page.EncodeMeta(data[samplePage:2*samplePage], 1, m, nil)
		return append(data[:29*samplePage:29*samplePage], both...)
	})
	must(t, "check", "sample.db")
}

// A damaged element can be cut out; the others must be sound.
func TestSurgeryCutsOutDamage(t *testing.T) {
	withSample(t)
	damage(t, "sample.db", func(data []byte) []byte {
		at := 23*samplePage + page.HeaderSize + 3*page.LeafElementSize
		copy(data[at+4:], "\xff\xff\xff\x7f") // pos of element 3 of page 23
		return data
	})
	wantIn(t, run(t, "check", "sample.db"), command.ExitDamaged, "page 23", "")
	wantIn(t, run(t, "surgery", "clear-page-elements", "sample.db", "-o", "out.db", "--pageId", "23", "--from-index", "1", "--to-index", "2"),
		command.ExitFailed, "", "sample.db: damaged: page 23: element 3 of 8 lies outside its page")
	wantFiles(t, ".", "sample.db")
	wantIn(t, run(t, "surgery", "freelist", "abandon", "sample.db", "-o", "without.db"), 0, "", "")
	r := run(t, "surgery", "freelist", "rebuild", "without.db", "-o", "out.db")
	wantIn(t, r, command.ExitFailed, "", "without.db: damaged: page 23: its checksum")
	wantFiles(t, ".", "sample.db without.db")
	report := operate(t, "sample.db", "clear-page-elements", "--pageId", "23", "--from-index", "3", "--to-index", "4")
	if len(report.Warnings) != 1 || !strings.Contains(report.Warnings[0], "the checksum of page 23 was wrong") {
		t.Errorf("%+v", report)
	}
	sound(t)
	wantIn(t, run(t, "keys", "sample.db", "many"), command.ExitFailed, "", "page 23")
	if keys := must(t, "keys", "out.db", "many"); strings.Count(keys, "\n") != 29 {
		t.Errorf("left are the keys\n%s", keys)
	}
}

// Numbers in a page that cannot be are errors, and nothing is taken or written by them.
func TestSurgeryOfNumbersThatCannotBe(t *testing.T) {
	withSample(t)
	whole, err := os.ReadFile("sample.db")
	check(t, err)
	at := 23*samplePage + page.HeaderSize
	for _, c := range []struct {
		change func(data []byte)
		want   string
	}{
		{func(data []byte) { copy(data[23*samplePage+12:], "\xff\xff\xff\xff") }, "page 23: it says that it has 4294967296 pages, and the last page is 28"},
		{func(data []byte) { data[23*samplePage+12] = 6 }, "page 23: it says that it has 7 pages, and the last page is 28"},
		{func(data []byte) { copy(data[23*samplePage+10:], "\xff\xff") }, "page 23: 65535 elements do not fit"},
		{func(data []byte) { // each value reaches to the end of the page
			for i := range 8 {
				e := page.LeafElementSize * i
				binary.NativeEndian.PutUint32(data[at+e+4:], uint32(200-e))
				binary.NativeEndian.PutUint32(data[at+e+12:], uint32(samplePage-page.HeaderSize-200-5))
			}
		}, "page 23: its elements lie upon each other"},
	} {
		workdir(t)
		data := bytes.Clone(whole)
		c.change(data)
		check(t, os.WriteFile("sample.db", data, 0o600))
		for _, args := range []string{"clear-page-elements --pageId 23 --from-index 0 --to-index 1", "copy-page --from-page 23 --to-page 13"} {
			r := run(t, append([]string{"surgery"}, append(strings.Fields(args), "sample.db", "-o", "out.db")...)...)
			if r.code == 0 && strings.HasPrefix(args, "copy-page") && !strings.Contains(c.want, "it says") {
				check(t, os.Remove("out.db")) // what is in it does not matter
				continue
			}
			wantIn(t, r, command.ExitFailed, "", "sample.db: damaged: "+c.want)
			wantFiles(t, ".", "sample.db")
		}
		// Where nothing is to stay, nothing has to make sense.
		operate(t, "sample.db", "clear-page", "--pageId", "23")
		must(t, "compact", "out.db", "-o", "compact.db")
		check(t, os.Rename("compact.db", "out.db"))
		sound(t)
	}
}

// A page can be saved elsewhere, and put in the place of one that is damaged.
func TestSurgeryCopiesPages(t *testing.T) {
	withSample(t)
	want := content(t, "sample.db")
	for _, id := range []string{"6", "23", "3", "11"} { // one with overflow pages, a leaf, a branch, the root
		t.Run(id, func(t *testing.T) {
			to := "13"
			r := operate(t, "sample.db", "copy-page", "--from-page", id, "--to-page", to)
			if !r.Abandoned || r.Pages[0] != 13 || (len(r.Warnings) > 0) != (id == "6") { // which is longer than what was in page 13
				t.Errorf("%+v", r)
			}
			noExtensions(t, "out.db")
			check(t, os.Rename("out.db", "saved.db"))
			damage(t, "saved.db", func(data []byte) []byte {
				var n int
				_, err := fmt.Sscan(id, &n)
				check(t, err)
				clear(data[n*samplePage+page.HeaderSize:][:100])
				return data
			})
			wantIn(t, run(t, "check", "saved.db"), command.ExitDamaged, "page "+id+":", "")
			r = operate(t, "saved.db", "copy-page", "--from-page", to, "--to-page", id)
			if len(r.Warnings) > 0 {
				t.Errorf("%+v", r)
			}
			if got := content(t, "out.db"); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			sound(t)
		})
	}
	// A wrong seal is told, and a longer page too.
	damage(t, "sample.db", func(data []byte) []byte {
		data[24*samplePage-100] ^= 1
		return data
	})
	r := operate(t, "sample.db", "copy-page", "--from-page", "23", "--to-page", "13")
	if len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "the checksum of page 23 was wrong") {
		t.Errorf("%+v", r)
	}
	r = operate(t, "sample.db", "copy-page", "--from-page", "6", "--to-page", "23")
	if len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "page 23 had 1 page, so that 2 pages after it") {
		t.Errorf("%+v", r)
	}
}

// The freelist is given up in JSON and in bbolt's shape with the error that callers compare.
func TestSurgeryFreelistExists(t *testing.T) {
	dir := withSample(t)
	before := snapshot(t, dir)
	for _, root := range []func() error{
		func() error {
			c := command.NewRootCommand()
			c.SetArgs([]string{"surgery", "freelist", "rebuild", "sample.db", "--output", "out.db"})
			return c.Execute()
		},
		func() error {
			c := command.NewBboltCommand()
			c.SetArgs([]string{"surgery", "freelist", "rebuild", "sample.db", "--output", "out.db"})
			c.SetErr(&strings.Builder{})
			return c.Execute()
		},
	} {
		if err := root(); err != command.ErrSurgeryFreelistAlreadyExist {
			t.Errorf("got %v", err)
		}
	}
	if after := snapshot(t, dir); after != before {
		t.Errorf("files changed: %s", after)
	}
}

// TestSurgeryNoSense: who cannot clear a page is told how it can be cut off.
func TestSurgeryNoSense(t *testing.T) {
	withSample(t)
	damage(t, "sample.db", func(b []byte) []byte {
		for i := range samplePage {
			b[23*samplePage+i] = byte(i*7 + 1)
		}
		return b
	})
	wantIn(t, run(t, "surgery", "clear-page", "sample.db", "--pageId", "23", "-o", "out.db"), 1, "",
		"run: holdfast check sample.db, which says what element of what page names it; surgery clear-page-elements takes that out\n")
	wantIn(t, run(t, "check", "sample.db"), 3, "page 23: ", "")
}
