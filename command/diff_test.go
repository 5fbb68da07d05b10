package command_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"holdfast"
	"holdfast/command"
)

// TestDiffAnyBytes: whatever the bytes of one file are, diff ends, and names that file in its errors.
func TestDiffAnyBytes(t *testing.T) {
	data, err := os.ReadFile(samplePath)
	check(t, err)
	withSample(t)
	random := rand.New(rand.NewPCG(14, 5))
	failed := 0
	for n := range 150 {
		bad := bytes.Clone(data)
		for range 1 + random.IntN(8) {
			at := (2+random.IntN(26))*samplePage + random.IntN(1+random.IntN(samplePage))
			bad[at] = []byte{0, 1, 0xff, byte(random.Uint32())}[random.IntN(4)]
		}
		check(t, os.WriteFile("bad.db", bad, 0o600))
		for _, args := range []string{"diff sample.db bad.db", "diff bad.db sample.db -q", "diff bad.db bad.db --json"} {
			r := run(t, strings.Fields(args)...)
			if r.code > command.ExitTrouble || (r.code == command.ExitTrouble) != (strings.HasPrefix(r.errOut, "holdfast: bad.db: ") || strings.HasPrefix(r.errOut, `{"error":{"message":"bad.db: `)) ||
				r.code != command.ExitTrouble && r.errOut != "" {
				t.Errorf("file %d: holdfast %s: %s", n, args, r)
			}
			if r.code == command.ExitTrouble {
				failed++
			}
		}
		after, err := os.ReadFile("bad.db")
		check(t, err)
		if !bytes.Equal(after, bad) {
			t.Errorf("file %d was changed", n)
		}
	}
	if failed == 0 {
		t.Error("no file was damaged")
	}
}

// TestSharedPages: buckets that damage has made share their pages, level for level, hold more than
// any file: what goes through them ends nevertheless.
func TestSharedPages(t *testing.T) {
	workdir(t)
	db, err := holdfast.Open("shared.db", 0o600, &holdfast.Options{PageSize: 1024, NoSeals: true, StrictCompat: true})
	check(t, err)
	const levels = 40
	check(t, db.Update(func(tx *holdfast.Tx) error {
		b, err := tx.CreateBucket([]byte("top"))
		for level := 0; level < levels && err == nil; level++ {
			check(t, b.Put([]byte("z"), make([]byte, 300))) // so that it is not inline
			var twin *holdfast.Bucket
			if twin, err = b.CreateBucket([]byte("b")); err == nil {
				check(t, twin.Put([]byte("z"), make([]byte, 300)))
			}
			if err == nil {
				b, err = b.CreateBucket([]byte("a"))
			}
		}
		if err == nil {
			err = b.Put([]byte("z"), make([]byte, 300))
		}
		return err
	}))
	check(t, db.Close())
	changed := 0
	damage(t, "shared.db", func(data []byte) []byte {
		for at := 2 * samplePage; at+samplePage <= len(data); at += samplePage {
			p := data[at : at+samplePage]
			if binary.NativeEndian.Uint16(p[8:]) != 2 || binary.NativeEndian.Uint16(p[10:]) != 3 {
				continue // no leaf of a, b and z
			}
			value := func(i int) []byte {
				e := p[16+16*i:]
				from := 16 + 16*i + int(binary.NativeEndian.Uint32(e[4:])+binary.NativeEndian.Uint32(e[8:]))
				return p[from : from+16]
			}
			copy(value(1), value(0)) // b is a: 2^40 ways down
			changed++
		}
		return data
	})
	if changed < levels {
		t.Fatalf("%d pages were changed", changed)
	}
	want := "there is more in its buckets than in the whole file: some of them share pages; run: holdfast check shared.db\n"
	wantIn(t, run(t, "export", "shared.db"), 1, "", want)
	wantIn(t, run(t, "export", "shared.db", "-o", "x"), 1, "", "holdfast: shared.db: damaged: ")
	wantIn(t, run(t, "diff", "shared.db", "shared.db"), command.ExitTrouble, "", want)
	must(t, "put", "other.db", "b", "k", "v", "--create")
	wantIn(t, run(t, "diff", "other.db", "shared.db"), command.ExitTrouble, "", "holdfast: shared.db: damaged: ")
	wantFiles(t, ".", "other.db shared.db")
}

// TestDeepBuckets: buckets in buckets, a thousand deep.
func TestDeepBuckets(t *testing.T) {
	workdir(t)
	db, err := holdfast.Open("deep.db", 0o600, &holdfast.Options{NoSync: true})
	check(t, err)
	check(t, db.Update(func(tx *holdfast.Tx) error {
		b, err := tx.CreateBucket([]byte("0"))
		for level := 1; level < 1000 && err == nil; level++ {
			check(t, b.Put([]byte("k"), fmt.Appendf(nil, "%d", level)))
			b, err = b.CreateBucket(fmt.Appendf(nil, "%d", level))
		}
		return err
	}))
	check(t, db.Close())
	must(t, "export", "deep.db", "-o", "deep.jsonl")
	must(t, "import", "copy.db", "deep.jsonl", "--create")
	wantIn(t, run(t, "diff", "deep.db", "copy.db"), 0, "deep.db and copy.db hold the same: 999 keys in 1,000 buckets\n", "")
	if content(t, "deep.db") != content(t, "copy.db") {
		t.Error("the copy holds something else")
	}
}
