package command_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestStepUserFurther: an unprivileged user's steps have secrets, standard input and caches of all kinds, and what they
// leave can be taken out; new privileges there are none.
func TestStepUserFurther(t *testing.T) {
	path, dir, become := asUser(t)
	call := func(in string, args ...string) result {
		t.Helper()
		var out, errOut bytes.Buffer
		cmd := program(path, dir, args...)
		become(cmd)
		cmd.Env = append(cmd.Env, "SECRET=of the user")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(in), &out, &errOut
		_ = cmd.Run()
		return result{cmd.ProcessState.ExitCode(), out.String(), errOut.String()}
	}
	if r := call("", "page"); r.code != 1 || !strings.Contains(r.errOut, "no daemon serves the store ") || !strings.Contains(r.errOut, "start one: holdfastd --root ") {
		t.Errorf("%+v", r)
	}
	if err := os.Mkdir(filepath.Join(dir, "other"), 0o700); err != nil { // root's
		t.Fatal(err)
	}
	if r := call("", "--root", "other", "page"); os.Geteuid() == 0 && (r.code != 1 || !strings.Contains(r.errOut, "permission denied; run the command as root")) {
		t.Errorf("%+v", r)
	}
	if r := call("", "--driver", "copy", "import", "busybox.tar", "bb"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	made := call("", "step", "--base", "bb", "sh", "-c", "echo x >/x")
	if made.code == 125 && strings.Contains(made.errOut, "a user namespace, which this system does not let") {
		t.Skip("left out: ", made.errOut)
	}
	for _, c := range []struct {
		in, args, out string
		code          int
	}{
		{"", "--secret id=s,env=SECRET sh -c 'cat /run/secrets/s; (echo x >>/run/secrets/s) 2>/dev/null || echo , read-only'", "of the user, read-only\n", 0},
		{"from stdin", "--secret id=s,src=-,target=/s cat /s", "from stdin", 0},
		{"from stdin", "--stdin cat", "from stdin", 0},
		{"", "--mount type=cache,id=c,target=/c,sharing=private sh -c 'echo x >/c/x; ls /c'", "x\n", 0},
		{"", "--mount type=cache,id=c,target=/c,sharing=locked,ro ls /c", "x\n", 0},
		{"", "--no-new-privileges=off id", "", 125},
	} {
		r := call(c.in, append([]string{"step", "--base", "bb"}, split(c.args)...)...)
		if r.code != c.code || r.out != c.out || c.code != 0 && !strings.Contains(r.errOut, "new privileges") {
			t.Errorf("%s: %+v", c.args, r)
		}
	}
	result := resultName.FindString(made.errOut)
	if r := call("", "snapshot", "diff", result); r.code != 0 || !strings.Contains(r.out, "A /x\n") {
		t.Errorf("diff: %+v", r)
	}
	if r := call("", "cp", result+":/x", "-"); r.code != 0 || !strings.Contains(r.out, "x\n") {
		t.Errorf("cp: %+v", r)
	}
}
