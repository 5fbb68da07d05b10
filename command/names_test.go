package command_test

import (
	"os"
	"strings"
	"testing"

	"holdfast"
)

// naming are ways to call all commands that take the names of buckets: BUCKET stands for those,
// and KEY for a key in the bucket.
var naming = []struct {
	args   string
	root   string
	writes bool
}{
	{args: "buckets sample.db BUCKET", root: notInStock},
	{args: "keys sample.db BUCKET"},
	{args: "get sample.db BUCKET KEY"},
	{args: "put sample.db BUCKET KEY v", writes: true},
	{args: "delete sample.db BUCKET KEY", writes: true},
	{args: "delete sample.db --bucket BUCKET", writes: true},
	{args: "export sample.db BUCKET"},
	{args: "export sample.db BUCKET -o out"},
	{args: "export sample.db BUCKET --csv"},
	{args: "diff sample.db sample.db BUCKET"},
	{args: "diff sample.db sample.db BUCKET -q"},
	{args: "import sample.db BUCKET --csv --input rows.csv", writes: true},
	{args: "import sample.db BUCKET --csv --input rows.csv --dry-run"},
}

// TestNamingComplete: no command that takes a bucket is missing.
func TestNamingComplete(t *testing.T) {
	for _, root := range []string{"holdfast", "bbolt"} {
		for _, cmd := range rootNamed(root).Commands() {
			if !strings.Contains(cmd.Use, "BUCKET") && cmd.Flags().Lookup("bucket-format") == nil {
				continue
			}
			found := false
			for _, n := range naming {
				found = found || strings.HasPrefix(n.args, cmd.Name()+" ") && (n.root == "" || n.root == root)
			}
			if !found && !(root == "bbolt" && cmd.Name() == "buckets") { // which takes none there
				t.Errorf("no call of %s with a bucket", cmd.CommandPath())
			}
		}
	}
}

// TestWrongBuckets gives all commands buckets that do not exist, and looks for the suggestion.
func TestWrongBuckets(t *testing.T) {
	dir := withSample(t)
	check(t, os.WriteFile("rows.csv", []byte("k,v\n"), 0o600))
	before := snapshot(t, dir)
	for _, c := range []struct{ bucket, want, next string }{
		{"alpa", "no bucket alpa; similar: alpha; ", "ROOT buckets sample.db"},
		{"ALPHA", "no bucket ALPHA; similar: alpha; ", "ROOT buckets sample.db"},
		{"zzzzzzzz", "no bucket zzzzzzzz; ", "ROOT buckets sample.db"},
		{"nested iner", "no bucket nested/iner; similar: inner; ", "holdfast buckets sample.db nested"},
		{"nested inner dep", "no bucket nested/inner/dep; similar: deep; ", "holdfast buckets sample.db nested inner"},
		{"nested plain", "no bucket nested/plain; it is a key", ""},
		{"nested plain x", "no bucket nested/plain; it is a key", ""},
		{"alpha x", "no bucket alpha/x; there are no buckets at all there", ""},
		{"0001fefe", "no bucket 0001fefe; similar: 0001feff (hexadecimal); ", "ROOT buckets sample.db"},
		{"0001fe00 --bucket-format hex", "no bucket 0001fe00; similar: 0001feff; ", "ROOT buckets sample.db"},
		{"0001feff 01 --bucket-format hex", "no bucket 0001feff/01; there are no buckets at all there", ""},
	} {
		for _, root := range []string{"holdfast", "bbolt"} {
			for _, n := range naming {
				if n.root != "" && n.root != root {
					continue
				}
				bucket, flag, _ := strings.Cut(c.bucket, " --")
				args := strings.Fields(strings.NewReplacer("BUCKET", bucket, "KEY", "6b").Replace(n.args))
				if flag != "" {
					args = append(args, strings.Fields("--"+flag)...)
				}
				r := execute(rootNamed(root), "", args...)
				code := 1
				if args[0] == "diff" {
					code = 2
				}
				next := strings.ReplaceAll(c.next, "ROOT", root)
				if root == "bbolt" && strings.HasPrefix(next, "holdfast buckets ") { // it lists the top level only
					next = strings.Replace(next, "holdfast buckets", "bbolt keys", 1)
				}
				if r.code != code || r.out != "" || !strings.Contains(r.errOut, "sample.db: "+c.want) || !strings.Contains(r.errOut, next) {
					t.Errorf("%s %s: %s\nwant %d, %q and %q", root, strings.Join(args, " "), r, code, c.want, next)
				}
			}
		}
	}
	if after := snapshot(t, dir); after != before {
		t.Errorf("files changed: before\n%s\nafter\n%s", before, after)
	}
}

// TestWrongKeys: keys that do not exist, and prefixes, pages and elements.
func TestWrongKeys(t *testing.T) {
	dir := withSample(t)
	check(t, os.WriteFile("rows.csv", []byte("k,v\n"), 0o600))
	must(t, "put", "other.db", "b", "k", "v", "--create")
	empty, err := holdfast.Open("empty.db", 0o600, nil)
	check(t, err)
	check(t, empty.Close())
	before := snapshot(t, dir)
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"get sample.db alpha ky-1", 1, "sample.db: no key ky-1 in bucket alpha; similar: key-1; list its keys with: holdfast keys sample.db alpha\n"},
		{"get sample.db many 01111", 1, "no key 01111 in bucket many; similar: 01110; "},
		{"get sample.db many zzz", 1, "no key zzz in bucket many; list its keys"},
		{"get sample.db 0001feff 0001feff --bucket-format hex", 1, "no key 0001feff in bucket 0001feff; it is there in hexadecimal: give it with --parse-format hex; list its keys with: holdfast keys sample.db 0001feff --bucket-format hex\n"},
		{"delete sample.db alpha ky-1", 1, "no key ky-1 in bucket alpha; similar: key-1"},
		{"delete sample.db nested inner", 1, "inner in nested is a bucket; --bucket deletes it"},
		{"stats sample.db alpah", 1, "sample.db: no bucket whose name begins with alpah; similar: alpha; list them with: holdfast buckets sample.db\n"},
		{"stats sample.db zzzzz", 1, "no bucket whose name begins with zzzzz; list them with: holdfast buckets sample.db\n"},
		{"stats sample.db zzzzz --json", 1, "no bucket whose name begins with zzzzz; "},
		{"stats empty.db a", 1, "empty.db: no bucket whose name begins with a; there are no buckets at all\n"},
		{"keys empty.db a", 1, "empty.db: no bucket a; there are no buckets at all there\n"},
		{"diff sample.db other.db c", 2, "sample.db: no bucket c, and none in other.db; list them"},
		{"import sample.db rows.csv", 1, "rows.csv: line 1: this does not begin as an export: "},
		{"import sample.db rows.csv", 1, "; nothing was imported; CSV takes --csv and the bucket: holdfast import sample.db BUCKET --csv --input rows.csv\n"},
		{"import new.db rows.csv --create", 1, "holdfast import new.db BUCKET --csv --input rows.csv\n"},
		{"page-item sample.db 4 9", 1, "sample.db: no element 9 in page 4, which has 0 to 0"},
		{"page-item sample.db 99 0", 1, "sample.db: no page 99; its pages are 0 to 31"},
		{"page-item sample.db 10 0", 1, "sample.db: page 10 has no elements with values: it is a freelist page; see what it is with: holdfast page sample.db 10"},
		{"page-item sample.db x 0", 2, `"x" is not a page number`},
		{"page-item sample.db 4 x", 2, `"x" is not an element number`},
		{"page sample.db 99", 1, "sample.db: no page 99; its pages are 0 to 31"},
		{"dump sample.db 99", 1, "sample.db: no page 99; its pages are 0 to 31"},
		{"surgery clear-page-elements sample.db -o o --pageId 4 --from-index 5 --to-index 6", 2, "--from-index: page 4 of sample.db has elements 0 to 0, not 5"},
	} {
		r := run(t, strings.Fields(c.args)...)
		begin := "holdfast: "
		if strings.HasSuffix(c.args, " --json") {
			begin = `{"error":{"message":"sample.db: `
		}
		if r.code != c.code || r.out != "" || !strings.HasPrefix(r.errOut, begin) || !strings.Contains(r.errOut, c.want) {
			t.Errorf("holdfast %s: %s\nwant exit code %d and %q", c.args, r, c.code, c.want)
		}
	}
	stats := execute(rootNamed("bbolt"), "", "stats", "sample.db", "zzzzz")
	wantIn(t, stats, 0, "Aggregate statistics for 0 buckets\n", "") // as bbolt
	if after := snapshot(t, dir); after != before {
		t.Errorf("files changed: before\n%s\nafter\n%s", before, after)
	}
}
