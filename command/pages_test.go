package command_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"holdfast"
	"holdfast/command"
	"holdfast/internal/page"
)

type pageJSON struct {
	Page     uint64  `json:"page"`
	Type     string  `json:"type"`
	Pages    uint64  `json:"pages"`
	Elements *uint64 `json:"elements"`
	Used     *uint64 `json:"used_bytes"`
	Error    string  `json:"error"`
}

type mapJSON struct {
	Size     int64            `json:"size_bytes"`
	Pages    int64            `json:"pages"`
	High     int64            `json:"high_water_pages"`
	InUse    int64            `json:"pages_in_use"`
	Last     int64            `json:"last_page_in_use"`
	Before   int64            `json:"free_pages_before_it"`
	Behind   int64            `json:"pages_after_it"`
	PerCell  int64            `json:"pages_per_cell"`
	PerRow   int64            `json:"cells_per_row"`
	Total    map[string]int64 `json:"pages_by_kind"`
	Cells    []map[string]int64
	PageSize int64 `json:"page_size_bytes"`
}

type freeJSON struct {
	FreePages *int64 `json:"free_pages"`
	FreeBytes int64  `json:"free_bytes"`
	Extents   int64  `json:"free_extents_total"`
	Longest   int64  `json:"longest_free_extent_pages"`
	Classes   []struct {
		From, To              int64
		Extents, Pages, Bytes int64
	} `json:"free_extents"`
}

func readJSON(t *testing.T, v any, args ...string) {
	t.Helper()
	check(t, json.Unmarshal([]byte(must(t, append(args, "--json")...)), v))
}

// The list, the map, the statistics and the diagnosis of a file agree, whatever its page
// size and however its free pages are found.
func TestPagesAgree(t *testing.T) {
	dir := workdir(t)
	for _, pageSize := range []int{512, 4096, 64 << 10} {
		for _, options := range []holdfast.Options{{}, {StrictCompat: true, NoFreelistSync: true}} {
			options.NoSync, options.PageSize = true, pageSize
			makeMixed(t, "mixed.db", &options)
			before := snapshot(t, dir)
			var list []pageJSON
			readJSON(t, &list, "pages", "mixed.db")
			var m mapJSON
			readJSON(t, &m, "pages", "mixed.db", "--map")
			var s freeJSON
			readJSON(t, &s, "stats", "mixed.db")
			d := diagnose(t, "mixed.db")
			name := fmt.Sprintf("pages of %d, %+v", pageSize, options.StrictCompat)

			sum := map[string]int64{}
			var next, extents, longest int64
			for _, p := range list {
				if int64(p.Page) != next || p.Pages == 0 || p.Error != "" {
					t.Fatalf("%s: after page %d: %+v", name, next, p)
				}
				next += int64(p.Pages)
				sum[p.Type] += int64(p.Pages)
				if p.Type == "free" {
					extents++
					longest = max(longest, int64(p.Pages))
				}
				if inTree := p.Type == "leaf" || p.Type == "branch" || p.Type == "freelist"; inTree != (p.Used != nil) || inTree != (p.Elements != nil) {
					t.Errorf("%s: %+v", name, p)
				}
			}
			if sum["leaf"]+sum["branch"] != d.Live || sum["free"] != d.Free || sum["meta"] != 2 {
				t.Errorf("%s: %v, the doctor says %+v", name, sum, d)
			}
			if next != m.High || m.Size != d.Size || m.PageSize != int64(pageSize) || m.PerRow != 64 {
				t.Errorf("%s: %d pages, the map says %+v", name, next, m)
			}
			for kind, n := range sum {
				if got := m.Total[kind]; got != n && kind != "leaf" && kind != "branch" {
					t.Errorf("%s: %d %s pages, the map has %d", name, n, kind, got)
				}
			}
			if n := m.Total["leaf"] + m.Total["branch"] + m.Total["overflow"]; n != d.Live {
				t.Errorf("%s: %d pages of buckets, the map has %d", name, d.Live, n)
			}
			var all int64
			for i, c := range m.Cells {
				if c["page"] != int64(i)*m.PerCell {
					t.Errorf("%s: cell %d begins with page %d", name, i, c["page"])
				}
				for kind, n := range c {
					if kind != "page" {
						all += n
					}
				}
			}
			if all != m.Pages || m.Pages*m.PageSize < m.Size || m.Last+1+m.Behind != m.Pages || m.InUse+m.Before != m.Last+1 {
				t.Errorf("%s: cells of %d pages: %+v", name, all, m)
			}
			if *s.FreePages != d.Free || s.FreeBytes != d.Free*d.PageSize || s.Extents != extents || s.Longest != longest || extents == 0 {
				t.Errorf("%s: %d extents, the longest of %d: %+v", name, extents, longest, s)
			}
			if after := snapshot(t, dir); after != before {
				t.Errorf("%s: the file was changed", name)
			}
			check(t, os.Remove("mixed.db"))
		}
	}
}

// Of a database with nothing in it nothing is free, and the arrays are there.
func TestPagesOfEmptyDatabase(t *testing.T) {
	workdir(t)
	for _, pageSize := range []int{512, 64 << 10} {
		smallPages(t, "none.db", pageSize)
		db, err := holdfast.Open("none.db", 0o600, &holdfast.Options{PageSize: pageSize, StrictCompat: true})
		check(t, err)
		check(t, db.Close())
		wantIn(t, run(t, "stats", "none.db", "--json"), 0, `"free_extents": []`, "")
		wantIn(t, run(t, "stats", "none.db"), 0, "Free extents       none\n", "")
		wantIn(t, run(t, "pages", "none.db", "--map"), 0, "\n0  MM", "")
		wantIn(t, run(t, "pages", "none.db", "--type", "damaged", "--json"), 0, "[]\n", "")
		check(t, os.Remove("none.db"))
	}
}

// With the beginning of names, nothing is said of free pages, which are the file's.
func TestStatsOfSomeBuckets(t *testing.T) {
	withSample(t)
	if out := must(t, "stats", "sample.db", "n"); strings.Contains(out, "Free") {
		t.Error(out)
	}
	if out := must(t, "stats", "sample.db", "n", "--json"); strings.Contains(out, "free") {
		t.Error(out)
	}
}

// bboltFile makes the sample one that bbolt wrote: nothing records the free pages but
// the freelist page, and that only if it is named.
func bboltFile(t *testing.T, freelist bool) {
	t.Helper()
	damage(t, "sample.db", func(b []byte) []byte {
		slots := page.DecodeSlots(b, b[samplePage:])
		for slot := range 2 {
			meta := b[slot*samplePage:][:samplePage]
			clear(meta[page.ExtensionOffset:])
			m := slots.Meta[slot]
			if !freelist {
				m.Freelist = page.NoFreelist
			}
			page.EncodeMeta(meta, page.ID(slot), m, nil)
		}
		return b
	})
}

// Of a damaged file what can be read is shown, and the error says what to do.
func TestPagesDamaged(t *testing.T) {
	const leaf, branch, freelist = 5, 3, 10
	for _, c := range []struct {
		name     string
		make     func(t *testing.T)
		page     int
		list     string // some of what is listed
		types    string // what the map has
		freeRows bool   // stats still knows the free pages
	}{
		{"a leaf", nil, leaf, "5  damaged", "!", true},
		{"a leaf of a file without a list of free pages", func(t *testing.T) { bboltFile(t, false) }, leaf, "12  unknown      11", "?", false},
		{"a branch of a file without a list of free pages", func(t *testing.T) { bboltFile(t, false) }, branch, "12  unknown      17", "?", false},
		{"the freelist page", func(t *testing.T) { bboltFile(t, true) }, freelist, "12  free         11", "!", false},
		{"the freelist page of a file that records them too", nil, freelist, "12  free         11", "!", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := withSample(t)
			if c.make != nil {
				c.make(t)
			}
			damage(t, "sample.db", func(b []byte) []byte { b[c.page*samplePage+8] = 0x80; return b })
			before := snapshot(t, dir)
			want := fmt.Sprintf("sample.db: damaged: page %d: ", c.page)
			for _, args := range []string{"pages sample.db", "pages sample.db --json", "pages sample.db --map", "pages sample.db --map --json"} {
				r := run(t, strings.Fields(args)...)
				if !strings.HasSuffix(args, "--json") {
					wantIn(t, r, command.ExitFailed, "", "holdfast: "+want)
					wantIn(t, r, command.ExitFailed, "", "; run: holdfast check sample.db\n")
					continue
				}
				wantIn(t, r, command.ExitFailed, "", `{"error":{"message":"`+want)
				wantIn(t, r, command.ExitFailed, "", `; run: holdfast check sample.db","kind":"damaged","exit_code":1,"file":"sample.db","next":"run: holdfast check sample.db"}}`+"\n")
				if !json.Valid([]byte(r.out)) || !json.Valid([]byte(r.errOut)) {
					t.Errorf("%s: no JSON: %s", c.name, r)
				}
			}
			wantIn(t, run(t, "pages", "sample.db"), 1, c.list, "")
			wantIn(t, run(t, "pages", "sample.db"), 1, fmt.Sprintf("%d  damaged", c.page), "has unexpected type/flags")
			wantIn(t, run(t, "pages", "sample.db", "--map"), 1, "\n"+c.types+"  ", "")
			if r := run(t, "stats", "sample.db", "--json"); (r.code == 0) != (c.freeRows && c.page == freelist) {
				t.Errorf("%s: stats: %s", c.name, r)
			}
			wantIn(t, run(t, "check", "sample.db"), command.ExitDamaged, fmt.Sprintf("page %d: ", c.page), "")
			if after := snapshot(t, dir); after != before {
				t.Errorf("%s: the file was changed", c.name)
			}
		})
	}
}

// Several faults are counted, and the first is named.
func TestPagesDamagedTwice(t *testing.T) {
	withSample(t)
	damage(t, "sample.db", func(b []byte) []byte { b[4*samplePage+8], b[24*samplePage+8] = 0x80, 0x80; return b })
	wantIn(t, run(t, "pages", "sample.db", "--type", "free"), 1, "12  free", "damaged: page 4: ")
	wantIn(t, run(t, "pages", "sample.db", "--map"), 1, "!  2 pages   2.0 KiB", "(and 1 more fault elsewhere); run: holdfast check")
}

// bbolt's shape has no such rows, and its stats need no free pages.
func TestStockStatsOfDamagedFreelist(t *testing.T) {
	withSample(t)
	bboltFile(t, true)
	before := execute(command.NewBboltCommand(), "", "stats", "sample.db").out
	damage(t, "sample.db", func(b []byte) []byte { b[10*samplePage+8] = 0x80; return b })
	if r := execute(command.NewBboltCommand(), "", "stats", "sample.db"); r.code != 0 || r.out != before {
		t.Error(r)
	}
}
