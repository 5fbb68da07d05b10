package command_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	notify "os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"archive/tar"

	"holdfast/worker/command"
)

// busybox makes an archive of a base in the working directory, with busybox.
func busybox(t *testing.T) {
	t.Helper()
	program, err := exec.LookPath("busybox")
	if err != nil && os.Geteuid() != 0 {
		t.Skip("left out: steps need Debian's package busybox-static, which only root can install")
	}
	check(t, err)
	b, err := os.ReadFile(program)
	check(t, err)
	f, err := os.Create("busybox.tar")
	check(t, err)
	w := tar.NewWriter(f)
	owner := func(h *tar.Header) *tar.Header { h.Uid, h.Gid = os.Geteuid(), os.Getegid(); return h }
	check(t, w.WriteHeader(owner(&tar.Header{Typeflag: tar.TypeReg, Name: "bin/busybox", Mode: 0o755, Size: int64(len(b))})))
	_, err = w.Write(b)
	check(t, err)
	for _, a := range []string{"sh", "cat", "sleep", "id", "yes", "kill", "dd", "ls"} {
		check(t, w.WriteHeader(owner(&tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + a, Linkname: "busybox"})))
	}
	check(t, errors.Join(w.Close(), f.Close()))
}

// stand is a working directory with a store that has the base "bb".
func stand(t *testing.T, driver string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it runs steps and mounts; for others there is TestStepUser")
	}
	t.Chdir(t.TempDir())
	busybox(t)
	must(t, "--driver", driver, "import", "busybox.tar", "bb")
	if os.Getenv(envServed) != "" {
		startDaemon(t)
	}
}

var resultName = regexp.MustCompile(`step-[0-9a-f]{64}`)

func TestStep(t *testing.T) {
	for _, driver := range []string{"overlay", "copy"} {
		for _, runtime := range []string{"native", "runc"} {
			t.Run(driver+" "+runtime, func(t *testing.T) {
				stand(t, driver)
				args := []string{"step", "--runtime", runtime, "--base", "bb", "--env", "X=1", "--", "sh", "-c", "echo out; echo err >&2; echo made $X >/made"}
				first := run(t, "", args...)
				// runc copies the two streams, in any order.
				if first.code != 0 || first.out != "out\nerr\n" && (runtime == "native" || first.out != "err\nout\n") || !strings.HasPrefix(first.errOut, "ran step-") {
					t.Fatalf("%+v", first)
				}
				made := resultName.FindString(first.errOut)
				again := run(t, "", args...)
				if again.code != 0 || again.out != first.out || !strings.HasPrefix(again.errOut, "hit "+made+" ") {
					t.Errorf("%+v", again)
				}
				if r := run(t, "", "step", "-q", "--base", made[:17], "cat", "/made"); r.code != 0 || r.out != "made 1\n" || r.errOut != "" {
					t.Errorf("on the result: %+v", r)
				}
				var report struct {
					Snapshot, Output string
					Hit              bool
					ExitCode         int `json:"exit_code"`
				}
				check(t, json.Unmarshal([]byte(must(t, append([]string{"--json"}, args...)...)), &report))
				if report.Snapshot != made || report.Output != first.out || !report.Hit {
					t.Errorf("%+v", report)
				}
				r := run(t, "", "step", "--json", "--base", "bb", "sh", "-c", `printf '\377'; exit 9`)
				check(t, json.Unmarshal([]byte(r.out), &report))
				if r.code != 9 || r.errOut != "" || report.ExitCode != 9 || report.Snapshot != "" || !strings.Contains(r.out, `"output_base64": "/w=="`) {
					t.Errorf("%+v", r)
				}
				nothingLeft(t, 4)
			})
		}
	}
}

// nothingLeft fails unless the store has so many snapshots, and nothing else is there.
func nothingLeft(t *testing.T, snapshots int) {
	t.Helper()
	list := must(t, "snapshot", "ls")
	if n := strings.Count(list, "\n") - 1; n != snapshots || strings.Contains(list, "!run/") || strings.Contains(list, "active") {
		t.Errorf("%d snapshots, not %d:\n%s", n, snapshots, list)
	}
	if os.Getenv(envServed) != "" {
		return // the daemon goes on, and has what it needs for the next step
	}
	dir, err := os.Getwd()
	check(t, err)
	for _, name := range []string{"runc", "new/*", "trash/*"} {
		if found, _ := filepath.Glob(filepath.Join("store", name)); len(found) > 0 {
			t.Errorf("left: %v", found)
		}
	}
	processes, _ := filepath.Glob("/proc/[0-9]*/mountinfo")
	for _, p := range processes {
		b, _ := os.ReadFile(p) // it may have ended
		for line := range strings.Lines(string(b)) {
			// What happened: a process that had begun meanwhile, in a mount namespace of its own, had a
			// copy of the tmpfs of the records, which are in "run" only here, and the test failed.
			if strings.Contains(line, dir+"/") && !strings.Contains(line, " "+dir+"/run ") {
				t.Errorf("%s still sees a mount of the store: %s", p, line)
			}
		}
	}
	if b, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(b), dir+"/") {
		t.Errorf("%v, a mount is left:\n%s", err, b)
	}
}

// TestStepCodes: the exit code is the command's, or says whose failure it is.
func TestStepCodes(t *testing.T) {
	stand(t, "overlay")
	for _, c := range []struct {
		code int
		says string
		args string
	}{
		{3, "the command failed: exit code 3", "--base bb -- sh -c 'exit 3'"},
		{2, "exit code 2", "--base bb -- sh -c 'exit 2'"},
		{137, "exit code 137", "--base bb -- sh -c 'sleep 60 >/dev/null & kill -9 $!; wait $! 2>/dev/null'"},
		{127, "nothing: not found in PATH (after ", "--base bb -- nothing"},
		{127, "the base has it in none of /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin; give its path", "--base bb -- nothing"},
		{127, "the base has it in none of /a; give its path", "--base bb --env PATH=/a -- sh"},
		{127, "one after sh -c", "--base bb -- 'echo hi'"},
		{127, "or not the interpreter or dynamic loader that it names", "--base bb -- /bin/nothing"},
		{126, "no program that can be executed", "--base bb -- /bin"},
		{137, "--timeout allows 50ms: allow more, or leave it out", "--base bb --timeout 50ms -- sleep 60"},
		{125, "not enough room on the disk", "--base bb --disk 4000TiB -- id"},
		{125, "holdfastd snapshot ls lists all names", "--base nobody -- id"},
		{125, "--base is missing", "id"},
		{125, "COMMAND", "--base bb"},
		{125, "unknown flag --bad", "--base bb --bad id"},
		{125, "--env is \"X\"", "--base bb --env X id"},
		{125, "--env gives X twice", "--base bb --env X=1 --env X=2 id"},
		{125, "--workdir is", "--base bb --workdir here id"},
		{126, `the base has no such user: "me"`, "--base bb --user me id"},
		{126, "--user takes numbers, too", "--base bb --user me id"},
		{125, "--user is", "--base bb --user me: id"},
		{125, "--user is", "--base bb --user 1:-1 id"},
		{125, "--mount is", "--base bb --mount /tmp id"},
		{125, "--mount is", "--base bb --mount /tmp:/x:wo id"},
		{125, "no such file", "--base bb --mount /nothing/here:/x id"},
		{125, "a mount at /proc", "--base bb --mount tmpfs:/proc id"},
		{125, "--network is", "--base bb --network some id"},
		{125, "--runtime is", "--base bb --runtime docker id"},
		{125, "--userns is", "--base bb --userns maybe id"},
		{125, "--memory much: not a size", "--base bb --memory much id"},
		{125, "--memory 20: less than 1MiB", "--base bb --memory 20 id"}, // a unit is missing
		{125, "--disk 0: less than 1MiB", "--base bb --disk 0 id"},
		{125, "--cpus is -1; give more than 0", "--base bb --cpus -1 id"},
		{125, "--pids is -1; give more than 0, or leave it out: it is 4096 then", "--base bb --pids -1 id"},
		{125, "Usage: holdfastd step --base NAME [flags] -- COMMAND...", "--base bb"},
		{125, "there is no store", "--root none --base bb id"},
	} {
		r := run(t, "", append([]string{"step"}, split(c.args)...)...)
		if r.code != c.code || !strings.Contains(r.errOut, c.says) || r.out != "" {
			t.Errorf("%s: %+v, and should be %d: %s", c.args, r, c.code, c.says)
		}
	}
	// A slow machine finds it while the command runs, which it kills, and a fast one in what the command has left.
	args := "step --base bb --disk 1MiB -- sh -c 'dd if=/dev/zero of=/x bs=1024 count=5000 2>/dev/null'"
	if r := run(t, "", split(args)...); r.code != 125 && r.code != 137 || !strings.Contains(r.errOut, " of 1.0 MiB (") || r.out != "" {
		t.Errorf("%s: %+v", args, r)
	}
	t.Setenv("PATH", t.TempDir())
	if r := run(t, "", "step", "--base", "bb", "--runtime", "runc", "id"); r.code != 125 || !strings.Contains(r.errOut, "Debian has it in the package runc") {
		t.Errorf("without runc: %+v", r)
	}
	nothingLeft(t, 2)
}

// split divides a line into arguments; those with spaces are in single quotes.
func split(line string) (args []string) {
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			args = append(args, part)
		} else {
			args = append(args, strings.Fields(part)...)
		}
	}
	return args
}

// TestStepSees: what the flags give to the command.
func TestStepSees(t *testing.T) {
	stand(t, "overlay")
	check(t, os.WriteFile("here", []byte("of this machine\n"), 0o644))
	for args, out := range map[string]string{
		"--workdir /new/dir -- sh -c pwd":                                         "/new/dir\n",
		"--user 5:6 -- sh -c 'id -u; id -g'":                                      "5\n6\n",
		"--env A=b=c -- sh -c 'echo $A'":                                          "b=c\n",
		"--mount here:/f:ro -- sh -c 'cat /f; echo x 2>/dev/null >/f || echo no'": "of this machine\nno\n",
		"--mount tmpfs:/t -- sh -c 'echo x >/t/x; ls /t'":                         "x\n",
		"-- sh -c 'ls /proc/sys/net/ipv4/conf'":                                   "all\ndefault\nlo\n",
		"--pids 20 --memory 64MiB --cpus 1 -- sh -c 'echo limited'":               "limited\n",
		"-- sh -c 'cat; echo no input'":                                           "no input\n",
	} {
		if r := run(t, "input", append([]string{"step", "--base", "bb"}, split(args)...)...); r.code != 0 || r.out != out {
			t.Errorf("%s: %+v, and should print %q", args, r, out)
		}
	}
	ours, err := os.Readlink("/proc/self/ns/net")
	check(t, err)
	r := run(t, "", "step", "--base", "bb", "--network", "host", "--", "busybox", "readlink", "/proc/self/ns/net")
	if r.out != ours+"\n" {
		t.Errorf("the network of the host is %s: %+v", ours, r)
	}
}

// TestStepOutputRefused: --output replaced the metadata.db of the store, and the exit code was 0. Now the step is not
// even run.
func TestStepOutputRefused(t *testing.T) {
	stand(t, "overlay")
	check(t, syscall.Mkfifo("node", 0o600))
	for dest, says := range map[string]string{
		"store/metadata.db": "output /g: store/metadata.db is in the store",
		"store/snapshots/g": "give the output a path outside of the store",
		"node":              "node is a device, FIFO or socket",
	} {
		r := run(t, "", "step", "--base", "bb", "--output", "/g:"+dest, "--", "sh", "-c", "echo y | busybox tee /g")
		if r.code != 125 || r.out != "" || !strings.Contains(r.errOut, says) {
			t.Errorf("%s: %+v", dest, r)
		}
	}
	nothingLeft(t, 2)
}

// begun begins a step that waits, and returns when its command runs. wait is for its end.
func begun(t *testing.T, ctx context.Context) (wait func() result) {
	t.Helper()
	return begunIn(t, ctx, "store")
}

// begunIn is begun on the store root.
func begunIn(t *testing.T, ctx context.Context, root string) (wait func() result) {
	t.Helper()
	out := &watched{wrote: make(chan struct{}, 1)}
	var errOut bytes.Buffer
	cmd := command.NewRootCommand()
	cmd.SetOut(out)
	cmd.SetErr(&errOut)
	cmd.SetArgs([]string{"--root", root, "--run", "run", "step", "--base", "bb", "--", "sh", "-c", "echo begun; sleep 600; exit"})
	ended := make(chan int, 1)
	go func() { ended <- command.Execute(ctx, cmd) }()
	select {
	case <-out.wrote:
	case code := <-ended:
		t.Fatalf("it ended with %d: %s", code, &errOut)
	}
	return func() result {
		code := <-ended
		return result{code, out.String(), errOut.String()}
	}
}

// TestStepInterrupted: nothing stays. Meanwhile the store is refused to others.
func TestStepInterrupted(t *testing.T) {
	stand(t, "overlay")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	wait := begun(t, ctx)
	if r := run(t, "", "step", "--wait", "0", "--base", "bb", "id"); r.code != 125 || !strings.Contains(r.errOut, "wait until that process has ended") {
		t.Errorf("meanwhile: %+v", r)
	}
	cancel()
	if r := wait(); r.code != 130 || r.out != "begun\n" || !strings.Contains(r.errOut, "interrupted; nothing is left") {
		t.Errorf("%+v", r)
	}
	nothingLeft(t, 2)
}

// endings are the signals that ask a process to end.
var endings = []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}

// endsBy starts a step and ends it by a signal.
func endsBy(t *testing.T, cmd *exec.Cmd, signal syscall.Signal) {
	t.Helper()
	// Tests that were begun by nohup, or in the background, would hand down that the signal is ignored.
	caught := make(chan os.Signal, 1)
	notify.Notify(caught, signal)
	defer notify.Stop(caught)
	untilBegun(t, cmd)
	check(t, cmd.Process.Signal(signal))
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 128+int(signal) {
		t.Errorf("%v: exit code %d: %s", signal, code, cmd.Stderr)
	}
}

// TestStepSignals: step ended with 130 by SIGTERM and SIGHUP too, where every other command has 143 and 129.
func TestStepSignals(t *testing.T) {
	stand(t, "overlay")
	dir, err := os.Getwd()
	check(t, err)
	for _, signal := range endings {
		args := []string{"--run", filepath.Join(dir, "run"), "step", "--base", "bb", "--", "sh", "-c", "echo begun; sleep 600; exit"}
		cmd := program("/proc/self/exe", dir, args...)
		endsBy(t, cmd, signal)
		if said := byInit.ReplaceAllString(fmt.Sprint(cmd.Stderr), ""); said != "holdfastd: interrupted; nothing is left\n" {
			t.Errorf("%v: %s", signal, said)
		}
		nothingLeft(t, 2)
	}
}

// program is holdfastd as a process of its own, on the store in a directory.
func program(path, dir string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, append([]string{"--root", filepath.Join(dir, "store")}, args...)...)
	cmd.Env = []string{envMain + "=1", "PATH=" + os.Getenv("PATH"), "TMPDIR=" + dir}
	if auth, ok := os.LookupEnv("REGISTRY_AUTH_FILE"); ok {
		cmd.Env = append(cmd.Env, "REGISTRY_AUTH_FILE="+auth)
	}
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	return cmd
}

// untilBegun starts a step that writes a line, and returns when it has.
func untilBegun(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	out, err := cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	if n, err := io.ReadFull(out, make([]byte, len("begun\n"))); err != nil {
		_ = cmd.Wait()
		t.Fatalf("%d bytes, %v; %s", n, err, &errOut)
	}
}

// TestStepKilled: the next one finds a store that no process has, and nothing of the one that was killed.
func TestStepKilled(t *testing.T) {
	stand(t, "overlay")
	dir, err := os.Getwd()
	check(t, err)
	for range 5 {
		cmd := program("/proc/self/exe", dir, "--run", filepath.Join(dir, "run"), "step", "--base", "bb", "--", "sh", "-c", "echo begun; sleep 600; exit")
		untilBegun(t, cmd)
		check(t, cmd.Process.Kill())
		_ = cmd.Wait()
		if r := run(t, "", "step", "-q", "--base", "bb", "sh", "-c", "echo well"); r.code != 0 || r.out != "well\n" {
			t.Errorf("%+v", r)
		}
	}
	nothingLeft(t, 3)
}

// asUser gives a command to an unprivileged user, and with it a directory and this program.
func asUser(t *testing.T) (path, dir string, become func(*exec.Cmd)) {
	t.Helper()
	dir = t.TempDir()
	path = filepath.Join(dir, "holdfastd")
	self, err := os.Executable()
	check(t, err)
	b, err := os.ReadFile(self)
	check(t, err)
	check(t, os.WriteFile(path, b, 0o755))
	t.Chdir(dir)
	busybox(t)
	if os.Geteuid() != 0 {
		return path, dir, func(*exec.Cmd) {}
	}
	const nobody = 65534
	check(t, os.Chown(dir, nobody, nobody))
	check(t, os.Chmod(dir, 0o755))
	for d := filepath.Dir(dir); d != "/" && d != "/tmp"; d = filepath.Dir(d) {
		check(t, os.Chmod(d, 0o755))
	}
	return path, dir, func(cmd *exec.Cmd) {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
}

// TestStepUser: an unprivileged user runs steps in a user namespace, or is told why not.
func TestStepUser(t *testing.T) {
	path, dir, become := asUser(t)
	call := func(args ...string) result {
		t.Helper()
		var out, errOut bytes.Buffer
		cmd := program(path, dir, args...)
		become(cmd)
		cmd.Stdout, cmd.Stderr = &out, &errOut
		err := cmd.Run()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return result{cmd.ProcessState.ExitCode(), out.String(), errOut.String()}
	}
	if r := call("doctor", "--driver", "erofs"); r.code != 1 || !strings.Contains(r.out, "the driver erofs needs root") {
		t.Errorf("%+v", r)
	}
	// It said that root is needed, or a directory of one's own, and had made a store of that driver there.
	if r := call("--driver", "erofs", "import", "busybox.tar", "bb"); r.code != 2 || !strings.Contains(r.errOut, "--driver erofs is for root") {
		t.Errorf("%+v", r)
	}
	if _, err := os.Stat("store"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an import that was refused has made a store: %v", err)
	}
	for _, driver := range []string{"copy", "overlay"} {
		check(t, os.RemoveAll("store"))
		if r := call("--driver", driver, "import", "busybox.tar", "bb"); r.code != 0 {
			t.Fatalf("%s: %+v", driver, r)
		}
		args := []string{"step", "--base", "bb", "--", "sh", "-c", "id -u; echo x >/x"}
		first := call(args...)
		doctor := call("doctor")
		if first.code == 125 && strings.Contains(first.errOut, "a user namespace, which this system does not let") {
			if doctor.code != 1 || !strings.Contains(doctor.out, "no user namespace to run steps in") {
				t.Errorf("%+v", doctor)
			}
			t.Skip("left out: ", first.errOut)
		}
		if doctor.code != 0 || !strings.Contains(doctor.out, "an unprivileged user: steps run in a user namespace") || !strings.Contains(doctor.out, "driver "+driver) {
			t.Errorf("%s: %+v", driver, doctor)
		}
		if first.code != 0 || first.out != "0\n" || !strings.HasPrefix(first.errOut, "ran step-") {
			t.Errorf("%s: %+v", driver, first)
		}
		if again := call(args...); again.code != 0 || again.out != "0\n" || !strings.HasPrefix(again.errOut, "hit step-") {
			t.Errorf("%s: %+v", driver, again)
		}
		for args, want := range map[string]result{
			"--base bb sh -c 'exit 5'":      {5, "", "exit code 5"},
			"--base bb nothing":             {127, "", "not found in PATH"},
			"--base bb --memory 1GiB sh":    {125, "", "cgroups"},
			"--base bb --user 7 sh":         {125, "", "must be mapped"},
			"--base bb --runtime runc sh":   {125, "", "runc"},
			"--base bb --runtime docker sh": {125, "", "--runtime is"},
		} {
			if r := call(append([]string{"step"}, split(args)...)...); r.code != want.code || !strings.Contains(r.errOut, want.errOut) {
				t.Errorf("%s: %s: %+v", driver, args, r)
			}
		}
		userFiles(t, call)
		for _, signal := range endings {
			cmd := program(path, dir, "step", "--base", "bb", "--", "sh", "-c", "echo begun; sleep 600; exit")
			become(cmd)
			endsBy(t, cmd, signal)
		}
		if list := call("snapshot", "ls"); list.code != 0 || strings.Contains(list.out, "!run/") || strings.Count(list.out, "\n") != 10 {
			t.Errorf("%s: %+v", driver, list)
		}
		// All of it can be deleted by the user, also what overlayfs lets no user enter.
		for _, args := range []string{"prune --all --held", "snapshot rm bb", "prune --all --caches 0"} {
			if r := call(strings.Fields(args)...); r.code != 0 || r.errOut != "" {
				t.Errorf("%s: %s: %+v", driver, args, r)
			}
		}
		if left, err := filepath.Glob("store/[st]*/*"); err != nil || len(left) > 0 {
			t.Errorf("%s: left: %v, %v", driver, left, err)
		}
	}
}

// userFiles has an unprivileged user's steps see and get files, one of which the user cannot read, and give some.
func userFiles(t *testing.T, call func(args ...string) result) {
	t.Helper()
	check(t, os.RemoveAll("src"))
	check(t, os.RemoveAll("out"))
	check(t, os.MkdirAll("src", 0o755))
	check(t, os.MkdirAll("out", 0o777))
	check(t, os.Chmod("out", 0o777))
	check(t, os.WriteFile("src/file", []byte("here\n"), 0o644))
	for _, c := range []struct{ args, out, says string }{
		{"--mount src:/src:ro cat /src/file", "here\n", "ran "},
		{"--mount src:/src:ro cat /src/file", "here\n", "hit "},
		{"--copy src:/src --output /src:out/src sh -c 'id -u; cat /src/file'", "0\nhere\n", "ran "},
		{"--mount type=cache,id=c,target=/c sh -c 'echo x >/c/x; ls /c'", "x\n", "ran "},
		{"--mount out:/out sh -c 'echo x >/out/x'", "", "not cached: /out can be written"},
	} {
		if r := call(append([]string{"step", "--base", "bb"}, split(c.args)...)...); r.code != 0 || r.out != c.out || !strings.Contains(r.errOut, c.says) {
			t.Errorf("%s: %+v", c.args, r)
		}
	}
	if b, err := os.ReadFile("out/src/file"); err != nil || string(b) != "here\n" {
		t.Errorf("%q, %v", b, err)
	}
	if os.Geteuid() != 0 {
		return
	}
	check(t, os.WriteFile("src/sealed", nil, 0o600))
	if r := call("step", "--base", "bb", "--mount", "src:/src:ro", "cat", "/src/file"); r.code != 0 || r.out != "here\n" || !strings.Contains(r.errOut, "src/sealed: permission denied") {
		t.Errorf("what cannot be read: %+v", r)
	}
	if r := call("step", "--base", "bb", "--copy", "src:/src", "id"); r.code != 125 || !strings.Contains(r.errOut, "src/sealed: permission denied") {
		t.Errorf("what cannot be read: %+v", r)
	}
}

// TestStepUserRefused: without user namespaces the error says so.
func TestStepUserRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it takes user namespaces away from somebody")
	}
	path, dir, become := asUser(t)
	script := `echo 0 >/proc/sys/user/max_user_namespaces && exec setpriv --reuid 65534 --regid 65534 --clear-groups "$0" "$@"`
	inner := program(path, dir, "step", "--base", "bb", "id")
	imported := program(path, dir, "import", "busybox.tar", "bb")
	become(imported)
	check(t, imported.Run())
	// In a user namespace of its own the bound is its own, too.
	cmd := exec.Command("sh", append([]string{"-c", script}, inner.Args...)...)
	cmd.Args[3] = path
	cmd.Env, cmd.Dir = inner.Env, dir
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:                 syscall.CLONE_NEWUSER,
		UidMappings:                []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1 << 16}},
		GidMappings:                []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1 << 16}},
		GidMappingsEnableSetgroups: true,
	}
	b, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 125 || !strings.Contains(string(b), "user.max_user_namespaces") {
		t.Errorf("%v: %s", err, b)
	}
}

// TestStepDigests: the result of a step with --digests has one when the command ends, also if that takes a while.
func TestStepDigests(t *testing.T) {
	smallDisk(t, "tmpfs", "size=256m")
	busybox(t)
	must(t, "import", "busybox.tar", "bb")
	r := run(t, "", "step", "--reserve", "0", "--digests", "--base", "bb", "--", "sh", "-c", "dd if=/dev/zero of=/large bs=1048576 count=128 2>/dev/null")
	if r.code != 0 {
		t.Fatalf("%+v", r)
	}
	found, err := filepath.Glob("store/snapshots/*/fs/large") // who opened the store would compute what is missing
	if err != nil || len(found) != 1 {
		t.Fatalf("%v, %v", found, err)
	}
	f, err := os.OpenFile(found[0], os.O_WRONLY, 0)
	check(t, err)
	_, err = f.WriteAt([]byte{1}, 1<<20)
	check(t, errors.Join(err, f.Close()))
	if r := run(t, "", "verify"); r.code != 1 || !strings.HasPrefix(r.out, "damaged: step-") {
		t.Errorf("what was changed afterwards is not noticed: %+v", r)
	}
}
