package command_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"holdfast"
	"holdfast/command"
	"holdfast/internal/page"
)

// Going back goes back by one state, whole, and what was given up does not come back.
func TestSurgeryReverts(t *testing.T) {
	withSample(t)
	makeClosed(t)
	newest := must(t, "get", "left.db", "b", "last")
	if newest != "5\n" {
		t.Fatalf("left.db has %q", newest)
	}
	r := operate(t, "left.db", "revert-meta-page")
	if r.Settled || r.Operation != "revert-meta-page" {
		t.Errorf("%+v", r)
	}
	noExtensions(t, "out.db")
	wantIn(t, run(t, "get", "out.db", "b", "last"), 0, "4\n", "")
	sound(t)
	wantIn(t, run(t, "get", "out.db", "b", "last"), 0, "4\n", "")

	// Of torn.db, "4" is the newest state that is whole.
	operate(t, "torn.db", "revert-meta-page")
	noExtensions(t, "out.db")
	wantIn(t, run(t, "get", "out.db", "b", "last"), 0, "3\n", "")
	sound(t)

	// Of sample.db only the freelist is given up, and of closed.db there is nothing.
	want := content(t, "sample.db")
	if r := operate(t, "sample.db", "revert-meta-page"); len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "the buckets hold the same") {
		t.Errorf("%+v", r)
	}
	if got := content(t, "out.db"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	sound(t)
	check(t, os.Remove("out.db"))
	wantIn(t, run(t, "surgery", "revert-meta-page", "closed.db", "-o", "out.db"), command.ExitFailed, "",
		"holdfast: closed.db: both meta pages describe the same state: there is none to go back to; restore a copy of it\n")
	if _, err := os.Stat("out.db"); !os.IsNotExist(err) {
		t.Errorf("out.db is there: %v", err)
	}
	// In bbolt's shape it is done nevertheless.
	wantIn(t, execute(command.NewBboltCommand(), "", "surgery", "revert-meta-page", "closed.db", "--output", "out.db"), 0, "The meta page is reverted.\n", "")
	sound(t)

	damage(t, "sample.db", func(data []byte) []byte { data[samplePage+40] ^= 1; return data })
	wantIn(t, run(t, "surgery", "revert-meta-page", "sample.db", "-o", "other.db"), command.ExitFailed, "",
		"meta page 1 is not whole (checksum error): there is no state to go back to; restore a copy of it")
}

// With HOLDFAST_LOG=stderr, going back told of the opening of a file that no user knows: the
// copy, under the name that it has while it is made.
func TestSurgeryRevertsInSilence(t *testing.T) {
	withSample(t)
	makeClosed(t)
	t.Setenv("HOLDFAST_LOG", "stderr")
	messages, err := os.Create("messages")
	check(t, err)
	defer messages.Close()
	defer func(stderr *os.File) { os.Stderr = stderr }(os.Stderr)
	os.Stderr = messages
	for _, file := range []string{"left.db", "torn.db"} {
		operate(t, file, "revert-meta-page")
	}
	if told, err := os.ReadFile("messages"); err != nil || len(told) > 0 {
		t.Errorf("messages: %v\n%s", err, told)
	}
}

// Where a last flush may be lost by damage, it is said, as it does not show any more.
func TestSurgeryOfUnreadableMeta(t *testing.T) {
	withSample(t)
	makeLeft(t)
	slot := stateOf(t, "info", "left.db").Slot
	damage(t, "left.db", func(data []byte) []byte { data[slot*samplePage+page.ExtensionOffset+60] ^= 1; return data })
	wantIn(t, run(t, "surgery", "meta", "validate", "left.db"), 0, "Holdfast added   something that cannot be read\n", "")
	r := operate(t, "left.db", "freelist", "abandon")
	if len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], fmt.Sprintf("what Holdfast wrote into meta page %d cannot be read", slot)) || r.Settled {
		t.Errorf("%+v", r)
	}
	wantIn(t, run(t, "get", "out.db", "b", "last"), 0, "4\n", "")
	sound(t)
}

// A meta page that is not valid is not made valid by the way.
func TestSurgeryLeavesInvalidMeta(t *testing.T) {
	withSample(t)
	want := content(t, "sample.db")
	for slot := range 2 {
		damage(t, "sample.db", func(data []byte) []byte { data[slot*samplePage+40] ^= 1; return data })
		for _, args := range []string{"freelist abandon", "copy-page --from-page 23 --to-page 13"} {
			operate(t, "sample.db", strings.Fields(args)...)
			wantIn(t, run(t, "surgery", "meta", "validate", "out.db"), command.ExitDamaged, fmt.Sprintf("Meta page %d        not valid: checksum error\n", slot), "")
			if got := content(t, "out.db"); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
		damage(t, "sample.db", func(data []byte) []byte { data[slot*samplePage+40] ^= 1; return data })
	}
}

// A file that was left in mid use, and of which no state can be opened, is not settled.
func TestSurgeryOfWhatCannotBeSettled(t *testing.T) {
	workdir(t)
	makeLeft(t)
	damage(t, "left.db", func(data []byte) []byte { return data[:3*samplePage] })
	r := operate(t, "left.db", "freelist", "abandon")
	if len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "its newest state cannot be opened (page 0: the meta page says that the database has") || r.Settled {
		t.Errorf("%+v", r)
	}
	noExtensions(t, "out.db")
	wantIn(t, run(t, "surgery", "freelist", "rebuild", "left.db", "-o", "rebuilt.db"), command.ExitFailed, "", "left.db: damaged: page 0: the meta page says that the database has")
	wantFiles(t, ".", "left.db out.db torn.db")
}

// A database that several commits have been made to since it was opened again: its other
// meta names a freelist, which must still be right when somebody goes back to it.
func TestSurgeryRevertsToFreelist(t *testing.T) {
	workdir(t)
	makeClosed(t)
	want := content(t, "closed.db")
	db, err := holdfast.Open("closed.db", 0o600, &holdfast.Options{StrictCompat: true, SettleDelay: -1})
	check(t, err)
	check(t, db.Update(func(tx *holdfast.Tx) error { return tx.Bucket([]byte("b")).Put([]byte("after"), make([]byte, 5000)) }))
	data, err := os.ReadFile("closed.db")
	check(t, err)
	check(t, db.Close())
	check(t, os.WriteFile("again.db", data, 0o600))
	operate(t, "again.db", "revert-meta-page")
	wantIn(t, run(t, "info", "out.db"), 0, "in the freelist in page", "")
	if got := content(t, "out.db"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	sound(t)
}

// A meta page is mended, or changed, and says what was asked.
func TestSurgeryUpdatesMetas(t *testing.T) {
	withSample(t)
	makeLeft(t)
	want := content(t, "sample.db")
	metaOf := func(slot int) page.Meta {
		data, err := os.ReadFile("out.db")
		check(t, err)
		m, err := page.DecodeMeta(data[slot*samplePage:])
		check(t, err)
		return m
	}
	for slot := range 2 {
		which := fmt.Sprint(slot)
		operate(t, "sample.db", "meta", "update", "--meta-page", which, "--fields", "root:9,freelist:10", "--fields", "pgid:30")
		if m := metaOf(slot); m.Root != 9 || m.Freelist != 10 || m.HighWater != 30 {
			t.Errorf("got %+v", m)
		}
		noExtensions(t, "out.db")
		if m := metaOf(1 - slot); m.Root != 11 || m.HighWater != 29 {
			t.Errorf("the other one: %+v", m)
		}
		// Without freelist the old one is given up, as it is of another tree.
		r := operate(t, "left.db", "meta", "update", "--meta-page", which, "--fields", "root:4")
		if m := metaOf(slot); m.Root != 4 || m.Freelist != page.NoFreelist || !r.Settled {
			t.Errorf("got %+v, %+v", m, r)
		}
	}
	for _, field := range []string{"root:9", "pgid:30"} {
		if operate(t, "sample.db", "meta", "update", "--fields", field); metaOf(0).Freelist != page.NoFreelist {
			t.Errorf("%s: got %+v", field, metaOf(0))
		}
	}
	// In pages of 2,048 bytes the file is too short for 29; what no engine opens is not written.
	refuses := func(args, want string) {
		t.Helper()
		r := run(t, append(strings.Fields("surgery meta update sample.db -o refused.db"), strings.Fields(args)...)...)
		wantIn(t, r, command.ExitFailed, "", "holdfast: sample.db: with these fields "+want)
		wantIn(t, run(t, "info", "refused.db"), command.ExitFailed, "", "refused.db: no such file")
	}
	refuses("--fields pageSize:2048", "neither meta page can be opened: page 0: the meta page says that the database has 29 pages of 2048 bytes")
	refuses("--fields pageSize:1000,pgid:29", "neither meta page can be opened: page 0: the meta page gives a page size of 1000 bytes, which is not a power of two; nothing was written: ")
	refuses("--fields pageSize:100", "the file cannot be opened, as meta page 0 is the one that is taken: ")
	refuses("--fields root:29", "the file cannot be opened, as meta page 0 is the one that is taken: page 0: the meta page names page 29 as the root")
	check(t, os.Rename("sample.db", "sound.db"))
	wantIn(t, execute(command.NewBboltCommand(), "", strings.Fields("surgery meta update sound.db --output sample.db --fields root:29")...), 0, "The meta page 0 has been updated!\n", "")
	refuses("--meta-page 1 --fields pgid:30", "the file cannot be opened, as meta page 0 is the one that is taken: page 0: the meta page names page 29 as the root, which is not a page of this database: they are 2 to 28; nothing was written: change that one, with --meta-page 0\n")
	check(t, os.Rename("sound.db", "sample.db"))
	r := operate(t, "sample.db", "meta", "update", "--fields", "pageSize:2048,pgid:16")
	if len(r.Warnings) == 0 || metaOf(0).PageSize != 2048 {
		t.Errorf("%+v", r)
	}
	for _, c := range []struct {
		name, args string
		change     func(data []byte)
	}{
		{"checksum", "--meta-page 0", func(data []byte) { data[16+60] ^= 1 }},
		{"magic", "--meta-page 0", func(data []byte) { data[16] ^= 1 }},
		{"version", "--meta-page 0", func(data []byte) { data[16+4] ^= 1 }},
		{"root", "--meta-page 0 --fields root:11,freelist:10", func(data []byte) { data[16+16] ^= 64 }},
		{"page size", "--meta-page 0 --fields pageSize:1024", func(data []byte) { clear(data[16+8:][:4]) }},
		{"header", "--meta-page 0", func(data []byte) { clear(data[:17]) }},
		{"both", "--meta-page 0 --fields root:11", func(data []byte) { data[16+60] ^= 1; data[samplePage+16] ^= 1 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			withSampleAt(t)
			damage(t, "sample.db", func(data []byte) []byte { c.change(data); return data })
			wantIn(t, run(t, "surgery", "meta", "validate", "sample.db"), command.ExitDamaged, "Meta page 0        not valid: ", "sample.db: damaged")
			operate(t, "sample.db", append([]string{"meta", "update"}, strings.Fields(c.args)...)...)
			if got := content(t, "out.db"); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			if c.name != "both" {
				wantIn(t, run(t, "surgery", "meta", "validate", "out.db"), 0, "Meta page 0        valid, current\n", "")
				sound(t)
			}
		})
	}
	wantIn(t, run(t, "surgery", "meta", "update", "sample.db", "-o", "same.db"), 0, "nothing was changed: same.db is a copy of sample.db\n", "")
	wantIn(t, execute(command.NewBboltCommand(), "", "surgery", "meta", "update", "sample.db", "--output", "same.db"), 0, "Nothing changed!\n", "")
}

// withSampleAt is withSample from a directory that is not the package's.
func withSampleAt(t *testing.T) {
	t.Helper()
	data, err := os.ReadFile("sample.db")
	check(t, err)
	workdir(t)
	check(t, os.WriteFile("sample.db", data, 0o600))
}

// In bbolt's shape the lines are bbolt's, an output is replaced, and no lock is taken.
func TestSurgeryStockShape(t *testing.T) {
	withSample(t)
	db, err := holdfast.Open("sample.db", 0o600, nil)
	check(t, err)
	defer db.Close()
	wantIn(t, run(t, "surgery", "freelist", "abandon", "sample.db", "-o", "out.db", "--timeout", "1ms"), command.ExitFailed, "", "locked by another process")
	wantIn(t, run(t, "surgery", "meta", "validate", "sample.db", "--timeout", "1ms"), command.ExitFailed, "", "locked by another process")
	for _, c := range []struct{ args, want string }{
		{"revert-meta-page", "The meta page is reverted.\n"},
		{"copy-page --from-page 3 --to-page 13", "The page 3 was successfully copied to page 13\n"},
		{"copy-page --from-page 0 --to-page 1", "The page 0 was successfully copied to page 1\n"},
		{"clear-page --pageId 11", "The page (11) was cleared\n"},
		{"clear-page-elements --pageId 11 --from-index 1 --to-index -1", "All elements in [1, -1) in page 11 were cleared\n"},
		{"freelist abandon", "The freelist was abandoned in both meta pages.\nThe next opening for writing looks for the free pages, which takes a scan.\n"},
		{"meta update --meta-page 1 --fields pgid:30", "The meta page 1 has been updated!\n"},
	} {
		r := execute(command.NewBboltCommand(), "", append([]string{"surgery"}, append(strings.Fields(c.args), "sample.db", "--output", "out.db")...)...)
		if r.code != 0 || r.out != c.want {
			t.Errorf("%s: got %s", c.args, r)
		}
	}
	stock := func(args string) result { return execute(command.NewBboltCommand(), "", strings.Fields(args)...) }
	check(t, os.Rename("out.db", "with.db"))
	wantIn(t, stock("surgery freelist abandon sample.db --output without.db"), 0, "", "")
	wantIn(t, stock("surgery freelist rebuild without.db --output out.db"), 0, "The freelist was successfully rebuilt.\n", "")
	wantIn(t, stock("surgery meta validate sample.db"), 0, "The meta page 0 is valid!\nThe meta page 1 is valid!\n", "")
	damage(t, "out.db", func(data []byte) []byte { data[16+60] ^= 1; data[samplePage+16+4]++; return data })
	wantIn(t, stock("surgery meta validate out.db"), 0, "WARNING: The meta page 0 isn't valid: checksum error!\nWARNING: The meta page 1 isn't valid: version mismatch!\n", "")
}

// What makes no sense is an error, and then nothing is written.
func TestSurgeryRefuses(t *testing.T) {
	dir := withSample(t)
	check(t, os.WriteFile("other", []byte("precious"), 0o600))
	check(t, os.WriteFile("random", bytes.Repeat([]byte("random"), 3000), 0o600))
	before := snapshot(t, dir)
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"revert-meta-page sample.db", 2, `required flag(s) "output" not set`},
		{"copy-page sample.db -o x --to-page 3", 2, `required flag(s) "from-page" not set`},
		{"copy-page sample.db --to-page 3", 2, `required flag(s) "output", "from-page" not set`},
		{"clear-page-elements sample.db -o x --pageId 3 --from-index 0", 2, `required flag(s) "to-index" not set`},
		{"revert-meta-page sample.db -o sample.db --force", 2, "the output cannot replace the database that it is made from"},
		{"revert-meta-page sample.db -o other", 1, "other: exists already; --force replaces it"},
		{"revert-meta-page gone.db -o x", 1, "gone.db: no such file"},
		{"revert-meta-page random -o x", 1, "random: neither of its two meta pages is whole (invalid database), so its pages cannot be told; holdfast surgery meta update mends one"},
		{"clear-page random -o x --pageId 3", 1, "random: neither"},
		{"copy-page random -o x --from-page 3 --to-page 4", 1, "random: neither"},
		{"freelist abandon random -o x", 1, "random: neither"},
		{"freelist rebuild random -o x", 1, "random: neither"},
		{"copy-page sample.db -o x --from-page 3 --to-page 3", 2, "have the same value: 3"},
		{"copy-page sample.db -o x --from-page 0 --to-page 3", 2, "--from-page: sample.db has pages 2 to 28, not 0"},
		{"copy-page sample.db -o x --from-page 3 --to-page 1", 2, "--to-page: sample.db has pages 2 to 28, not 1"},
		{"copy-page sample.db -o x --from-page 6 --to-page 27", 2, "page 6 takes 3 pages, and the last page is 28"},
		{"copy-page sample.db -o x --from-page 6 --to-page 7", 2, "page 6 takes 3 pages, so that the two would lie upon each other"},
		{"copy-page sample.db -o x --from-page 7 --to-page 3", 1, "sample.db: damaged: page 7: the page says that it is page "},
		{"clear-page sample.db -o x --pageId 1", 2, "--pageId: sample.db has pages 2 to 28, not 1"},
		{"clear-page sample.db -o x --pageId 29", 2, "--pageId: sample.db has pages 2 to 28, not 29"},
		{"clear-page sample.db -o x --pageId 18446744073709551615", 2, "--pageId: sample.db has pages 2 to 28"},
		{"clear-page sample.db -o x --pageId 10", 2, "page 10 of sample.db is a freelist page; only a leaf or a branch"},
		{"clear-page-elements sample.db -o x --pageId 23 --from-index -1 --to-index 4", 2, "--from-index: page 23 of sample.db has elements 0 to 7, not -1"},
		{"clear-page-elements sample.db -o x --pageId 23 --from-index 8 --to-index -1", 2, "--from-index: page 23 of sample.db has elements 0 to 7, not 8"},
		{"clear-page-elements sample.db -o x --pageId 23 --from-index 3 --to-index 9", 2, "--to-index: page 23 of sample.db has 8 elements, so that 9 is not"},
		{"clear-page-elements sample.db -o x --pageId 23 --from-index 3 --to-index -2", 2, "--to-index: page 23 of sample.db has 8 elements, so that -2 is not"},
		{"clear-page-elements sample.db -o x --pageId 23 --from-index 3 --to-index 3", 2, "--to-index: from 3 to before 3 there is no element"},
		{"meta update sample.db -o x --meta-page 2", 2, "--meta-page: the meta pages are 0 and 1, not 2"},
		{"meta update sample.db -o x --fields root", 2, "invalid key-value pair: root"},
		{"meta update sample.db -o x --fields root:1:2", 2, "invalid key-value pair: root:1:2"},
		{"meta update sample.db -o x --fields txid:1", 2, `field "txid" isn't allowed to be updated`},
		{"meta update sample.db -o x --fields root:-1", 2, `invalid value "-1" for field "root"`},
		{"meta update sample.db -o x --fields pageSize:4294967296", 2, `invalid value "4294967296" for field "pageSize"`},
		{"meta update random -o x --meta-page 1", 1, "random: "},
		{"meta validate gone.db", 1, "gone.db: no such file"},
		{"clear-everything sample.db", 2, `unknown command "clear-everything" for "holdfast surgery"`},
		{"freelist clear sample.db", 2, `unknown command "clear" for "holdfast surgery freelist"`},
	} {
		r := run(t, append([]string{"surgery"}, strings.Fields(c.args)...)...)
		if r.code != c.code || r.out != "" || !strings.Contains(r.errOut, c.want) {
			t.Errorf("%s: got %s\nwant exit code %d, %q", c.args, r, c.code, c.want)
		}
	}
	if after := snapshot(t, dir); after != before {
		t.Errorf("files changed: before\n%s\nafter\n%s", before, after)
	}
	wantIn(t, run(t, "surgery"), 0, "copy-page", "")
}

// A file whose newest state only a later version knows is not touched.
func TestSurgeryLaterVersion(t *testing.T) {
	withSample(t)
	damage(t, "sample.db", func(data []byte) []byte { return laterExtension(t, data) })
	for _, args := range []string{"revert-meta-page", "freelist abandon", "clear-page --pageId 11", "freelist rebuild"} {
		r := run(t, append([]string{"surgery"}, append(strings.Fields(args), "sample.db", "-o", "out.db")...)...)
		wantIn(t, r, command.ExitFailed, "", "the newest state cannot be told")
	}
	wantFiles(t, ".", "sample.db")
}

// Interrupted, it leaves nothing behind.
func TestSurgeryInterrupted(t *testing.T) {
	dir := withSample(t)
	ctx, cancel := contextDone(t)
	defer cancel()
	root := command.NewRootCommand()
	root.SetOut(io.Discard)
	root.SetErr(io.Discard)
	root.SetArgs([]string{"surgery", "freelist", "abandon", "sample.db", "-o", "out.db"})
	if code := command.Execute(ctx, root); code != command.ExitInterrupted {
		t.Errorf("exit code %d", code)
	}
	wantFiles(t, dir, "sample.db")
}

// No damage makes surgery panic, change its source, or leave a half file behind; and what
// it says can be read by programs.
func TestSurgeryOfAnyBytes(t *testing.T) {
	withSample(t)
	makeClosed(t)
	var files [][]byte
	for _, name := range []string{"sample.db", "closed.db", "left.db"} {
		data, err := os.ReadFile(name)
		check(t, err)
		files = append(files, data)
	}
	dir := workdir(t)
	rng := rand.New(rand.NewPCG(7, 11))
	numbers := []uint64{0, 1, 2, 0xff, 0xffff, 0x7fffffff, 0xffffffff, 1 << 40, 1 << 63, 1<<64 - 1}
	ran, worked := 0, 0
	for range 100 {
		data := bytes.Clone(files[rng.IntN(len(files))])
		for range 1 + rng.IntN(4) {
			at := rng.IntN(len(data) - 8)
			switch rng.IntN(4) {
			case 0: // a header or a meta
				at = rng.IntN(len(data)/samplePage)*samplePage + rng.IntN(12)*8
			case 1:
				at = rng.IntN(2)*samplePage + page.HeaderSize + rng.IntN(8)*8
			}
			v := numbers[rng.IntN(len(numbers))]
			for i := range 1 + rng.IntN(8) {
				data[at+i] = byte(v >> (8 * i))
			}
		}
		for slot := 0; slot < 2 && rng.IntN(2) == 0; slot++ { // as if the meta was meant so
			buf := data[slot*samplePage:][:samplePage]
			page.EncodeMeta(buf, page.ID(slot), page.MetaFields(buf), bytes.Clone(page.Extension(buf)))
		}
		if rng.IntN(5) == 0 {
			data = data[:1+rng.IntN(len(data))]
		}
		check(t, os.WriteFile("any.db", data, 0o600))
		for _, args := range anySurgery(rng, len(data)/samplePage) {
			all := append([]string{"surgery"}, append(strings.Fields(args), "any.db", "--json")...)
			if !strings.HasPrefix(args, "meta validate") {
				all = append(all, "--output", "out.db", "--force")
			}
			r := run(t, all...)
			ran++
			if r.code == 0 || strings.HasPrefix(args, "meta validate") {
				worked++
				if !json.Valid([]byte(r.out)) {
					t.Errorf("%s: %s", args, r)
				}
			} else if r.out != "" || !json.Valid([]byte(r.errOut)) {
				t.Errorf("%s: %s", args, r)
			}
			run(t, "check", "out.db")
		}
		if after, err := os.ReadFile("any.db"); err != nil || !bytes.Equal(after, data) {
			t.Fatalf("the source changed: %v", err)
		}
		_ = os.Remove("out.db")
		wantFiles(t, dir, "any.db")
	}
	if worked < ran/5 || ran-worked < ran/20 {
		t.Errorf("of %d operations %d were done", ran, worked)
	}
}

// anySurgery are operations on a file of so many pages.
func anySurgery(rng *rand.Rand, pages int) []string {
	id := func() int { return rng.IntN(max(pages, 3)) }
	return []string{
		"revert-meta-page", "freelist abandon", "freelist rebuild", "meta validate",
		fmt.Sprintf("copy-page --from-page %d --to-page %d", id(), id()),
		fmt.Sprintf("clear-page --pageId %d", id()),
		fmt.Sprintf("clear-page-elements --pageId %d --from-index %d --to-index %d", id(), rng.IntN(3), rng.IntN(5)-1),
		fmt.Sprintf("meta update --meta-page %d --fields root:%d", rng.IntN(2), id()),
		fmt.Sprintf("meta update --meta-page %d --fields pgid:%d,pageSize:%d", rng.IntN(2), id(), 1<<rng.IntN(32)),
	}
}

// TestRevertAfterTornFlush: going back from a file whose last flush was cut short goes back twice, and
// that is said.
func TestRevertAfterTornFlush(t *testing.T) {
	workdir(t)
	makeLeft(t)
	r := run(t, "surgery", "revert-meta-page", "torn.db", "-o", "back.db")
	wantIn(t, r, 0, "warning: the last flush was cut short, and the state that is opened was the one before it already", "")
	if r := run(t, "surgery", "revert-meta-page", "left.db", "-o", "other.db"); r.code != 0 || strings.Contains(r.out, "cut short") {
		t.Errorf("%s", r)
	}
}
