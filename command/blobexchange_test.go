package command_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"holdfast"
)

// makeExchange makes blobs.db with a store, as makeBlobs does, and how blob get names what is in it.
func makeExchange(t *testing.T) (a, b []byte) {
	t.Helper()
	workdir(t)
	a, b, _ = makeBlobs(t)
	return a, b
}

// received is an error unless the store in the file has the blobs of makeBlobs.
func received(t *testing.T, file, store string, contents ...[]byte) {
	t.Helper()
	must(t, "blob", "check", "--data", file, store)
	for _, p := range contents {
		ref := refOf(t, file, store, len(p))
		if got := must(t, "blob", "cat", file, store, ref); got != string(p) {
			t.Errorf("%s: blob %s has other content", file, ref)
		}
	}
}

// refOf is the reference of the blob that has so many bytes.
func refOf(t *testing.T, file, store string, size int) string {
	t.Helper()
	var list struct {
		Blobs []struct {
			Reference string `json:"reference"`
			Bytes     int    `json:"bytes"`
		} `json:"blobs"`
	}
	check(t, json.Unmarshal([]byte(must(t, "blob", "ls", file, store, "--json")), &list))
	for _, e := range list.Blobs {
		if e.Bytes == size {
			return e.Reference
		}
	}
	t.Fatalf("%s: no blob of %d bytes", file, size)
	return ""
}

// spoilLeaf has zeros in place of a leaf.
func spoilLeaf(t *testing.T, file string, leaf []byte) {
	t.Helper()
	change(t, file, func(tx *holdfast.Tx) error {
		leaves := tx.Bucket([]byte("store")).Bucket([]byte("leaves"))
		for k, v := range leaves.All() {
			if bytes.Equal(v, leaf) {
				return leaves.Put(bytes.Clone(k), make([]byte, len(v)))
			}
		}
		return errors.New("no such leaf")
	})
}

// TestBlobExchangeVerify: of a blob that is there what is damaged comes again with --verify, both ways.
func TestBlobExchangeVerify(t *testing.T) {
	a, _ := makeExchange(t)
	wantIn(t, run(t, "blob", "push", "blobs.db", "store", "--all", "--exec", "x", "--verify"), 2, "", "--verify is for the store that receives; give it to blob serve in the command of --exec")
	must(t, "blob", "push", "blobs.db", "store", "--all", "--to", "other.db", "--create")
	for _, args := range [][]string{{"push", "blobs.db", "store", "--to", "other.db"}, {"pull", "other.db", "store", "--from", "blobs.db"}} {
		spoilLeaf(t, "other.db", a[4096:8192])
		args = append([]string{"blob"}, append(args, "--all")...)
		must(t, args...)
		if run(t, "blob", "cat", "other.db", "store", refOf(t, "other.db", "store", len(a))).code == 0 {
			t.Fatal("without --verify it was read")
		}
		wantIn(t, run(t, append(args, "--verify")...), 0, "in 1 chunk came over", "")
		if got := must(t, "blob", "cat", "other.db", "store", refOf(t, "other.db", "store", len(a))); got != string(a) {
			t.Error("the blob is not what it was")
		}
	}
}

// TestBlobExchange copies blobs between two files, both ways.
func TestBlobExchange(t *testing.T) {
	a, b := makeExchange(t)
	short := []byte("a short one")
	wantIn(t, run(t, "blob", "push", "blobs.db", "store", "--all", "--to", "new.db"), 1, "", "new.db: no such file; --create makes it")
	first := must(t, "blob", "push", "blobs.db", "store", "--all", "--to", "new.db", "--to-store", "deep/copy", "--create")
	if !strings.Contains(first, "3 blobs of") || !strings.Contains(first, "held by the lease exchange") || !strings.HasPrefix(first, "created the database new.db\ncreated the store deep/copy\n") {
		t.Error(first)
	}
	received(t, "new.db", "deep/copy", a, b, short)
	again := must(t, "blob", "push", "blobs.db", "store", "--all", "--to", "new.db", "--to-store", "deep/copy")
	if !strings.Contains(again, "; 0 bytes in 0 chunks came over") {
		t.Error(again)
	}
	must(t, "blob", "pull", "pulled.db", "store", digestOf(a), digestOf(short), "--from", "blobs.db", "--create", "--lease", "mine", "--lease-for", "1h")
	received(t, "pulled.db", "store", a, short)
	if stat := must(t, "blob", "stat", "pulled.db", "store"); !strings.Contains(stat, "mine of 2 blobs until 2") {
		t.Error(stat)
	}
	var r struct {
		Blobs, Bytes, Failed, Chunks int64
		Created                      bool `json:"created_store"`
	}
	check(t, json.Unmarshal([]byte(must(t, "blob", "pull", "pulled.db", "store", "--all", "--from", "blobs.db", "--json")), &r))
	if r.Blobs != 3 || r.Chunks == 0 || r.Chunks > 4 || r.Failed != 0 || r.Created {
		t.Errorf("%+v", r)
	}
	received(t, "pulled.db", "store", a, b, short)

	must(t, "blob", "pull", "pulled.db", "store", "--all", "--from", "new.db", "--from-store", "deep/copy", "--keep-unfinished", "1h")

	// What only leases hold was said to have no user, and stat said it had one.
	for _, dry := range [][]string{nil, {"--dry-run"}} {
		rm := append([]string{"blob", "rm", "pulled.db", "store", digestOf(short)}, dry...)
		wantIn(t, run(t, rm...), 1, "", "has no user that could be taken but leases; nothing was removed; --lease ID releases one; see them with: holdfast blob stat pulled.db store\n")
	}
	// Released, nothing of it stays.
	must(t, "blob", "rm", "pulled.db", "store", "--lease", "mine", "--lease", "exchange")
	if stat := must(t, "blob", "stat", "pulled.db", "store"); !strings.Contains(stat, "0 with 0 users") || strings.Contains(stat, "Lease") {
		t.Error(stat)
	}
	wantIn(t, run(t, "blob", "rm", "pulled.db", "store", "--lease", "nix"), 1, "", "no lease nix")
}

// TestBlobExchangeUsage: what the command line gets wrong, and how to go on.
func TestBlobExchangeUsage(t *testing.T) {
	makeExchange(t)
	must(t, "blob", "put", "cut.db", "store", "short", "--create", "--chunking", "fastcdc")
	for _, c := range []struct {
		args, want string
		code       int
	}{
		{"push blobs.db store --to x.db", "give the blobs, or --all", 2},
		{"push blobs.db store --all sha256:1234567 --to x.db", "give the blobs, or --all", 2},
		{"push blobs.db store --all", "give the other store with --to or with --exec", 2},
		{"pull blobs.db store --all --from a --exec b", "give the other store with --from or with --exec", 2},
		{"push blobs.db store --all --exec x --create", "--create is for --to; with --exec create the receiving store first, with the options of the other: holdfast blob create FILE STORE", 2},
		// It said that the command of --exec has the file that receives, which is blobs.db:
		{"pull blobs.db store --all --exec x --create", "--create is for --from; with --exec create the receiving store first", 2},
		{"push blobs.db store --all --exec x --to-store y", "--to-store is for --to; --exec has the store in its command", 2},
		{"push blobs.db store --all --to blobs.db", "are one file", 2},
		{"push blobs.db store --all --to x.db --keep-unfinished 0s", "give a second or more", 2},
		{"push blobs.db store --all --to x.db --lease=", "--lease is given with an empty value", 2},
		{"push blobs.db nix --all --to cut.db", "nix", 1},
		{"push blobs.db store --all --to cut.db --to-store nix", "nix", 1},
		{"push blobs.db store 1234567 --to cut.db", "no blob 1234567", 1},
		{"push blobs.db store --all --to cut.db", "different hash functions, chunking or leaf sizes", 1},
		{"pull blobs.db store row/key --exec true", "a digest is wanted", 2},
		{"serve blobs.db store --lease-for 1h", "--lease-for is for --lease", 2},
		{"serve blobs.db store", "serve: reading from the peer: EOF", 1},
	} {
		wantIn(t, run(t, append([]string{"blob"}, strings.Fields(c.args)...)...), c.code, "", c.want)
	}
	if _, err := os.Stat("x.db"); err == nil {
		t.Error("x.db was made")
	}
}

// The root of one blob was damaged, and no other one was copied by --all.
func TestBlobExchangePastDamage(t *testing.T) {
	a, b := makeExchange(t)
	change(t, "blobs.db", func(tx *holdfast.Tx) error {
		packs := tx.Bucket([]byte("store")).Bucket([]byte("packs"))
		for k, v := range packs.All() {
			if bytes.HasPrefix(v, []byte("HFN1")) && binary.LittleEndian.Uint64(v[8:]) == uint64(len(a)) {
				bad := bytes.Clone(v)
				bad[len(bad)-1] ^= 1
				return packs.Put(bytes.Clone(k), bad)
			}
		}
		return errors.New("no such node")
	})
	for _, c := range []string{"push blobs.db store --all --to pushed.db --create", "pull pulled.db store --all --from blobs.db --create"} {
		args := strings.Fields(c)
		r := run(t, append([]string{"blob"}, args...)...)
		wantIn(t, r, 1, "2 blobs of", "blobs.db: ")
		wantIn(t, r, 1, "1 blob not copied", "holdfast blob check --data blobs.db store")
		received(t, args[0]+"ed.db", "store", b, []byte("a short one"))
	}
}

// TestBlobFileNames: what a name has that is not text comes to no terminal.
func TestBlobFileNames(t *testing.T) {
	makeExchange(t)
	const file = "x\x1b[31m\r.db"
	for _, args := range [][]string{
		{"put", file, "store", "short", "--create"}, {"ls", file, "store"}, {"stat", file, "store"}, {"check", file, "store"}, {"gc", file, "store"},
		{"push", "blobs.db", "store", "--all", "--to", file}, {"pull", file, "store", "--all", "--from", "blobs.db"}, {"rm", file, "store", "--lease", "nix"},
	} {
		if r := run(t, append([]string{"blob"}, args...)...); strings.ContainsAny(r.out+r.errOut, "\x1b\r") {
			t.Errorf("%s: %q, %q", args[0], r.out, r.errOut)
		}
	}
}
