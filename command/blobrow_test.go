package command_test

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"holdfast/command"
)

// TestBlobIntoDanglingRow: a row whose blob had been removed took the user of the same blob when it was put again,
// which said "new" and left nothing. Now the blob is there, with one user.
func TestBlobIntoDanglingRow(t *testing.T) {
	for _, more := range [][]string{nil, {"--replace"}} {
		workdir(t)
		data := random(8, 100_000)
		check(t, os.WriteFile("file", data, 0o600))
		put := append([]string{"blob", "put", "x.db", "store", "file", "--into", "rows", "--create", "--json"}, more...)
		putIt := func(existed bool, users int) {
			t.Helper()
			var r struct {
				Blobs []struct {
					Existed bool
					Users   int
				}
			}
			check(t, json.Unmarshal([]byte(must(t, put...)), &r))
			if len(r.Blobs) != 1 || r.Blobs[0].Existed != existed || r.Blobs[0].Users != users {
				t.Errorf("%v: got %+v, want existed %v and %d users", more, r.Blobs, existed, users)
			}
			must(t, "blob", "gc", "x.db", "store")
			if got := must(t, "blob", "cat", "x.db", "store", digestOf(data)); got != string(data) {
				t.Errorf("%v: the blob is not what was put", more)
			}
		}
		putIt(false, 1)
		must(t, "blob", "rm", "x.db", "store", digestOf(data))
		putIt(false, 1)
		putIt(true, 1) // in place of the row's own user: it had said "new"
		must(t, "blob", "put", "x.db", "store", "file")
		putIt(true, 2)
		wantIn(t, run(t, "blob", "check", "x.db", "store", "--data"), 0, "OK\n", "")
	}
}

// TestBlobResumeLine: the line with which an interrupted put goes on had lost --into, --expect and all other flags:
// who took it got a blob without its row, and unverified. It has them all, quoted, and the digest is remembered
// besides.
func TestBlobResumeLine(t *testing.T) {
	workdir(t)
	command.SmallPuts(t, 1<<20)
	data := random(9, 3<<20+11)
	broken := func(args ...string) result {
		return putFrom(t, &failing{bytes.NewReader(data[:2<<20]), errSource}, args...)
	}
	want := "go on with: holdfast blob put x.db store - --create --expect " + digestOf(data) + " --into 'a b' --keep-unfinished 1h --name 'it'\\''s' --quiet --replace --resume n1\n"
	r := broken("x.db", "store", "-", "--create", "--into", "a b", "--name", "it's", "--expect", digestOf(data), "--keep-unfinished", "1h", "--replace", "-q", "--resume", "n1")
	wantIn(t, r, 1, "", want)
	r = broken("x.db", "00ff", "--create", "--into", "61", "--name", "k", "--bucket-format", "hex", "--resume", "n2")
	wantIn(t, r, 1, "", "go on with: holdfast blob put x.db 00ff - --bucket-format hex --create --into 61 --name k --resume n2\n")

	// Who continues it with another --expect, or with none and other content, gets no blob, and what was stored stays.
	other := append(bytes.Clone(data), 1)
	wantIn(t, putFrom(t, bytes.NewReader(data), "x.db", "store", "--resume", "n1", "--expect", digestOf(other)), 1, "", "x.db: the put n1 was begun with --expect "+digestOf(data)+"; give the same, or drop what is stored with: holdfast blob rm x.db store --unfinished n1\n")
	wantIn(t, putFrom(t, bytes.NewReader(other), "x.db", "store", "--resume", "n1"), 1, "", "another digest than expected: "+digestOf(other)+", not "+digestOf(data)+"; no blob was made; 3.0 MiB (3,145,728 bytes) stay stored by the name n1; ")
	if out := must(t, "blob", "ls", "x.db", "store"); out != "" {
		t.Errorf("there is %s", out)
	}
	wantIn(t, putFrom(t, bytes.NewReader(data), "x.db", "store", "--resume", "n1", "--create", "--into", "a b", "--name", "it's"), 0, digestOf(data), "")
	if got := must(t, "blob", "cat", "x.db", "store", strings.TrimSpace(must(t, "get", "x.db", "a b", "it's"))); got != string(data) {
		t.Error("the row refers to something else")
	}
	wantIn(t, run(t, "blob", "check", "x.db", "store", "--data"), 0, "OK\n", "")
}

// TestBlobGetPart: a part of a blob could be written to standard output only; get writes it to a file too, with sizes
// in units.
func TestBlobGetPart(t *testing.T) {
	workdir(t)
	a, _, _ := makeBlobs(t)
	for _, part := range []struct {
		offset, length string
		want           []byte
	}{{"0", "-1", a}, {"4KiB", "5000", a[4096:9096]}, {"20000", "-1", nil}, {"19999", "1MiB", a[19999:]}} {
		must(t, "blob", "get", "blobs.db", "store", digestOf(a), "-o", "out", "--force", "--offset", part.offset, "--length", part.length)
		if got := mustRead(t, "out"); !bytes.Equal(got, part.want) {
			t.Errorf("%s bytes from %s on: %d bytes", part.length, part.offset, len(got))
		}
	}
}
