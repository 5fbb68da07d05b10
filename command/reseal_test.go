package command_test

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"holdfast"
	"holdfast/command"
)

// changeValue changes a byte of a value of the sample, which only its page's seal
// tells.
func changeValue(t *testing.T) {
	t.Helper()
	damage(t, "sample.db", func(b []byte) []byte {
		at := bytes.Index(b, []byte("long long long"))
		if at < 0 {
			t.Fatal("the sample has no such value")
		}
		b[at] = 'L'
		return b
	})
}

// TestReseal: a page that was changed in place is a fault, which get and check
// tell, and reseal mends.
func TestReseal(t *testing.T) {
	withSample(t)
	changeValue(t)
	r := run(t, "check", "sample.db")
	wantIn(t, r, command.ExitDamaged, "its checksum does not match its content", "holdfast: sample.db: damaged (1 fault)")
	wantIn(t, r, command.ExitDamaged, "checksums: 11 right, 1 wrong, 0 pages without one\n", "")
	wantIn(t, run(t, "check", "sample.db", "--json"), command.ExitDamaged, `"wrong": 1`, "")
	wantIn(t, run(t, "get", "sample.db", "nested", "long"), command.ExitFailed, "", "its checksum does not match its content")
	wantIn(t, run(t, "reseal", "sample.db", "--missing"), 0, "11 checksums were right, 0 added, 1 left wrong\n", "")
	wantIn(t, run(t, "get", "sample.db", "nested", "long"), command.ExitFailed, "", "its checksum does not match its content")

	r = run(t, "reseal", "sample.db")
	wantIn(t, r, 0, ": the checksum was wrong and is replaced\n11 checksums were right, 1 replaced, 0 added\n", "")
	wantIn(t, run(t, "check", "sample.db"), 0, "checksums: 12 right, 0 wrong, 0 pages without one\nsample.db: sound\n", "")
	wantIn(t, run(t, "get", "sample.db", "nested", "long"), 0, "Long long", "")
	changeValue(t)
	var report struct {
		Replaced uint64
		Pages    []uint64 `json:"replaced_pages"`
	}
	check(t, json.Unmarshal([]byte(must(t, "reseal", "sample.db", "--json")), &report))
	if report.Replaced != 1 || len(report.Pages) != 1 || report.Pages[0] < 2 {
		t.Errorf("%+v", report)
	}
}

// TestSealsOff: without seals a changed page is read, and can be copied. check said OK of such
// a file as of a sound one, so that a variable that was set for a program hid the damage: it
// says now why it looked at no seals.
func TestSealsOff(t *testing.T) {
	withSample(t)
	changeValue(t)
	wantIn(t, run(t, "compact", "-o", "copy.db", "sample.db"), command.ExitFailed, "", "sample.db: damaged: page")
	t.Setenv("HOLDFAST_SEALS", "off")
	const note = "the environment sets HOLDFAST_SEALS=off: damage that only a checksum shows is not found"
	wantIn(t, run(t, "check", "sample.db"), 0, "no checksums were looked at\nsample.db: sound\n", "holdfast: note: "+note+"\n")
	wantIn(t, run(t, "check", "sample.db", "--json"), 0, note, "")
	wantIn(t, run(t, "compact", "-o", "copy.db", "sample.db"), 0, "sample.db -> copy.db", "")
	wantIn(t, run(t, "reseal", "copy.db"), 0, "0 checksums were right, 0 replaced, ", "")
	t.Setenv("HOLDFAST_SEALS", "on")
	wantIn(t, run(t, "check", "copy.db"), 0, " 0 wrong, 0 pages without one\n", "")
	t.Setenv("HOLDFAST_SEALS", "none")
	wantIn(t, run(t, "check", "copy.db"), command.ExitFailed, "", `the environment variable HOLDFAST_SEALS is "none"; it can be "off" or "on"`)
}

// TestResealRefuses: files that are damaged otherwise, in use, or none, stay as
// they are.
func TestResealRefuses(t *testing.T) {
	dir := withSample(t)
	sound, err := os.ReadFile("sample.db")
	check(t, err)
	damage(t, "sample.db", func(b []byte) []byte {
		b[11*samplePage+8] = 0x40 // no type of page
		return b
	})
	check(t, os.WriteFile("empty.db", nil, 0o600))
	before := snapshot(t, dir)
	r := run(t, "reseal", "sample.db")
	wantIn(t, r, command.ExitFailed, "", "holdfast: sample.db: damaged: page 11: has unexpected type")
	wantIn(t, r, command.ExitFailed, "", "; run: holdfast check sample.db\n")
	wantIn(t, run(t, "reseal", "gone.db"), command.ExitFailed, "", "holdfast: gone.db: no such file")
	wantIn(t, run(t, "reseal", "empty.db"), command.ExitFailed, "", "holdfast: empty.db: empty: not a bbolt database")
	wantIn(t, run(t, "reseal"), command.ExitUsage, "", "FILE is missing")
	if after := snapshot(t, dir); after != before {
		t.Errorf("files changed: before\n%s\nafter\n%s", before, after)
	}
	check(t, os.WriteFile("sample.db", sound, 0o600))
	db, err := holdfast.Open("sample.db", 0o600, &holdfast.Options{ReadOnly: true})
	check(t, err)
	defer db.Close()
	r = run(t, "reseal", "sample.db", "--timeout", "10ms")
	wantIn(t, r, command.ExitFailed, "", "holdfast: sample.db: locked by another process")
	ctx, cancel := contextDone(t)
	defer cancel()
	check(t, db.Close())
	root := command.NewRootCommand()
	var errOut strings.Builder
	root.SetErr(&errOut)
	root.SetArgs([]string{"reseal", "sample.db"})
	if code := command.Execute(ctx, root); code != command.ExitInterrupted || !strings.Contains(errOut.String(), "sample.db: interrupted after 0 checksums; run it again") {
		t.Errorf("interrupted: exit code %d, %s", code, errOut.String())
	}
}
