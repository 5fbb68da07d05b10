package command_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

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

// TestMount: what is mounted is there until the command is interrupted, and nothing stays.
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
			if list := must(t, "mount", "ls"); !strings.Contains(list, filepath.Join("at")) || !strings.Contains(list, "bind") {
				t.Errorf("%s: %s", driver, list)
			}
			if r := run(t, "", "snapshot", "ls"); r.code != 1 || !strings.Contains(r.errOut, "wait until that process has ended") {
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
		if r := run(t, "", "mount", "tiny", "nowhere"); r.code != 1 || !strings.Contains(r.errOut, "nowhere") {
			t.Errorf("%s: at a path that is not there: %+v", driver, r)
		}
	}
}
