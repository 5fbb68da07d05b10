package command_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"holdfast"
	"holdfast/command"
)

// TestBlobDiscard: a piece whose content is wrong is deleted by --discard, and whole again when the blob is put again.
func TestBlobDiscard(t *testing.T) {
	workdir(t)
	a, _, _ := makeBlobs(t)
	change(t, "blobs.db", func(tx *holdfast.Tx) error {
		leaves := tx.Bucket([]byte("store")).Bucket([]byte("leaves"))
		for k, v := range leaves.All() {
			if bytes.Equal(v, a[:4096]) {
				bad := bytes.Clone(v)
				bad[100]++
				return leaves.Put(bytes.Clone(k), bad)
			}
		}
		return errors.New("no such leaf")
	})
	wantIn(t, run(t, "blob", "check", "blobs.db", "store", "--discard"), command.ExitUsage, "", "--discard is for --repair")
	chunk := digestOf(a[:4096])[7:]
	const next = "blobs.db: the store is damaged (1 fault); "
	wantIn(t, run(t, "blob", "check", "blobs.db", "store", "--data"), command.ExitDamaged, "wrong content: chunk "+chunk, next+"run it with --repair --discard, then put the same content again (each put adds a user)\n")
	wantIn(t, run(t, "blob", "check", "blobs.db", "store", "--data", "--repair"), command.ExitDamaged, "wrong content: chunk "+chunk, next+"what is wrong stays until it is deleted: run it with --repair --discard, then put")
	r := run(t, "blob", "check", "blobs.db", "store", "--repair", "--discard")
	wantIn(t, r, command.ExitDamaged, "wrong content: chunk "+chunk, next+"put the same content again (each put adds a user) and it is whole\n")
	wantIn(t, r, command.ExitDamaged, " (deleted: put the same content again)\n", "")
	wantIn(t, run(t, "blob", "check", "blobs.db", "store", "--data"), command.ExitDamaged, "bytes missing: chunk "+digestOf(a[:4096])[7:], "(1 fault)")
	must(t, "blob", "put", "blobs.db", "store", "a")
	wantIn(t, run(t, "blob", "check", "blobs.db", "store", "--data"), 0, "OK\n", "")
	if got := must(t, "blob", "cat", "blobs.db", "store", digestOf(a)); got != string(a) {
		t.Error("the blob is not what it was")
	}
}

// TestBlobPutVerify: a leaf whose content is wrong, or gone, stayed so when the same file was put again, and the only
// remedy was a check with --repair --discard before it. With --verify a put reads what is there and stores it again.
func TestBlobPutVerify(t *testing.T) {
	for name, harm := range map[string]func(leaves *holdfast.Bucket, k, v []byte) error{
		"wrong": func(leaves *holdfast.Bucket, k, v []byte) error { v[100]++; return leaves.Put(k, v) },
		"gone":  func(leaves *holdfast.Bucket, k, _ []byte) error { return leaves.Delete(k) },
	} {
		t.Run(name, func(t *testing.T) {
			workdir(t)
			command.SmallPuts(t, 8192) // several transactions
			a, _, _ := makeBlobs(t)
			change(t, "blobs.db", func(tx *holdfast.Tx) error {
				leaves := tx.Bucket([]byte("store")).Bucket([]byte("leaves"))
				for k, v := range leaves.All() {
					if bytes.Equal(v, a[4096:8192]) {
						return harm(leaves, bytes.Clone(k), bytes.Clone(v))
					}
				}
				return errors.New("no such leaf")
			})
			again := func(args ...string) {
				t.Helper()
				wantIn(t, run(t, append([]string{"blob", "put", "blobs.db", "store", "a"}, args...)...), 0, "it was there already, and has ", "")
			}
			again()
			if run(t, "blob", "cat", "blobs.db", "store", digestOf(a)).code == 0 {
				t.Fatal("a put without --verify has read what was stored")
			}
			again("--verify")
			if got := must(t, "blob", "cat", "blobs.db", "store", digestOf(a)); got != string(a) {
				t.Error("the blob is not what it was")
			}
			r := putFrom(t, &failing{bytes.NewReader(a[:9000]), errSource}, "blobs.db", "store", "-", "--verify", "--resume", "n")
			wantIn(t, r, 1, "", " blob put blobs.db store - --verify --resume n\n")
		})
	}
}

// TestBlobCheckLost: of a blob whose leaf was lost, put said "it was there already", and check told to remove and put
// it again: it stayed unreadable. Check says that the repair comes first, and that a put makes it whole then.
func TestBlobCheckLost(t *testing.T) {
	workdir(t)
	a, _, _ := makeBlobs(t)
	change(t, "blobs.db", func(tx *holdfast.Tx) error {
		leaves := tx.Bucket([]byte("store")).Bucket([]byte("leaves"))
		for k, v := range leaves.All() {
			if bytes.Equal(v, a[:4096]) {
				return leaves.Delete(bytes.Clone(k))
			}
		}
		return errors.New("no such leaf")
	})
	const next = "blobs.db: the store is damaged (1 fault); "
	wantIn(t, run(t, "blob", "check", "blobs.db", "store"), command.ExitDamaged, "bytes missing: ", next+"run it with --repair, then put the same content again (each put adds a user)\n")
	wantIn(t, run(t, "blob", "check", "blobs.db", "store", "--repair"), command.ExitDamaged, "bytes missing: ", next+"put the same content again (each put adds a user) and it is whole\n")
	must(t, "blob", "put", "blobs.db", "store", "a")
	wantIn(t, run(t, "blob", "check", "blobs.db", "store", "--data"), 0, "OK\n", "")

	// Marks alone: nothing has to be put again. And a key that is not the store's is not repaired.
	change(t, "blobs.db", func(tx *holdfast.Tx) error {
		s := tx.Bucket([]byte("store"))
		k, _ := s.Bucket([]byte("index")).Cursor().First()
		return s.Bucket([]byte("dead")).Put(bytes.Clone(k), nil)
	})
	wantIn(t, run(t, "blob", "check", "blobs.db", "store"), command.ExitDamaged, "wrong mark of a dead chunk: ", next+"run it with --repair\n")
	wantIn(t, run(t, "blob", "check", "blobs.db", "store", "--repair"), 0, "(repaired)\nOK\n", "")
	change(t, "blobs.db", func(tx *holdfast.Tx) error { return tx.Bucket([]byte("store")).Put([]byte("mine"), nil) })
	wantIn(t, run(t, "blob", "check", "blobs.db", "store", "--repair"), command.ExitDamaged, "mine", next+"what is left is not repaired: delete it, ")
}

// TestBlobCheckDigests: a digest that is another blob's is found by --digests.
func TestBlobCheckDigests(t *testing.T) {
	workdir(t)
	a, b, _ := makeBlobs(t)
	wantIn(t, run(t, "blob", "check", "blobs.db", "store", "--digests"), 0, "2 blobs compared as a whole\n", "")
	change(t, "blobs.db", func(tx *holdfast.Tx) error { // both ways
		digests := tx.Bucket([]byte("store")).Bucket([]byte("digests"))
		var sums, refs, roots [][]byte
		for k, v := range digests.All() {
			if k, v = bytes.Clone(k), bytes.Clone(v); len(k) == 32 {
				sums, refs = append(sums, k), append(refs, v)
			} else {
				roots = append(roots, k)
			}
		}
		for i, root := range roots {
			other := sums[1]
			if bytes.Equal(digests.Get(root), other) {
				other = sums[0]
			}
			if err := errors.Join(digests.Put(root, other), digests.Put(sums[i], refs[1-i])); err != nil {
				return err
			}
		}
		return nil
	})
	wantIn(t, run(t, "blob", "check", "blobs.db", "store", "--data"), 0, "OK\n", "")
	wantIn(t, run(t, "blob", "check", "blobs.db", "store", "--digests"), command.ExitDamaged, "wrong digest: ", "(2 faults)")
	wantIn(t, run(t, "blob", "check", "blobs.db", "store", "--digests", "--repair"), 0, "(repaired)", "")
	wantIn(t, run(t, "blob", "check", "blobs.db", "store", "--digests"), 0, "OK\n", "")
	wantIn(t, run(t, "blob", "cat", "blobs.db", "store", digestOf(a)), 1, "", "no blob")
	must(t, "blob", "put", "blobs.db", "store", "a", "b")
	for _, want := range [][]byte{a, b} {
		if got := must(t, "blob", "cat", "blobs.db", "store", digestOf(want)); got != string(want) {
			t.Error("the blob is not what it was")
		}
	}
}

// TestBlobCheckDamagedFile: where the file itself is damaged, the check names what cannot be read, goes on, and
// repairs nothing.
func TestBlobCheckDamagedFile(t *testing.T) {
	workdir(t)
	a, _, _ := makeBlobs(t)
	file := mustRead(t, "blobs.db")
	at := bytes.Index(file, a[4096:8192])
	if at < 0 {
		t.Fatal("the leaf is not in the file")
	}
	file[at+1000] ^= 1
	check(t, os.WriteFile("blobs.db", file, 0o600))
	named := "unreadable: chunk " + digestOf(a[4096:8192])[7:]
	for _, args := range [][]string{{"--data"}, {"--data", "--repair"}} {
		r := run(t, append([]string{"blob", "check", "blobs.db", "store"}, args...)...)
		wantIn(t, r, command.ExitDamaged, named, "holdfast: blobs.db: the file itself is damaged (")
		if strings.Contains(r.out, "repaired") || strings.Contains(r.out, "missing") || strings.Contains(r.out, "OK") {
			t.Errorf("%v: %s", args, r)
		}
	}
	var r struct {
		OK       bool
		Repaired int
		Damaged  string
		Checked  struct{ Leaves int }
	}
	check(t, json.Unmarshal([]byte(run(t, "blob", "check", "blobs.db", "store", "--repair", "--json").out), &r))
	if r.OK || r.Repaired != 0 || !strings.Contains(r.Damaged, "page ") || r.Checked.Leaves < 3 {
		t.Errorf("got %+v", r)
	}
	if !bytes.Equal(mustRead(t, "blobs.db")[8192:], file[8192:]) {
		t.Error("the file has changed")
	}
}

// TestBlobDryRun: what a dry run says is exactly what is freed then, of blobs that share pieces, with what waits for gc
// and unfinished puts that have expired.
func TestBlobDryRun(t *testing.T) {
	workdir(t)
	a, b, short := makeBlobs(t)
	wantIn(t, putFrom(t, &failing{bytes.NewReader(random(7, 9000)), errSource}, "blobs.db", "store", "--resume", "mine", "--keep-unfinished", "1ns"), 1, "", "go on with")
	wantIn(t, run(t, "blob", "put", "blobs.db", "store", "--keep-unfinished", "-1s"), command.ExitUsage, "", "--keep-unfinished -1s: negative")
	out := must(t, "blob", "stat", "blobs.db", "store")
	if !strings.Contains(out, "Unfinished  mine, 8.8 KiB (9,000 bytes) so far, until 2") {
		t.Errorf("got %s", out)
	}
	change(t, "blobs.db", func(tx *holdfast.Tx) error { // it was saved long ago
		in := tx.Bucket([]byte("store")).Bucket([]byte("ingests")).Bucket([]byte("mine"))
		state := bytes.Clone(in.Get([]byte("state")))
		at := 2 + 1 + 32 + 8 // version and flags, no size, digest, when it was begun
		copy(state[at:], []byte{1, 0, 0, 0, 0, 0, 0, 0})
		return in.Put([]byte("state"), state)
	})
	freed := func(args ...string) (f struct{ Chunks, Bytes, Unfinished int64 }) {
		t.Helper()
		var r struct {
			Freed *struct{ Chunks, Bytes, Unfinished int64 }
		}
		check(t, json.Unmarshal([]byte(must(t, append([]string{"blob", "rm", "blobs.db", "store", "--json"}, args...)...)), &r))
		return *r.Freed
	}
	for i, args := range [][]string{{digestOf(a)}, {digestOf(b), digestOf(short)}} {
		foreseen, did := freed(append(args, "--dry-run")...), freed(args...)
		if did.Chunks != foreseen.Chunks || did.Bytes != foreseen.Bytes || did.Bytes == 0 || did.Unfinished != int64(1-i) {
			t.Errorf("%+v was foreseen, and %+v freed", foreseen, did)
		}
	}
	if out := must(t, "blob", "stat", "blobs.db", "store"); strings.Contains(out, "To free") || strings.Contains(out, "Unfinished") {
		t.Errorf("got %s", out)
	}

	// By default one is kept for a week.
	wantIn(t, putFrom(t, &failing{bytes.NewReader(a), errSource}, "blobs.db", "store", "--resume", "mine"), 1, "", "go on with")
	var s struct {
		Unfinished []struct{ Saved, Expires time.Time }
	}
	check(t, json.Unmarshal([]byte(must(t, "blob", "stat", "blobs.db", "store", "--json")), &s))
	if len(s.Unfinished) != 1 || s.Unfinished[0].Expires.Sub(s.Unfinished[0].Saved) != 7*24*time.Hour {
		t.Errorf("got %+v", s)
	}
	wantIn(t, run(t, "blob", "gc", "blobs.db", "store"), 0, "freed 0 bytes in 0 chunks\n", "")
}
