package command_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// rootsListed is what salvage --list --json tells.
type rootsListed struct {
	Candidates []struct {
		Root    uint64 `json:"root"`
		Chosen  bool   `json:"chosen"`
		Meta    *int   `json:"meta"`
		Whole   bool   `json:"meta_whole"`
		Keys    uint64 `json:"keys"`
		Damaged uint64 `json:"damaged"`
		Reused  uint64 `json:"reused_pages"`
	} `json:"candidates"`
	Doubts []string `json:"doubts"`
	Notes  []string `json:"notes"`
}

func listRoots(t *testing.T, file string) (r rootsListed) {
	t.Helper()
	check(t, json.Unmarshal([]byte(must(t, "salvage", "--list", file, "--json")), &r))
	return r
}

// TestSalvageList: whichever page salvage took for the root of a file without metas,
// there was no other choice.
func TestSalvageList(t *testing.T) {
	withSample(t)
	want := content(t, "sample.db")
	before := listRoots(t, "sample.db")
	first := before.Candidates[0]
	if !first.Chosen || first.Meta == nil || !first.Whole || first.Keys != 38 || first.Damaged+first.Reused != 0 {
		t.Errorf("of the sound file %+v", before)
	}
	damage(t, "sample.db", func(b []byte) []byte { clear(b[:2*samplePage]); return b })
	stays := snapshot(t, "sample.db")
	after := listRoots(t, "sample.db")
	if found := after.Candidates[0]; !found.Chosen || found.Meta != nil || found.Root != first.Root || found.Keys != 38 || len(after.Doubts) == 0 {
		t.Errorf("without metas %+v, before %+v", after, first)
	}
	wantIn(t, run(t, "salvage", "--list", "sample.db"), 0, fmt.Sprintf("holdfast salvage -o OUT sample.db takes page %d; another: holdfast salvage --root PAGE -o OUT sample.db\n", first.Root), "")
	wantIn(t, run(t, "salvage", "sample.db", "-o", "out.db"), 3, fmt.Sprintf("page %d is taken for the root of the database (", first.Root), "")
	if got := content(t, "out.db"); got != want {
		t.Errorf("without metas:\n%s\nwant\n%s", got, want)
	}
	wantIn(t, run(t, "salvage", "sample.db", "-o", "out.db", "--force", "--root", fmt.Sprint(first.Root)), 3, "was given as the root of the database", "")
	if got := content(t, "out.db"); got != want {
		t.Errorf("with the root given:\n%s\nwant\n%s", got, want)
	}
	if other := after.Candidates[len(after.Candidates)-1].Root; other != first.Root {
		must := run(t, "salvage", "sample.db", "-o", "out.db", "--force", "--root", fmt.Sprint(other), "--json")
		wantIn(t, must, 3, fmt.Sprintf(`"root": %d,`, other), "")
	}
	if now := snapshot(t, "sample.db"); now != stays {
		t.Error("the file was changed")
	}
}

// TestSalvageMended: 8 bytes of each meta page were overwritten, of a field that is always
// the same, and salvage looked for a root.
func TestSalvageMended(t *testing.T) {
	withSample(t)
	want := content(t, "sample.db")
	damage(t, "sample.db", func(b []byte) []byte {
		for slot := range 2 {
			copy(b[slot*samplePage+40:], "damaged!")
		}
		return b
	})
	wantIn(t, run(t, "salvage", "sample.db", "-o", "out.db"), 0, "note: meta page 0 is damaged (checksum error), but its checksum tells what was in it\n", "")
	if got := content(t, "out.db"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if r := listRoots(t, "sample.db"); !r.Candidates[0].Whole || len(r.Notes) != 2 {
		t.Errorf("%+v", r)
	}
}

func TestSalvageListRefuses(t *testing.T) {
	withSample(t)
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"salvage --list sample.db -o out.db", 2, "--list writes no file"},
		{"salvage --list sample.db --root 3", 2, "--list writes no file"},
		{"salvage --list gone.db", 1, "gone.db: no such file"},
		{"salvage --root 4000 sample.db -o out.db", 1, "sample.db: page 4000 cannot be the root of the database: "},
		{"salvage --root 1 sample.db -o out.db", 1, "holdfast salvage --list sample.db"},
	} {
		wantIn(t, run(t, strings.Fields(c.args)...), c.code, "", c.want)
	}
}
