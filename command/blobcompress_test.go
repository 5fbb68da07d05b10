package command_test

import (
	"os"
	"strings"
	"testing"
)

// TestBlobCompressed: text in a store that compresses has the digest that it has elsewhere, comes back as it is, and stat tells what
// it takes; what cannot be compressed says nothing of it.
func TestBlobCompressed(t *testing.T) {
	workdir(t)
	text := []byte(strings.Repeat("some text, which comes again and again; ", 10_000))
	noise := random(3, 100_000)
	check(t, os.WriteFile("text", text, 0o600))
	check(t, os.WriteFile("noise", noise, 0o600))
	if got := must(t, "blob", "put", "x.db", "store", "text", "noise", "--create", "--compress", "zstd", "-q"); got != digestOf(text)+"\n"+digestOf(noise)+"\n" {
		t.Error(got)
	}
	must(t, "blob", "put", "x.db", "store", "text", "--compress", "zstd")
	wantIn(t, run(t, "blob", "put", "x.db", "store", "text", "--compress", "none"), 1, "", "store has --compress zstd, and not none")
	for _, data := range [][]byte{text, noise} {
		if got := must(t, "blob", "cat", "x.db", "store", digestOf(data)); got != string(data) {
			t.Errorf("%d bytes are %d others", len(data), len(got))
		}
	}
	wantIn(t, run(t, "blob", "stat", "x.db", "store"), 0, "(65,488 bytes), compressed with zstd\n", "")
	wantIn(t, run(t, "blob", "stat", "x.db", "store"), 0, "Compressed  6 of the leaves, ", "")
	wantIn(t, run(t, "blob", "stat", "x.db", "store", digestOf(text)), 0, "of the 327 KiB before compression", "")
	if out := must(t, "blob", "stat", "x.db", "store", digestOf(noise)); strings.Contains(out, "compress") {
		t.Error(out)
	}
	wantIn(t, run(t, "blob", "check", "x.db", "store", "--data"), 0, "", "")
}
