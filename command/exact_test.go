package command_test

import (
	"os"
	"strings"
	"testing"

	"holdfast"
	"holdfast/command"
)

// TestGetExactly: "get --format bytes" wrote a newline after the value, so that no command gave exactly its bytes. The
// drop-in's command writes it, as bbolt does.
func TestGetExactly(t *testing.T) {
	workdir(t)
	for _, value := range []string{"", "v", "two\nlines\n", "\x00\xff"} {
		check(t, os.WriteFile("value", []byte(value), 0o600))
		must(t, "put", "x.db", "b", "k", "--value-file", "value", "--create")
		if got := must(t, "get", "x.db", "b", "k", "--format", "bytes"); got != value {
			t.Errorf("%q instead of %q", got, value)
		}
		r := execute(command.NewBboltCommand(), "", "get", "x.db", "b", "k", "--format", "bytes")
		if r.code != 0 || r.out != value+"\n" {
			t.Errorf("bbolt: %s instead of %q and a newline", r, value)
		}
	}
}

// TestNamesWithSlash: diff wrote the bucket x/y as x/y/, as it writes a bucket y in x, and "no bucket p/q/r" was
// printed of one that is called q/r where there is a bucket r in p/q.
func TestNamesWithSlash(t *testing.T) {
	workdir(t)
	must(t, "put", "a.db", `x\/y`, "k", "v", "--create")
	must(t, "put", "a.db", `\/`, "k", "v", "--create")
	must(t, "put", "b.db", "x/y", "k", "v", "--create")
	r := run(t, "diff", "a.db", "b.db")
	want := "- \\//: a bucket with 1 key in it\n+ x/: a bucket with 1 key and 1 bucket in it\n- x\\/y/: a bucket with 1 key in it\n"
	if r.code != command.ExitDifferent || !strings.HasPrefix(r.out, want) {
		t.Errorf("%s\nwant\n%s", r, want)
	}
	wantIn(t, run(t, "keys", "b.db", `p/q\/r`), 1, "", `b.db: no bucket p; `)
	wantIn(t, run(t, "keys", "b.db", `x/q\/r`), 1, "", `b.db: no bucket x/q\/r; `)
}

// TestDiffLongValues: of two long values that begin in the same way diff showed two lines that said the same.
func TestDiffLongValues(t *testing.T) {
	workdir(t)
	same := strings.Repeat("x", 500)
	must(t, "put", "a.db", "b", "k", same+"1", "--create")
	must(t, "put", "b.db", "b", "k", same+"2", "--create")
	r := run(t, "diff", "a.db", "b.db")
	if !strings.Contains(r.out, "... (501 bytes), different from byte 500 on\n") {
		t.Errorf("got %s", r)
	}
	if r := run(t, "diff", "a.db", "b.db", "--full"); strings.Contains(r.out, "different from") {
		t.Errorf("got %s", r)
	}
}

// TestByteOrderMark: the mark that some programs put before CSV became the beginning of the first key if no line had
// the names of the columns. A key that begins with the same bytes comes back from an export as it was.
func TestByteOrderMark(t *testing.T) {
	workdir(t)
	check(t, os.WriteFile("marked.csv", []byte("\ufeffk,v\nk2,v2\n"), 0o600))
	must(t, "import", "x.db", "b", "--csv", "--input", "marked.csv", "--create")
	if got := must(t, "keys", "x.db", "b"); got != "k\nk2\n" {
		t.Errorf("the keys are %q", got)
	}
	db, err := holdfast.Open("marked.db", 0o600, nil)
	check(t, err)
	check(t, db.Update(func(tx *holdfast.Tx) error {
		b, err := tx.CreateBucket([]byte("b"))
		check(t, err)
		return b.Put([]byte("\ufeffkey"), []byte("v"))
	}))
	check(t, db.Close())
	for _, more := range [][]string{nil, {"--header"}} {
		must(t, append([]string{"export", "marked.db", "b", "--csv", "-o", "out.csv", "--force", "--key-format", "bytes"}, more...)...)
		if len(more) > 0 {
			more = append(more, "--key-column", "key", "--value-column", "value")
		}
		_ = os.Remove("again.db")
		must(t, append([]string{"import", "again.db", "b", "--csv", "--input", "out.csv", "--create"}, more...)...)
		wantIn(t, run(t, "diff", "marked.db", "again.db"), 0, "hold the same", "")
	}
}
