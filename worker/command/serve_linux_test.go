package command_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"holdfast/worker/command"
	"holdfast/worker/internal/remote"
)

// envServed has a daemon run the commands of the tests that begin with a stand.
const envServed = "HOLDFASTD_TEST_SERVED"

// holdfastd is a command of a process of its own, on the store of the working directory.
func holdfastd(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	dir, err := os.Getwd()
	check(t, err)
	return program("/proc/self/exe", dir, append([]string{"--run", filepath.Join(dir, "run")}, args...)...)
}

// aDaemon is one that serves the store of the working directory.
type aDaemon struct {
	t   *testing.T
	cmd *exec.Cmd
	log *bytes.Buffer
	end chan error

	killed bool
}

func startDaemon(t *testing.T, args ...string) *aDaemon {
	t.Helper()
	d := &aDaemon{t: t, cmd: holdfastd(t, append([]string{"serve"}, args...)...), log: &bytes.Buffer{}, end: make(chan error, 1)}
	out, err := d.cmd.StderrPipe()
	check(t, err)
	check(t, d.cmd.Start())
	t.Cleanup(func() {
		if t.Failed() {
			defer func() { t.Logf("the daemon's log: %s", d.log) }()
		}
		if d.killed {
			served(t, "step", "-q", "--base", "bb", "--", "true") // unmounts what it has left
			return
		}
		_ = d.cmd.Process.Signal(syscall.SIGTERM)
		d.end <- <-d.end
	})
	ready := make(chan bool)
	go func() {
		said := false
		for lines := bufio.NewScanner(out); lines.Scan(); {
			d.log.WriteString(lines.Text() + "\n")
			if !said && strings.Contains(lines.Text(), "msg=ready") {
				said = true
				close(ready)
			}
		}
		err := d.cmd.Wait()
		if !said {
			close(ready)
		}
		d.end <- err
	}()
	<-ready
	return d
}

// stop asks it to end, and returns when it has.
func (d *aDaemon) stop() {
	d.t.Helper()
	check(d.t, d.cmd.Process.Signal(syscall.SIGTERM))
	d.ended()
}

// ended returns when it has ended, as it should.
func (d *aDaemon) ended() {
	d.t.Helper()
	err := <-d.end
	d.end <- err
	if err != nil {
		d.t.Errorf("the daemon ended with %v: %s", err, d.log)
	}
}

func (d *aDaemon) kill() {
	d.killed = true
	_ = d.cmd.Process.Kill()
	d.end <- <-d.end
}

// served is what a command gives that a daemon runs.
func served(t *testing.T, args ...string) result {
	t.Helper()
	var out, errOut bytes.Buffer
	cmd := holdfastd(t, args...)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		t.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errOut.String()}
}

// TestThroughADaemon runs the other tests of commands once more, with a daemon that runs what they call. Left out are those of messages
// that have paths in them, and those of what a store is while one command has it.
func TestThroughADaemon(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it runs steps and mounts")
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=Step|Mount|Log|Prune|Isolat|Image|Held|Cache|Result|Room|Keys|Complet",
		"-test.skip=Serve|Interrupted|StepCodes|OutputRefused|OfOtherPaths|ThroughADaemon|StepUser|DoctorIsolation")
	cmd.Env = append(os.Environ(), envServed+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if n := strings.Count(string(out), "--- FAIL"); err == nil && n > 0 {
		t.Errorf("%d tests failed", n)
	}
}

// What happened: of twenty steps that a shell loop started at once, nineteen failed since the first had the store. With a daemon they run
// side by side, and so does anything else.
func TestServeManySteps(t *testing.T) {
	stand(t, "overlay")
	startDaemon(t)
	const n = 20
	var all sync.WaitGroup
	results := make([]result, n)
	for i := range n {
		all.Go(func() {
			results[i] = served(t, "step", "--base", "bb", "--env", fmt.Sprintf("N=%d", i), "--", "sh", "-c", "echo $N; echo made >/made; sleep 1")
		})
	}
	if r := served(t, "snapshot", "ls"); r.code != 0 || !strings.Contains(r.out, "bb") {
		t.Errorf("snapshot ls: %+v", r)
	}
	all.Wait()
	for i, r := range results {
		if r.code != 0 || r.out != fmt.Sprintf("%d\n", i) || !strings.HasPrefix(r.errOut, "ran step-") {
			t.Errorf("step %d: %+v", i, r)
		}
	}
	r := served(t, "step", "--base", "bb", "--env", "N=3", "--", "sh", "-c", "echo $N; echo made >/made; sleep 1")
	if r.code != 0 || r.out != "3\n" || !strings.HasPrefix(r.errOut, "hit step-") {
		t.Errorf("again: %+v", r)
	}
	name := strings.Fields(r.errOut)[1]
	if r := served(t, "logs", name); r.code != 0 || r.out != "3\n" { // the daemon has results.db open
		t.Errorf("logs: %+v", r)
	}
}

// A command says and returns the same whether a daemon runs it or not.
func TestServeSame(t *testing.T) {
	stand(t, "overlay")
	check(t, os.Mkdir("src", 0o755))
	check(t, os.WriteFile("src/file", []byte("content"), 0o644))
	check(t, os.Mkdir("other", 0o755))
	check(t, syscall.Mount("none", "other", "tmpfs", 0, "")) // which the mount namespace of steps does not have
	t.Cleanup(func() { check(t, syscall.Unmount("other", syscall.MNT_DETACH)) })
	check(t, os.WriteFile("other/file", []byte("other"), 0o644))
	must(t, "step", "-q", "--base", "bb", "--", "sh", "-c", "echo x >/x")
	commands := [][]string{
		{"snapshot", "ls"}, {"snapshot", "ls", "--full", "--json"}, {"snapshot", "tree"}, {"snapshot", "stat", "bb"}, {"snapshot", "namespaces"},
		{"snapshot", "stat", "none"}, {"why", "bb"}, {"prune", "--dry-run"}, {"verify"}, {"logs", "none"}, {"snapshot", "rm", "none", "--json"},
		{"step", "--base", "bb", "--", "sh", "-c", "exit 7"},
		{"step", "--base", "none", "--", "true"},
		{"step", "--base", "bb", "--workdir", "relative", "--", "true"},
		{"step", "--base", "bb", "--mount", "src:/src:ro", "--", "cat", "/src/file"},
		{"step", "--base", "bb", "--copy", "src:/src", "--output", "/src/file:got", "--", "cat", "/src/file"},
		{"step", "--base", "bb", "--mount", "missing:/src", "--", "true"},
		{"step", "--base", "bb", "--mount", "other:/src:ro", "--", "cat", "/src/file"},
		{"step", "--base", "bb", "--runtime", "runc", "--mount", "other:/src:ro", "--", "cat", "/src/file"},
		{"step", "--base", "bb", "--userns", "off", "--", "cat", "/proc/self/uid_map"},
		{"import", "missing.tar"}, {"step", "--policy", "missing", "--base", "bb", "--", "true"},
		{"nothing"}, {"snapshot", "ls", "--nothing"}, {"--driver", "copy", "snapshot", "ls"}, {"--driver", "overlay", "snapshot", "ls"},
	}
	var before []result
	for _, args := range commands {
		served(t, args...) // steps are hits from here on
	}
	for _, args := range commands {
		before = append(before, served(t, args...))
	}
	d := startDaemon(t)
	duration := regexp.MustCompile(`[\d.]+ ms`)
	plain := func(r result) result { // a daemon has another working directory, and names whole paths
		return result{r.code, steady(r.out), strings.NewReplacer("DIR/", "", "just AGO", "AGO").Replace(duration.ReplaceAllString(steady(r.errOut), "T ms"))}
	}
	for i, args := range commands {
		a, b := plain(served(t, args...)), plain(before[i])
		if a != b {
			t.Errorf("holdfastd %s: with a daemon\n%+v\nand without\n%+v", strings.Join(args, " "), a, b)
		}
	}
	if b, err := os.ReadFile("got"); err != nil || string(b) != "content" {
		t.Errorf("the output of a step: %q, %v", b, err)
	}
	d.stop()
	if r := served(t, "snapshot", "ls"); r.code != 0 {
		t.Errorf("without the daemon: %+v", r)
	}
	// A daemon left the tmpfs of its records of mounts, in a directory that is the store's alone.
	own := program("/proc/self/exe", ".", "serve")
	own.Stderr = os.Stderr
	check(t, own.Start())
	eventually(t, "it serves", func() bool { _, err := os.Stat("store/command.sock"); return err == nil })
	check(t, own.Process.Signal(syscall.SIGTERM))
	check(t, own.Wait())
	dir, err := filepath.EvalSymlinks("store")
	check(t, err)
	if dir, err = filepath.Abs(dir); err != nil {
		t.Fatal(err)
	}
	left := fmt.Sprintf("/run/holdfast-%x", sha256.Sum256([]byte(dir)))[:len("/run/holdfast")+17]
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s: %v", left, err)
	}
}

// A step ends with its caller, however that ends, and leaves nothing.
func TestServeCallerEnds(t *testing.T) {
	stand(t, "overlay")
	startDaemon(t)
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGKILL} {
		cmd := holdfastd(t, "step", "--base", "bb", "--", "sh", "-c", "echo begun; sleep 600; exit")
		untilBegun(t, cmd)
		check(t, cmd.Process.Signal(signal))
		_ = cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); signal != syscall.SIGKILL && code != 128+int(signal) {
			t.Errorf("ended by %v: exit code %d", signal, code)
		}
		eventually(t, "the step is gone", func() bool {
			r := served(t, "snapshot", "ls")
			return r.code == 0 && !strings.Contains(r.out, "active")
		})
	}
}

// eventually waits until something holds that nothing tells of.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for began := time.Now(); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > 30*time.Second {
			t.Fatalf("not within half a minute: %s", what)
		}
	}
}

// A daemon that is to end finishes what it runs, and a second one is refused meanwhile, with the name of the first.
func TestServeDrains(t *testing.T) {
	stand(t, "overlay")
	d := startDaemon(t)
	check(t, os.Mkdir("gate", 0o755))
	check(t, syscall.Mkfifo("gate/go", 0o666))
	cmd := holdfastd(t, "step", "--base", "bb", "--userns", "off", "--mount", "gate:/here", "--", "sh", "-c", "echo begun; cat /here/go; exit 5")
	untilBegun(t, cmd)
	if r := served(t, "--wait", "0", "serve"); r.code != 1 || !strings.Contains(r.errOut, fmt.Sprint(d.cmd.Process.Pid)) {
		t.Errorf("a second daemon: %+v", r)
	}
	check(t, d.cmd.Process.Signal(syscall.SIGTERM))
	eventually(t, "nobody listens", func() bool {
		_, err := os.Stat("store/command.sock")
		return err != nil
	})
	check(t, os.WriteFile("gate/go", nil, 0))
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 5 {
		t.Errorf("the step of a daemon that ends: exit code %d", code)
	}
	d.ended() // it was asked to end, and may have
}

// A killed daemon leaves a stale socket: the next command opens the store itself, and the next daemon replaces the socket.
func TestServeKilled(t *testing.T) {
	stand(t, "overlay")
	d := startDaemon(t)
	cmd := holdfastd(t, "step", "--base", "bb", "--", "sh", "-c", "echo begun; sleep 600; exit")
	untilBegun(t, cmd)
	d.kill()
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 125 || !strings.Contains(fmt.Sprint(cmd.Stderr), "has ended: EOF; its log may say why; run the command again\n") {
		t.Errorf("the step of a daemon that was killed: exit code %d, %v", code, cmd.Stderr)
	}
	if r := served(t, "step", "--base", "bb", "--", "sh", "-c", "echo hello"); r.code != 0 || r.out != "hello\n" {
		t.Errorf("without a daemon: %+v", r)
	}
	startDaemon(t)
	if r := served(t, "step", "--base", "bb", "--", "sh", "-c", "echo hello"); r.code != 0 || r.out != "hello\n" || !strings.HasPrefix(r.errOut, "hit ") {
		t.Errorf("with the next one: %+v", r)
	}
}

// What happened: paths of a command that a daemon ran were those of the daemon: /dev/stdin was its own standard input, /dev/fd/3 any file
// of another command; .. after a symbolic link was elsewhere, a working directory that was removed was an error, and so were bytes
// that are no text, which had become others. In another mount namespace a step saw other files than its caller.
func TestServePaths(t *testing.T) {
	stand(t, "overlay")
	dir, err := os.Getwd()
	check(t, err)
	check(t, os.MkdirAll("real/sub", 0o755))
	check(t, os.Symlink("real/sub", "link"))
	check(t, os.WriteFile("real/bytes\xff", []byte("content"), 0o644))
	check(t, os.Mkdir("gone", 0o755))
	archive, err := exec.Command("tar", "-C", "real", "-cf", "-", ".").Output()
	check(t, err)
	check(t, os.WriteFile("real/files.tar", archive, 0o644))
	startDaemon(t)
	for _, c := range []struct {
		in, script, out string
		args            []string
	}{
		{"link", `exec "$@"`, "Base      dots\n", []string{"import", "../files.tar", "dots"}},
		{".", `exec "$@" <real/files.tar`, "Base      in\n", []string{"import", "/dev/stdin", "in"}},
		{".", `exec 3<real/files.tar; exec "$@"`, "Base      fd\n", []string{"import", "/dev/fd/3", "fd"}},
		{".", `exec 3<real/files.tar; exec "$@"`, "Base      proc\n", []string{"import", "/proc/self/fd/3", "proc"}},
		{"gone", `rmdir ../gone; exec "$@"`, "bb ", []string{"snapshot", "ls"}},
		{"real", `exec "$@"`, "content", []string{"step", "--base", "bb", "--copy", "bytes\xff:/file", "--", "cat", "/file"}},
		{".", `exec "$@"`, "a\xffb", []string{"step", "--base", "bb", "--", "sh", "-c", "printf 'a\xffb'"}},
		{".", `exec unshare -m "$@"`, "the daemon sees other files", []string{"step", "--base", "bb", "--copy", "real:/file", "--", "true"}},
		{".", `exec unshare -m "$@"`, "here", []string{"step", "--base", "bb", "--", "sh", "-c", "echo here"}},
	} {
		self, err := os.Readlink("/proc/self/exe")
		check(t, err)
		cmd := exec.Command("/bin/sh", append([]string{"-c", "cd " + c.in + "; " + c.script, "sh", self, "--root", filepath.Join(dir, "store"), "--run", filepath.Join(dir, "run")}, c.args...)...)
		cmd.Env = program(self, dir).Env
		if out, _ := cmd.CombinedOutput(); !strings.Contains(string(out), c.out) {
			t.Errorf("%q: %s", c.args, out)
		}
	}
}

// Each command that a daemon ran left more than a kilobyte: cobra keeps the functions that complete flags, with all that they refer to.
func TestServeGrowsNot(t *testing.T) {
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	command.MakeCommands()
	before := heap()
	const n = 200
	for range n {
		command.MakeCommands()
	}
	if after := heap(); after > before+n*256 {
		t.Errorf("%d bytes of each command are left", (after-before)/n)
	}
}

// Steps that only waited for their turn reserved room on the disk. Of eight steps at once most failed, though there was room for each
// that ran.
func TestServeRoom(t *testing.T) {
	smallDisk(t, "tmpfs", "size=400m")
	busybox(t)
	must(t, "--driver", "copy", "import", "busybox.tar", "bb")
	startDaemon(t)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			if r := served(t, "step", "--base", "bb", "--env", fmt.Sprintf("N=%d", i), "--", "sh", "-c", "sleep 0.2"); r.code != 0 {
				t.Errorf("step %d: %+v", i, r)
			}
		})
	}
	all.Wait()
	if r := served(t, "step", "--base", "bb", "--reserve", "390MiB", "--", "sleep", "1"); r.code != 125 || !strings.Contains(r.errOut, "not enough room") {
		t.Errorf("one for which there is no room: %+v", r)
	}
}

// What happened: "serve", sent over the socket, ran within the daemon. It made the store that the default configuration names, and took
// over SIGHUP.
func TestServeInServe(t *testing.T) {
	stand(t, "overlay")
	startDaemon(t)
	c, err := remote.Dial("store/command.sock")
	check(t, err)
	defer c.Close()
	out, err := os.Create("out")
	check(t, err)
	defer out.Close()
	null, err := os.Open(os.DevNull)
	check(t, err)
	defer null.Close()
	check(t, os.WriteFile("empty.toml", []byte("root = '/proc/none'"), 0o644))
	dir, err := os.Getwd()
	check(t, err)
	code, err := c.Run(remote.Request{Args: []string{"serve", "--config", filepath.Join(dir, "empty.toml")}, Dir: "/"}, null, out, out, nil)
	b, _ := os.ReadFile("out")
	if err != nil || code != 2 || !strings.Contains(string(b), "no daemon runs holdfastd serve") {
		t.Errorf("%d, %v: %s", code, err, b)
	}
}

// The views of mounts in other namespaces stayed when a daemon was killed, and kept their snapshots.
func TestServeViewsLeft(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts")
	}
	namespaceStand(t)
	d := startDaemon(t)
	check(t, os.Mkdir("mnt", 0o755))
	cmd := holdfastd(t, "mount", "--namespace", "containerd", "k8s/2/c2", "mnt")
	check(t, cmd.Start())
	eventually(t, "it is mounted", func() bool {
		_, err := os.Stat("mnt/file")
		return err == nil
	})
	d.kill()
	_ = cmd.Wait()
	startDaemon(t)
	if r := served(t, "snapshot", "ls", "--namespace", "containerd"); r.code != 0 || strings.Contains(r.out, "!mount") {
		t.Errorf("%+v", r)
	}
}
