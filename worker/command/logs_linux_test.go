package command_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"holdfast/worker/command"
)

// TestCommandOfResult: of a result nothing said which command it came from, and what that wrote was shown
// by running the same step again, if its command line was still known.
func TestCommandOfResult(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it runs a step")
	}
	work(t)
	busybox(t)
	must(t, "import", "busybox.tar", "busybox")
	const script = `echo one; echo two >&2; printf '\377'`
	var r struct {
		Snapshot string `json:"snapshot"`
	}
	check(t, json.Unmarshal([]byte(must(t, "step", "--json", "--base", "busybox", "--", "sh", "-c", script)), &r))
	quoted := `sh -c 'echo one; echo two >&2; printf '\''\377'\'''`
	must(t, "step", "--json", "--base", "busybox", "--", "sh", "-c", "echo\n\x1b[31m || :")
	if out := must(t, "snapshot", "ls", "--full"); !strings.Contains(out, `sh -c 'echo\n\x1b[31m || :'`) {
		t.Errorf("%q", out)
	}
	for _, args := range [][]string{{"snapshot", "stat", r.Snapshot}, {"why", r.Snapshot}, {"snapshot", "ls", "--full"}} {
		if out := must(t, args...); !strings.Contains(out, quoted) {
			t.Errorf("%v: %s", args, out)
		}
		var one map[string]any
		var list []map[string]any
		data := []byte(must(t, append(args, "--json")...))
		if json.Unmarshal(data, &list) == nil {
			for _, l := range list {
				if l["name"] == r.Snapshot {
					one = l
				}
			}
		} else {
			check(t, json.Unmarshal(data, &one))
		}
		if one["command"] != quoted {
			t.Errorf("%v: %v", args, one["command"])
		}
	}
	if out := must(t, "logs", r.Snapshot[:17]); out != "one\ntwo\n\xff" {
		t.Errorf("%q", out)
	}
	var l struct {
		Snapshot, Command, Output string
		Output64                  []byte `json:"output_base64"`
		Bytes                     int    `json:"output_bytes"`
		Lost                      bool
	}
	check(t, json.Unmarshal([]byte(must(t, "logs", "--json", r.Snapshot)), &l))
	if l.Snapshot != r.Snapshot || l.Command != quoted || l.Output != "" || string(l.Output64) != "one\ntwo\n\xff" || l.Bytes != 9 || l.Lost {
		t.Errorf("%+v", l)
	}
	if r := run(t, "", "logs", "busybox"); r.code != command.ExitFailed || !strings.Contains(r.errOut, "not the result of a step; holdfastd snapshot ls") {
		t.Errorf("%+v", r)
	}
	// As after a kill between the commit and the record.
	check(t, os.Remove(filepath.Join("store", "results.db")))
	if r := run(t, "", "logs", r.Snapshot); r.code != 0 || r.out != "" || !strings.Contains(r.errOut, "is lost") {
		t.Errorf("%+v", r)
	}
}

// TestMountInScript: a shell has SIGINT ignored for what a script starts in the background, and so mount
// ignored it, too: only SIGTERM ended it, and with that its exit code was not known to be 0.
func TestMountInScript(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts")
	}
	work(t)
	must(t, "--driver", "copy", "import", "files.tar", "tiny")
	check(t, os.Mkdir("at", 0o755))
	for _, args := range []string{"mount tiny at", "top --interval 1h"} {
		// The shell waits for the line that says that it is ready, interrupts, and says how it ended.
		script := `mkfifo said 2>/dev/null; "$0" --root store --run run ` + args + ` >said & pid=$!; read line <said; kill -INT $pid; wait $pid; echo "$? $line"`
		exe, err := os.Executable()
		check(t, err)
		cmd := exec.Command("sh", "-c", script, exe)
		cmd.Env = append(os.Environ(), envMain+"=1")
		var out, errOut bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errOut
		err = cmd.Run()
		code, line, _ := strings.Cut(strings.TrimSpace(out.String()), " ")
		wanted := map[string]string{"mount tiny at": "0"}[args]
		if wanted == "" {
			wanted = fmt.Sprint(128 + int(syscall.SIGINT))
		}
		if err != nil || code != wanted || line == "" {
			t.Errorf("%s: %v, %q, %s", args, err, &out, &errOut)
		}
	}
	if entries, err := os.ReadDir("at"); err != nil || len(entries) > 0 {
		t.Errorf("still mounted: %v, %v", entries, err)
	}
}

// TestRunDirectoryGoes: each store that was ever used left a directory in /run.
func TestRunDirectoryGoes(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts")
	}
	work(t)
	busybox(t)
	must(t, "import", "busybox.tar", "busybox")
	root, err := filepath.Abs("store")
	check(t, err)
	if root, err = filepath.EvalSymlinks(root); err != nil {
		t.Fatal(err)
	}
	dir := fmt.Sprintf("/run/holdfast-%x", sha256.Sum256([]byte(root)))[:len("/run/holdfast-")+16]
	for range 2 {
		cmd := command.NewRootCommand()
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		cmd.SetArgs([]string{"--root", "store", "step", "--base", "busybox", "--", "sh", "-c", ":"})
		if code := command.Execute(context.Background(), cmd); code != 0 {
			t.Errorf("%d: %s", code, &out)
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			entries, _ := os.ReadDir(dir)
			t.Errorf("%s: %v, %v", dir, err, entries)
		}
	}
}
