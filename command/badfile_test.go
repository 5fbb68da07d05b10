package command_test

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast"
	"holdfast/command"
)

// errorsTable are the rows of docs/errors.md: id and third column.
func errorsTable(t *testing.T) map[string]string {
	t.Helper()
	doc, err := os.ReadFile("../docs/errors.md")
	check(t, err)
	rows, on := map[string]string{}, false
	for line := range strings.Lines(string(doc)) {
		if section, ok := strings.CutPrefix(line, "## "); ok { // the others are not about files
			on = strings.HasPrefix(section, "Opening") || strings.HasPrefix(section, "Damage")
		}
		if on && strings.HasPrefix(line, "| `") {
			cells := append(strings.Split(strings.Trim(line, "| \n"), " | "), "`*CorruptError`") // where there is no third
			rows[strings.Trim(cells[0], "`")] = cells[2]
		}
	}
	if len(rows) < 50 {
		t.Fatalf("only %d rows in docs/errors.md", len(rows))
	}
	return rows
}

func newBuilder(t *testing.T) *builder {
	t.Helper()
	b := &builder{
		recorded: makeTree(t, "recorded.db", holdfast.Options{NoSeals: true}, false),
		sealed:   makeTree(t, "sealed.db", holdfast.Options{}, false),
		left:     makeTree(t, "left.db", holdfast.Options{SettleDelay: -1}, true),
	}
	b.plain = b.recorded.stripped()
	return b
}

// TestBadFileTable gives all commands of both roots all bad files of docs/errors.md. What
// each exits with is in testdata/bad-files.golden. No command may panic, go on for ever, leave
// a file behind, or, if it only reads, touch the file; an error names the file.
func TestBadFileTable(t *testing.T) {
	here, err := os.Getwd()
	check(t, err)
	rows := errorsTable(t)
	workdir(t)
	b := newBuilder(t)
	inputs(t, b)
	table := slices.Sorted(maps.Keys(badRows))
	for id := range rows {
		if (badRows[id] == nil) == (notAFile[id] == "") {
			t.Errorf("row %s of docs/errors.md: no file is made of it, or one is and need not be", id)
		}
	}
	var all strings.Builder
	for _, id := range table {
		if _, ok := rows[id]; !ok && id[0] != '+' {
			t.Errorf("no row %s in docs/errors.md", id)
		}
		for _, v := range badRows[id](b) {
			title := strings.TrimSuffix(id+", "+v.name, ", ")
			codes := map[string]codesOf{}
			for _, root := range []string{"holdfast", "bbolt"} {
				codes[root] = callAll(t, b, title, root, v.data)
				if want, ok := checkOf[rows[id]]; ok && codes[root]["check BAD"] != want && !strings.HasSuffix(id, "zeros") && id != "interrupted-creation" {
					t.Errorf("%s: %s check exits with %d, want %d", title, root, codes[root]["check BAD"], want)
				}
			}
			fmt.Fprintf(&all, "%s\n%s", title, codes["holdfast"].text("", true))
			for call, code := range codes["bbolt"] { // only what is different
				if codes["holdfast"][call] == code {
					delete(codes["bbolt"], call)
				}
			}
			all.WriteString(codes["bbolt"].text(" of bbolt", false))
		}
	}
	golden(t, here, "bad-files.golden", all.String())
}

// codesOf are the exit codes of calls.
type codesOf map[string]int

// text has a line for each exit code. With short it does not name the calls with the most
// frequent one.
func (c codesOf) text(of string, short bool) string {
	var names [4][]string
	most := 0
	for _, call := range calls {
		if code, ok := c[call.args]; ok {
			names[code] = append(names[code], call.args)
			if len(names[code]) > len(names[most]) {
				most = code
			}
		}
	}
	var b strings.Builder
	for code, some := range names {
		switch {
		case short && code == most:
			fmt.Fprintf(&b, "  %d%s: all others\n", code, of)
		case len(some) > 0:
			fmt.Fprintf(&b, "  %d%s: %s\n", code, of, strings.Join(some, ", "))
		}
	}
	return b.String()
}

// inputs makes the other files that calls take.
func inputs(t *testing.T, b *builder) {
	t.Helper()
	check(t, os.WriteFile("good.db", b.sealed.data, 0o600))
	must(t, "export", "good.db", "-o", "in.jsonl")
	check(t, os.WriteFile("in.csv", []byte("key000100,v\n"), 0o600))
	for _, name := range []string{"recorded.db", "sealed.db", "left.db"} {
		check(t, os.Remove(name))
	}
}

// long ago, so that touching a file shows.
var longAgo = time.Unix(1_000_000_000, 0)

// setBad makes bad.db anew.
func setBad(t *testing.T, data []byte) {
	t.Helper()
	_ = os.Remove("bad.db")
	if data != nil {
		check(t, os.WriteFile("bad.db", data, 0o600))
		check(t, os.Chtimes("bad.db", longAgo, longAgo))
	}
}

// checkOf is what check exits with, by the error that docs/errors.md gives.
var checkOf = map[string]int{
	"none": command.ExitOK, "`*CorruptError`": command.ExitDamaged, "`ErrChecksum`": command.ExitDamaged, "`ErrVersionMismatch`": command.ExitFailed,
	"`ErrInvalid`": command.ExitFailed, "wraps `ErrInvalid`": command.ExitFailed, "wraps `ErrTornCopy`": command.ExitDamaged, "wraps `fs.ErrNotExist`": command.ExitFailed,
}

// callAll gives the file to all commands of a root, and looks at what they do with it.
func callAll(t *testing.T, b *builder, title, root string, data []byte) codesOf {
	t.Helper()
	codes := codesOf{}
	leaf := fmt.Sprint(b.plain.leaf())
	for _, c := range calls {
		if !c.in(root) {
			continue
		}
		setBad(t, data)
		withoutOutput(t)
		before := snapshot(t, ".")
		args := c.expand(leaf)
		r := execute(rootNamed(root), "", args...)
		codes[c.args] = r.code
		call := fmt.Sprintf("%s: %s %s", title, root, strings.Join(args, " "))
		made := fileThere("out")
		if made && (!c.output() || r.code != command.ExitOK && r.code != command.ExitDamaged) {
			t.Errorf("%s: there is an output in spite of %s", call, r)
		}
		if !made && c.output() && r.code == command.ExitOK {
			t.Errorf("%s: there is no output", call)
		}
		withoutOutput(t)
		if r.code != command.ExitOK || !c.writes {
			if after := snapshot(t, "."); after != before {
				t.Errorf("%s: files changed: before\n%s\nafter\n%s\n%s", call, before, after, r)
			}
		} else {
			setBad(t, data)
			if after := snapshot(t, "."); after != before {
				t.Errorf("%s left other files than before\n%s\nafter\n%s", call, before, after)
			}
		}
		wantMessage(t, call, commandOf(args), root, r)
	}
	return codes
}

// wantMessage sees that a failure is told, with the name of the file, and what to do.
func wantMessage(t *testing.T, call, name, root string, r result) {
	t.Helper()
	prefix := "holdfast: "
	if root == "bbolt" {
		prefix = "Error: "
	}
	text := strings.TrimPrefix(r.errOut, prefix)
	whole := text == command.ErrSurgeryFreelistAlreadyExist.Error()+"\n" || // which callers compare
		r.code == command.ExitDamaged && root == "bbolt" && text == "invalid value\n" && strings.Contains(r.out, " errors found\n") || // bbolt's
		strings.HasPrefix(text, "bad.db: no such file\n") || // and none has a similar name
		strings.HasPrefix(text, "bad.db: no page ") // and it says which there are
	switch {
	case r.code == command.ExitOK, name == "diff" && r.code == command.ExitDifferent, whole:
		return
	case r.code == command.ExitUsage && name != "diff": // a page that the file does not have
		if !strings.HasPrefix(text, "--") || !strings.Contains(text, "bad.db") {
			t.Errorf("%s: %s", call, r)
		}
	case strings.HasPrefix(text, "in.jsonl: ") && strings.Contains(text, "; nothing was imported"): // it does not fit
	case text == r.errOut, !strings.HasPrefix(text, "bad.db: "), !strings.Contains(text, "; "):
		t.Errorf("%s: %s", call, r)
	}
}

func fileThere(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// TestBadPlaces gives all commands what is not a file, and a file that another program has open.
func TestBadPlaces(t *testing.T) {
	workdir(t)
	b := newBuilder(t)
	inputs(t, b)
	for name, place := range map[string]struct {
		set     func() (unset func())
		want    string
		created string // of a command that would make it; "": want
	}{
		"directory": {func() func() { check(t, os.Mkdir("bad.db", 0o700)); return func() {} }, "is a directory; give a file", ""},
		"locked": {func() func() {
			setBad(t, b.sealed.data)
			db, err := holdfast.Open("bad.db", 0o600, nil)
			check(t, err)
			return func() { check(t, db.Close()) }
		}, "locked by another process for longer than 10ms", ""},
		"through a link that leads nowhere": {func() func() { check(t, os.Symlink("gone", "bad.db")); return func() {} }, "no such file",
			"is a symbolic link to gone, which does not exist"},
	} {
		check(t, os.RemoveAll("bad.db"))
		unset := place.set()
		before := snapshot(t, ".")
		for _, root := range []string{"holdfast", "bbolt"} {
			for _, c := range calls {
				args := append(c.expand("3"), "--timeout", "10ms")
				if !c.in(root) || root == "bbolt" && name == "locked" && args[0] == "surgery" { // which takes no lock, as bbolt
					continue
				}
				want, says := command.ExitFailed, place.want
				switch commandOf(args) {
				case "diff":
					want = command.ExitTrouble
				case "create":
					says = cmp.Or(place.created, says)
				}
				r := execute(rootNamed(root), "", args...)
				if r.code != want || !strings.Contains(r.errOut, "bad.db: ") || !strings.Contains(r.errOut, says) {
					t.Errorf("%s: %s %s: %s", name, root, strings.Join(args, " "), r)
				}
			}
		}
		if after := snapshot(t, "."); after != before {
			t.Errorf("%s: files changed: before\n%s\nafter\n%s", name, before, after)
		}
		unset()
	}
}
