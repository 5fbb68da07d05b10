package command_test

import (
	"os"
	"testing"

	"holdfast/command"
)

// TestPlainIntoRows: into a bucket of rows with columns of blobs, "import --csv" without --blob-columns put values
// that are no such rows, without an error, and the bucket could not be exported any more. So did put, "blob put
// --into" and an import of what export has written.
func TestPlainIntoRows(t *testing.T) {
	workdir(t)
	check(t, os.WriteFile("rows.csv", []byte("k1,a,content\n"), 0o600))
	check(t, os.WriteFile("more.csv", []byte("k2,a,b\n"), 0o600))
	check(t, os.WriteFile("file", []byte("content"), 0o600))
	must(t, "import", "x.db", "rows", "--csv", "--input", "rows.csv", "--blob-columns", "3", "--create")
	must(t, "export", "x.db", "-o", "all.jsonl")
	must(t, "put", "other.db", "rows", "k2", "v", "--create")
	must(t, "export", "other.db", "-o", "other.jsonl")
	before := mustRead(t, "x.db")
	for _, c := range []struct{ args []string }{
		{[]string{"import", "x.db", "rows", "--csv", "--input", "more.csv"}},
		{[]string{"import", "x.db", "rows", "--csv", "--input", "more.csv", "--dry-run"}},
		{[]string{"import", "x.db", "other.jsonl"}},
		{[]string{"put", "x.db", "rows", "k2", "v"}},
		{[]string{"put", "x.db", "rows", "k1", "v"}},
	} {
		wantIn(t, run(t, c.args...), command.ExitFailed, "", "bucket rows has rows with columns of blobs")
		if string(mustRead(t, "x.db")) != string(before) {
			t.Errorf("%v changed the file", c.args)
		}
	}
	wantIn(t, run(t, "blob", "put", "x.db", "blobs", "file", "--into", "rows"), command.ExitFailed, "", "bucket rows has rows with columns of blobs")
	if got := must(t, "export", "x.db", "rows", "--csv"); got != "k1,a,content\n" {
		t.Errorf("the rows are %q", got)
	}
	must(t, "import", "x.db", "all.jsonl") // as it is there
	must(t, "import", "y.db", "all.jsonl", "--create")
	if got := must(t, "export", "y.db", "rows", "--csv"); got != "k1,a,content\n" {
		t.Errorf("after export and import the rows are %q", got)
	}
	// A row that another command writes is one.
	row := must(t, "get", "x.db", "rows", "k1", "--format", "hex")
	must(t, "put", "x.db", "rows", "k3", row[:len(row)-1], "--value-format", "hex")
}
