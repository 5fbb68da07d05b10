package command_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/command"
)

func TestPutAndDelete(t *testing.T) {
	here, err := os.Getwd()
	check(t, err)
	withSample(t)
	for i, c := range []struct {
		args []string
		want string
	}{
		{[]string{"put", "sample.db", "alpha", "new", "value"}, "set new in alpha to 5 bytes (a new key)\n"},
		{[]string{"get", "sample.db", "alpha", "new"}, "value\n"},
		{[]string{"put", "sample.db", "alpha", "new", "v"}, "set new in alpha to 1 byte (it had 5 bytes)\n"},
		{[]string{"put", "sample.db", "alpha", "new", ""}, "set new in alpha to 0 bytes (it had 1 byte)\n"},
		{[]string{"put", "sample.db", "x", "y", "k", "v", "--create"}, "created 2 buckets of x/y\nset k in x/y to 1 byte (a new key)\n"},
		{[]string{"put", "sample.db", "ff00", "fe", "fd", "--create", "--bucket-format", "hex", "--parse-format", "hex", "--value-format", "hex"},
			"created 1 bucket of \\xff\\x00\nset fe in \\xff\\x00 to 1 byte (a new key)\n"},
		{[]string{"get", "sample.db", "ff00", "fe", "--bucket-format", "hex", "--parse-format", "hex"}, "fd\n"},
		{[]string{"put", "new.db", "b", "k", "v", "--create"}, "created the database new.db\ncreated 1 bucket of b\nset k in b to 1 byte (a new key)\n"},
		{[]string{"put", "sample.db", "alpha", "file", "--value-file", "value"}, "set file in alpha to 7 bytes (a new key)\n"},
		{[]string{"get", "sample.db", "alpha", "file"}, "content\n"},
		{[]string{"delete", "sample.db", "alpha", "file"}, "deleted file from alpha (it had 7 bytes)\n"},
		{[]string{"delete", "sample.db", "nested", "inner", "--bucket"}, "deleted bucket nested/inner with 2 keys\n"},
		{[]string{"delete", "sample.db", "many", "--bucket"}, "deleted bucket many with 30 keys\n"},
		{[]string{"check", "sample.db"}, "checksums: 4 right, 0 wrong, 0 pages without one\nsample.db: sound\n"},
	} {
		check(t, os.WriteFile("value", []byte("content"), 0o600))
		if got := must(t, c.args...); got != c.want {
			t.Errorf("%d: holdfast %s: got %q, want %q", i, strings.Join(c.args, " "), got, c.want)
		}
	}
	golden(t, here, "put.json.golden", must(t, "put", "--json", "sample.db", "alpha", "k", "v"))
	golden(t, here, "put-replace.json.golden", must(t, "put", "--json", "sample.db", "alpha", "k", "v"))
	golden(t, here, "put-create.json.golden", must(t, "put", "--json", "--create", "other.db", "alpha", "beta", "k", "v"))
	golden(t, here, "delete.json.golden", must(t, "delete", "--json", "sample.db", "alpha", "k"))
	golden(t, here, "delete-bucket.json.golden", must(t, "delete", "--json", "--bucket", "sample.db", "alpha"))

	r := execute(command.NewRootCommand(), "from stdin", "put", "other.db", "alpha", "stdin", "--value-file", "-")
	wantIn(t, r, 0, "set stdin in alpha to 10 bytes", "")
	wantIn(t, run(t, "put", "other.db", "alpha", "k", "--value-file", "gone"), 1, "", "holdfast: gone: ")
}

// TestPutCreates nothing unless it was told to, and takes back what it created
// when it fails.
func TestPutCreates(t *testing.T) {
	dir := workdir(t)
	check(t, os.WriteFile("empty.db", nil, 0o600))
	before := snapshot(t, dir)
	for _, args := range []string{
		"put gone.db b k v",
		"put empty.db b k v",
		"put gone.db b k v --create --bucket-format hex",
	} {
		if r := run(t, strings.Fields(args)...); r.code == 0 {
			t.Errorf("holdfast %s: %s", args, r)
		}
	}
	long := strings.Repeat("k", 40_000)
	wantIn(t, run(t, "put", "gone.db", "b", long, "v", "--create"), 1, "", "holdfast: gone.db: key too large")
	if after := snapshot(t, dir); names(after) != names(before) {
		t.Errorf("files changed: before\n%s\nafter\n%s", before, after)
	}
	must(t, "put", "empty.db", "b", "k", "v", "--create")
	if out := must(t, "get", "empty.db", "b", "k"); out != "v\n" {
		t.Errorf("got %q", out)
	}
}

// names are the names of the files in a snapshot.
func names(s string) string {
	var out []string
	for _, line := range strings.Split(s, "\n") {
		if f := strings.Fields(line); len(f) == 2 && f[1][0] == '-' {
			out = append(out, filepath.Base(f[0]))
		}
	}
	return strings.Join(out, " ")
}

// put and delete changed single keys of a store of blobs, which then was damaged.
func TestPutIntoStore(t *testing.T) {
	workdir(t)
	check(t, os.WriteFile("in", []byte("content"), 0o600))
	must(t, "blob", "put", "x.db", "store", "in", "--create", "--into", "rows")
	want := "x.db: bucket store is a store of blobs, whose keys are not to be changed one by one; "
	for _, c := range []struct{ args, next string }{
		{"put x.db store k v", `"blob put" stores a blob there`},
		{"put x.db store/new k v --create", `"blob put" stores a blob there`},
		{"put x.db store/index k v", `"blob put" stores a blob there`},
		{"delete x.db store k", `"blob rm" removes a blob`},
		{"delete x.db store/index --bucket", `"blob rm" removes a blob`},
	} {
		wantIn(t, run(t, strings.Fields(c.args)...), 1, "", want+c.next)
	}
	must(t, "blob", "check", "x.db", "store")
	must(t, "put", "x.db", "rows", "k", "v")
	must(t, "delete", "x.db", "store", "--bucket")
}
