package command_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/worker/command"
)

// watched is output that tells when something was written.
type watched struct {
	bytes.Buffer
	wrote chan struct{}
}

func (w *watched) Write(b []byte) (int, error) {
	defer func() {
		select {
		case w.wrote <- struct{}{}:
		default:
		}
	}()
	return w.Buffer.Write(b)
}

// TestMount: what is mounted is there until the command is interrupted, and nothing stays. A set-user-ID
// program that a hostile step had left made any user of the machine root who found it mounted.
func TestMount(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts")
	}
	for _, driver := range []string{"copy", "overlay"} {
		work(t)
		must(t, "--driver", driver, "import", "files.tar", "tiny")
		check(t, os.Mkdir("at", 0o755))
		before := must(t, "snapshot", "ls", "--json")
		ctx, cancel := context.WithCancel(context.Background())
		out := &watched{wrote: make(chan struct{}, 1)}
		var errOut bytes.Buffer
		root := command.NewRootCommand()
		root.SetOut(out)
		root.SetErr(&errOut)
		root.SetArgs([]string{"--root", "store", "--run", "run", "mount", "tiny", "at"})
		ended := make(chan int)
		go func() { ended <- command.Execute(ctx, root) }()
		code := -1
		select {
		case <-out.wrote:
			b, err := os.ReadFile(filepath.Join("at", "etc", "name"))
			if err != nil || string(b) != "base" {
				t.Errorf("%s: %q, %v", driver, b, err)
			}
			if err := os.WriteFile(filepath.Join("at", "new"), nil, 0o600); err == nil {
				t.Errorf("%s: a base can be written", driver)
			}
			var at unix.Statfs_t
			check(t, unix.Statfs("at", &at))
			if at.Flags&unix.ST_NOSUID == 0 || at.Flags&unix.ST_NODEV == 0 {
				t.Errorf("%s: its programs can change users, or its devices be opened: flags %#x", driver, at.Flags)
			}
			if list := must(t, "mount", "ls"); !strings.Contains(list, filepath.Join("at")) || !strings.Contains(list, "bind") {
				t.Errorf("%s: %s", driver, list)
			}
			if r := run(t, "", "snapshot", "ls", "--wait", "0"); r.code != 1 || !strings.Contains(r.errOut, "wait until that process has ended") {
				t.Errorf("%s: meanwhile: %+v", driver, r)
			}
			cancel()
			code = <-ended
		case code = <-ended:
			cancel()
		}
		if code != 0 || errOut.Len() > 0 {
			t.Errorf("%s: exit code %d, %s", driver, code, &errOut)
		}
		if entries, err := os.ReadDir("at"); err != nil || len(entries) > 0 {
			t.Errorf("%s: still there: %v, %v", driver, entries, err)
		}
		if after := must(t, "snapshot", "ls", "--json"); after != before {
			t.Errorf("%s: there were %s\nand are %s", driver, before, after)
		}
		if r := run(t, "", "mount", "tiny", "nowhere"); r.code != 1 || !strings.Contains(r.errOut, "nowhere: no such file or directory; give a directory") {
			t.Errorf("%s: at a path that is not there: %+v", driver, r)
		}
	}
}

// TestMountBusy: what is in use when the command ends stays mounted, and the error says what to do.
func TestMountBusy(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts")
	}
	work(t)
	dir, err := os.Getwd()
	check(t, err)
	path := func(name string) string { return filepath.Join(dir, name) }
	must(t, "--driver", "copy", "import", "files.tar", "tiny")
	check(t, errors.Join(os.Mkdir("at", 0o755), os.Mkdir("run", 0o700)))
	check(t, unix.Mount("tmpfs", "run", "tmpfs", 0, "size=1m")) // the manager, which is not closed, then mounts none
	defer unix.Unmount(path("run"), unix.MNT_DETACH)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	out := &watched{wrote: make(chan struct{}, 1)}
	var errOut bytes.Buffer
	root := command.NewRootCommand()
	root.SetOut(out)
	root.SetErr(&errOut)
	root.SetArgs([]string{"--root", "store", "--run", "run", "mount", "tiny", "at"})
	defer command.CloseWithin(50 * time.Millisecond)()
	ended := make(chan int, 1)
	go func() { ended <- command.Execute(ctx, root) }()
	select {
	case <-out.wrote:
	case code := <-ended:
		t.Fatalf("it ended with %d: %s", code, &errOut)
	}
	f, err := os.Open("at/etc/name")
	check(t, err)
	cancel()
	if code := <-ended; code != 1 || !strings.Contains(errOut.String(), "at is in use, and stays mounted") || !strings.Contains(errOut.String(), "unmount it with umount") || strings.Count(errOut.String(), "\n") != 1 {
		t.Errorf("exit code %d: %s", code, &errOut)
	}
	check(t, f.Close())
	if r := run(t, "", "snapshot", "ls"); r.code != 0 {
		t.Errorf("the store is not closed: %+v", r)
	}
	// It is tried again in this process, too.
	if err := unix.Unmount(path("at"), 0); err != nil && !errors.Is(err, unix.EINVAL) {
		t.Error(err)
	}
}

// TestMountKilled: the view of a mount that was killed keeps its snapshot until the next command only.
func TestMountKilled(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts")
	}
	work(t)
	must(t, "--driver", "overlay", "import", "files.tar", "tiny")
	dir, err := os.Getwd()
	check(t, err)
	check(t, os.Mkdir("at", 0o755))
	before := must(t, "snapshot", "ls", "--json")
	var list []struct{ Name, Kind string }
	check(t, json.Unmarshal([]byte(before), &list))
	layer := ""
	for _, s := range list {
		if s.Kind == "committed" {
			layer = s.Name
		}
	}
	cmd := program("/proc/self/exe", dir, "--run", filepath.Join(dir, "run"), "mount", layer, filepath.Join(dir, "at"))
	untilPrints(t, cmd, "e")
	check(t, cmd.Process.Kill())
	_ = cmd.Wait()
	if _, err := os.Stat("at/etc/name"); err != nil {
		t.Errorf("it is not mounted any more: %v", err)
	}
	if after := must(t, "snapshot", "ls", "--json"); after != before {
		t.Errorf("there were %s\nand are %s", before, after)
	}
	// The next one that mounts unmounts what the killed one has left.
	check(t, os.Mkdir("at2", 0o755))
	whileMounted(t, "tiny", "at2")()
	if entries, err := os.ReadDir("at"); err != nil || len(entries) > 0 {
		t.Errorf("still there: %v, %v", entries, err)
	}
}

// untilPrints starts a program, and returns when it has printed something that begins so.
func untilPrints(t *testing.T, cmd *exec.Cmd, begin string) {
	t.Helper()
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	out, err := cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	b := make([]byte, len(begin))
	if _, err := out.Read(b); err != nil {
		_ = cmd.Wait()
		t.Fatalf("%v; %s", err, &errOut)
	}
}
