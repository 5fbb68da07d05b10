package command_test

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"holdfast/worker/command"
)

// TestStepNext: a step that failed on a full disk, or for want of a network, said only that its command had failed.
func TestStepNext(t *testing.T) {
	stand(t, "overlay")
	for output, next := range map[string]string{
		"tee: /x: No space left on device":                     "the disk seems to be full: holdfastd df says what is free",
		";; connection timed out; no servers could be reached": "--network host gives it that of this machine",
		"wget: bad address 'example.org'":                      "--network host gives it that of this machine",
		"something else":                                       "nothing is kept)\n",
	} {
		r := run(t, "", "step", "--base", "bb", "--", "sh", "-c", "echo \"$0\"; exit 1", output)
		if r.code != 1 || r.out != output+"\n" || !strings.Contains(r.errOut, next) {
			t.Errorf("%s: %+v", output, r)
		}
	}
}

// TestStepProgress: a step whose source is large reads it before it begins, for minutes, and showed nothing.
func TestStepProgress(t *testing.T) {
	stand(t, "overlay")
	t.Setenv("TERM", "xterm")
	check(t, os.Mkdir("src", 0o755))
	var drawn string
	for size := 64 << 20; size <= 1<<30; size *= 2 { // a fast machine has read it before anything is drawn
		check(t, os.WriteFile("src/large", bytes.Repeat([]byte("x"), size), 0o644))
		tty, end := terminal(t, 24, 80, func(all string) { drawn = all })
		root := command.NewRootCommand()
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetErr(tty)
		root.SetArgs([]string{"--root", "store", "--run", "run", "step", "--base", "bb", "--reserve", "0", "--mount", "src:/src:ro", "--", "sh", "-c", "echo done"})
		code := command.Execute(context.Background(), root)
		end()
		if code != 0 || out.String() != "done\n" {
			t.Fatalf("exit code %d, output %q, %q", code, out.String(), drawn)
		}
		reading, ran := strings.Index(drawn, "reading sources"), strings.Index(drawn, "ran step-")
		if ran < 0 || strings.Contains(drawn[ran:], "reading") {
			t.Fatalf("drawn: %q", drawn)
		}
		if reading >= 0 && reading < ran {
			return
		}
	}
	t.Errorf("drawn: %q", drawn)
}
