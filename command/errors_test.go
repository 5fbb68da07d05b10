package command_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"holdfast"
	"holdfast/command"
	"holdfast/internal/extension"
	"holdfast/internal/page"
)

// onFile are calls of all commands that work on a file: what comes after its
// name, whether they write to it, and whether they look at the buckets, so that
// damage to these is met.
var onFile = []struct {
	name, args    string
	writes, looks bool
}{
	{"info", "", false, false},
	{"check", "", false, false}, // which says what it finds
	{"stats", "", false, true},
	{"doctor", "", false, true},
	{"buckets", "", false, true},
	{"keys", "many", false, true},
	{"get", "many 01110", false, true},
	{"compact", "-o copy.db", false, true},
	{"put", "many 01110 v", true, true},
	{"delete", "many 01110", true, true},
	{"delete", "--bucket many", true, true},
	{"settle", "", true, false},
	{"pages", "", false, false},
	{"pages", "--map", false, false},
	{"vacuum", "", true, false},
	{"vacuum", "--dry-run", false, false},
	{"reseal", "", true, false},
	{"export", "", false, true},
	{"export", "--csv many", false, true},
}

// damage changes the sample database.
func damage(t *testing.T, path string, change func(data []byte) []byte) {
	t.Helper()
	data, err := os.ReadFile(path)
	check(t, err)
	check(t, os.WriteFile(path, change(data), 0o600))
}

// Offsets in a meta page, in bytes.
const (
	metaVersion  = 16 + 4
	metaChecksum = 16 + 56
	samplePage   = 1024
)

func setVersion(data []byte, version uint32) []byte {
	for slot := range 2 {
		meta := data[slot*samplePage:]
		binary.NativeEndian.PutUint32(meta[metaVersion:], version)
		sum := fnv.New64a()
		sum.Write(meta[16:metaChecksum])
		binary.NativeEndian.PutUint64(meta[metaChecksum:], sum.Sum64())
	}
	return data
}

// laterExtension makes the extension of the newest meta, in slot 0, that of a file in mid
// use by a later version of Holdfast.
func laterExtension(t *testing.T, data []byte) []byte {
	b := data[page.ExtensionOffset:samplePage]
	b[8] += 8  // version: this one may not be the newest that the program reads
	b[10] |= 1 // trailing
	h, err := extension.NewHasher([16]byte(b[32:48]))
	check(t, err)
	end := int(binary.NativeEndian.Uint32(b[12:])) - len(extension.Hash{})
	sum := h.Sum(extension.OfMeta, 0, data[:page.ExtensionOffset+end])
	copy(b[end:], sum[:])
	return data
}

// badFiles are files that no command can work on.
var badFiles = []struct {
	name  string
	make  func(t *testing.T)
	file  string
	want  string
	check int // exit code of check
}{
	{"missing", nil, "gone.db", "gone.db: no such file", command.ExitFailed},
	{"misspelt", nil, "simple.db", "simple.db: no such file; there is sample.db", command.ExitFailed},
	{"no such directory", nil, "gone/gone.db", "gone/gone.db: no such file", command.ExitFailed},
	{"directory", nil, ".", ".: is a directory; give a file, for example sample.db", command.ExitFailed},
	{"directory without databases", func(t *testing.T) { check(t, os.Mkdir("d", 0o700)) }, "d",
		"d: is a directory; give a file; none of those in it looks like a database", command.ExitFailed},
	{"empty", func(t *testing.T) { check(t, os.WriteFile("empty", nil, 0o600)) }, "empty",
		"empty: empty: not a bbolt database", command.ExitFailed},
	{"text", func(t *testing.T) { check(t, os.WriteFile("text", bytes.Repeat([]byte("text "), 5000), 0o600)) }, "text",
		"text: not a bbolt database", command.ExitFailed},
	{"short text", func(t *testing.T) { check(t, os.WriteFile("text", []byte("text"), 0o600)) }, "text",
		"text: not a bbolt database", command.ExitFailed},
	{"newer version", func(t *testing.T) {
		damage(t, "sample.db", func(b []byte) []byte { return setVersion(b, 3) })
	}, "sample.db", "sample.db: a bbolt database of another format version than 2", command.ExitFailed},
	{"in mid use by a later version", func(t *testing.T) {
		damage(t, "sample.db", func(b []byte) []byte { return laterExtension(t, b) })
	}, "sample.db", "sample.db: the newest state of sample.db cannot be told: meta page 0: version mismatch: written by another version of Holdfast", command.ExitFailed},
	{"truncated", func(t *testing.T) { check(t, os.Truncate("sample.db", 20*samplePage)) }, "sample.db",
		"sample.db: damaged: page 0: the meta page says that the database has 29 pages", command.ExitDamaged},
	{"both metas torn", func(t *testing.T) {
		damage(t, "sample.db", func(b []byte) []byte { b[metaChecksum]++; b[samplePage+metaChecksum]++; return b })
	}, "sample.db", "sample.db: damaged: neither of its two meta pages is whole", command.ExitDamaged},
	{"locked", func(t *testing.T) {
		db, err := holdfast.Open("sample.db", 0o600, nil)
		check(t, err)
		t.Cleanup(func() { db.Close() })
	}, "sample.db", "sample.db: locked by another process for longer than 10ms", command.ExitFailed},
}

// TestBadFiles gives each command each kind of file that it cannot work on.
// Every error begins with the command's name and names the file; nothing on
// the disk changes.
func TestBadFiles(t *testing.T) {
	for _, c := range badFiles {
		t.Run(c.name, func(t *testing.T) {
			dir := withSample(t)
			if c.make != nil {
				c.make(t)
			}
			before := snapshot(t, dir)
			for _, on := range onFile {
				args := append([]string{on.name, c.file, "--timeout", "10ms"}, strings.Fields(on.args)...)
				r := run(t, args...)
				code, want := command.ExitFailed, "holdfast: "+c.want
				if on.name == "check" || on.name == "doctor" {
					code = c.check
				}
				if code == command.ExitDamaged {
					want = "holdfast: " + c.file + ": damaged ("
				}
				if r.code != code || !strings.HasPrefix(r.errOut, want) || strings.Count(r.errOut, "\n") != 1 {
					t.Errorf("holdfast %s: %s\nwant exit code %d and %s", strings.Join(args, " "), r, code, want)
				}
				told := map[string]string{"check": "1 fault, on page 0\n", "doctor": "\nNext: "}[on.name]
				if damaged := code == command.ExitDamaged; damaged && !strings.Contains(r.out, told) || !damaged && r.out != "" {
					t.Errorf("holdfast %s: %s", strings.Join(args, " "), r)
				}
			}
			if after := snapshot(t, dir); after != before {
				t.Errorf("files changed: before\n%s\nafter\n%s", before, after)
			}
		})
	}
}

// TestMissingFile: who may want a new file is told how to have it made, whatever lies beside it.
func TestMissingFile(t *testing.T) {
	withSample(t)
	for args, want := range map[string]string{
		"put simple.db a k v":     "simple.db: no such file; there is sample.db; --create makes a new one\n",
		"put other-name.db a k v": "other-name.db: no such file; --create makes it\n",
		"import simple.db":        "simple.db: no such file; there is sample.db; --create makes a new one\n",
		"delete simple.db a k":    "simple.db: no such file; there is sample.db\n",
	} {
		wantIn(t, run(t, strings.Fields(args)...), 1, "", want)
	}
}

// TestTornMeta: one meta that is not whole is not damage; info shows it and
// check notes it.
func TestTornMeta(t *testing.T) {
	withSample(t)
	damage(t, "sample.db", func(b []byte) []byte { b[samplePage+metaChecksum]++; return b })
	wantIn(t, run(t, "info", "sample.db"), 0, "Meta page 1  damaged: checksum error; the other one is used", "")
	wantIn(t, run(t, "check", "sample.db"), 0, ": sound\n", "holdfast: note: meta page 1 is not whole")
	wantIn(t, run(t, "doctor", "sample.db"), 0, "\nFirst: the note above. ", "")
	wantIn(t, run(t, "check", "sample.db", "--json"), 0, `"notes": [
    "meta page 1 is not whole (checksum error), the other one is used: the last flush is not there: a crash cut it short, before its commits had returned (with Periodic they may have), or it was damaged since, and its commits are lost: if there was no crash, take it for damage (docs/recovering.md)"
  ]`, "")
}

// TestDamagedFreelist: that nothing but the list of free pages is damaged can be seen, since compact
// is enough then.
func TestDamagedFreelist(t *testing.T) {
	withSample(t)
	damage(t, "sample.db", func(b []byte) []byte { b[10*samplePage]++; return b })
	wantIn(t, run(t, "check", "sample.db"), 3, "page 10: the page says that it is page 11 (in the freelist page)\n1 fault, on page 10\n", "")
	must(t, "compact", "sample.db", "-o", "out.db")
	wantIn(t, run(t, "check", "out.db"), 0, ": sound\n", "")
}

// TestDamagedPages: check finds everything, the others say what to do.
func TestDamagedPages(t *testing.T) {
	dir := withSample(t)
	leaves := 0
	damage(t, "sample.db", func(b []byte) []byte {
		for id := 2; id < 29; id++ { // all leaves claim more elements than they have room for
			if p := b[id*samplePage:]; binary.NativeEndian.Uint16(p[8:]) == 2 && binary.NativeEndian.Uint64(p) == uint64(id) {
				binary.NativeEndian.PutUint16(p[10:], 5000)
				leaves++
			}
		}
		return b
	})
	if leaves < 3 {
		t.Fatalf("the sample has %d leaves", leaves)
	}
	before := snapshot(t, dir)
	r := run(t, "check", "sample.db")
	wantIn(t, r, command.ExitDamaged, "page 11: 5000 elements do not fit", "holdfast: sample.db: damaged (")
	wantIn(t, run(t, "check", "sample.db", "--json"), command.ExitDamaged, `"ok": false`, `{"error":{"message":"sample.db: damaged (`)
	wantIn(t, run(t, "info", "sample.db"), 0, "Meta page 0", "")
	for _, on := range onFile {
		if !on.looks {
			continue
		}
		r := run(t, append([]string{on.name, "sample.db"}, strings.Fields(on.args)...)...)
		if on.name == "doctor" { // which says what is at risk, and ends as check does
			wantIn(t, r, command.ExitDamaged, "holdfast check sample.db\n", "holdfast: sample.db: damaged (")
			continue
		}
		wantIn(t, r, command.ExitFailed, "", "holdfast: sample.db: damaged: page 11: 5000 elements do not fit")
		wantIn(t, r, command.ExitFailed, "", "; run: holdfast check sample.db\n")
	}
	if after := snapshot(t, dir); after != before {
		t.Errorf("files changed: before\n%s\nafter\n%s", before, after)
	}
}

// TestTopLevelKey: at the top level there can be buckets only.
func TestTopLevelKey(t *testing.T) {
	withSample(t)
	const root, alpha, elementSize = 11, 1, 16
	damage(t, "sample.db", func(b []byte) []byte {
		b[root*samplePage+(1+alpha)*elementSize] = 0 // the flag that says bucket
		return b
	})
	for _, name := range []string{"check", "stats", "doctor", "buckets"} {
		code := command.ExitFailed
		if name == "check" || name == "doctor" {
			code = command.ExitDamaged
		}
		wantIn(t, run(t, name, "sample.db"), code, "", "holdfast: sample.db: damaged")
	}
	wantIn(t, run(t, "check", "sample.db"), command.ExitDamaged, "page 11: alpha stands where only buckets can be", "")
	wantIn(t, run(t, "compact", "-o", "copy.db", "sample.db"), 1, "", "run: holdfast check sample.db")
}

// TestWrongNames gives buckets, keys and formats that do not exist.
func TestWrongNames(t *testing.T) {
	dir := withSample(t)
	wantIn(t, run(t, "check", "sample.db", "--from-page", "12"), 0, "page 12 and what lies below it: sound\n", "note: page 12 is free\n") // it was OK, and no more
	before := snapshot(t, dir)
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"keys sample.db alpa", 1, "holdfast: sample.db: no bucket alpa; similar: alpha; list them with: holdfast buckets sample.db\n"},
		{"keys sample.db zzzzzz", 1, "holdfast: sample.db: no bucket zzzzzz; list them with: holdfast buckets sample.db\n"},
		{"keys sample.db nested iner", 1, "no bucket nested/iner; similar: inner; list them with: holdfast buckets sample.db nested\n"},
		{"keys sample.db nested plain", 1, "no bucket nested/plain; it is a key"},
		{"keys sample.db alpha x", 1, "no bucket alpha/x; there are no buckets at all there"},
		{"buckets sample.db alpa", 1, "no bucket alpa; similar: alpha"},
		{"get sample.db alpha key-9", 1, "no key key-9 in bucket alpha; similar: key-2, key-1, key-0; list its keys with: holdfast keys sample.db alpha\n"},
		{"get sample.db nested inner", 1, "no key inner in bucket nested: it is a bucket; list its keys with: holdfast keys sample.db nested inner\n"},
		{"get sample.db --bucket-format hex 0001feff 00", 1, "no key 00 in bucket 0001feff; list its keys with: holdfast keys sample.db 0001feff --bucket-format hex\n"},
		{"put sample.db alpa k v", 1, "no bucket alpa; similar: alpha"},
		{"put sample.db nested inner v", 1, "sample.db: inner in nested is a bucket and cannot have a value"},
		{"put sample.db nested plain k v --create", 1, "sample.db: nested/plain is a key and cannot be a bucket"},
		{"put gone.db b k v", 1, "gone.db: no such file; --create makes it"},
		{"put gone/gone.db b k v --create", 1, "gone/gone.db: the directory gone does not exist; make it first"},
		{"delete sample.db alpha key-9", 1, "no key key-9 in bucket alpha"},
		{"delete sample.db nested inner", 1, "inner in nested is a bucket; --bucket deletes it with everything in it"},
		{"delete sample.db --bucket nested gone", 1, "no bucket nested/gone"},
		{"delete gone.db b k", 1, "gone.db: no such file\n"},
		{"keys sample.db", 2, "holdfast: BUCKET is missing\nUsage: holdfast keys FILE BUCKET... [flags]\n"},
		{"keys sample.db alpha --format base2", 2, "--format: unsupported format: base2; there are auto, ascii-encoded"},
		{"get sample.db alpha zz --parse-format hex", 2, `key "zz" is not hexadecimal`},
		{"get sample.db alpha zz --parse-format octal", 2, "--parse-format: unsupported format: octal"},
		{"get sample.db zz zz --bucket-format hex", 2, `bucket "zz" is not hexadecimal`},
		{"put sample.db alpha k zz --value-format hex", 2, `value "zz" is not hexadecimal`},
		{"put sample.db alpha k", 2, "holdfast: VALUE is missing\nUsage: holdfast put FILE BUCKET... KEY VALUE [flags]\n"},
		{"check sample.db --from-page 99", 2, "--from-page: sample.db has pages 2 to 28, not 99"},
		{"check sample.db --from-page 10", 2, "of sample.db is the freelist; give a page of a bucket"}, // there were faults
		{"check sample.db --from-page x", 2, "--from-page x: not a whole number of 0 or more"},
		{"info sample.db --timeout -1s", 2, "--timeout -1s: negative: give 0, or more"},
		{"pages sample.db --type leaf,twig", 2, `--type: no pages are of type "twig"; there are meta, branch, leaf,`},
		{"pages sample.db --map --type leaf", 2, "--type is for the list, not for --map"},
		{"pages sample.db --width 10", 2, "--width and --rows are for --map"},
		{"pages sample.db --map --width -1", 2, "--width: -1 is outside of 1 to 500"},
		{"pages sample.db --map --width 501", 2, "--width: 501 is outside of 1 to 500"},
		{"pages sample.db --map --rows 0", 2, "--rows: 0 is outside of 1 to 1000"},
		{"info sample.db --bogus", 2, "unknown flag --bogus"},
		{"bogus", 2, `unknown command "bogus"`},
		{"help bogus", 2, `unknown command "bogus"`}, // it was printed as help, with exit code 0
		{"help blob bogus", 2, `unknown command "bogus" for "holdfast blob"`},
	} {
		r := run(t, strings.Fields(c.args)...)
		if r.code != c.code || !strings.HasPrefix(r.errOut, "holdfast: ") || !strings.Contains(r.errOut, c.want) || r.out != "" {
			t.Errorf("holdfast %s: %s\nwant exit code %d, stderr with %q", c.args, r, c.code, c.want)
		}
	}
	for _, empty := range [][]string{{"get", "sample.db", "", "k"}, {"get", "sample.db", "alpha", ""}, {"keys", "sample.db", ""}} {
		wantIn(t, run(t, empty...), command.ExitUsage, "", "Usage: holdfast "+empty[0]+" FILE")
	}
	if after := snapshot(t, dir); after != before {
		t.Errorf("files changed: before\n%s\nafter\n%s", before, after)
	}
}

// closedPipe is an output without a reader.
type closedPipe struct{ after int }

func (p *closedPipe) Write(b []byte) (int, error) {
	if p.after -= len(b); p.after < 0 {
		return 0, fmt.Errorf("write |1: %w", epipe)
	}
	return len(b), nil
}

func TestClosedPipe(t *testing.T) {
	withSample(t)
	for _, after := range []int{0, 5000} {
		for _, args := range [][]string{{"keys", "big.db", "b"}, {"keys", "big.db", "b", "--json"}, {"info", "big.db"},
			{"pages", "big.db"}, {"pages", "big.db", "--json"}, {"pages", "big.db", "--map"}, {"pages", "big.db", "--map", "--json"},
			{"export", "big.db"}, {"export", "big.db", "b", "--csv"}, {"diff", "big.db", "big.db", "--json"}} {
			if _, err := os.Stat("big.db"); err != nil {
				makeBig(t, "big.db", 5000)
			}
			root := command.NewRootCommand()
			var errOut bytes.Buffer
			root.SetOut(&closedPipe{after})
			root.SetErr(&errOut)
			root.SetArgs(args)
			if code := command.Execute(t.Context(), root); code != 0 || errOut.Len() > 0 {
				t.Errorf("%v: exit code %d, %s", args, code, &errOut)
			}
		}
	}
}

// makeBig makes a database of n keys.
func makeBig(t *testing.T, path string, n int) {
	t.Helper()
	db, err := holdfast.Open(path, 0o600, &holdfast.Options{NoSync: true})
	check(t, err)
	check(t, db.Update(func(tx *holdfast.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte("b"))
		check(t, err)
		for i := range n {
			check(t, b.Put(fmt.Appendf(nil, "%08d", i), make([]byte, 100)))
		}
		return nil
	}))
	check(t, db.Close())
}

// TestAnyBytes: whatever the bytes of the file are, no command that reads it
// panics, goes round in circles, or changes them.
func TestAnyBytes(t *testing.T) {
	data, err := os.ReadFile(samplePath)
	check(t, err)
	workdir(t)
	random := rand.New(rand.NewPCG(14, 4))
	for n := range 150 {
		bad := bytes.Clone(data)
		for range 1 + random.IntN(8) {
			// The first bytes of a page decide most.
			at := (2+random.IntN(26))*samplePage + random.IntN(1+random.IntN(samplePage))
			bad[at] = []byte{0, 1, 0xff, byte(random.Uint32())}[random.IntN(4)]
		}
		check(t, os.WriteFile("bad.db", bad, 0o600))
		for _, on := range onFile {
			if on.writes {
				continue
			}
			_ = os.Remove("copy.db")
			r := run(t, append([]string{on.name, "bad.db"}, strings.Fields(on.args)...)...)
			if r.code == command.ExitUsage || r.code != 0 && !strings.HasPrefix(r.errOut, "holdfast: bad.db: ") {
				t.Errorf("file %d: holdfast %s: %s", n, on.name, r)
			}
		}
		after, err := os.ReadFile("bad.db")
		check(t, err)
		if !bytes.Equal(after, bad) {
			t.Errorf("file %d was changed", n)
		}
	}
}
