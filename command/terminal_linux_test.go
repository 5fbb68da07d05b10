package command

import (
	"bytes"
	"fmt"
	"holdfast/command/internal/hook"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"holdfast"
)

// Terminal is a pseudo-terminal; what is written to it comes out of the
// function.
func Terminal(t *testing.T) (*os.File, func() string) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no terminal: %v", err)
	}
	must(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	must(t, err)
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	must(t, err)
	read := make(chan string)
	go func() {
		var all bytes.Buffer
		_, _ = io.Copy(&all, master) // ends with an error when the terminal is closed
		read <- all.String()
	}()
	return tty, func() string {
		must(t, tty.Close())
		defer master.Close()
		return <-read
	}
}

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
		tty, end := Terminal(t)
		cmd := &cobra.Command{}
		cmd.SetErr(tty)
		stop := (&call{cmd: cmd}).progress("working", 2<<20, c.done)
		time.Sleep(5 * hook.ProgressStep / 2)
		stop()
		if out := end(); !strings.Contains(out, c.want) {
			t.Errorf("no %q in %q", c.want, out)
		}
		var buf bytes.Buffer
		cmd.SetErr(&buf)
		stop = (&call{cmd: cmd}).progress("working", 2<<20, c.done)
		time.Sleep(3 * hook.ProgressStep / 2)
		stop()
		if buf.Len() > 0 {
			t.Errorf("progress where there is no terminal: %q", buf.String())
		}
	}
}

// TestVacuumProgress: each walk over the file is shown for itself.
func TestVacuumProgress(t *testing.T) {
	tty, end := Terminal(t)
	cmd := &cobra.Command{}
	cmd.SetErr(tty)
	bar := vacuumBar{call: &call{cmd: cmd}, pageSize: 4096}
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
