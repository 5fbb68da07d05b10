package command_test

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// withAndWithoutDaemon runs a test on a store of its own without a daemon and with one. serving is nil without.
func withAndWithoutDaemon(t *testing.T, f func(t *testing.T, serving *aDaemon)) {
	for _, daemon := range []bool{false, true} {
		t.Run(fmt.Sprint("daemon ", daemon), func(t *testing.T) {
			stand(t, "overlay")
			var serving *aDaemon
			if daemon {
				serving = startDaemon(t)
			}
			f(t, serving)
		})
	}
}

// secretScript shows the mode of a secret and how long it is.
const secretScript = "ls -ln /keys/one; sleep 0.2; busybox wc -c </keys/one"

// TestServeSecret: secrets come from files, the standard input, descriptors and variables of the caller, and are
// nowhere but where they come from, while the step runs and afterwards.
func TestServeSecret(t *testing.T) {
	withAndWithoutDaemon(t, func(t *testing.T, serving *aDaemon) {
		text := rand.Text()
		check(t, os.MkdirAll("keys", 0o700))
		check(t, os.WriteFile("keys/file", []byte(text), 0o600))
		for i, from := range []string{"src=keys/file", "src=-", "env=SECRET", "src=/dev/fd/3"} {
			for _, runtime := range []string{"native", "runc"} {
				args := []string{"step", "--runtime", runtime, "--base", "bb", "--env", fmt.Sprint("N=", i), "--user", "1000:1000", "--secret", "id=key," + from + ",target=/keys/one,mode=0440", "--",
					"sh", "-c", secretScript}
				cmd := holdfastd(t, args...)
				var out, errOut bytes.Buffer
				cmd.Stdout, cmd.Stderr = &out, &errOut
				own := "" // the environment that has it by right
				switch from {
				case "src=-":
					cmd.Stdin = strings.NewReader(text)
				case "env=SECRET":
					cmd.Env = append(cmd.Env, "SECRET="+text)
				case "src=/dev/fd/3":
					r, w, err := os.Pipe()
					check(t, err)
					_, err = io.WriteString(w, text)
					check(t, err)
					check(t, w.Close())
					cmd.ExtraFiles = []*os.File{r}
					defer r.Close()
				}
				check(t, cmd.Start())
				if from == "env=SECRET" {
					own = fmt.Sprintf("/proc/%d/environ", cmd.Process.Pid)
				}
				ended := make(chan error, 1)
				go func() { ended <- cmd.Wait() }()
				var err error
				for done := false; !done; {
					select {
					case err = <-ended:
						done = true
					default:
						held(t, text, own)
					}
				}
				if err != nil || !strings.HasPrefix(out.String(), "-r--r-----") || !strings.HasSuffix(out.String(), fmt.Sprintf("\n%d\n", len(text))) {
					t.Errorf("%s: %v: %q %s", from, err, &out, &errOut)
				}
				held(t, text, "")
				if serving != nil {
					notInMemory(t, text, serving.cmd.Process.Pid)
				}
				for _, said := range []string{errOut.String(), served(t, "snapshot", "ls", "--full", "--json").out} {
					if strings.Contains(said, text) {
						t.Errorf("%s: it is in %q", from, said)
					}
				}
			}
		}
		r := served(t, "step", "--base", "bb", "--env", "N=0", "--user", "1000:1000", "--secret", "id=key,src=busybox.tar,target=/keys/one,mode=0440", "--",
			"sh", "-c", secretScript)
		if r.code != 0 || !strings.HasPrefix(r.errOut, "hit ") {
			t.Errorf("another content, which is too long: %+v", r)
		}
		for _, bad := range []struct {
			code int
			says string
			args []string
		}{
			{125, "1048576 bytes", []string{"--secret", "id=key,src=busybox.tar"}},
			{125, "no such file", []string{"--secret", "id=key,src=missing"}},
			{125, "NOT_SET", []string{"--secret", "id=key,env=NOT_SET"}},
			{125, "id=NAME", []string{"--secret", "id=key"}},
			{125, "id=NAME", []string{"--secret", "id=key,src=keys/file,env=PATH"}},
			{125, "id=NAME", []string{"--secret", "src=keys/file"}},
			{125, "id=NAME", []string{"--secret", "id=key,src=keys/file,what=x"}},
			{125, "id=NAME", []string{"--secret", "id=key,id=key2,src=keys/file"}},
			{125, "mode", []string{"--secret", "id=key,src=keys/file,mode=4755"}},
			{125, "mode", []string{"--secret", "id=key,src=keys/file,mode=rw"}},
			{125, "its name", []string{"--secret", "id=../key,src=keys/file"}},
			{125, "both read", []string{"--secret", "id=key,src=-", "--secret", "id=key2,src=-"}},
		} {
			args := append(append([]string{"step", "--base", "bb"}, bad.args...), "--", "sh", "-c", "exit 3")
			if r := served(t, args...); r.code != bad.code || !strings.Contains(r.errOut, bad.says) || strings.Contains(r.errOut, text) {
				t.Errorf("%v: %+v", bad.args, r)
			}
		}
		if serving != nil {
			serving.stop()
			if strings.Contains(serving.log.String(), text) {
				t.Errorf("the daemon's log has it: %s", serving.log)
			}
		}
		held(t, text, "")
	})
}

// notInMemory fails if a process has a text in memory that it can write.
func notInMemory(t *testing.T, text string, pid int) {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	check(t, err)
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	check(t, err)
	defer memory.Close()
	searched := 0
	for line := range strings.Lines(string(maps)) {
		var from, to int64
		var rights string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &rights); err != nil || !strings.HasPrefix(rights, "rw") {
			continue
		}
		b := make([]byte, to-from)
		n, _ := memory.ReadAt(b, from) // some has no pages
		searched += n
		if bytes.Contains(b[:n], []byte(text)) {
			t.Errorf("process %d has it in memory: %s", pid, line)
		}
	}
	if searched < 1<<20 {
		t.Errorf("only %d bytes of the memory of %d could be searched", searched, pid)
	}
}

// TestServeSecretKilled: of a secret nothing is left when the daemon is killed while a step has it.
func TestServeSecretKilled(t *testing.T) {
	stand(t, "overlay")
	d := startDaemon(t)
	text := rand.Text()
	check(t, os.WriteFile("key", []byte(text), 0o600))
	for _, runtime := range []string{"native", "runc"} {
		cmd := holdfastd(t, "step", "--runtime", runtime, "--base", "bb", "--secret", "id=key,src=key", "--", "sh", "-c", "cat /run/secrets/key >/dev/null; echo begun; sleep 600; exit")
		untilBegun(t, cmd)
		d.kill()
		_ = cmd.Wait()
		if r := served(t, "step", "--base", "bb", "--env", "R="+runtime, "--", "sh", "-c", "busybox ls -d /run; exit 0"); r.code != 0 || strings.HasPrefix(r.out, "/run") {
			t.Errorf("afterwards: %+v", r)
		}
		held(t, text, "")
		all, _ := filepath.Glob("/proc/[0-9]*/mountinfo")
		for _, name := range all {
			if b, err := os.ReadFile(name); err == nil && bytes.Contains(b, []byte("/run/secrets/key")) {
				t.Errorf("%s: a secret is still mounted", name)
			}
		}
		d = startDaemon(t)
	}
}

// held fails if a text is in a file of the store, or in a command line or environment but one.
func held(t *testing.T, text, but string) {
	t.Helper()
	look := func(name string) {
		f, err := os.Open(name)
		if err != nil || name == but {
			return
		}
		defer f.Close()
		b, _ := io.ReadAll(f) // of a process that has ended
		if bytes.Contains(b, []byte(text)) {
			t.Errorf("it is in %s", name)
		}
	}
	for _, dir := range []string{"store", "run"} {
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				look(path)
			}
			return nil
		})
	}
	for _, what := range []string{"cmdline", "environ"} {
		all, _ := filepath.Glob("/proc/[0-9]*/" + what)
		for _, name := range all {
			look(name)
		}
	}
}

// TestServeStdin: a step reads the standard input of its caller, by content.
func TestServeStdin(t *testing.T) {
	withAndWithoutDaemon(t, func(t *testing.T, _ *aDaemon) {
		step := func(in io.Reader, args ...string) result {
			t.Helper()
			cmd := holdfastd(t, append(append([]string{"step", "--stdin", "--base", "bb"}, args...), "--", "busybox", "wc", "-c")...)
			var out, errOut bytes.Buffer
			cmd.Stdin, cmd.Stdout, cmd.Stderr = in, &out, &errOut
			_ = cmd.Run()
			return result{cmd.ProcessState.ExitCode(), out.String(), errOut.String()}
		}
		file, err := os.Open("busybox.tar")
		check(t, err)
		defer file.Close()
		for i, in := range []io.Reader{strings.NewReader("12345"), strings.NewReader("12345"), strings.NewReader(""), nil, file} {
			r := step(in)
			want, hit := []string{"5\n", "5\n", "0\n", "0\n", ""}[i], i == 1 || i == 3
			if r.code != 0 || want != "" && r.out != want || strings.HasPrefix(r.errOut, "hit ") != hit {
				t.Errorf("%d: %+v", i, r)
			}
		}
		if r := step(io.LimitReader(zeros{}, 64<<20+1)); r.code != 125 || !strings.Contains(r.errOut, "more than 64 MiB") {
			t.Errorf("too long: %+v", r)
		}
		if r := step(io.LimitReader(zeros{}, 64<<20)); r.code != 0 || r.out != "67108864\n" {
			t.Errorf("the longest: %+v", r)
		}
		if r := step(strings.NewReader("x"), "--secret", "id=s,src=-"); r.code != 125 || !strings.Contains(r.errOut, "both read") {
			t.Errorf("read twice: %+v", r)
		}
		// A caller that never ends its input can still be interrupted.
		r, w, err := os.Pipe()
		check(t, err)
		defer w.Close()
		cmd := holdfastd(t, "step", "--stdin", "--base", "bb", "--", "cat")
		cmd.Stdin = r
		check(t, cmd.Start())
		time.Sleep(100 * time.Millisecond)
		check(t, cmd.Process.Signal(os.Interrupt))
		_ = cmd.Wait()
		check(t, r.Close())
		if code := cmd.ProcessState.ExitCode(); code != 130 && code != -1 {
			t.Errorf("interrupted: exit code %d", code)
		}
	})
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// TestStepPrivileges: set-user-ID programs count where the step says so, and where that is safe.
func TestStepPrivileges(t *testing.T) {
	stand(t, "overlay")
	made := resultName.FindString(run(t, "", "step", "--base", "bb", "--", "busybox", "chmod", "4755", "/bin/busybox").errOut)
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{nil, 0, "NoNewPrivs:\t1\n"},
		{[]string{"--no-new-privileges", "on"}, 0, "NoNewPrivs:\t1\n"},
		{[]string{"--no-new-privileges=off"}, 0, "NoNewPrivs:\t0\n"},
		{[]string{"--no-new-privileges=off", "--runtime", "runc"}, 0, "NoNewPrivs:\t0\n"},
		{[]string{"--no-new-privileges=off", "--userns", "off"}, 125, "--runtime runc"},
		{[]string{"--no-new-privileges=no"}, 125, "on or off"},
	} {
		r := run(t, "", append(append([]string{"step", "--base", made, "--user", "7"}, c.args...), "--", "sh", "-c", "busybox grep NoNew /proc/self/status")...)
		if r.code == 125 && c.code == 0 && strings.Contains(r.errOut, "user namespace") {
			t.Log("this machine gives steps no user namespaces")
			continue
		}
		if r.code != c.code || !strings.Contains(r.out+r.errOut, c.says) {
			t.Errorf("%v: %+v", c.args, r)
		}
	}
}
