package command_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"testing"

	"holdfast"
	"holdfast/blob"
	"holdfast/command"
)

// random are n bytes that are the same in each run.
func random(seed byte, n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

func digestOf(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }

// makeBlobs makes blobs.db with a store of small leaves: two blobs of which one is a changed copy of the
// other, a short one that has two users, and rows.
func makeBlobs(t *testing.T) (a, b, short []byte) {
	t.Helper()
	a, short = random(1, 20_000), []byte("a short one")
	b = bytes.Clone(a)
	copy(b[9000:], "changed")
	b = append(b, "and longer"...)
	for name, data := range map[string][]byte{"a": a, "b": b, "short": short} {
		check(t, os.WriteFile(name, data, 0o600))
	}
	must(t, "blob", "put", "blobs.db", "store", "a", "b", "--create", "--leaf-size", "4KiB")
	must(t, "blob", "put", "blobs.db", "store", "short")
	must(t, "blob", "put", "blobs.db", "store", "short", "--into", "rows/files", "--create")
	must(t, "put", "blobs.db", "other", "key", "value", "--create")
	return a, b, short
}

// longest is what differs from run to run in the report of a collection.
var longest = regexp.MustCompile(`"(longest_us|transactions)": \d+`)

// TestBlobGolden has all commands on blobs print, for people and as JSON. Those that read leave the file as it is.
func TestBlobGolden(t *testing.T) {
	here, err := os.Getwd()
	check(t, err)
	dir := workdir(t)
	a, b, short := makeBlobs(t)
	refA, refB, refShort := digestOf(a)[7:20], digestOf(b), digestOf(short)
	data := mustRead(t, "blobs.db")
	for _, c := range []struct {
		name   string
		args   []string
		code   int
		writes bool
	}{
		{"ls", []string{"ls", "blobs.db", "store"}, 0, false},
		{"stat", []string{"stat", "blobs.db", "store"}, 0, false},
		{"stat-blob", []string{"stat", "blobs.db", "store", refA}, 0, false},
		{"stat-short", []string{"stat", "blobs.db", "store", refShort}, 0, false},
		{"cat", []string{"cat", "blobs.db", "store", refShort}, 0, false},
		{"cat-part", []string{"cat", "blobs.db", "store", refShort, "--offset", "2", "--length", "5"}, 0, false},
		{"diff", []string{"diff", "blobs.db", "store", refA, refB}, 1, false},
		{"diff-shorter", []string{"diff", "blobs.db", "store", refB, refA}, 1, false},
		{"diff-same", []string{"diff", "blobs.db", "store", refA, refA}, 0, false},
		{"check", []string{"check", "blobs.db", "store"}, 0, false},
		{"check-data", []string{"check", "blobs.db", "store", "--data"}, 0, false},
		{"rm-dry-run", []string{"rm", "blobs.db", "store", refA, refShort, "--dry-run"}, 0, false},
		{"get", []string{"get", "blobs.db", "store", refA, "-o", "out"}, 0, true},
		{"get-part", []string{"get", "blobs.db", "store", refA, "-o", "out", "--offset", "4KiB", "--length", "5000"}, 0, true},
		{"put", []string{"put", "blobs.db", "store", "a", "short"}, 0, true},
		{"put-new", []string{"put", "new.db", "deep/store", "a", "--create", "--algorithm", "blake3", "--chunking", "fastcdc", "--leaf-size", "2KiB", "--into", "rows", "--name", "A"}, 0, true},
		{"rm", []string{"rm", "blobs.db", "store", refA, refShort}, 0, true},
		{"gc", []string{"gc", "blobs.db", "store"}, 0, true},
	} {
		for _, more := range []string{"", "--json"} {
			before := snapshot(t, dir)
			args := append([]string{"blob"}, c.args...)
			suffix := ".golden"
			if more != "" {
				args, suffix = append(args, more), ".json.golden"
			}
			r := run(t, args...)
			if r.code != c.code || r.errOut != "" {
				t.Errorf("%v: %s", args, r)
			}
			golden(t, here, "blob-"+c.name+suffix, longest.ReplaceAllString(r.out, `"$1": 0`))
			if more != "" && !json.Valid([]byte(r.out)) {
				t.Errorf("%v: not JSON: %s", args, r.out)
			}
			if after := snapshot(t, dir); !c.writes && after != before {
				t.Errorf("%v: files changed: before\n%s\nafter\n%s", args, before, after)
			}
			for _, name := range []string{"out", "new.db"} {
				_ = os.Remove(name)
			}
			check(t, os.WriteFile("blobs.db", data, 0o600))
		}
	}
}

// TestBlobRoundTrip: whatever is put comes back, whole and in parts, under each kind of name, from
// files and from pipes, in stores of each kind.
func TestBlobRoundTrip(t *testing.T) {
	command.SmallPuts(t, 10_000) // less than what is read at a time: each read is a transaction
	for _, kind := range []string{"--algorithm sha256", "--algorithm blake3", "--chunking fastcdc", "--compress zstd"} {
		t.Run(kind, func(t *testing.T) {
			workdir(t)
			var refs []string
			sizes := []int{0, 1, 1024, 1025, 5000, 1_200_000}
			if kind != "--algorithm sha256" {
				sizes = sizes[:5]
			}
			for i, n := range sizes {
				data := random(byte(i), n)
				check(t, os.WriteFile("in", data, 0o600))
				args := []string{"blob", "put", "x.db", "store", "in", "-q"}
				if i == 0 {
					args = append(append(args, "--create", "--leaf-size", "1KiB"), strings.Fields(kind)...)
				}
				if got := must(t, args...); got != digestOf(data)+"\n" {
					t.Fatalf("%d bytes: %s", n, got)
				}
				var r struct {
					Blobs []struct {
						Digest, Reference   string
						Existed             bool
						Users, Transactions int
					}
				}
				again := execute(newRoot(), string(data), "blob", "put", "x.db", "store", "--json")
				check(t, json.Unmarshal([]byte(again.out), &r))
				if p := r.Blobs[0]; p.Digest != digestOf(data) || !p.Existed || p.Users != 2 || n > 1_000_000 && p.Transactions < 2 {
					t.Errorf("%d bytes again: %+v", n, p)
				}
				whole, ref := digestOf(data), r.Blobs[0].Reference
				tree := ref[strings.IndexByte(ref, ':')+1:]
				for _, name := range []string{whole, whole[7:], whole[:20], strings.ToUpper(whole[7:16]), ref, tree, tree[:9]} {
					if got := must(t, "blob", "cat", "x.db", "store", name); got != string(data) {
						t.Errorf("%d bytes: cat %s gives %d others", n, name, len(got))
					}
				}
				for _, part := range [][2]int{{0, 0}, {0, n}, {n / 2, -1}, {n / 3, n / 3}, {n, 5}, {max(n-3, 0), 100}} {
					want := data[part[0]:]
					if part[1] >= 0 {
						want = want[:min(part[1], len(want))]
					}
					got := must(t, "blob", "cat", "x.db", "store", whole, "--offset", fmt.Sprint(part[0]), "--length", fmt.Sprint(part[1]))
					if got != string(want) {
						t.Errorf("%d bytes: %v: %d bytes, want %d", n, part, len(got), len(want))
					}
				}
				must(t, "blob", "get", "x.db", "store", whole, "-o", "out", "--force")
				if got := mustRead(t, "out"); !bytes.Equal(got, data) {
					t.Errorf("%d bytes: get wrote %d others", n, len(got))
				}
				refs = append(refs, whole, whole)
			}
			wantIn(t, run(t, "blob", "check", "x.db", "store", "--data"), 0, "OK\n", "")
			must(t, append([]string{"blob", "rm", "x.db", "store"}, refs...)...)
			var u struct {
				Blobs, Leaves, Nodes, Dead_chunks int
				Unfinished                        []any
			}
			check(t, json.Unmarshal([]byte(must(t, "blob", "stat", "x.db", "store", "--json")), &u))
			if u.Blobs+u.Leaves+u.Nodes+u.Dead_chunks+len(u.Unfinished) > 0 {
				t.Errorf("when all is removed there is %+v", u)
			}
			wantIn(t, run(t, "blob", "check", "x.db", "store", "--data"), 0, "OK\n", "")
		})
	}
}

// TestBlobRefuses what is wrong on the command line, or not there. Nothing changes.
func TestBlobRefuses(t *testing.T) {
	dir := workdir(t)
	_, _, short := makeBlobs(t)
	check(t, os.Mkdir("d", 0o700))
	must(t, "put", "plain.db", "b", "k", "v", "--create")
	must(t, "put", "plain.db", `a\/b`, "k", "v", "--create")
	must(t, "blob", "put", "slash.db", "a", "short", "--create")
	must(t, "blob", "put", "slash.db", fmt.Sprintf("%x", "x/y"), "short", "--create", "--bucket-format", "hex")
	ref := digestOf(short)
	wrong := "sha256:" + strings.Replace(ref[7:], ref[10:13], "000", 1)
	before := snapshot(t, dir)
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"put gone.db store short", 1, "gone.db: no such file; --create makes it\n"},
		{"put blob.db store short", 1, "blob.db: no such file; there is blobs.db; --create makes a new one\n"},
		{"put gone.db store none --create", 1, "none: no such file\n"},
		{"put gone.db store sort --create", 1, "sort: no such file; there is short\n"},
		{"put gone.db store short d --create", 1, "d: is a directory; give the files in it\n"},
		{"put blobs.db stor short", 1, "blobs.db: no bucket stor; similar: store; list them with: holdfast buckets blobs.db; --create creates it\n"},
		{"put blobs.db other short", 1, "blobs.db: bucket other is not a store of blobs; there is store\n"},
		{"put blobs.db other short --create", 1, "blobs.db: bucket other is not a store of blobs; there is store\n"},
		{"put blobs.db other/key short --create", 1, "blobs.db: other/key is a key and cannot be a bucket"},
		{"put plain.db b short", 1, "plain.db: bucket b is not a store of blobs; there is none in it; holdfast blob put --create makes one in a new bucket\n"},
		{"put plain.db a/b short", 1, "a bucket has this name with the slash in it: give it as 'a\\/b'\n"},
		{"put blobs.db store short --algorithm blake3", 1, "blobs.db: store store has --algorithm sha256, and not blake3; that stays as it was created; give another store\n"},
		{"put blobs.db store short --chunking fastcdc", 1, "store has --chunking fixed, and not fastcdc"},
		{"put blobs.db store short --compress zstd", 1, "store has --compress none, and not zstd"},
		{"put blobs.db store short --leaf-size 8KiB", 1, "store has --leaf-size 4096, and not 8KiB"},
		{"put blobs.db store short --leaf-size 1", 2, "--leaf-size 1: outside of 1KiB to 16MiB"},
		{"put blobs.db store short --algorithm md5", 2, "--algorithm: unknown hash md5; there are sha256, blake3"},
		{"put blobs.db store short --chunking rabin", 2, "--chunking: rabin is no way to cut; there are fixed, fastcdc"},
		{"put blobs.db store short --compress gzip", 2, "--compress: unknown compression gzip; there are none, zstd, zstd-better"},
		{"put blobs.db store - short -", 2, "standard input is given 2 times, and can be read once"},
		{"get blobs.db store " + ref + " -o -", 2, "-o -: get writes a file; \"blob cat\" writes to standard output"}, // it had made a file named -
		{"put blobs.db store short --expect 12", 2, `"12" is not a SHA-256 digest`},
		{"put blobs.db store a short --expect " + ref, 2, "--expect is for one SOURCE, and there are 2"},
		{"put blobs.db store a short --resume x", 2, "--resume is for one SOURCE"},
		{"put blobs.db store a short --into rows/files --name x", 2, "--name is for one SOURCE"},
		{"put blobs.db store a --name x", 2, "--name and --replace are for --into"},
		{"put blobs.db store --into rows/files", 2, "--into: standard input has no name"},
		{"put blobs.db store a - --into rows/files", 2, "--into: standard input has no name"}, // its row was "standard input"
		// The second file took the place of the first, which was not stored then:
		{"put blobs.db store short d/short --into rows/files --replace", 2, "--into: short and d/short would both be the row short; put them one by one, with --name\n"},
		{"put blobs.db store a --into rows/none", 1, "blobs.db: no bucket rows/none; list them with: holdfast buckets blobs.db rows; --create creates it\n"},
		{"put blobs.db store a --into store", 1, "blobs.db: bucket store is a store of blobs; give a bucket for rows with --into\n"},
		{"put blobs.db store a --into rows --name files", 1, "files in rows is a bucket and cannot have a value"},
		{"put blobs.db store a --into rows/files --name short", 1, "key short in rows/files has another value already; --replace replaces it, --name gives another key\n"},
		{"put blobs.db store a --into store/rows --create", 1, "blobs.db: bucket store is a store of blobs, in which there can be no other bucket; give another bucket\n"},
		{"put blobs.db store/inner a --create", 1, "bucket store is a store of blobs, in which there can be no other bucket"},
		{"put blobs.db store a blobs.db", 2, "blobs.db: a database cannot be stored in itself"},
		{"put blobs.db", 2, "STORE is missing"},
		{"put blobs.db store// short", 2, "a name in it is empty"},
		{"cat blobs.db store", 2, "REF is missing"},
		{"cat blobs.db store " + ref + " x", 2, `unexpected argument "x"`},
		{"cat blobs.db store " + ref[7:13], 2, "is too short: give 7 digits of the digest, or more"},
		{"cat blobs.db store md5:" + ref[7:], 2, "is not a digest: it begins with sha256:"},
		{"cat blobs.db store xyzxyzxyz", 2, "is not a digest: what it has is not hexadecimal"},
		{"rm blobs.db store rows/x", 2, "is a row, and here a digest is wanted: \"holdfast blob stat\" prints that of a row"},
		{"rm blobs.db store rows/files/a --dry-run", 2, "is a row, and here a digest is wanted"}, // it said what rm then refused
		{"cat blobs.db store " + ref + "00", 2, "is too long: a digest has 64 digits"},
		{"cat blobs.db store sha256-tree:" + ref[7:], 1, "no blob sha256-tree:" + ref[7:] + " in store; similar: " + ref + "; list them with: holdfast blob ls blobs.db store\n"},
		{"cat blobs.db store " + wrong, 1, "no blob " + wrong + " in store; similar: " + ref + "; list them with: "},
		{"cat blobs.db store 0000000", 1, "no blob 0000000 in store; "},
		{"cat blobs.db store " + ref + " --offset -1", 2, "--offset -1: negative: give 0, or more"},
		{"cat blobs.db store " + ref + " --offset 12", 2, "--offset 12 is past the end: the blob has 11 bytes"},
		{"get blobs.db store " + ref + " --offset 1MiB -o out", 2, "--offset 1048576 is past the end: the blob has 11 bytes"},
		{"get blobs.db store " + ref + " --length 1x -o out", 2, "--length 1x: not a size"},
		{"cat blobs.db store " + ref + " --length -2", 2, "--length -2: negative"},
		{"cat blobs.db other " + ref, 1, "blobs.db: bucket other is not a store of blobs; there is store\n"},
		{"ls slash.db x/y", 1, "give it as 'x\\/y'\n"},
		{"ls plain.db b", 1, "bucket b is not a store of blobs"},
		{"get blobs.db store " + ref, 2, `required flag(s) "output" not set`},
		{"get blobs.db store " + ref + " -o short", 1, "short: exists already; --force replaces it\n"},
		{"get blobs.db store " + ref + " -o blobs.db --force", 2, "cannot replace the database that it is made from"},
		{"get blobs.db store " + ref + " -o none/out", 1, "none/out: the directory none does not exist; make it first\n"},
		{"rm blobs.db store", 2, "REF is missing"},
		{"rm blobs.db store " + strings.Repeat(ref+" ", 3), 1, "no blob " + ref + " in store"},
		{"rm blobs.db store --dry-run " + strings.Repeat(ref+" ", 3), 1, "has no user that could be taken"},
		{"rm blobs.db store --unfinished", 2, "--unfinished needs a value (name)"}, // it said: (stringArray)
		{"rm blobs.db store --lease", 2, "--lease needs a value (id)"},
		{"rm blobs.db store --unfinished none", 1, "no unfinished put none in store; there are none\n"},
		{"diff blobs.db store " + ref + " 0000000", 2, "no blob 0000000 in store"},
		{"diff gone.db store a b", 2, "gone.db: no such file"},
		{"gc blobs.db other", 1, "bucket other is not a store of blobs"},
		{"gc plain.db none", 1, "plain.db: no bucket none; "},
		{"check plain.db b", 1, "bucket b is not a store of blobs"},
		{"check plain.db b --repair", 1, "bucket b is not a store of blobs"},
		{"nothing", 2, `unknown command "nothing" for "holdfast blob"`},
		{"init blobs.db store", 2, `unknown command "init" for "holdfast blob"; similar: create`}, // restic's and others' words led nowhere
		{"list blobs.db store", 2, `unknown command "list" for "holdfast blob"; similar: ls`},
		{"prune blobs.db store", 2, `unknown command "prune" for "holdfast blob"; similar: gc`},
		{"delete blobs.db store x", 2, `unknown command "delete" for "holdfast blob"; similar: rm`},
	} {
		r := run(t, append([]string{"blob"}, strings.Fields(c.args)...)...)
		if r.code != c.code || r.out != "" || !strings.HasPrefix(r.errOut, "holdfast: ") || !strings.Contains(r.errOut, c.want) {
			t.Errorf("holdfast blob %s: %s\nwant exit code %d and %q", c.args, r, c.code, c.want)
		}
	}
	if after := withoutTimes(snapshot(t, dir)); after != withoutTimes(before) {
		t.Errorf("files changed: before\n%s\nafter\n%s", before, after)
	}
	wantIn(t, run(t, "blob", "ls", "slash.db", "782f79", "--bucket-format", "hex"), 0, ref, "")
}

// withoutTimes is a snapshot without the lines that say when files were changed, which a command does that opens
// a file for writing and leaves it as it is; and without their content.
func withoutTimes(snapshot string) string {
	var kept []string
	for line := range strings.Lines(snapshot) {
		if !strings.HasPrefix(line, "  ") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

// TestBlobAmbiguous: digits with which several digests begin name none of them.
func TestBlobAmbiguous(t *testing.T) {
	workdir(t)
	must(t, "put", "x.db", "other", "k", "v", "--create")
	db, err := holdfast.Open("x.db", 0o600, nil)
	check(t, err)
	check(t, db.Update(func(tx *holdfast.Tx) error {
		b, err := tx.CreateBucket([]byte("store"))
		check(t, err)
		_, err = blob.Create(b, blob.Options{})
		check(t, err)
		for i := range 2 { // no content is known to have these
			key := append(bytes.Repeat([]byte{0xab}, 31), byte(i), 0)
			check(t, b.Bucket([]byte("index")).Put(key, []byte{0, 1, 3, 0, 1}))
		}
		return nil
	}))
	check(t, db.Close())
	same := strings.Repeat("ab", 31)
	wantIn(t, run(t, "blob", "cat", "x.db", "store", "abababa"), 1, "", "x.db: 2 blobs in store have digests that begin with abababa; give more digits: sha256:"+same+"00, sha256:"+same+"01\n")
	wantIn(t, run(t, "blob", "stat", "x.db", "store", same+"01"), 0, "3 bytes", "")
	wantIn(t, run(t, "blob", "check", "x.db", "store"), command.ExitDamaged, "bytes missing: chunk "+same, "x.db: the store is damaged (")
}

// failing is a reader that gives some bytes, and then an error.
type failing struct {
	io.Reader
	err error
}

func (f *failing) Read(b []byte) (int, error) {
	n, err := f.Reader.Read(b)
	if err == io.EOF {
		err = f.err
	}
	return n, err
}

var errSource = errors.New("the source broke")

// putFrom puts what a reader gives.
func putFrom(t *testing.T, in io.Reader, args ...string) result {
	t.Helper()
	var out, errOut bytes.Buffer
	root := newRoot()
	root.SetIn(in)
	root.SetOut(&out)
	root.SetErr(&errOut)
	root.SetArgs(append([]string{"blob", "put"}, args...))
	return result{command.Execute(t.Context(), root), out.String(), errOut.String()}
}

var resumeName = regexp.MustCompile(`go on with: holdfast blob put x\.db store (\S+) --resume (\S+)\n`)

// TestBlobResume: a put that ends early says how it is continued, which gives the same blob as one that does
// not; the store is whole in between.
func TestBlobResume(t *testing.T) {
	workdir(t)
	command.SmallPuts(t, 1<<20)
	data := random(3, 5<<20)
	must(t, "put", "x.db", "other", "k", "v", "--create")
	broken := func(n int, args ...string) result {
		return putFrom(t, &failing{bytes.NewReader(data[:n]), errSource}, append([]string{"x.db", "store"}, args...)...)
	}
	wantIn(t, broken(1000, "--create"), 1, "created the store store\n", "holdfast: standard input: the source broke\n") // and nothing is there
	if out := must(t, "blob", "stat", "x.db", "store"); strings.Contains(out, "Unfinished") {
		t.Errorf("got %s", out)
	}
	r := broken(2<<20 + 5)
	wantIn(t, r, 1, "", "holdfast: standard input: the source broke; 2.0 MiB (2,097,157 bytes) of standard input are stored; go on with: ")
	found := resumeName.FindStringSubmatch(r.errOut)
	if found == nil || found[1] != "-" {
		t.Fatalf("got %s", r)
	}
	name := found[2]
	wantIn(t, run(t, "blob", "stat", "x.db", "store"), 0, "Unfinished  "+name+", 2.0 MiB (2,097,157 bytes) so far", "")
	wantIn(t, run(t, "blob", "check", "x.db", "store", "--data"), 0, "OK\n", "")
	if out := must(t, "blob", "ls", "x.db", "store"); out != "" {
		t.Errorf("a part of a put is listed: %s", out)
	}
	must(t, "blob", "gc", "x.db", "store") // which leaves it alone

	check(t, os.WriteFile("short", data[:100], 0o600))
	wantIn(t, run(t, "blob", "put", "x.db", "store", "short", "--resume", name), 1, "", "short: has 100 bytes, and 2.0 MiB (2,097,157 bytes) are stored by the name "+name+" already; this is another file; ")
	wantIn(t, putFrom(t, bytes.NewReader(data[:100]), "x.db", "store", "--resume", name), 1, "", "standard input: ends after 100 bytes, and 2.0 MiB")
	// Another source was gone on with: the blob began with the one, and ended with the other.
	check(t, os.WriteFile("another", random(4, 5<<20), 0o600))
	wantIn(t, run(t, "blob", "put", "x.db", "store", "another", "--resume", name), 1, "", "another: does not begin with the 2.0 MiB (2,097,157 bytes) that are stored by the name "+name+" already; this is another source; ")
	wantIn(t, broken(3<<20+7, "--resume", name), 1, "", "3.0 MiB (3,145,735 bytes) of standard input are stored; go on with: holdfast blob put x.db store - --resume "+name+"\n")
	check(t, os.WriteFile("whole", data, 0o600))
	wantIn(t, run(t, "blob", "put", "x.db", "store", "whole", "--resume", name), 0, digestOf(data)+"  5.0 MiB (5,242,880 bytes), from 3.0 MiB on (new)\n", "")
	if got := must(t, "blob", "cat", "x.db", "store", digestOf(data)); got != string(data) {
		t.Error("what was continued is something else")
	}
	wantIn(t, run(t, "blob", "put", "x.db", "store", "whole"), 0, "it was there already, and has 2 users now", "")

	// One that has a name keeps also what is less than a transaction, and can be dropped.
	wantIn(t, broken(1000, "--resume", "mine"), 1, "", "1,000 bytes of standard input are stored; go on with: holdfast blob put x.db store - --resume mine\n")
	wantIn(t, run(t, "blob", "rm", "x.db", "store", "--unfinished", "mime"), 1, "", "no unfinished put mime in store; there is mine\n")
	wantIn(t, run(t, "blob", "rm", "x.db", "store", "--unfinished", "mine", "--dry-run"), 0, "unfinished put mine of 1000 B so far would be removed\n", "")
	wantIn(t, run(t, "blob", "rm", "x.db", "store", "--unfinished", "mine"), 0, "unfinished put mine of 1000 B so far removed\n", "")
	must(t, "blob", "rm", "x.db", "store", digestOf(data), digestOf(data))
	wantIn(t, run(t, "blob", "stat", "x.db", "store"), 0, "Stored   0 bytes", "")
	wantIn(t, run(t, "blob", "check", "x.db", "store", "--data"), 0, "OK\n", "")
}

// TestBlobExpect: a source that is not what was expected leaves nothing, however much of it was stored.
func TestBlobExpect(t *testing.T) {
	workdir(t)
	command.SmallPuts(t, 1<<20)
	must(t, "blob", "put", "x.db", "store", "--create")
	empty := must(t, "blob", "stat", "x.db", "store")
	for _, n := range []int{10, 3<<20 + 1} {
		data := random(4, n)
		check(t, os.WriteFile("in", data, 0o600))
		want := digestOf([]byte("another"))
		wantIn(t, run(t, "blob", "put", "x.db", "store", "in", "--expect", want), 1, "", "in: blob has another digest than expected: "+digestOf(data)+", not "+want+"; nothing was stored\n")
		if out := must(t, "blob", "stat", "x.db", "store"); out != empty {
			t.Errorf("%d bytes: there is\n%s", n, out)
		}
		wantIn(t, run(t, "blob", "put", "x.db", "store", "in", "--expect", digestOf(data)[7:]), 0, "(new)", "")
		must(t, "blob", "rm", "x.db", "store", digestOf(data))
	}
	wantIn(t, run(t, "blob", "check", "x.db", "store", "--data"), 0, "OK\n", "")
}

// TestBlobInto: a row has the reference, whose bytes name the blob; what it had before is given up.
func TestBlobInto(t *testing.T) {
	workdir(t)
	must(t, "blob", "put", "x.db", "a/store", "--create")
	one, two := random(5, 100_000), random(6, 90_000)
	check(t, os.WriteFile("file", one, 0o600))
	put := []string{"blob", "put", "x.db", "a/store", "file", "--into", "a/rows", "--create"}
	wantIn(t, run(t, put...), 0, "key file in a/rows refers to it\n", "")
	row := func() string { return strings.TrimSpace(must(t, "get", "x.db", "a", "rows", "file")) }
	if got := must(t, "blob", "cat", "x.db", "a/store", row()); got != string(one) {
		t.Error("the row refers to something else")
	}
	wantIn(t, run(t, put...), 0, "(it was there already, and has 1 user now)", "") // the row's user has been taken over
	check(t, os.WriteFile("file", two, 0o600))
	wantIn(t, run(t, put...), 1, "", "key file in a/rows has another value already; --replace replaces it, --name gives another key\n")
	must(t, append(put, "--replace")...)
	if got := must(t, "blob", "cat", "x.db", "a/store", row()); got != string(two) {
		t.Error("the row refers to something else")
	}
	wantIn(t, run(t, "blob", "cat", "x.db", "a/store", digestOf(one)), 1, "", "no blob "+digestOf(one))
	wantIn(t, run(t, "blob", "gc", "x.db", "a/store"), 0, "freed 98 KiB", "")
	wantIn(t, run(t, "blob", "check", "x.db", "a/store", "--data"), 0, "OK\n", "")
}

// change changes a database through the API.
func change(t *testing.T, path string, fn func(tx *holdfast.Tx) error) {
	t.Helper()
	db, err := holdfast.Open(path, 0o600, nil)
	check(t, err)
	check(t, db.Update(fn))
	check(t, db.Close())
}

// TestBlobDamage: what is damaged is an error that names it, a file is not made of it, and the rest is
// read. What can be mended is.
func TestBlobDamage(t *testing.T) {
	dir := workdir(t)
	a, b, short := makeBlobs(t)
	store := func(tx *holdfast.Tx, name string) *holdfast.Bucket {
		return tx.Bucket([]byte("store")).Bucket([]byte(name))
	}
	var chunk string
	change(t, "blobs.db", func(tx *holdfast.Tx) error {
		leaves := store(tx, "leaves")
		for k, v := range leaves.All() {
			if bytes.Equal(v, a[8192:12288]) {
				chunk = digestOf(v)[7:]
				bad := bytes.Clone(v)
				bad[100]++
				return leaves.Put(bytes.Clone(k), bad)
			}
		}
		return errors.New("no such leaf")
	})
	before := snapshot(t, dir)
	r := run(t, "blob", "cat", "blobs.db", "store", digestOf(a))
	if r.code != 1 || r.out != string(a[:8192]) || !strings.Contains(r.errOut, "holdfast: blobs.db: damaged: blob sha256-tree:") ||
		!strings.Contains(r.errOut, "chunk "+chunk+" at offset 8192: ") || !strings.HasSuffix(r.errOut, "; all that is wrong shows: holdfast blob check --data blobs.db store\n") {
		t.Errorf("got exit code %d, %d bytes, %s", r.code, len(r.out), r.errOut)
	}
	wantIn(t, run(t, "blob", "get", "blobs.db", "store", digestOf(a), "-o", "out"), 1, "", "blobs.db: damaged: blob sha256-tree:")
	for _, whole := range [][]byte{b, short} {
		if got := must(t, "blob", "cat", "blobs.db", "store", digestOf(whole)); got != string(whole) {
			t.Error("another blob is not what it was")
		}
	}
	if got := must(t, "blob", "cat", "blobs.db", "store", digestOf(a), "--offset", "12288"); got != string(a[12288:]) {
		t.Error("the rest of the blob cannot be read")
	}
	wantIn(t, run(t, "blob", "check", "blobs.db", "store", "--data"), command.ExitDamaged, "wrong content: chunk "+chunk, "blobs.db: the store is damaged (1 fault); ")
	if after := snapshot(t, dir); after != before {
		t.Errorf("files changed: before\n%s\nafter\n%s", before, after)
	}
	wantIn(t, run(t, "blob", "check", "blobs.db", "store", "--data", "--repair"), command.ExitDamaged, "wrong content: chunk "+chunk, "(1 fault)")

	// Removed and put again it is whole.
	must(t, "blob", "rm", "blobs.db", "store", digestOf(a))
	must(t, "blob", "put", "blobs.db", "store", "a")
	wantIn(t, run(t, "blob", "check", "blobs.db", "store", "--data"), 0, "OK\n", "")

	// Bytes that no chunk has, and a mark that is wrong.
	change(t, "blobs.db", func(tx *holdfast.Tx) error {
		k, _ := store(tx, "index").Cursor().First()
		return errors.Join(store(tx, "leaves").Put(bytes.Repeat([]byte{9}, 8), make([]byte, 4096)), store(tx, "dead").Put(bytes.Clone(k), nil))
	})
	wantIn(t, run(t, "blob", "check", "blobs.db", "store"), command.ExitDamaged, "bytes that no chunk has: ", "(3 faults)")
	var r2 struct {
		OK       bool
		Repaired int
	}
	check(t, json.Unmarshal([]byte(must(t, "blob", "check", "blobs.db", "store", "--repair", "--json")), &r2))
	if !r2.OK || r2.Repaired < 2 {
		t.Errorf("got %+v", r2)
	}
	wantIn(t, run(t, "blob", "check", "blobs.db", "store", "--data"), 0, "OK\n", "")
	wantIn(t, run(t, "blob", "gc", "blobs.db", "store"), 0, "freed ", "")

	// A store of a later version.
	change(t, "blobs.db", func(tx *holdfast.Tx) error {
		b := tx.Bucket([]byte("store"))
		config := bytes.Clone(b.Get([]byte("store")))
		config[4] = 0xff
		return b.Put([]byte("store"), config)
	})
	for _, args := range []string{"ls", "stat", "gc", "check", "put", "check --repair"} {
		words := strings.Fields(args)
		r := run(t, append([]string{"blob", words[0], "blobs.db", "store"}, words[1:]...)...)
		wantIn(t, r, 1, "", "holdfast: blobs.db: ")
		wantIn(t, r, 1, "", "version")
	}
}

// TestBlobCompletion: the shell is offered stores, and the blobs in them.
func TestBlobCompletion(t *testing.T) {
	dir := workdir(t)
	a, _, short := makeBlobs(t)
	before := snapshot(t, dir)
	tree := strings.Fields(must(t, "blob", "stat", "blobs.db", "store", digestOf(a)))[3]
	for _, c := range []struct {
		args  []string
		want  string
		files bool
	}{
		{[]string{"blob", "ls", ""}, "", true},
		{[]string{"blob", "ls", "blobs.db", ""}, "store", false},
		{[]string{"blob", "ls", "blobs.db", "x"}, "", false},
		{[]string{"blob", "ls", "blobs.db", "--bucket-format", "hex", ""}, "73746f7265", false},
		{[]string{"blob", "put", "blobs.db", "store", ""}, "", true},
		{[]string{"blob", "cat", "blobs.db", "store", digestOf(short)[:10]}, digestOf(short), false},
		{[]string{"blob", "rm", "blobs.db", "store", digestOf(short), digestOf(a)[7:11]}, digestOf(a)[7:], false},
		{[]string{"blob", "diff", "blobs.db", "store", "a", tree[:20]}, tree, false},
		{[]string{"blob", "cat", "blobs.db", "other", ""}, "", false},
		{[]string{"blob", "cat", "gone.db", "store", ""}, "", false},
		{[]string{"blob", "put", "--chunking", "f"}, "fixed fastcdc", false},
	} {
		names, files := completed(t, c.args...)
		if got := strings.Join(names, " "); got != c.want || files != c.files {
			t.Errorf("%q: %q, files %v; want %q, %v", c.args, got, files, c.want, c.files)
		}
	}
	if names, _ := completed(t, "blob", "cat", "blobs.db", "store", ""); len(names) != 5 {
		t.Errorf("offered %q", names)
	}
	if after := snapshot(t, dir); after != before {
		t.Errorf("files changed: before\n%s\nafter\n%s", before, after)
	}
}

// TestBlobNotInStock: bbolt has no such command.
func TestBlobNotInStock(t *testing.T) {
	root := command.NewBboltCommand()
	wantIn(t, execute(root, "", "blob", "ls", "x.db", "b"), 2, "", `unknown command "blob"`)
	wantIn(t, execute(command.NewBboltCommand(), "", "import", "x.db", "b", "--csv", "--blob-columns", "2"), 2, "", "unknown flag: --blob-columns")
}
