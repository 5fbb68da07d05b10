package command_test

import (
	"os"
	"strings"
	"testing"

	"holdfast"
	"holdfast/command"
)

// TestMalformedPaths: "put --create" and "import --csv --create" took a path that is none, such as alpha/ or alpha\x,
// as the name of a new bucket, with exit code 0, and the commands that read said that there is no such bucket; those
// of blob refused an empty name only. A bucket that has such a name can be given as before.
func TestMalformedPaths(t *testing.T) {
	dir := withSample(t)
	check(t, os.WriteFile("rows.csv", []byte("k,v\n"), 0o600))
	calls := []string{
		"buckets sample.db PATH", "keys sample.db PATH", "get sample.db PATH k", "put sample.db PATH k v", "put sample.db PATH k v --create",
		"put new.db PATH k v --create", "delete sample.db PATH k", "delete sample.db --bucket PATH", "export sample.db PATH",
		"diff sample.db sample.db PATH", "import sample.db PATH --csv --input rows.csv --create", "import new.db PATH --csv --input rows.csv --create",
		"import new.db rows --csv --input rows.csv --create --blob-columns 2 --store PATH",
		"blob put sample.db PATH rows.csv --create", "blob put sample.db st rows.csv --create --into PATH", "blob ls sample.db PATH", "blob gc sample.db PATH",
	}
	before := snapshot(t, dir)
	for _, path := range []string{"alpha/", "/alpha", "alpha//new", "/", `alpha\x`, `alpha\`, `a\b`, `a\xzz`} {
		for _, c := range calls {
			args := strings.Fields(c)
			for i := range args {
				if args[i] == "PATH" {
					args[i] = path
				}
			}
			r := run(t, args...)
			if r.code != command.ExitUsage || r.out != "" || !strings.Contains(r.errOut, "holdfast: "+path+" is not a path of buckets: ") {
				t.Errorf("%q: %s", args, r)
			}
		}
	}
	if after := snapshot(t, dir); after != before {
		t.Errorf("files changed: before\n%s\nafter\n%s", before, after)
	}
	db, err := holdfast.Open("odd.db", 0o600, nil)
	check(t, err)
	check(t, db.Update(func(tx *holdfast.Tx) error {
		_, err := tx.CreateBucket([]byte("alpha/"))
		return err
	}))
	check(t, db.Close())
	must(t, "put", "odd.db", "alpha/", "k", "v")
	must(t, "get", "odd.db", "alpha/", "k")
}

// TestHexNames: of names in hexadecimal, one with a slash in it was divided, so that a bucket with such a name could be
// read and not be made.
func TestHexNames(t *testing.T) {
	workdir(t)
	must(t, "put", "x.db", "--bucket-format", "hex", "612f", "k", "v", "--create") // a/
	must(t, "put", "x.db", "--bucket-format", "hex", "612f62/63", "k", "v", "--create")
	if got := must(t, "buckets", "x.db"); got != "a/\na/b\n" {
		t.Errorf("the buckets are %q", got)
	}
	if got := must(t, "get", "x.db", `a\/b/c`, "k"); got != "v\n" {
		t.Errorf("got %q", got)
	}
}
