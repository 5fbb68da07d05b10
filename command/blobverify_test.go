package command_test

import (
	"bytes"
	"os"
	"testing"
)

// A put without --verify had taken a damaged leaf for stored and was interrupted, and put --resume --verify went on from there: what came before was
// not read, and the blob could not be read. It is gone through now.
func TestBlobPutVerifyResumed(t *testing.T) {
	a, _ := makeExchange(t)
	longer := append(bytes.Clone(a), random(9, 9000)...)
	check(t, os.WriteFile("longer", longer, 0o600))
	spoilLeaf(t, "blobs.db", a[4096:8192])
	wantIn(t, putFrom(t, &failing{bytes.NewReader(longer[:14_000]), errSource}, "blobs.db", "store", "-", "--resume", "n"), 1, "", "go on with")
	wantIn(t, run(t, "blob", "put", "blobs.db", "store", "b", "--verify", "--resume", "n"), 1, "", "this is another source")
	wantIn(t, run(t, "blob", "put", "blobs.db", "store", "longer", "--verify", "--resume", "n"), 0, ", from ", "")
	if r := run(t, "blob", "cat", "blobs.db", "store", digestOf(longer)); r.out != string(longer) {
		t.Error(r.errOut)
	}
	must(t, "blob", "check", "blobs.db", "store", "--data", "--repair") // the damaged bytes are left
	must(t, "blob", "check", "blobs.db", "store", "--data")
}
