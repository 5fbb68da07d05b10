package programs

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestDamages sees that each damage changes a file, stays within it, and is the same each time.
func TestDamages(t *testing.T) {
	whole := bytes.Repeat([]byte{0x5a}, 8*damagedPage)
	list := damages(len(whole))
	if len(list) != 11+4*6 {
		t.Errorf("%d damages", len(list))
	}
	names := map[string]bool{}
	for _, d := range list {
		got, again := d.do(bytes.Clone(whole)), d.do(bytes.Clone(whole))
		if bytes.Equal(got, whole) || len(got) > len(whole) || !bytes.Equal(got, again) || names[d.name] {
			t.Errorf("%s: %d bytes, the same again: %v", d.name, len(got), bytes.Equal(got, again))
		}
		names[d.name] = true
	}
}

// TestLastWords: a program that could not open a database printed why, and then a stack; only the last line of that was shown.
func TestLastWords(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	const before = "buildkitd: an earlier start\n"
	for text, want := range map[string]string{
		"level=info\nbuildkitd: meta.db is damaged\n  runtime/asm.s:1\n\n": "buildkitd: meta.db is damaged",
		"panic: a page\n\ngoroutine 1\n":                                   "panic: a page",
		"one\ntwo\n\n":                                                     "two",
		"":                                                                 "",
	} {
		if err := os.WriteFile(log, []byte(before+text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := lastWords(log, int64(len(before)), "buildkitd"); got != want {
			t.Errorf("of %q: %q, want %q", text, got, want)
		}
	}
}
