package command

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/command/cli"
	"holdfast/command/internal/clitest"
)

// onTerminal runs a command on a terminal of so many columns.
func onTerminal(t *testing.T, columns uint16, args ...string) string {
	t.Helper()
	tty, end := clitest.Terminal(t)
	must(t, unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}))
	root := NewRootCommand()
	root.SetOut(tty)
	root.SetErr(os.Stderr)
	root.SetArgs(args)
	code := Execute(t.Context(), root)
	out := strings.ReplaceAll(end(), "\r\n", "\n")
	if code != cli.ExitOK {
		t.Fatalf("exit code %d: %s", code, out)
	}
	return out
}

// On a terminal the map is as wide as that, with colours and shades, as the
// environment has it.
func TestPagesOnTerminal(t *testing.T) {
	const sample = "testdata/sample.db"
	for _, c := range []struct {
		locale, noColor, term string
		colours               bool
		has, not              string
	}{
		{"C.UTF-8", "", "xterm", true, "█", "#"},
		{"de_DE.utf8", "", "xterm", true, "█", "#"},
		{"C", "", "xterm", true, "#", "█"},
		{"C.UTF-8", "1", "xterm", false, "MMLBLLL", "\x1b"},
		{"C.UTF-8", "", "dumb", false, "MMLBLLL", "\x1b"},
	} {
		t.Setenv("LC_ALL", c.locale)
		t.Setenv("NO_COLOR", c.noColor)
		t.Setenv("TERM", c.term)
		out := onTerminal(t, 20, "pages", sample, "--map")
		if !strings.Contains(out, c.has) || strings.Contains(out, c.not) || strings.Contains(out, "\x1b[") != c.colours {
			t.Errorf("%+v: %q", c, out)
		}
	}
	t.Setenv("NO_COLOR", "1")
	t.Setenv("TERM", "xterm")
	// A row has the number of its first page, two blanks, and cells up to the edge.
	if out := onTerminal(t, 20, "pages", sample, "--map"); !strings.Contains(out, "\n\n 0  MMLBLLLOOBFL....\n16  .......LLLL..---\n\n") {
		t.Errorf("20 columns: %s", out)
	}
	if out := onTerminal(t, 1, "pages", sample, "--map", "--rows", "32"); !strings.Contains(out, "\n31  -\n") {
		t.Errorf("1 column: %s", out)
	}
	if out := onTerminal(t, 200, "pages", sample, "--map", "--width", "30"); !strings.Contains(out, "\n30  --\n") {
		t.Errorf("--width 30: %s", out)
	}
	t.Setenv("LC_ALL", "C.UTF-8")
	if out := onTerminal(t, 80, "stats", sample); !strings.Contains(out, "█████") {
		t.Errorf("stats: %s", out)
	}
	t.Setenv("LC_ALL", "")
	t.Setenv("LC_CTYPE", "")
	t.Setenv("LANG", "")
	if out := onTerminal(t, 80, "stats", sample); !strings.Contains(out, "#####") {
		t.Errorf("stats without a locale: %s", out)
	}
}
