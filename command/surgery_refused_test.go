package command_test

import (
	"os"
	"testing"
)

// With a field "freelist" that named a page in use, a branch, surgery meta update wrote a copy that could not be
// opened for writing, and ended with exit code 0.
func TestMetaUpdateOfNoFreelist(t *testing.T) {
	withSample(t)
	must(t, "compact", "sample.db", "-o", "plain.db")
	for _, id := range []string{"2", "3", "4", "9"} {
		r := run(t, "surgery", "meta", "update", "plain.db", "-o", "out.db", "--fields", "freelist:"+id, "--meta-page", current(t, "plain.db"))
		if r.code == 0 { // the one that is the freelist
			must(t, "put", "out.db", "alpha", "k", "v")
			check(t, os.Remove("out.db"))
			continue
		}
		wantIn(t, r, 1, "", "with this freelist the file cannot be opened for writing: ")
		if _, err := os.Stat("out.db"); err == nil {
			t.Errorf("freelist:%s: a copy was written", id)
		}
	}
}

// current is the meta page of a file that is opened.
func current(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	check(t, err)
	if data[16+48] < data[samplePage+16+48] {
		return "1"
	}
	return "0"
}
