package command_test

import (
	"os"
	"strings"
	"testing"
)

// A put that was refused after it had created the bucket of --into said that there were two buckets, and had left one.
func TestBlobPutRefusedBuckets(t *testing.T) {
	makeExchange(t)
	r := run(t, "blob", "put", "new.db", "store", "short", "--create", "--into", "rows/deep", "--expect", "sha256:"+strings.Repeat("0", 64), "--json")
	wantIn(t, r, 1, `"created_buckets": 1,`, "has another digest than expected")
	if got := must(t, "buckets", "new.db"); strings.Contains(got, "rows") {
		t.Error(got)
	}
}

// TestBlobCreate: an empty store is created as the flags say, once. To receive blobs over ssh one had to put an empty file.
func TestBlobCreate(t *testing.T) {
	makeEncrypted(t)
	if got := must(t, "blob", "create", "to.db", "deep/copy", "--encrypt", "--compress", "zstd", "--key-file", "key"); got != "created the database to.db\ncreated the store deep/copy\n" {
		t.Error(got)
	}
	wantIn(t, run(t, "blob", "create", "to.db", "deep/copy", "--encrypt", "--compress", "zstd", "--key-file", "key"), 1, "", "the store deep/copy is there already")
	wantIn(t, run(t, "blob", "create", "to.db", "deep/copy", "--chunking", "fastcdc", "--key-file", "key"), 1, "", "has --chunking fixed, and not fastcdc")
	if got := must(t, "blob", "create", "to.db", "more", "--json"); !strings.Contains(got, `"created_store": true`) {
		t.Error(got)
	}
	if list := must(t, "blob", "ls", "to.db", "deep/copy", "--key-file", "key"); strings.Contains(list, "blake3") {
		t.Error(list)
	}
	must(t, "blob", "push", "x.db", "store", "--all", "--to", "to.db", "--to-store", "deep/copy", "--key-file", "key")
	must(t, "blob", "check", "--data", "to.db", "deep/copy", "--key-file", "key")
	if stat := must(t, "blob", "stat", "to.db", "deep/copy", "--key-file", "key"); !strings.Contains(stat, "zstd") {
		t.Error(stat)
	}
	wantIn(t, run(t, "blob", "create", "new.db", "store", "--encrypt"), 2, "", "--encrypt needs a key")
	wantIn(t, run(t, "blob", "create", "new.db", "store", "--key-file", "key"), 2, "", "the new store would not be encrypted")
	if _, err := os.Stat("new.db"); err == nil {
		t.Error("new.db was created all the same")
	}
}
