package command_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"holdfast"
	"holdfast/command"
)

// shown is what "page --json" prints.
type shown struct {
	PageSize  int    `json:"page_size_bytes"`
	HighWater uint64 `json:"high_water_pages"`
	Pages     []shownPage
}

type shownPage struct {
	Page   uint64
	Type   string
	Pages  uint64
	Free   *bool
	Behind bool `json:"past_high_water"`
	Error  string
	Seal   string
	Total  uint64 `json:"elements_total"`
	Meta   *struct {
		Current, Valid bool
		Error          string
		TxID           uint64
		Extension      *struct {
			Kind        string
			Transaction uint64
			Trailing    *struct {
				Base    uint64 `json:"base_transaction"`
				High    uint64 `json:"high_water_pages"`
				Written []shownExtent
			}
			Runs []struct {
				Kind        string
				Page, Pages uint64
			} `json:"record_runs"`
		}
	}
	Record *struct {
		Kind string
		Log  int
	}
	Elements []struct {
		Item   uint64
		Key    string
		Value  *string
		Page   *uint64
		Bucket *struct {
			Root uint64 `json:"root_page"`
		}
		Error string
	}
	FreePages []uint64 `json:"free_pages"`
	Changes   []struct {
		Change string
		shownExtent
	}
}

type shownExtent struct{ Page, Pages uint64 }

// pagesShown runs page with --json; it may find damage.
func pagesShown(t *testing.T, args ...string) (s shown, r result) {
	t.Helper()
	r = run(t, append([]string{"page", "--json"}, args...)...)
	if err := json.Unmarshal([]byte(r.out), &s); err != nil {
		t.Fatalf("page %v: %v: %s", args, err, r)
	}
	return s, r
}

// What page --all shows is what pages lists, on any page size, with free pages recorded,
// stored, or neither, and values of several pages.
func TestPageAgreesWithPages(t *testing.T) {
	dir := workdir(t)
	records := 0
	for pageSize := 512; pageSize <= 64<<10; pageSize *= 2 {
		for _, strict := range []bool{false, true} {
			makeMixed(t, "mixed.db", &holdfast.Options{PageSize: pageSize, NoSync: true, StrictCompat: strict, NoFreelistSync: strict})
			before := snapshot(t, dir)
			var list []pageJSON
			readJSON(t, &list, "pages", "mixed.db")
			s, r := pagesShown(t, "mixed.db", "--all")
			if r.code != 0 || s.PageSize != pageSize || len(s.Pages) < 5 {
				t.Fatalf("pages of %d: %s", pageSize, r)
			}
			kinds := map[uint64]pageJSON{}
			for _, p := range list {
				kinds[p.Page] = p
			}
			next := uint64(0)
			for _, p := range s.Pages {
				if p.Page != next || p.Error != "" {
					t.Fatalf("pages of %d: after page %d comes %+v", pageSize, next, p)
				}
				next += p.Pages
				want, ok := kinds[p.Page]
				known := p.Free != nil // a free page is shown as what it was if that is not known
				if known && (!ok || want.Type != p.Type || want.Pages != p.Pages) {
					t.Errorf("pages of %d: %+v, pages lists %+v", pageSize, p, want)
				}
				if ok && want.Elements != nil && *want.Elements != p.Total {
					t.Errorf("pages of %d: page %d has %d elements, pages lists %d", pageSize, p.Page, p.Total, *want.Elements)
				}
				if p.Type == "record" {
					records++
				}
				if p.Type == "leaf" && uint64(len(p.Elements)) != p.Total || p.Type == "freelist" && uint64(len(p.FreePages)) != p.Total {
					t.Errorf("page %d has %d elements, %d are printed", p.Page, p.Total, len(p.Elements))
				}
			}
			if next != s.HighWater {
				t.Errorf("pages of %d: %d pages of %d", pageSize, next, s.HighWater)
			}
			if out := must(t, "page", "mixed.db", "--all"); strings.Contains(out, "Fault") {
				t.Errorf("pages of %d: %s", pageSize, out)
			}
			if after := snapshot(t, dir); after != before {
				t.Error("the file was changed")
			}
			check(t, os.Remove("mixed.db"))
		}
	}
	t.Logf("%d records were among them", records)
}

// copyInUse is a copy of a database that is open, so that its free pages are recorded in
// runs and its newest state stands after the meta.
func copyInUse(t *testing.T, name string, pageSize, commits int) {
	t.Helper()
	smallPages(t, "use.db", pageSize)
	db, err := holdfast.Open("use.db", 0o600, &holdfast.Options{PageSize: pageSize, SettleDelay: -1})
	check(t, err)
	for i := range commits {
		check(t, db.Update(func(tx *holdfast.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte("b"))
			check(t, err)
			for n := range 8 {
				key := fmt.Appendf(nil, "%06d", (i*8+n)*7919%2000)
				if (i+n)%3 == 0 {
					check(t, b.Delete(key))
				} else {
					check(t, b.Put(key, bytes.Repeat([]byte{byte(i)}, 200+n*40)))
				}
			}
			return nil
		}))
	}
	data, err := os.ReadFile("use.db")
	check(t, err)
	check(t, db.Close())
	check(t, os.Remove("use.db"))
	check(t, os.WriteFile(name, data, 0o600))
}

// Records of free pages and trailing states are shown as what they are, and records hold
// what the engine reads in them.
func TestPageRecords(t *testing.T) {
	workdir(t)
	copyInUse(t, "copy.db", 512, 400)
	s, r := pagesShown(t, "copy.db", "--all")
	if r.code != 0 {
		t.Fatal(r)
	}
	snapshots, logs, changes := 0, 0, 0
	for _, p := range s.Pages {
		if p.Record == nil {
			continue
		}
		if p.Type != "record" || p.Error != "" || p.Seal != "" {
			t.Errorf("got %+v", p)
		}
		changes += len(p.Changes)
		if p.Record.Kind == "snapshot" {
			snapshots++
		} else {
			logs++
		}
		out := must(t, "page", "copy.db", strconv.FormatUint(p.Page+p.Pages-1, 10)) // its last page
		if !strings.Contains(out, "record\n") || !strings.Contains(out, "Checksum  right") || p.Pages > 1 && !strings.Contains(out, fmt.Sprintf("Pages     %d ", p.Pages)) {
			t.Errorf("page %d: %s", p.Page, out)
		}
		stock := execute(command.NewBboltCommand(), "", "page", "copy.db", fmt.Sprint(p.Page))
		wantIn(t, stock, 0, fmt.Sprintf("Page ID:    %d\nPage Type:  record\nTotal Size: %d bytes\n", p.Page, p.Pages*512), "")
		wantIn(t, run(t, "page-item", "copy.db", fmt.Sprint(p.Page), "0"), 1, "", "it is a record page")
	}
	if snapshots == 0 || logs == 0 || changes == 0 {
		t.Errorf("%d snapshots, %d logs, %d changes", snapshots, logs, changes)
	}
	current := s.Pages[0].Meta
	if !current.Current {
		current = s.Pages[1].Meta
	}
	e := current.Extension
	if !current.Current || e == nil || e.Kind != "trailing" || e.Trailing == nil || e.Transaction <= e.Trailing.Base || len(e.Trailing.Written) == 0 {
		t.Errorf("the newest meta is %+v, %+v", current, e)
	}
	if e.Trailing.High != s.HighWater && s.Pages[0].Meta.Current {
		t.Errorf("high-water marks %d and %d", e.Trailing.High, s.HighWater)
	}
	slot := 1
	if s.Pages[0].Meta.Current {
		slot = 0
	}
	wantIn(t, run(t, "page", "copy.db", fmt.Sprint(slot)), 0, fmt.Sprintf("transaction %d, newer than this meta's, which is %d", e.Transaction, e.Trailing.Base), "")

	// A record that is damaged is still one, and said to be damaged.
	var at shownPage
	for _, p := range s.Pages {
		for _, run := range e.Runs {
			if p.Page == run.Page {
				at = p
			}
		}
	}
	damage(t, "copy.db", func(b []byte) []byte { b[at.Page*512+5] ^= 1; return b })
	wantIn(t, run(t, "page", "copy.db", fmt.Sprint(at.Page)), 1, "Checksum  wrong", "the checksum of this record of free pages does not hold")
	damaged, r := pagesShown(t, "copy.db", fmt.Sprint(at.Page))
	if r.code != 1 || damaged.Pages[0].Type != "record" || damaged.Pages[0].Error == "" || len(damaged.Pages[0].Changes) > 0 {
		t.Errorf("got %+v, %s", damaged.Pages[0], r)
	}
}

// Damaged pages are shown as far as they can be read, with the fault, and the exit code
// tells; in bbolt's shape the fault stands in the output, and the code does not.
func TestPageDamaged(t *testing.T) {
	order := binary.NativeEndian
	const element = 16
	for _, c := range []struct {
		name   string
		id     int
		change func(p []byte)
		out    string // in both shapes something of this
		fault  string
		stock  string
	}{
		{"content", 2, func(p []byte) { p[900] ^= 1 }, `"01110": 0000`, "its checksum does not match its content", `"01147": 0000`},
		{"seal", 2, func(p []byte) { p[1020] ^= 1 }, `"01110": 0000`, "its checksum does not match its content", `"01147": 0000`},
		{"number", 2, func(p []byte) { p[0] = 9 }, "", "the page says that it is page 9", "Prining page 2 failed: "},
		{"type", 2, func(p []byte) { p[8] = 3 }, "", "unexpected type/flags: 3 (unknown<0003>)", "Page Type:  unknown<03>\n"},
		{"no type", 2, func(p []byte) { p[8] = 0 }, "", "unexpected type/flags: 0", "Page Type:  unknown<00>\n"},
		{"count", 2, func(p []byte) { order.PutUint16(p[10:], 5000) }, `"01110": 0000`, "5000 elements do not fit into 1024 bytes", "Prining page 2 failed: "},
		{"overflow", 2, func(p []byte) { order.PutUint32(p[12:], 1<<31) }, "", "it says that it has 2147483649 pages", "Prining page 2 failed: "},
		{"overflow by one", 26, func(p []byte) { order.PutUint32(p[12:], 3) }, "", "it says that it has 4 pages, and there are 3", ""},
		{"key", 2, func(p []byte) { order.PutUint32(p[16+element+8:], 1<<31) }, `"01110": 0000`, "element 1 of 2 lies outside of its page", "Prining page 2 failed: "},
		{"position", 2, func(p []byte) { order.PutUint32(p[16+4:], 1<<32-1) }, "", "element 0 of 2 lies outside of its page", "Prining page 2 failed: "},
		{"overlap", 2, func(p []byte) { order.PutUint32(p[16+12:], 900); order.PutUint32(p[16+element+12:], 800) },
			"", "its elements take more bytes than the 1024", "Prining page 2 failed: "},
		{"branch", 3, func(p []byte) { order.PutUint32(p[16+4*element+4:], 5000) }, `"01776": `, "element 4 of 5 lies outside of its page", "Prining page 3 failed: "},
		{"bucket", 11, func(p []byte) { order.PutUint32(p[16+12:], 3) }, "0001feff", "a bucket of 3 bytes is shorter than its header", "Prining page 11 failed: "},
		{"freelist", 10, func(p []byte) { order.PutUint16(p[10:], 500) }, "12", "500 elements do not fit", "Prining page 10 failed: "},
		{"long freelist", 10, func(p []byte) { order.PutUint16(p[10:], 0xFFFF); order.PutUint64(p[16:], 1<<60) }, "13", "elements do not fit", "Prining page 10 failed: "},
		{"meta in its place", 2, func(p []byte) { p[8] = 4 }, "", "a meta page in the place of page 2", "Page Type:  meta\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := withSample(t)
			damage(t, "sample.db", func(b []byte) []byte { c.change(b[c.id*samplePage:][:samplePage]); return b })
			before := snapshot(t, dir)
			id := fmt.Sprint(c.id)
			r := run(t, "page", "sample.db", id)
			wantIn(t, r, 1, c.out, fmt.Sprintf("holdfast: sample.db: damaged: page %s: ", id))
			wantIn(t, r, 1, "  Fault", c.fault)
			if !strings.Contains(r.out, c.fault) {
				t.Errorf("got %s", r)
			}
			s, r := pagesShown(t, "sample.db", id)
			if r.code != 1 || !strings.Contains(s.Pages[0].Error, c.fault) {
				t.Errorf("got %s", r)
			}
			if _, r = pagesShown(t, "sample.db", "--all"); r.code != 1 || !strings.Contains(r.out, c.fault) {
				t.Errorf("got %s", r)
			}
			r = execute(command.NewBboltCommand(), "", "page", "sample.db", id, "4")
			wantIn(t, r, 0, c.out, "")
			if !strings.Contains(r.out, c.stock) || r.errOut != "" || !strings.Contains(r.out, "===\nPage ID:    4\n") {
				t.Errorf("in bbolt's shape: %s", r)
			}
			if after := snapshot(t, dir); after != before {
				t.Error("the file was changed")
			}
		})
	}
}

// Of a free page, and of one past the high-water mark, it says so; what is wrong with
// it is not damage. An overflow page is told whose it may be.
func TestPageNotInUse(t *testing.T) {
	withSample(t)
	damage(t, "sample.db", func(b []byte) []byte { b[12*samplePage+10] = 255; return b })
	out := must(t, "page", "sample.db", "12", "30")
	if !strings.Contains(out, "Page 12  leaf\n") || !strings.Contains(out, "In use    no: free; what is on it is from before") ||
		!strings.Contains(out, "no: past the high-water mark") {
		t.Error(out)
	}
	wantIn(t, run(t, "page", "sample.db", "8"), 1, "it may be an overflow page of page 6", "")
	wantIn(t, run(t, "check", "sample.db"), 0, "", "")
}

// Metas that are not whole: one is told, and with both the page size is found all the
// same, on any page size, or --page-size gives it.
func TestPageWithoutMetas(t *testing.T) {
	dir := workdir(t)
	for pageSize := 512; pageSize <= 64<<10; pageSize *= 2 {
		makeMixed(t, "mixed.db", &holdfast.Options{PageSize: pageSize, NoSync: true, StrictCompat: true})
		whole, err := os.ReadFile("mixed.db")
		check(t, err)
		all, r := pagesShown(t, "mixed.db", "--all")
		if r.code != 0 {
			t.Fatal(r)
		}
		for name, hurt := range map[string]func(b []byte){
			"checksums":  func(b []byte) { b[metaChecksum] ^= 1; b[pageSize+metaChecksum] ^= 1 },
			"page sizes": func(b []byte) { b[16+8] ^= 0xFF; b[pageSize+16+8] ^= 0xFF; b[16+9] ^= 0xFF; b[pageSize+16+9] ^= 0xFF },
			"zeros":      func(b []byte) { clear(b[:2*pageSize]) },
		} {
			b := bytes.Clone(whole)
			hurt(b)
			check(t, os.WriteFile("mixed.db", b, 0o600))
			before := snapshot(t, dir)
			what := []string{"mixed.db", "0", "2"}
			if name == "zeros" {
				what = []string{"mixed.db", "--all"}
			}
			s, r := pagesShown(t, what...)
			if s.PageSize != pageSize || r.code != 1 || s.HighWater != uint64(len(b)/pageSize) {
				t.Errorf("%s, pages of %d: %.300s", name, pageSize, r)
				continue
			}
			if last := s.Pages[len(s.Pages)-1]; name == "zeros" && (last.Page+last.Pages != s.HighWater || last.Type != "zeros" && last.Type != "leaf") {
				t.Errorf("%s: the last is %+v", name, last)
			}
			if s.Pages[0].Error == "" || s.Pages[0].Meta == nil || s.Pages[0].Meta.Valid || s.Pages[0].Meta.Current {
				t.Errorf("%s: %+v", name, s.Pages[0])
			}
			if p := all.Pages[2]; p.Type == "leaf" { // a page of a tree is shown as before
				if again, r := pagesShown(t, "mixed.db", fmt.Sprint(p.Page)); r.code != 0 || again.Pages[0].Total != p.Total || again.Pages[0].Seal != p.Seal {
					t.Errorf("%s: %s", name, r)
				}
			}
			if again, _ := pagesShown(t, "mixed.db", "2", "--page-size", fmt.Sprint(pageSize)); again.PageSize != pageSize || len(again.Pages) != 1 {
				t.Errorf("%s: %+v", name, again)
			}
			if after := snapshot(t, dir); after != before {
				t.Error("the file was changed")
			}
		}
		check(t, os.Remove("mixed.db"))
	}
}

// One meta page that is not whole is not damage, and both are.
func TestPageTornMeta(t *testing.T) {
	withSample(t)
	damage(t, "sample.db", func(b []byte) []byte { b[samplePage+metaChecksum]++; return b })
	wantIn(t, run(t, "page", "sample.db", "1"), 0, "  damaged: checksum error\n", "")
	wantIn(t, run(t, "page", "sample.db", "1"), 0, ", wrong: the meta's is ", "")
	damage(t, "sample.db", func(b []byte) []byte { b[metaChecksum]++; return b })
	wantIn(t, run(t, "page", "sample.db", "1"), 1, "checksum error", "page 1: neither meta page is whole: checksum error")
	check(t, os.WriteFile("text", bytes.Repeat([]byte("text "), 5000), 0o600))
	for _, args := range []string{"page text 3", "page text --all", "page-item text 3 0", "dump text 3"} {
		wantIn(t, run(t, strings.Fields(args)...), 1, "", "text: not a bbolt database, or so damaged that its page size cannot be told; if it is one, give the size with --page-size")
	}
	wantIn(t, run(t, "dump", "text", "0", "--page-size", "512"), 0, "0000000 7465 7874 2074", "")
}
