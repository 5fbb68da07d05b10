package command_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"holdfast"
	"holdfast/command"
	"holdfast/internal/page"
)

// Doctor called files sound, and advised vacuum, of which check said that they are damaged: it
// did not look at the order of keys, nor at what the freelist says of pages in use.
func TestDoctorAgreesWithCheck(t *testing.T) {
	t.Setenv("HOLDFAST_SEALS", "off")
	for name, change := range map[string]func(b []byte){
		"keys out of order": func(b []byte) { copy(b[bytes.Index(b, []byte("key-1")):], "key-9") },
		"a free page in use": func(b []byte) {
			list := binary.NativeEndian.Uint64(b[16+32:])
			binary.NativeEndian.PutUint64(b[list*samplePage+16:], 4)
		},
		"an element's flags": func(b []byte) {
			leaf := bytes.Index(b, []byte("key-1")) / samplePage * samplePage
			b[leaf+page.HeaderSize+16] |= 0x40
		},
	} {
		t.Run(name, func(t *testing.T) {
			withSample(t)
			must(t, "compact", "sample.db", "-o", "plain.db")
			must(t, "surgery", "freelist", "abandon", "plain.db", "-o", "listless.db")
			must(t, "surgery", "freelist", "rebuild", "listless.db", "-o", "file.db")
			damage(t, "file.db", func(b []byte) []byte { change(b); return b })
			checked, diagnosed := verdictOf(t, "check", "file.db"), verdictOf(t, "doctor", "file.db")
			if checked != "3 damaged" || diagnosed != checked {
				t.Errorf("check says %s, doctor %s", checked, diagnosed)
			}
			r := run(t, "doctor", "file.db")
			wantIn(t, r, 3, "Damaged: ", "file.db: damaged (")
			if strings.Contains(r.out, "vacuum") || strings.Contains(r.out, "No key is lost") {
				t.Error(r)
			}
		})
	}
	withSample(t)
	wantIn(t, run(t, "doctor", "sample.db"), 0, "all pages in use, and what is recorded of free ones: no fault", "")
}

// verdictOf is the exit code of a command, and the verdict in its JSON.
func verdictOf(t *testing.T, name, file string) string {
	t.Helper()
	r := run(t, name, file, "--json")
	var report struct{ Verdict string }
	check(t, json.Unmarshal([]byte(r.out), &report))
	return fmt.Sprint(r.code, " ", report.Verdict)
}

// A file whose metas were zeroed was not a database, exit code 1, for check and doctor, while one whose metas
// had wrong checksums was damaged, 3; for surgery meta validate any file was a damaged database.
func TestMetasGone(t *testing.T) {
	withSample(t)
	check(t, os.WriteFile("text", []byte(strings.Repeat("no database ", 5000)), 0o600))
	check(t, os.WriteFile("zeros", make([]byte, 100_000), 0o600))
	damage(t, "sample.db", func(b []byte) []byte { clear(b[:2*samplePage]); return b })
	for file, code := range map[string]int{"sample.db": 3, "text": 1, "zeros": 1} {
		for _, name := range []string{"check", "doctor", "surgery meta validate", "blob check"} {
			args := append(strings.Fields(name), file)
			if name == "blob check" {
				args = append(args, "alpha")
			}
			r := run(t, args...)
			if damaged := strings.Contains(r.errOut, "damaged"); r.code != code || damaged != (code == 3) {
				t.Errorf("%s %s: %s", name, file, r)
			}
			r = run(t, append(args, "--json")...)
			if kind := map[int]string{1: "failed", 3: "damaged"}[code]; !strings.Contains(r.errOut, `"kind":"`+kind+`"`) {
				t.Errorf("%s %s: %s", name, file, r)
			}
		}
		if r := run(t, "check", file, file); r.code != code || !strings.Contains(r.out, file+": "+map[int]string{1: "unknown", 3: "damaged"}[code]) {
			t.Errorf("%s twice: %s", file, r)
		}
	}
	wantIn(t, run(t, "info", "sample.db"), 1, "", "save what it still holds: holdfast salvage -o OUT sample.db")
	makeSized(t, "odd.db", 3000)
	damage(t, "odd.db", func(b []byte) []byte { clear(b[:6000]); return b })
	wantIn(t, run(t, "check", "odd.db"), 3, "neither of its two meta pages is one any more", "")
}

// Where the page of a bucket was damaged, blob check ended with exit code 1, and not with 3 as the documents say.
func TestBlobCheckOfDamagedFile(t *testing.T) {
	withSample(t)
	check(t, os.WriteFile("in", []byte(strings.Repeat("content ", 5000)), 0o600))
	must(t, "blob", "put", "sample.db", "store", "in", "--create")
	db, err := holdfast.Open("sample.db", 0o600, &holdfast.Options{ReadOnly: true})
	check(t, err)
	var pages []uint64
	check(t, db.View(func(tx *holdfast.Tx) error {
		store := tx.Bucket([]byte("store"))
		pages = append(pages, uint64(tx.Cursor().Bucket().RootPage()), uint64(store.RootPage()))
		return store.ForEachBucket(func(name []byte) error {
			if root := store.Bucket(name).RootPage(); root != 0 {
				pages = append(pages, uint64(root))
			}
			return nil
		})
	}))
	check(t, db.Close())
	whole, err := os.ReadFile("sample.db")
	check(t, err)
	for _, id := range pages {
		if id == 0 {
			continue
		}
		b := bytes.Clone(whole)
		clear(b[id*samplePage:][:samplePage])
		check(t, os.WriteFile("sample.db", b, 0o600))
		for _, flag := range []string{"", "--data", "--repair"} {
			args := append([]string{"blob", "check", "sample.db", "store"}, strings.Fields(flag)...)
			wantIn(t, run(t, args...), command.ExitDamaged, "", "damaged")
			wantIn(t, run(t, append(args, "--json")...), command.ExitDamaged, "", `"kind":"damaged","exit_code":3`)
		}
	}
}
