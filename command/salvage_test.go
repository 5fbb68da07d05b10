package command_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"holdfast/command"
)

// TestSalvage saves a sound file and damaged ones. FILE stays as it is, and the output
// is sound.
func TestSalvage(t *testing.T) {
	withSample(t)
	want := content(t, "sample.db")
	for i, c := range []struct {
		name   string
		change func([]byte) []byte
		code   int
		out    string
	}{
		{"sound", func(b []byte) []byte { return b }, 0, "Nothing is lost"},
		{"metas gone", func(b []byte) []byte { clear(b[:2*samplePage]); return b }, 3, "is taken for the root of the database"},
		{"newest meta gone", func(b []byte) []byte { clear(b[:samplePage]); return b }, 3, "in doubt: meta page 0 is not whole"},
		{"cut", func(b []byte) []byte { return b[:20*samplePage] }, 3, "the file is cut short: it has 20 of 29 pages"},
		{"a value's bit", func(b []byte) []byte { b[strings.Index(string(b), "long long ")]++; return b }, 3, "lost+found/page-"},
	} {
		data, err := os.ReadFile("sample.db")
		check(t, err)
		check(t, os.WriteFile("damaged.db", c.change(data), 0o640))
		before := snapshot(t, "damaged.db")
		r := run(t, "salvage", "damaged.db", "-o", "out.db", "--force")
		wantIn(t, r, c.code, c.out, "")
		if after := snapshot(t, "damaged.db"); after != before {
			t.Errorf("%s: the file was changed", c.name)
		}
		if got := content(t, "out.db"); got != want && i == 0 || !strings.Contains(got, "616c706861/6b65792d31=") && c.name != "cut" {
			t.Errorf("%s: the copy holds\n%.2000s", c.name, got)
		}
		wantMode(t, "out.db", 0o640)
		var report struct {
			OK      bool `json:"ok"`
			Damaged []struct{ Page uint64 }
		}
		r = run(t, "salvage", "damaged.db", "-o", "out.db", "--force", "--json", "--all")
		check(t, json.Unmarshal([]byte(r.out), &report))
		if report.OK != (c.code == 0) || r.code != c.code {
			t.Errorf("%s: %s", c.name, r)
		}
		content(t, "out.db") // sound with --all too
	}
}

// TestSalvageOfSalvaged: where the file has a bucket lost+found, as what was salvaged before
// has, another one was made, and what was printed named buckets of the old one, which are not there.
func TestSalvageOfSalvaged(t *testing.T) {
	withSample(t)
	must(t, "put", "sample.db", "lost+found", "k", "v", "--create")
	damage(t, "sample.db", func(b []byte) []byte { b[strings.Index(string(b), "long long ")]++; return b })
	r := run(t, "salvage", "sample.db", "-o", "out.db")
	wantIn(t, r, 3, " more in lost+found-2\n", "")
	_, line, ok := strings.Cut(r.out, "\nlost+found-2/")
	if !ok {
		t.Fatalf("no page in lost+found-2: %s", r)
	}
	page, _, _ := strings.Cut(line, ":")
	must(t, "keys", "out.db", "lost+found-2", page)
	wantIn(t, run(t, "get", "out.db", "lost+found", "k"), 0, "v\n", "")
	wantIn(t, run(t, "salvage", "sample.db", "-o", "out.db", "--force", "--json"), 3, `"lost_and_found_in": "lost+found-2",`, "")
	wantIn(t, run(t, "salvage", "out.db", "-o", "again.db", "--json"), 0, `"lost_and_found_in": "",`, "")
}

func TestSalvageRefuses(t *testing.T) {
	dir := withSample(t)
	check(t, os.WriteFile("other", []byte("precious"), 0o600))
	check(t, os.WriteFile("text", []byte(strings.Repeat("no database ", 5000)), 0o600))
	before := snapshot(t, dir)
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"salvage sample.db", 2, "output"},
		{"salvage -o sample.db sample.db --force", 2, "cannot replace the database that it is made from"},
		{"salvage -o other sample.db", 1, "other: exists already; --force replaces it"},
		{"salvage -o out.db text", 1, "text: nothing in it looks like a page of a database"},
		{"salvage -o out.db gone.db", 1, "gone.db: no such file"},
		{"check sample.db --quick --from-page 3", 2, "--quick does not go with --from-page"},
	} {
		wantIn(t, run(t, strings.Fields(c.args)...), c.code, "", c.want)
	}
	ctx, cancel := contextDone(t)
	defer cancel()
	root := command.NewRootCommand()
	root.SetArgs([]string{"salvage", "sample.db", "-o", "out.db"})
	root.SetOut(new(strings.Builder))
	root.SetErr(new(strings.Builder))
	if code := command.Execute(ctx, root); code != command.ExitInterrupted {
		t.Errorf("interrupted: exit code %d", code)
	}
	if after := snapshot(t, dir); after != before {
		t.Errorf("files changed: before\n%s\nafter\n%s", before, after)
	}
}

// TestCheckQuick finds what it looks at, and says how little that is.
func TestCheckQuick(t *testing.T) {
	withSample(t)
	wantIn(t, run(t, "check", "sample.db", "--quick"), 0, "nothing wrong in the little that was looked at", "")
	damage(t, "sample.db", func(b []byte) []byte { b[11*samplePage+20]++; return b }) // the root page
	wantIn(t, run(t, "check", "sample.db", "--quick"), 3, "page 11: its checksum does not match its content\n1 fault, on page 11\nlittle was looked at", "damaged (1 fault)")
	check(t, os.Truncate("sample.db", 20*samplePage))
	wantIn(t, run(t, "check", "sample.db", "--quick"), 3, "it was truncated", "")
}

// TestSalvageStump: of a file that ends within its meta pages it is told what there is.
func TestSalvageStump(t *testing.T) {
	withSample(t)
	data, err := os.ReadFile("sample.db")
	check(t, err)
	const want = "it is not a page of this database, which is too short to have any but its meta pages\n"
	for _, n := range []int{2 * samplePage, 100} {
		check(t, os.WriteFile("cut.db", data[:n], 0o600))
		wantIn(t, run(t, "salvage", "cut.db", "-o", "out.db", "--force"), 3, want, "cut.db: something of it is lost")
	}
}
