package repair

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/command/cli"
	"holdfast/command/internal/clitest"
	"holdfast/command/internal/hook"
)

// TestVacuumProgress: each walk over the file is shown for itself.
func TestVacuumProgress(t *testing.T) {
	tty, end := clitest.Terminal(t)
	cmd := &cobra.Command{}
	cmd.SetErr(tty)
	bar := vacuumBar{Call: &cli.Call{Cmd: cmd}, pageSize: 4096}
	bar.end() // of nothing
	for _, p := range []holdfast.VacuumProgress{
		{Done: 250, Total: 1000}, {Pass: 1, Done: 500, Total: 1000}, {Pass: 1, Done: 600, Total: 800}, {Pass: 2, Done: 300, Total: 600},
	} {
		bar.show(p)
		time.Sleep(5 * hook.ProgressStep / 2)
	}
	bar.end()
	out := end()
	for _, want := range []string{"reading  25%", "moving pages to the front  50%", "moving pages to the front  75%", "moving pages to the front again  50%"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in %q", want, out)
		}
	}
}
