package command_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/command"
	"holdfast/internal/page"
)

// TestPageNumbers gives numbers of pages and elements that there are not, and flags that
// exclude each other. Nothing is printed, nothing changes.
func TestPageNumbers(t *testing.T) {
	dir := withSample(t)
	before := snapshot(t, dir)
	huge := "18446744073709551615"
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"page sample.db", 2, "page id required"},
		{"page sample.db 3 --all", 2, "page numbers and --all exclude each other"},
		{"page sample.db x", 2, `"x" is not a page number`},
		{"page sample.db 0x3", 2, `"0x3" is not a page number`},
		{"page sample.db -- -1", 2, `"-1" is not a page number`},
		{"page sample.db -1", 2, "unknown flag -1"},
		{"page sample.db 18446744073709551616", 2, "is not a page number"},
		{"page sample.db 32", 1, "sample.db: no page 32; its pages are 0 to 31"},
		{"page sample.db 2 " + huge, 1, "sample.db: no page " + huge},
		{"page sample.db 2 --value-format base2", 2, "--value-format: unsupported format: base2"},
		{"page sample.db 2 --page-size 100", 2, "--page-size: 100 is outside of 512 to 16777216"},
		{"page", 2, "FILE is missing"},
		{"page gone.db 2", 1, "gone.db: no such file"},
		{"page . 2", 1, ".: is a directory"},
		{"page-item sample.db 2", 2, "ITEM is missing"},
		{"page-item sample.db 2 2", 1, "sample.db: no element 2 in page 2, which has 0 to 1"},
		{"page-item sample.db 2 65536", 1, "no element 65536 in page 2"},
		{"page-item sample.db 2 " + huge, 1, "no element " + huge},
		{"page-item sample.db 2 x", 2, `"x" is not an element number`},
		{"page-item sample.db x 0", 2, `"x" is not a page number`},
		{"page-item sample.db 2 -- -1", 2, `"-1" is not an element number`},
		{"page-item sample.db 99 0", 1, "no page 99"},
		{"page-item sample.db 10 0", 1, "page 10 has no elements with values: it is a freelist page"},
		{"page-item sample.db 0 0", 1, "it is a meta page"},
		{"page-item sample.db 29 0", 1, "it is a unknown<0000> page"},
		{"page-item sample.db 2 0 --key-only --value-only", 2, "--key-only and --value-only exclude each other"},
		{"page-item sample.db 2 0 --format base2", 2, "--format: unsupported format: base2"},
		{"dump sample.db", 2, "PAGE is missing"},
		{"dump sample.db x", 2, `"x" is not a page number`},
		{"dump sample.db 32", 1, "no page 32; its pages are 0 to 31"},
		{"dump sample.db " + huge, 1, "no page " + huge},
		{"dump sample.db 9007199254740992", 1, "no page 9007199254740992"}, // which times the page size is 2^63
		{"dump sample.db 18014398509481984", 1, "no page 18014398509481984"},
		{"dump sample.db 2 99 --json", 1, "no page 99"},
		{"inspect", 2, "FILE is missing"},
	} {
		r := run(t, strings.Fields(c.args)...)
		begin := "holdfast: "
		if strings.HasSuffix(c.args, " --json") {
			begin = `{"error":{"message":"sample.db: `
		}
		if r.code != c.code || !strings.HasPrefix(r.errOut, begin) || !strings.Contains(r.errOut, c.want) || r.out != "" {
			t.Errorf("holdfast %s: %s\nwant exit code %d, stderr with %q", c.args, r, c.code, c.want)
		}
	}
	for _, empty := range [][]string{{"page", "sample.db", ""}, {"dump", "sample.db", ""}} {
		wantIn(t, run(t, empty...), command.ExitUsage, "", "page id required")
	}
	if after := snapshot(t, dir); after != before {
		t.Errorf("files changed: before\n%s\nafter\n%s", before, after)
	}
}

// In bbolt's shape errors are bare, so that programs can compare them with ==.
func TestPageStockErrors(t *testing.T) {
	withSample(t)
	for _, c := range []struct {
		args []string
		want error
	}{
		{[]string{"page", "sample.db", "", "--all"}, nil},
		{[]string{"page", "sample.db", "0", ""}, nil},
		{[]string{"page", "sample.db", "0", "--all"}, command.ErrInvalidPageArgs},
		{[]string{"page", "sample.db", ""}, command.ErrPageIDRequired},
		{[]string{"dump", "sample.db", ""}, command.ErrPageIDRequired},
	} {
		root := command.NewBboltCommand()
		root.SetArgs(c.args)
		root.SetOut(&bytes.Buffer{})
		root.SetErr(&bytes.Buffer{})
		if err := root.Execute(); err != c.want {
			t.Errorf("%v: %v, want %v", c.args, err, c.want)
		}
		if code := command.ExitCode(c.want); c.want != nil && code != command.ExitUsage {
			t.Errorf("%v: exit code %d", c.want, code)
		}
	}
	err := errors.Join(command.ErrInvalidPageArgs)
	if command.ExitCode(err) != command.ExitUsage {
		t.Error("wrapped it is not an error of the command line")
	}
	wantIn(t, execute(command.NewBboltCommand(), "", "page-item", "sample.db", "3", "0"), 1, "", "it is a branch page")
	wantIn(t, execute(command.NewBboltCommand(), "", "pages", "sample.db", "--json"), 0, `{"page":0,"type":"meta"`, "")
}

// A value of several pages is printed in every format, whole; for people it is cut off.
func TestPageLargeValue(t *testing.T) {
	workdir(t)
	value := bytes.Repeat([]byte("héllo\"\x00\xff✓"), 3000)
	db, err := holdfast.Open("large.db", 0o600, &holdfast.Options{PageSize: 1024, NoSync: true})
	check(t, err)
	check(t, db.Update(func(tx *holdfast.Tx) error {
		b, err := tx.CreateBucket([]byte("b"))
		check(t, err)
		text, err := tx.CreateBucket([]byte("t"))
		check(t, err)
		check(t, text.Put([]byte("more"), make([]byte, 500)))
		check(t, text.Put([]byte("text"), bytes.Repeat([]byte("é"), 100)))
		return b.Put([]byte("key"), value)
	}))
	check(t, db.Close())
	s, _ := pagesShown(t, "large.db", "--all", "--value-format", "bytes")
	found, texts := false, 0
	for _, p := range s.Pages {
		if p.Type == "leaf" && p.Pages == 1 && len(p.Elements) == 2 && p.Elements[1].Key == "text" {
			wantIn(t, run(t, "page", "large.db", fmt.Sprint(p.Page)), 0, `"text": `+strings.Repeat("é", 32)+"... (200 bytes)", "")
			texts++
		}
		if p.Type != "leaf" || p.Pages < 30 {
			continue
		}
		found = true
		id := fmt.Sprint(p.Page)
		quoted := must(t, "page-item", "large.db", id, "0", "--value-only", "--format", "ascii-encoded")
		if quoted != fmt.Sprintf("%q\n", value) {
			t.Error("the quoted value is another")
		}
		for format, want := range map[string]string{
			"ascii-encoded": fmt.Sprintf("%q", value), "hex": fmt.Sprintf("%x", value), "bytes": string(value), "auto": fmt.Sprintf("%x", value),
		} {
			if out := must(t, "page", "large.db", id, "--value-format", format); !strings.Contains(out, `"key": `+want+"\n") {
				t.Errorf("%s: the value is another", format)
			}
		}
		out := must(t, "page", "large.db", id)
		if !strings.Contains(out, fmt.Sprintf(`"key": %x... (36,000 bytes)`, value[:32])) {
			t.Error(out)
		}
	}
	if !found || texts != 1 {
		t.Errorf("a leaf of 30 pages: %v, %d of a text", found, texts)
	}
}

// A page in which the file ends is dumped as far as it goes.
func TestDumpCutOff(t *testing.T) {
	withSample(t)
	check(t, os.Truncate("sample.db", 31*samplePage+40))
	r := run(t, "dump", "sample.db", "31")
	wantIn(t, r, 1, "0007c00 0000 0000 0000 0000 0000 0000 0000 0000\n0007c10 *\n0007c20 0000 0000 0000 0000\n", "page 31 is not whole: the file ends within it")
	var d struct{ Pages []struct{ Hex string } }
	r = run(t, "dump", "sample.db", "31", "--json")
	check(t, json.Unmarshal([]byte(r.out), &d))
	if r.code != 1 || len(d.Pages) != 1 || d.Pages[0].Hex != strings.Repeat("00", 40) {
		t.Errorf("got %s", r)
	}
	wantIn(t, run(t, "page", "sample.db", "31"), 1, "", "page 31 is not whole")
	check(t, os.Truncate("sample.db", 100))
	for _, args := range []string{"page sample.db --all", "page sample.db 0", "page-item sample.db 2 0"} {
		wantIn(t, run(t, strings.Fields(args)...), 1, "", "sample.db: ")
	}
	wantIn(t, run(t, "dump", "sample.db", "0"), 1, "0000010 edda 0ced", "page 0 is not whole")
}

// The commands share the file with readers and give way to a writer.
func TestPageLocks(t *testing.T) {
	withSample(t)
	all := []string{"page sample.db 3", "page-item sample.db 2 0", "dump sample.db 3", "inspect sample.db"}
	db, err := holdfast.Open("sample.db", 0o600, &holdfast.Options{ReadOnly: true})
	check(t, err)
	for _, args := range all {
		must(t, strings.Fields(args)...)
	}
	check(t, db.Close())
	db, err = holdfast.Open("sample.db", 0o600, nil)
	check(t, err)
	defer db.Close()
	for _, args := range all {
		wantIn(t, run(t, append(strings.Fields(args), "--timeout", "10ms")...), 1, "", "sample.db: locked by another process for longer than 10ms")
	}
}

// TestPageClosedPipe: that the output has no reader any more is not an error.
func TestPageClosedPipe(t *testing.T) {
	workdir(t)
	makeBig(t, "big.db", 5000)
	for _, after := range []int{0, 5000} {
		for _, args := range []string{"page --all", "page --all --json", "dump 3 4 5", "dump 3 4 5 --json", "inspect", "inspect --json"} {
			fields := strings.Fields(args)
			for _, root := range []*cobra.Command{command.NewRootCommand(), command.NewBboltCommand()} {
				var errOut bytes.Buffer
				root.SetOut(&closedPipe{after})
				root.SetErr(&errOut)
				root.SetArgs(append([]string{fields[0], "big.db"}, fields[1:]...))
				if code := command.Execute(t.Context(), root); code != 0 || errOut.Len() > 0 {
					t.Errorf("%s %s: exit code %d, %s", root.Name(), args, code, &errOut)
				}
			}
		}
	}
}

// TestPageAnyBytes: whatever the bytes of the file are, metas among them, no command that
// looks at pages panics, goes round in circles, prints broken JSON, or changes them.
func TestPageAnyBytes(t *testing.T) {
	data, err := os.ReadFile(samplePath)
	check(t, err)
	workdir(t)
	random := rand.New(rand.NewPCG(15, 9))
	for n := range 300 {
		bad := bytes.Clone(data)
		for range 1 + random.IntN(8) {
			at := random.IntN(29)*samplePage + random.IntN(1+random.IntN(samplePage))
			bad[at] = []byte{0, 1, 0xff, byte(random.Uint32())}[random.IntN(4)]
		}
		if n%10 == 0 {
			bad = bad[:random.IntN(len(bad))+1]
		}
		check(t, os.WriteFile("bad.db", bad, 0o600))
		for _, args := range []string{"page --all", "page 2 11", "page-item 11 1", "dump 2", "inspect", "pages"} {
			fields := strings.Fields(args)
			fields = append([]string{fields[0], "bad.db"}, fields[1:]...)
			r := run(t, fields...)
			if r.code == command.ExitUsage || r.code != 0 && !strings.HasPrefix(r.errOut, "holdfast: bad.db: ") {
				t.Errorf("file %d: holdfast %s: %s", n, args, r)
			}
			r = run(t, append(fields, "--json")...)
			if r.out != "" && !json.Valid([]byte(r.out)) {
				t.Errorf("file %d: holdfast %s --json: %s", n, args, r)
			}
			r = execute(command.NewBboltCommand(), "", fields...)
			if r.code != 0 && !strings.Contains(r.errOut, "bad.db: ") {
				t.Errorf("file %d: bbolt %s: %s", n, args, r)
			}
		}
		after, err := os.ReadFile("bad.db")
		check(t, err)
		if !bytes.Equal(after, bad) {
			t.Errorf("file %d was changed", n)
		}
	}
}

// Buckets that contain each other, or themselves, are damage, and JSON stays JSON.
func TestInspectCircle(t *testing.T) {
	withSample(t)
	const root, many = 11, 2
	damage(t, "sample.db", func(b []byte) []byte {
		p := b[root*samplePage:][:samplePage]
		at := 16 + many*16
		value := at + int(binary.NativeEndian.Uint32(p[at+4:])) + int(binary.NativeEndian.Uint32(p[at+8:]))
		binary.NativeEndian.PutUint64(p[value:], root) // the root of the bucket is the root of all
		seal, ok := page.SealOf(p, root)
		if !ok {
			t.Fatal("no room for a seal")
		}
		copy(p[samplePage-page.SealSize:], seal[:])
		return b
	})
	for _, root := range []func() *result{
		func() *result { r := run(t, "inspect", "sample.db"); return &r },
		func() *result { r := run(t, "inspect", "sample.db", "--json"); return &r },
		func() *result { r := execute(command.NewBboltCommand(), "", "inspect", "sample.db"); return &r },
	} {
		r := root()
		if r.code != 1 || !strings.Contains(r.errOut, "sample.db: damaged: page ") {
			t.Errorf("got %.2000s", r)
		}
		if strings.HasPrefix(r.out, "{") && !json.Valid([]byte(r.out)) {
			t.Errorf("not JSON: %.2000s", r.out)
		}
	}
}
