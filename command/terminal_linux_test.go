package command

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"holdfast/command/cli"
	"holdfast/command/internal/clitest"
	"holdfast/command/internal/hook"
)

// QuickProgress has progress drawn at once.
func QuickProgress(t *testing.T) {
	before := hook.ProgressStep
	hook.ProgressStep = 0
	t.Cleanup(func() { hook.ProgressStep = before })
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestProgress: what takes long is shown on a terminal, with the share that is
// done if that is known, and nowhere else.
func TestProgress(t *testing.T) {
	for _, c := range []struct {
		done func() int64
		want string
	}{
		{nil, "working"},
		{func() int64 { return 1 << 20 }, "50%"},
	} {
		tty, end := clitest.Terminal(t)
		cmd := &cobra.Command{}
		cmd.SetErr(tty)
		stop := (&cli.Call{Cmd: cmd}).Progress("working", 2<<20, c.done)
		time.Sleep(5 * hook.ProgressStep / 2)
		stop()
		if out := end(); !strings.Contains(out, c.want) {
			t.Errorf("no %q in %q", c.want, out)
		}
		var buf bytes.Buffer
		cmd.SetErr(&buf)
		stop = (&cli.Call{Cmd: cmd}).Progress("working", 2<<20, c.done)
		time.Sleep(3 * hook.ProgressStep / 2)
		stop()
		if buf.Len() > 0 {
			t.Errorf("progress where there is no terminal: %q", buf.String())
		}
	}
}
