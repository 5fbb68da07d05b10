package step

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// TestCommandLabel: the label is what a shell would take, and no longer than it may be, whatever the command is.
func TestCommandLabel(t *testing.T) {
	for want, args := range map[string][]string{
		"true":                        {"true"},
		"sh -c 'echo hello; exit 3'":  {"sh", "-c", "echo hello; exit 3"},
		"printf '%s\n' 'it'\\''s' ''": {"printf", "%s\n", "it's", ""},
		"a \uFFFD":                    {"a", "\xff"},
	} {
		if got := CommandText(args); got != want {
			if want != "a \uFFFD" || got != "a '\uFFFD'" {
				t.Errorf("%q: %q, and not %q", args, got, want)
			}
		}
	}
	for _, long := range []string{strings.Repeat("x", 5000), strings.Repeat("é", 5000), strings.Repeat("'", 5000)} {
		got := CommandText([]string{"echo", long, "end"})
		if len(got) > maxCommandLabel || !strings.HasSuffix(got, "...") || !utf8.ValidString(got) || !strings.HasPrefix(got, "echo ") {
			t.Errorf("%d bytes: %q", len(got), got)
		}
	}
	if got := CommandText(make([]string, 1<<20)); len(got) > maxCommandLabel {
		t.Errorf("%d bytes", len(got))
	}
}
