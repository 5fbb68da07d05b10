package command_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"holdfast"
	"holdfast/blob"
	"holdfast/command"
)

// peopleCSV are rows with a column of blobs in hexadecimal, as it is not text, and one of texts.
func peopleCSV(t *testing.T, n int) (text string, rows [][]string) {
	t.Helper()
	rows = append(rows, []string{"name", "id", "photo", "note"})
	for i := range n {
		photo := random(byte(i%3), 3000*(i%3)) // one is empty
		rows = append(rows, []string{fmt.Sprintf("%x", fmt.Sprintf("name, \"%d\"", i)), fmt.Sprintf("%04x", i), fmt.Sprintf("%x", photo), fmt.Sprintf("%x", strings.Repeat("note ", i%4))})
	}
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	check(t, w.WriteAll(rows))
	return b.String(), rows
}

const hexFormats = "--key-format hex --value-format hex"

func importPeople(text, more string) result {
	args := "x.db people --csv --header --key-column id --blob-columns photo,note " + hexFormats + " " + more
	return importing(text, strings.Fields(args)...)
}

// exported are the rows that export --csv gives.
func exported(t *testing.T, args ...string) [][]string {
	t.Helper()
	out := must(t, append([]string{"export"}, args...)...)
	rows, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	check(t, err)
	return rows
}

// TestImportBlobColumns: rows with columns of blobs come back as they were, their columns in order with their
// names, from new and from existing databases, in stores anywhere, and through an export as lines.
func TestImportBlobColumns(t *testing.T) {
	text, rows := peopleCSV(t, 20)
	for _, c := range []struct{ name, more, store string }{
		{"default", "", "blobs"}, {"nested", "--store deep/er", "deep/er"}, {"inside", "--store people/blobs", "people/blobs"},
		{"inline", "--inline", "blobs"}, {"hex", "--store 00ff --bucket-format hex", "00ff"},
	} {
		for _, existing := range []bool{false, true} {
			t.Run(fmt.Sprint(c.name, existing), func(t *testing.T) {
				workdir(t)
				if existing {
					must(t, "put", "x.db", "other", "k", "v", "--create")
				}
				more := c.more
				people, format := "people", []string{}
				if strings.Contains(more, "hex") {
					people, format = fmt.Sprintf("%x", people), []string{"--bucket-format", "hex"}
				}
				imported := func(more string) result {
					r := importPeople(text, more)
					if strings.Contains(more, "bucket-format") {
						args := "x.db " + people + " --csv --header --key-column id --blob-columns photo,note " + hexFormats + " " + more
						r = importing(text, strings.Fields(args)...)
					}
					return r
				}
				wantIn(t, imported(more+" --create --dry-run"), 0, "20 keys would be imported into x.db: 20 new", "")
				wantIn(t, imported(more+" --create"), 0, "20 keys imported into x.db: 20 new, 0 replaced, 0 unchanged; ", "")
				export := append(append([]string{"x.db", people, "--csv"}, strings.Fields(hexFormats)...), format...)
				if got := exported(t, export...); !slices.EqualFunc(got, rows, slices.Equal) {
					t.Errorf("got %.300q\nwant %.300q", got, rows)
				}
				wantIn(t, imported(more), 0, "0 new, 0 replaced, 20 unchanged; 0 buckets created", "")
				store := append([]string{"x.db", c.store}, format...)
				wantIn(t, run(t, append([]string{"blob", "check", "--data"}, store...)...), 0, "OK\n", "")
				var u struct{ Blobs, Users int }
				check(t, json.Unmarshal([]byte(must(t, append([]string{"blob", "stat", "--json"}, store...)...)), &u))
				want := struct{ Blobs, Users int }{6, 40} // the empty one is both a photo and a note
				if c.name == "inline" {
					want = struct{ Blobs, Users int }{2, 13}
				}
				if u != want {
					t.Errorf("%+v are stored, want %+v", u, want)
				}
				if c.name == "default" {
					must(t, "export", "x.db", "-o", "x.jsonl")
					must(t, "import", "y.db", "x.jsonl", "--create")
					export[0] = "y.db"
					if got := exported(t, export...); !slices.EqualFunc(got, rows, slices.Equal) {
						t.Errorf("from the copy: %.300q\nwant %.300q", got, rows)
					}
				}
			})
		}
	}
}

// TestImportBlobReplace: rows that are replaced give up what they had in the store; a change of one column counts.
func TestImportBlobReplace(t *testing.T) {
	workdir(t)
	text, rows := peopleCSV(t, 10)
	wantIn(t, importPeople(text, "--create"), 0, "10 new", "")
	changed := strings.Replace(text, rows[2][2], "00"+rows[2][2][2:], 1)
	wantIn(t, importPeople(changed, ""), 1, "", "line 3: key \x00\x01"[:8]) // the key is not text
	wantIn(t, importPeople(changed, ""), 1, "", "in people has another value already; nothing was imported; --replace replaces it\n")
	wantIn(t, importPeople(changed, "--replace --dry-run"), 0, "0 new, 1 replaced, 9 unchanged", "")
	wantIn(t, importPeople(changed, "--replace"), 0, "0 new, 1 replaced, 9 unchanged; 0 buckets created\n2 blobs of 2.9 KiB\n", "")
	wantIn(t, importPeople(changed, "--replace"), 0, "0 new, 0 replaced, 10 unchanged", "")
	wantIn(t, importPeople(text, "--replace"), 0, "takes room until: holdfast blob gc x.db blobs\n", "")
	if got := exported(t, append([]string{"x.db", "people", "--csv"}, strings.Fields(hexFormats)...)...); !slices.EqualFunc(got, rows, slices.Equal) {
		t.Errorf("got %.300q", got)
	}
	wantIn(t, run(t, "blob", "gc", "x.db", "blobs"), 0, "freed 2.9 KiB (3,000 bytes) in 1 chunk\n", "")
	wantIn(t, run(t, "blob", "check", "x.db", "blobs", "--data"), 0, "OK\n", "")
}

// TestImportBlobDangling: import --replace could not mend a row whose blob had been removed, or is damaged: it ended
// with "blob not found". It does, the blob is there afterwards, and without --replace the message names the line.
func TestImportBlobDangling(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T){
		"removed": func(t *testing.T) { must(t, "blob", "rm", "x.db", "blobs", digestOf([]byte("first"))) },
		"removed, collected later": func(t *testing.T) {
			change(t, "x.db", func(tx *holdfast.Tx) error {
				s, err := blob.Open(tx.Bucket([]byte("blobs")))
				if err != nil {
					return err
				}
				ref, err := s.ByDigest(sha256.Sum256([]byte("first")))
				return errors.Join(err, s.Delete(ref))
			})
		},
		"damaged": func(t *testing.T) {
			change(t, "x.db", func(tx *holdfast.Tx) error {
				packs := tx.Bucket([]byte("blobs")).Bucket([]byte("packs"))
				for k, v := range packs.All() {
					if string(v) == "first" {
						return packs.Put(bytes.Clone(k), []byte("other"))
					}
				}
				return errors.New("no such leaf")
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			workdir(t)
			const text = "k1,first\nk2,second\n"
			args := strings.Fields("x.db b --csv --blob-columns 2")
			wantIn(t, importing(text, append(args, "--create")...), 0, "2 new", "")
			lose(t)
			wantIn(t, importing(text, args...), 1, "", "line 1: key k1 in b has another value already; nothing was imported; --replace replaces it\n")
			if name == "damaged" {
				wantIn(t, importing(text, append(args, "--replace")...), 0, "1 replaced, 1 unchanged", "")
				wantIn(t, run(t, "blob", "check", "x.db", "blobs", "--repair", "--discard"), command.ExitDamaged, "deleted", "")
			}
			wantIn(t, importing(text, append(args, "--replace")...), 0, "1 replaced, 1 unchanged", "")
			must(t, "blob", "gc", "x.db", "blobs")
			if got := must(t, "export", "x.db", "b", "--csv"); got != text {
				t.Errorf("got %q", got)
			}
			wantIn(t, run(t, "blob", "check", "x.db", "blobs", "--data"), 0, "OK\n", "")
			wantIn(t, run(t, "blob", "stat", "x.db", "blobs"), 0, "2 with 2 users", "")
		})
	}
}

// TestImportFileAsBucket: of a file that was given after the bucket, as other imports take it, the message said only
// that standard input is empty.
func TestImportFileAsBucket(t *testing.T) {
	workdir(t)
	check(t, os.WriteFile("p.csv", []byte("a,b\n"), 0o600))
	for _, more := range []string{"--header", "--blob-columns 2"} {
		r := importing("", strings.Fields("x.db rows p.csv --csv --create "+more)...)
		wantIn(t, r, 1, "", "nothing was imported; p.csv was taken as a bucket: give the file as --input p.csv\n")
	}
}

// TestImportBlobSingle: of two columns the value of a row is the reference itself, which blob takes.
func TestImportBlobSingle(t *testing.T) {
	workdir(t)
	wantIn(t, importing("k1,first\nk2,\n", "x.db", "b", "--csv", "--blob-columns", "2", "--create"), 0, "2 new", "")
	if got := must(t, "blob", "cat", "x.db", "blobs", strings.TrimSpace(must(t, "get", "x.db", "b", "k1"))); got != "first" {
		t.Errorf("got %q", got)
	}
	if got := must(t, "export", "x.db", "b", "--csv"); got != "k1,first\nk2,\n" {
		t.Errorf("got %q", got)
	}
	wantIn(t, run(t, "export", "x.db", "b", "--csv", "--header"), 2, "", "--header: the columns of these rows have no names")
}

// TestImportBlobRefuses what does not fit. Nothing is imported.
func TestImportBlobRefuses(t *testing.T) {
	dir := workdir(t)
	text, _ := peopleCSV(t, 3)
	wantIn(t, importPeople(text, "--create"), 0, "3 new", "")
	must(t, "put", "x.db", "plain", "k", "v", "--create")
	before := snapshot(t, dir)
	for _, c := range []struct {
		in, args string
		code     int
		want     string
	}{
		{"a,b\n", "x.db people --blob-columns 2", 2, "--blob-columns is for --csv"},
		{"a,b\n", "x.db people --csv --store s", 2, "--store is for --blob-columns"},
		{"a,b\n", "x.db people --csv --inline", 2, "--inline is for --blob-columns"},
		{"a,b\n", "x.db people --csv --blob-columns 2 --value-column 2", 2, "--value-column does not go with --blob-columns"},
		{"a,b\n", "x.db people --csv --blob-columns 2,", 2, "--blob-columns: a column without a name"},
		{"a,b\n", "x.db people --csv --blob-columns 3", 2, "--blob-columns: there is no column 3: the first row has 2 columns"},
		{"a,b\n", "x.db people --csv --blob-columns 1", 2, "--blob-columns: column 1 is that of the key"},
		{"a,b\n", "x.db people --csv --blob-columns 2,2", 2, "--blob-columns: column 2 is given twice"},
		{"a,b\n", "x.db people --csv --blob-columns photo", 2, `--blob-columns: "photo" is not a column number`},
		{"a,b\n", "x.db people --csv --blob-columns photo --header", 2, `--blob-columns: no column has the name "photo"; there are a, b`},
		{"a,b\n", "x.db people --csv --blob-columns 2 --key-column 3", 2, "--key-column: there is no column 3"},
		{"a,b\n", "x.db people --csv --blob-columns 2 --store a//b", 2, "a name in it is empty"},
		{"", "x.db new --csv --blob-columns 2 --create", 1, "the input is empty"},
		{"a,\xff\n", "x.db new --csv --blob-columns 2 --header --create", 1, "of a column is not UTF-8"},
		{"a,b\n", "x.db people --csv --blob-columns 2", 1, "bucket people has rows of other columns, or with another store; nothing was imported\n"},
		{"a,b\n", "x.db blobs --csv", 1, "x.db: bucket blobs is a store of blobs; give another bucket for the rows\n"}, // the rows had gone into the store
		{"a,b\n", "x.db blobs --csv --dry-run", 1, "x.db: bucket blobs is a store of blobs; "},
		{"a,b\n", "x.db blobs leaves --csv", 1, "bucket blobs is a store of blobs, in which there can be no other bucket"},
		{"a,b\n", "x.db blobs --csv --blob-columns 2 --store other --create", 1, "bucket blobs is a store of blobs; "},
		{"a,b\n", "x.db plain --csv --blob-columns 2", 1, "bucket plain has keys that are not rows with columns of blobs; nothing was imported; give another bucket\n"},
		{"a,b\n", "x.db new --csv --blob-columns 2", 1, "no bucket new; "},
		{"a,b\n", "x.db new --csv --blob-columns 2 --store plain --create", 1, "bucket plain is not a store of blobs; there is blobs\n"},
		{"a,b\na,b,c\n", "x.db new --csv --blob-columns 2 --create", 1, "line 2: the row has 3 columns, and the first has 2; nothing was imported\n"},
		{"a,b\nb,x\na,c\n", "x.db new --csv --blob-columns 2 --create", 1, "line 3: key a in new has another value already"},
		{"a,b\nb,0\n", "x.db new --csv --blob-columns 2 --value-format hex --create", 1, "line 1: column 2, b: not hexadecimal"},
		{"a,b\n,x\n", "x.db new --csv --blob-columns 2 --create", 1, "line 2: the key is empty"},
		{"a,b\n", "y.db new --csv --blob-columns 2", 1, "y.db: no such file; there is x.db; --create makes a new one"},
	} {
		r := importing(c.in, strings.Fields(c.args)...)
		if r.code != c.code || r.out != "" || !strings.Contains(r.errOut, c.want) {
			t.Errorf("import %s: %s\nwant exit code %d and %q", c.args, r, c.code, c.want)
		}
	}
	if after := withoutTimes(snapshot(t, dir)); after != withoutTimes(before) {
		t.Errorf("files changed: before\n%s\nafter\n%s", before, after)
	}
	if out := must(t, "buckets", "x.db"); out != "blobs\npeople\nplain\n" {
		t.Errorf("buckets %q", out)
	}
}

// TestExportBlobDamage: rows whose description or blobs are missing are an error that names them.
func TestExportBlobDamage(t *testing.T) {
	text, _ := peopleCSV(t, 3)
	for want, damage := range map[string]func(tx *holdfast.Tx, people *holdfast.Bucket) error{
		"row 0000: column 3: chunk is missing: the store of its blobs is missing": func(tx *holdfast.Tx, _ *holdfast.Bucket) error { return tx.DeleteBucket([]byte("blobs")) },
		"row 0001: its value has not the fields of the columns":                   func(_ *holdfast.Tx, b *holdfast.Bucket) error { return b.Put([]byte{0, 1}, []byte("something else")) },
		"row 0002: its value has not the fields of the columns":                   func(_ *holdfast.Tx, b *holdfast.Bucket) error { return b.Put([]byte{0, 2}, nil) },
		"the description of the columns, in the bucket 00637376 in hexadecimal": func(_ *holdfast.Tx, b *holdfast.Bucket) error {
			return b.Bucket([]byte("\x00csv")).Put([]byte("table"), []byte("{"))
		},
		"is none that import has written: it contradicts itself": func(_ *holdfast.Tx, b *holdfast.Bucket) error {
			return b.Bucket([]byte("\x00csv")).Put([]byte("table"), []byte(`{"version":1,"columns":1000000000,"key":0,"blobs":[1],"store":[{"name":"b","encoding":"text"}]}`))
		},
		"its columns are described by version 2, and this command knows 1": func(_ *holdfast.Tx, b *holdfast.Bucket) error {
			return b.Bucket([]byte("\x00csv")).Put([]byte("table"), []byte(`{"version":2}`))
		},
	} {
		t.Run(want, func(t *testing.T) {
			workdir(t)
			wantIn(t, importPeople(text, "--create"), 0, "3 new", "")
			change(t, "x.db", func(tx *holdfast.Tx) error { return damage(tx, tx.Bucket([]byte("people"))) })
			wantIn(t, run(t, "export", "x.db", "people", "--csv"), 1, "", "x.db: ")
			wantIn(t, run(t, "export", "x.db", "people", "--csv"), 1, "", want)
		})
	}
}

// TestImportBlobBatches: a new database is made in many transactions, each with its own view of the store.
func TestImportBlobBatches(t *testing.T) {
	workdir(t)
	var b strings.Builder
	for i := range 220 { // 8.4 MiB, more than a transaction
		fmt.Fprintf(&b, "%05d,%x\n", i, random(byte(i%60), 20_000))
	}
	r := importing(b.String(), strings.Fields("x.db rows --csv --blob-columns 2 --create --json")...)
	var report struct{ Keys, Blobs, Blob_bytes int }
	check(t, json.Unmarshal([]byte(r.out), &report))
	if report.Keys != 220 || report.Blobs != 220 || report.Blob_bytes != 220*40_000 {
		t.Errorf("got %s", r)
	}
	if got := must(t, "export", "x.db", "rows", "--csv"); got != b.String() {
		t.Errorf("%d bytes come back, of %d", len(got), b.Len())
	}
	wantIn(t, run(t, "blob", "stat", "x.db", "blobs"), 0, "Blobs    60 with 220 users", "")
	wantIn(t, run(t, "blob", "check", "x.db", "blobs", "--data"), 0, "OK\n", "")
	if info, err := os.Stat("x.db"); err != nil || info.Size() > 6<<20 {
		t.Errorf("the file has %v bytes, %v", info.Size(), err)
	}
}
