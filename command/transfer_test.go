package command_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdfast"
	"holdfast/command"
)

// randomBytes are n bytes: text, text with what JSON escapes, or any.
func randomBytes(random *rand.Rand, n int) []byte {
	alphabet := []string{"abcdefghij", "a\"\\\n\t\r/é€😀\u2028,;= \x7f\ufffd", ""}[random.IntN(3)]
	b := []byte{}
	for len(b) < n {
		if alphabet == "" {
			b = append(b, byte(random.Uint32()))
		} else {
			r := []rune(alphabet)
			b = append(b, string(r[random.IntN(len(r))])...)
		}
	}
	return b
}

// randomTree makes a database with buckets in buckets, keys and values of any bytes, empty values
// and buckets, values of many pages, and sequences.
func randomTree(t *testing.T, path string, random *rand.Rand) {
	t.Helper()
	db, err := holdfast.Open(path, 0o600, &holdfast.Options{NoSync: true, PageSize: 1024})
	check(t, err)
	var fill func(in *holdfast.Bucket, depth int)
	fill = func(in *holdfast.Bucket, depth int) {
		if random.IntN(2) == 0 {
			check(t, in.SetSequence(random.Uint64()>>random.IntN(64)))
		}
		for range random.IntN(40) {
			key := randomBytes(random, 1+random.IntN(20))
			if random.IntN(8) == 0 && depth < 3 {
				if b, err := in.CreateBucket(key); err == nil {
					fill(b, depth+1)
				}
				continue
			}
			size := random.IntN(50)
			if random.IntN(40) == 0 {
				size = random.IntN(10_000)
			}
			_ = in.Put(key, randomBytes(random, size)) // fails where there is a bucket
		}
	}
	check(t, db.Update(func(tx *holdfast.Tx) error {
		for range 1 + random.IntN(6) {
			b, err := tx.CreateBucketIfNotExists(randomBytes(random, 1+random.IntN(20)))
			check(t, err)
			fill(b, 0)
		}
		return nil
	}))
	check(t, db.Close())
}

// TestExportImport: what export writes of any database, import makes the same of, whichever way.
func TestExportImport(t *testing.T) {
	for seed := range uint64(20) {
		dir := workdir(t)
		random := rand.New(rand.NewPCG(seed, 7))
		randomTree(t, "a.db", random)
		want := content(t, "a.db")
		before := snapshot(t, "a.db")
		must(t, "export", "a.db", "-o", "a.jsonl")
		exported, err := os.ReadFile("a.jsonl")
		check(t, err)
		if out := must(t, "export", "a.db"); out != string(exported) {
			t.Fatalf("seed %d: standard output and the file differ", seed)
		}
		for line := range bytes.Lines(exported) {
			if !json.Valid(line) {
				t.Fatalf("seed %d: not JSON: %s", seed, line)
			}
		}
		must(t, "import", "new.db", "a.jsonl", "--create")
		db, err := holdfast.Open("empty.db", 0o600, nil)
		check(t, err)
		check(t, db.Close())
		must(t, "import", "empty.db", "a.jsonl")
		for _, name := range []string{"new.db", "empty.db"} {
			if content(t, name) != want {
				t.Errorf("seed %d: %s holds something else", seed, name)
			}
			out := must(t, "import", name, "a.jsonl") // again
			if !strings.Contains(out, ": 0 new, 0 replaced, ") || !strings.Contains(out, "; 0 buckets created\n") {
				t.Errorf("seed %d: imported again: %s", seed, out)
			}
			must(t, "diff", "a.db", name)
			if out := must(t, "export", name); out != string(exported) {
				t.Errorf("seed %d: the export of %s differs", seed, name)
			}
		}
		if after := snapshot(t, "a.db"); after != before {
			t.Errorf("seed %d: the source changed", seed)
		}
		wantFiles(t, dir, "a.db a.jsonl empty.db new.db")
		if r := run(t, "import", "other.db", "a.jsonl", "--create", "--dry-run"); r.code != 0 || strings.Contains(r.out, "not in the order") {
			t.Errorf("seed %d: dry run: %s", seed, r)
		}
	}
}

// TestDiffFindsEdits: whatever is changed, diff names it, and nothing else.
func TestDiffFindsEdits(t *testing.T) {
	for seed := range uint64(40) {
		workdir(t)
		random := rand.New(rand.NewPCG(seed, 8))
		randomTree(t, "a.db", random)
		data, err := os.ReadFile("a.db")
		check(t, err)
		check(t, os.WriteFile("b.db", data, 0o600))
		want := edit(t, "b.db", random)
		r := run(t, "diff", "a.db", "b.db", "--json", "--format", "hex")
		if code := min(len(want), 1); r.code != code || r.errOut != "" {
			t.Fatalf("seed %d: %s\nwant exit code %d", seed, r, code)
		}
		var got struct {
			Differences []diffLine `json:"differences"`
			Equal       bool       `json:"equal"`
		}
		check(t, json.Unmarshal([]byte(r.out), &got))
		var names []string
		for _, d := range got.Differences {
			names = append(names, d.String())
		}
		slices.Sort(names)
		slices.Sort(want)
		if !slices.Equal(names, want) || got.Equal != (len(want) == 0) {
			t.Errorf("seed %d: got\n%s\nwant\n%s", seed, strings.Join(names, "\n"), strings.Join(want, "\n"))
		}
		// The other way round, and with the lines for people.
		back := run(t, "diff", "b.db", "a.db", "--format", "hex")
		lines := strings.Split(strings.TrimSuffix(back.out, "\n"), "\n")
		if len(lines) != len(want)+1 {
			t.Errorf("seed %d: %d lines for %d differences: %s", seed, len(lines), len(want), back.out)
		}
		if quiet := run(t, "diff", "--quiet", "a.db", "b.db"); quiet.code != r.code || quiet.out+quiet.errOut != "" {
			t.Errorf("seed %d: quiet: %s", seed, quiet)
		}
	}
}

type diffLine struct {
	Change    string   `json:"change"`
	Kind      string   `json:"kind"`
	Bucket    []string `json:"bucket"`
	Key       string   `json:"key"`
	A, B      *struct{ Value string }
	SequenceA uint64 `json:"sequence_a"`
	SequenceB uint64 `json:"sequence_b"`
}

func (d diffLine) String() string {
	s := fmt.Sprintf("%s %s %s %s", d.Change, d.Kind, strings.Join(d.Bucket, "/"), d.Key)
	if d.A != nil {
		s += " was " + d.A.Value
	}
	if d.B != nil {
		s += " is " + d.B.Value
	}
	if d.Kind == "sequence" {
		s += fmt.Sprintf(" %d %d", d.SequenceA, d.SequenceB)
	}
	return s
}

// edit changes some keys, buckets and sequences, each at most once, and says what diff has to find.
func edit(t *testing.T, path string, random *rand.Rand) (did []string) {
	t.Helper()
	db, err := holdfast.Open(path, 0o600, &holdfast.Options{NoSync: true})
	check(t, err)
	rare := func() bool { return random.IntN(12) == 0 }
	var walk func(in *holdfast.Bucket, path []string)
	walk = func(in *holdfast.Bucket, path []string) {
		say := func(format string, args ...any) {
			did = append(did, strings.Replace(fmt.Sprintf(format, args...), "PATH", strings.Join(path, "/"), 1))
		}
		if rare() {
			old := in.Sequence()
			check(t, in.SetSequence(old+1))
			say("changed sequence PATH  %d %d", old, old+1)
		}
		type pair struct{ k, v []byte }
		var all []pair
		check(t, in.ForEach(func(k, v []byte) error {
			all = append(all, pair{bytes.Clone(k), bytes.Clone(v)})
			if v == nil {
				all[len(all)-1].v = nil
			}
			return nil
		}))
		for _, p := range all {
			switch {
			case p.v == nil && rare():
				check(t, in.DeleteBucket(p.k))
				if rare() {
					check(t, in.Put(p.k, nil))
					say("changed kind PATH %x is ", p.k)
				} else {
					say("only_in_a bucket PATH %x", p.k)
				}
			case p.v == nil:
				walk(in.Bucket(p.k), append(path[:len(path):len(path)], fmt.Sprintf("%x", p.k)))
			case rare():
				check(t, in.Delete(p.k))
				say("only_in_a key PATH %x was %x", p.k, p.v)
			case rare():
				check(t, in.Put(p.k, append(p.v, 0)))
				say("changed key PATH %x was %x is %x", p.k, p.v, append(p.v, 0))
			}
		}
		if key := append(randomBytes(random, 30), 1); rare() {
			check(t, in.Put(key, key))
			say("only_in_b key PATH %x is %x", key, key)
		}
	}
	check(t, db.Update(func(tx *holdfast.Tx) error {
		if rare() {
			_, err := tx.CreateBucket([]byte("a new bucket"))
			check(t, err)
			did = append(did, fmt.Sprintf("only_in_b bucket  %x", "a new bucket"))
		}
		var names [][]byte
		check(t, tx.ForEach(func(name []byte, _ *holdfast.Bucket) error {
			names = append(names, bytes.Clone(name))
			return nil
		}))
		for _, name := range names {
			if string(name) != "a new bucket" {
				walk(tx.Bucket(name), []string{fmt.Sprintf("%x", name)})
			}
		}
		return nil
	}))
	check(t, db.Close())
	return did
}

// TestExportGolden: the export of the sample, as JSON lines and as CSV, and diff.
func TestExportGolden(t *testing.T) {
	here, err := os.Getwd()
	check(t, err)
	dir := withSample(t)
	before := snapshot(t, dir)
	for _, c := range []struct{ name, args string }{
		{"export", "export sample.db"},
		{"export-json", "export sample.db --json"},
		{"export-bucket", "export sample.db nested inner"},
		{"export-csv", "export sample.db --csv alpha --header --value-format hex"},
		{"diff-same.json", "diff sample.db sample.db --json"},
		{"diff-same", "diff sample.db sample.db"},
	} {
		golden(t, here, c.name+".golden", must(t, strings.Fields(c.args)...))
	}
	r := run(t, "export", "sample.db", "--csv", "nested")
	wantIn(t, r, 0, "long,long long", "holdfast: note: 1 bucket in nested left out: CSV has keys and values only\n")
	if after := snapshot(t, dir); after != before {
		t.Errorf("reading changed files: before\n%s\nafter\n%s", before, after)
	}
	golden(t, here, "export-to.json.golden", must(t, "export", "sample.db", "-o", "x", "--json"))
	golden(t, here, "import.json.golden", must(t, "import", "sample.db", "x", "--json"))
	golden(t, here, "import-create.json.golden", must(t, "import", "new.db", "x", "--json", "--create"))
	must(t, "put", "new.db", "alpha", "key-1", "other")
	must(t, "put", "new.db", "alpha", "key-9", "only there")
	must(t, "delete", "new.db", "alpha", "empty")
	must(t, "delete", "new.db", "many", "--bucket")
	must(t, "put", "new.db", "more", "many", "k", "v", "--create")
	must(t, "delete", "new.db", "nested", "inner", "--bucket")
	must(t, "put", "new.db", "nested", "inner", "v")
	for _, args := range []string{"diff sample.db new.db", "diff sample.db new.db --json"} {
		r := run(t, strings.Fields(args)...)
		if r.code != command.ExitDifferent || r.errOut != "" {
			t.Errorf("%s: %s", args, r)
		}
		name := "diff.golden"
		if strings.Contains(args, "json") {
			name = "diff.json.golden"
			if !json.Valid([]byte(r.out)) {
				t.Errorf("not JSON: %s", r.out)
			}
		}
		golden(t, here, name, r.out)
	}
}

// TestImportInterrupted: a context that ends, while the input waits for more, leaves the
// database as it was, and none where there was none.
func TestImportInterrupted(t *testing.T) {
	dir := withSample(t)
	before := snapshot(t, dir)
	for _, args := range []string{"import sample.db", "import new.db --create", "import sample.db --dry-run", "import new.db b --csv --create"} {
		ctx, cancel := context.WithCancel(t.Context())
		root := command.NewRootCommand()
		var errOut strings.Builder
		begin := "{\"format\":\"holdfast-export\",\"version\":1}\n{\"bucket\":[\"alpha\"],\"key\":\"new\",\"value\":\"\"}\n"
		if strings.Contains(args, "--csv") {
			begin = "key,value\n"
		}
		in := &waitingInput{begin: []byte(begin), waits: cancel, end: t.Context().Done()}
		root.SetIn(in)
		root.SetOut(&errOut)
		root.SetErr(&errOut)
		root.SetArgs(strings.Fields(args))
		if code := command.Execute(ctx, root); code != command.ExitInterrupted || !strings.Contains(errOut.String(), ": interrupted, nothing was ") {
			t.Errorf("%s: exit code %d: %s", args, code, &errOut)
		}
		cancel()
		if after := snapshot(t, dir); after != before {
			t.Errorf("%s: files changed: before\n%s\nafter\n%s", args, before, after)
		}
	}
}

// waitingInput gives its beginning, and then waits for more until end.
type waitingInput struct {
	begin []byte
	waits func()
	end   <-chan struct{}
}

func (in *waitingInput) Read(b []byte) (int, error) {
	if len(in.begin) == 0 {
		in.waits()
		<-in.end
		return 0, context.Canceled
	}
	n := copy(b, in.begin)
	in.begin = in.begin[n:]
	return n, nil
}

// TestImportMany: a new database takes more than one transaction, and values that are long.
func TestImportMany(t *testing.T) {
	dir := workdir(t)
	makeBig(t, "big.db", 120_000)
	db, err := holdfast.Open("big.db", 0o600, &holdfast.Options{NoSync: true})
	check(t, err)
	check(t, db.Update(func(tx *holdfast.Tx) error {
		return tx.Bucket([]byte("b")).Put([]byte("long"), bytes.Repeat([]byte{0xff}, 5<<20))
	}))
	check(t, db.Close())
	must(t, "export", "big.db", "-o", "big.jsonl")
	must(t, "import", "copy.db", "big.jsonl", "--create")
	must(t, "diff", "big.db", "copy.db")
	must(t, "check", "copy.db")
	wantIn(t, run(t, "import", "new.db", "big.jsonl", "--create", "--max-line", "4MiB"), 1, "",
		"holdfast: big.jsonl: line 120003: longer than 4.0 MiB; --max-line allows more, which takes as much memory; nothing was imported\n")
	// The last line contradicts one long before it: what is done by then is undone.
	data, err := os.ReadFile("big.jsonl")
	check(t, err)
	bad := strings.Replace(string(data), `"keys":120001`, `"keys":120002`, 1)
	check(t, os.WriteFile(filepath.Join(dir, "bad.jsonl"), []byte(bad), 0o600))
	wantIn(t, run(t, "import", "new.db", "bad.jsonl", "--create"), 1, "",
		"line 120004: the export had 1 buckets and 120002 keys, and here are 1 and 120001: lines are missing or there twice; nothing was imported\n")
	wantFiles(t, dir, "bad.jsonl big.db big.jsonl copy.db")
}
