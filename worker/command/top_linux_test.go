package command_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/worker/command"
)

type topSeen struct {
	Owner, Directories, Trash, Mounts int
	Snapshots, Committed, Bytes       int64
	Known                             string
	Steps                             []struct {
		PID, Processes int
		Snapshot       string `json:"snapshot_id"`
		Command        string
	}
}

func top(t *testing.T) topSeen {
	t.Helper()
	var seen topSeen
	check(t, json.Unmarshal([]byte(must(t, "top", "--json", "--count", "1")), &seen))
	return seen
}

// TestTop: what is seen is there, also while another process has the store, and it does not disturb that.
func TestTop(t *testing.T) {
	for _, driver := range []string{"overlay", "copy"} {
		stand(t, driver)
		if s := top(t); s.Owner != 0 || s.Directories != 2 || s.Snapshots != 2 || s.Committed != 1 || s.Bytes == 0 || len(s.Steps) != 0 || s.Mounts != 0 {
			t.Errorf("%s: nothing runs: %+v", driver, s)
		}
		ctx, cancel := context.WithCancel(context.Background())
		wait := begun(t, ctx)
		s := top(t)
		if s.Owner != os.Getpid() || s.Directories != 3 || s.Known != "" || s.Mounts != 1 || len(s.Steps) != 1 {
			t.Fatalf("%s: a step runs: %+v", driver, s)
		}
		if one := s.Steps[0]; !strings.Contains(one.Command, "echo begun; sleep 600") || one.Processes < 1 || one.PID <= 1 {
			t.Errorf("%s: %+v", driver, one)
		}
		if _, err := os.Stat(filepath.Join("store", "snapshots", s.Steps[0].Snapshot)); err != nil {
			t.Errorf("%s: its snapshot: %v", driver, err)
		}
		lines := strings.Split(must(t, "top", "--count", "2", "--interval", "10ms"), "\n")
		if len(lines) != 4 || !strings.Contains(lines[0], "OWNER") {
			t.Errorf("%s: %q", driver, lines)
		}
		cancel()
		if r := wait(); r.code != 130 || r.out != "begun\n" {
			t.Errorf("%s: the step: %+v", driver, r)
		}
		if s := top(t); s.Owner != 0 || len(s.Steps) != 0 || s.Mounts != 0 || s.Snapshots != 2 {
			t.Errorf("%s: nothing runs any more: %+v", driver, s)
		}
	}
}

// TestTopOtherStore: a store that was the whole of a file system gave its steps and mounts to the top of each store on another one, and
// its bind mounts to their list of mounts: of a path on a file system only the end was compared.
func TestTopOtherStore(t *testing.T) {
	for _, driver := range []string{"overlay", "copy"} {
		stand(t, driver)
		whole, err := filepath.Abs("whole")
		check(t, err)
		check(t, os.Mkdir(whole, 0o755))
		check(t, unix.Mount("whole", whole, "tmpfs", 0, "size=1g"))
		t.Cleanup(func() { check(t, unix.Unmount(whole, unix.MNT_DETACH)) })
		must(t, "--root", "whole", "--driver", driver, "import", "busybox.tar", "bb")
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		wait := begunIn(t, ctx, "whole")
		if s := top(t); s.Owner != 0 || len(s.Steps) != 0 || s.Mounts != 0 {
			t.Errorf("%s: the step is on the other store: %+v", driver, s)
		}
		busy, err := filepath.Abs("busy")
		check(t, err)
		check(t, os.Mkdir(busy, 0o755))
		check(t, unix.Mount("whole/snapshots/1", busy, "", unix.MS_BIND, ""))
		t.Cleanup(func() { _ = unix.Unmount(busy, unix.MNT_DETACH) }) // of a test that has failed
		var its topSeen
		check(t, json.Unmarshal([]byte(must(t, "--root", "whole", "top", "--json", "--count", "1")), &its))
		if its.Owner != os.Getpid() || len(its.Steps) != 1 || its.Mounts != 2 {
			t.Errorf("%s: its own: %+v", driver, its)
		}
		own, other := must(t, "--root", "whole", "mount", "ls"), must(t, "mount", "ls")
		check(t, unix.Unmount(busy, 0))
		cancel()
		if r := wait(); r.code != 130 {
			t.Errorf("%s: the step: %+v", driver, r)
		}
		if !strings.Contains(own, "whole/snapshots/1") || strings.Contains(other, "snapshots/1") {
			t.Errorf("%s: mounts of it %q, of the other %q", driver, own, other)
		}
	}
}

// TestTopEnds: without a count it ends when it is interrupted, as all commands with 130, and says nothing of it.
func TestTopEnds(t *testing.T) {
	work(t)
	must(t, "--driver", "copy", "import", "files.tar", "tiny")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if r := runIn(t, ctx, "", "top"); r.code != 130 || r.errOut != "" || !strings.Contains(r.out, "SNAPSHOTS") {
		t.Errorf("%+v", r)
	}
	for args, says := range map[string]string{"top --interval 1ms": "--interval is", "top --count -1": "--count is", "top it": ""} {
		if r := run(t, "", strings.Fields(args)...); r.code != 2 || !strings.Contains(r.errOut, says) {
			t.Errorf("%s: %+v", args, r)
		}
	}
	if r := run(t, "", "top", "--root", "elsewhere"); r.code != 1 || !strings.Contains(r.errOut, "there is no store") {
		t.Errorf("%+v", r)
	}
}

// terminal is a pseudo-terminal of so many lines and columns; what is written to it is given to each.
func terminal(t *testing.T, rows, columns uint16, each func(all string)) (tty *os.File, end func()) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	check(t, err)
	check(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	check(t, err)
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	check(t, err)
	check(t, unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns}))
	read := make(chan struct{})
	go func() {
		defer close(read)
		var all bytes.Buffer
		b := make([]byte, 4096)
		for {
			n, err := master.Read(b) // ends with an error when the terminal is closed
			if err != nil {
				return
			}
			all.Write(b[:n])
			each(all.String())
		}
	}()
	return tty, func() {
		check(t, tty.Close())
		<-read
		check(t, master.Close())
	}
}

// TestTopTerminal: on a terminal one screen is drawn over the other, with no line that is too long for it,
// until Ctrl-C.
func TestTopTerminal(t *testing.T) {
	stand(t, "overlay")
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	wait := begun(t, ctx)
	watching, stop := context.WithCancel(context.Background())
	defer stop()
	var drawn string
	tty, end := terminal(t, 24, 80, func(all string) {
		if drawn = all; strings.Count(all, "Steps ") >= 2 {
			stop()
		}
	})
	root := command.NewRootCommand()
	root.SetOut(tty)
	root.SetArgs([]string{"--root", "store", "--run", "run", "top", "--interval", "20ms"})
	if code := command.Execute(watching, root); code != 130 {
		t.Errorf("exit code %d", code)
	}
	end()
	screens := strings.Split(drawn, "\x1b[H")[1:]
	if len(screens) < 2 || strings.Contains(drawn, "\x1b[2J") {
		t.Fatalf("%d screens: %q", len(screens), drawn)
	}
	for i, screen := range screens[:2] {
		plain := strings.NewReplacer("\x1b[1m", "", "\x1b[22m", "", "\x1b[0m", "", "\x1b[K", "", "\x1b[J", "", "\r", "").Replace(screen)
		lines := strings.Split(strings.TrimSuffix(plain, "\n"), "\n")
		if len(lines) != 11 || !strings.HasPrefix(lines[1], "Store      open in process ") || !strings.Contains(lines[10], "sh -c echo begun") {
			t.Errorf("screen %d: %q", i, lines)
		}
		for _, line := range lines {
			if len(line) > 80 || strings.Contains(line, "\x1b") {
				t.Errorf("screen %d has the line %q of %d characters", i, line, len(line))
			}
		}
		if strings.Count(screen, "\x1b[K") != len(lines) || !strings.HasSuffix(screen, "\x1b[J") {
			t.Errorf("what was there is not cleared: %q", screen)
		}
	}
	cancel()
	wait()
}

// TestTopReadOnly: what is seen from outside is shown where the store cannot be opened.
func TestTopReadOnly(t *testing.T) {
	smallDisk(t, "tmpfs", "size=64m")
	files(t, "files.tar", map[string]string{"etc/name": "base"})
	must(t, "--driver", "copy", "import", "files.tar", "tiny")
	check(t, unix.Mount("", "store", "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	if s := top(t); s.Directories != 2 || s.Known != "" || s.Owner != 0 {
		t.Errorf("%+v", s)
	}
	if r := run(t, "", "snapshot", "ls"); r.code != 1 || !strings.Contains(r.errOut, "mount it writable, or give another directory") {
		t.Errorf("%+v", r)
	}
}
