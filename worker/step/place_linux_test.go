package step

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// groupsOf are the groups of the steps of a store in which there are processes, and those above them, in
// all hierarchies.
func groupsOf(root string) (inner []string) {
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.Contains(path, "/"+DefaultCgroup(root)+"/") && len(members(path)) > 0 {
			inner = append(inner, path)
		}
		return nil
	})
	return inner
}

// needGroups leaves a test out where the machine has no cgroups that can be made.
func needGroups(t testing.TB) {
	t.Helper()
	needRoot(t)
	c, err := findCgroups("holdfast-test-probe")
	must(t, err)
	p := c.openPlaces()
	defer p.close()
	c.removeAll()
	if len(p.in) == 0 {
		t.Skip("left out: no cgroups can be made here")
	}
}

// during runs a step that says it has begun and sleeps, and calls f meanwhile. Then the step is canceled.
func (s *stand) during(step Step, f func()) {
	s.Helper()
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	begun := false
	_, err := s.Run(ctx, step, writerFunc(func(b []byte) (int, error) {
		if bytes.Contains(b, []byte("begun")) && !begun {
			begun = true
			f()
			cancel()
		}
		return len(b), nil
	}))
	if !begun {
		s.Fatalf("the step has not begun: %v", err)
	}
}

// A step lifted its own limits: it was in the group that has them, and saw it. One without limits was in no
// group at all, and could have as many processes as the machine.
func TestGroups(t *testing.T) {
	needGroups(t)
	natives(t, func(s *stand) {
		step := sh("base", "echo begun; exec sleep 1000")
		step.Limits = Limits{Memory: 256 << 20, CPU: 1}
		for _, limits := range []Limits{{}, {Memory: 256 << 20, CPU: 1, Pids: 7}} {
			step.Limits = limits
			pids := "4096"
			if limits.Pids > 0 {
				pids = strconv.FormatInt(limits.Pids, 10)
			}
			s.during(step, func() {
				groups := groupsOf(s.root())
				for _, h := range s.cgroups.all {
					if h.left() {
						continue
					}
					i := slices.IndexFunc(groups, func(g string) bool { return strings.HasPrefix(g, h.at+"/") })
					if i < 0 {
						s.Errorf("no group in %s", h.at)
						continue
					}
					// One process: the command. What has started it has gone.
					if n := len(members(groups[i])); n != 1 {
						s.Errorf("%d processes in %s", n, groups[i])
					}
					own, outer := readText(groups[i], "pids.max"), readText(filepath.Dir(groups[i]), "pids.max")
					for own != "" && outer != pids && outer == "32" && s.ctx.Err() == nil { // the init's, for some moments
						time.Sleep(time.Millisecond)
						outer = readText(filepath.Dir(groups[i]), "pids.max")
					}
					if own != "" && (own != "max" || outer != pids) {
						s.Errorf("%s: the limit of processes is %q, and above %q", groups[i], own, outer)
					}
					own, outer = readText(groups[i], "memory.limit_in_bytes"), readText(filepath.Dir(groups[i]), "memory.limit_in_bytes")
					if own != "" && limits.Memory > 0 && (own == outer || outer != strconv.FormatInt(limits.Memory, 10)) {
						s.Errorf("%s: the limit of memory is %q, and above %q", groups[i], own, outer)
					}
				}
			})
		}
		// What it sees of them is that it is at the top.
		for _, line := range strings.Split(s.text(sh("base", "cat /proc/self/cgroup")), "\n") {
			if !strings.HasSuffix(line, ":/") {
				s.Errorf("in the step: %s", line)
			}
		}
		s.clean()
	})
}

func readText(dir, name string) string {
	b, _ := os.ReadFile(filepath.Join(dir, name))
	return strings.TrimSpace(string(b))
}

// The thread that starts a step counts as a process of it: with a limit of one nothing could be started.
func TestOneProcess(t *testing.T) {
	needGroups(t)
	natives(t, func(s *stand) {
		step := sh("base", "echo one; (echo two); echo three")
		step.Limits.Pids = 1
		if got := s.fails(step, ErrExit); !strings.Contains(string(got.Output), "one") || strings.Contains(string(got.Output), "two") {
			s.Errorf("%s", got.Output)
		}
		s.clean()
	})
}

// Threads that have started steps are where they were: what the process does counts for nobody's limits.
func TestThreadsGoHome(t *testing.T) {
	needGroups(t)
	natives(t, func(s *stand) {
		for i := range 5 {
			s.ok(sh("base", fmt.Sprint("true ", i)))
		}
		own, err := os.ReadFile("/proc/self/cgroup")
		must(s, err)
		threads, err := filepath.Glob("/proc/self/task/*/cgroup")
		must(s, err)
		for _, name := range threads {
			if b, err := os.ReadFile(name); err == nil && !bytes.Equal(b, own) {
				s.Errorf("%s: %s, and not %s", name, b, own)
			}
		}
	})
}

// join puts a process of the host into the groups of the step that runs.
func join(s *stand, pid int) {
	s.Helper()
	groups := groupsOf(s.root())
	if len(groups) == 0 {
		s.Error("the step is in no group")
	}
	for _, g := range groups {
		must(s, os.WriteFile(filepath.Join(g, "cgroup.procs"), fmt.Append(nil, pid), 0))
	}
}

// sleeper is a process of the host, outside of all mounts of steps.
func sleeper(t testing.TB, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/bin/sleep", "1000")
	cmd.Dir = dir
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// What is left in the group of a step when its command has ended is ended with it, wherever it has gone.
func TestLeftInGroup(t *testing.T) {
	needGroups(t)
	natives(t, func(s *stand) {
		cmd := sleeper(s, "/")
		s.during(sh("base", "echo begun; exec sleep 1000"), func() { join(s, cmd.Process.Pid) })
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		select {
		case <-ended:
		case <-time.After(30 * time.Second):
			s.Error("it is still there")
		}
		s.clean()
	})
}

func init() {
	// survivor kills itself when a step runs, after it has put a process into the step's groups that sees
	// none of its mounts, but has its root directory as its own.
	helpers["survivor"] = func() {
		s := &stand{dir: os.Getenv(envDir), ctx: context.Background()}
		s.opt.Runtime = runtimeNamed(os.Getenv(envRuntime))
		s.prepare()
		base = os.Getenv("TMPDIR")
		if err := s.tryOpen(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		_, err := s.Run(s.ctx, sh("base", "echo begun; exec sleep 1000"), writerFunc(func(b []byte) (int, error) {
			groups := groupsOf(s.root())
			if len(groups) == 0 {
				fmt.Fprintln(os.Stderr, "the step is in no group")
				os.Exit(1)
			}
			cmd := exec.Command("/bin/sleep", "1000")
			cmd.Dir = fmt.Sprintf("/proc/%d/root", members(groups[0])[0])
			err := cmd.Start()
			for _, g := range groups {
				if err == nil {
					err = os.WriteFile(filepath.Join(g, "cgroup.procs"), fmt.Append(nil, cmd.Process.Pid), 0)
				}
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			fmt.Println(cmd.Process.Pid)
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			select {}
		}))
		fmt.Fprintln(os.Stderr, err)
	}
}

// A step cleared its death signal, left its root directory with a namespace of its own, and so lived on
// when the worker was killed: neither the kernel nor recovery, which looks at mounts, ended it. It held its
// snapshot, and each later step waited for twelve seconds and failed. The next Runner finds it by its
// group.
func TestSurvivor(t *testing.T) {
	needGroups(t)
	for _, name := range []string{"native", "init"} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, Options{Runtime: runtimeNamed(name)})
			s.close()
			self, err := os.Readlink("/proc/self/exe")
			must(t, err)
			cmd := exec.Command(self)
			cmd.Env = append(os.Environ(), envHelper+"=survivor", envDir+"="+s.dir, envRuntime+"="+name)
			var said bytes.Buffer
			cmd.Stderr = &said
			out, err := cmd.Output()
			if err == nil || said.Len() > 0 {
				t.Fatalf("%v: %s", err, said.String())
			}
			pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
			must(t, err)
			t.Cleanup(func() { _ = unix.Kill(pid, unix.SIGKILL) })
			s.open()
			if state := readText("/proc/"+strconv.Itoa(pid), "stat"); state != "" && !strings.Contains(state, ") Z ") {
				t.Errorf("it lives: %s", state)
			}
			s.ok(sh("base", "echo the next one"))
			if p := s.mounts.Pending(); len(p) > 0 {
				t.Errorf("pending: %+v", p)
			}
			s.clean()
		})
	}
}

// A Runner ends what an earlier one has left in its groups, also if whoever has opened the mounts did not name them.
func TestNewEndsLeft(t *testing.T) {
	needGroups(t)
	s := newStand(t, Options{})
	s.close()
	s.Runner = nil
	cmd := sleeper(t, "/")
	for _, h := range s.cgroupsAll() {
		dir := filepath.Join(h, DefaultCgroup(s.root()), "left-1")
		must(t, os.MkdirAll(dir, 0o755))
		must(t, os.WriteFile(filepath.Join(dir, "cgroup.procs"), fmt.Append(nil, cmd.Process.Pid), 0))
	}
	c, err := findCgroups(DefaultCgroup(s.root()))
	must(t, err)
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	must(t, c.clean())
	<-ended
	s.open()
	s.clean()
}

// cgroupsAll are the hierarchies in which groups can be made without more ado.
func (s *stand) cgroupsAll() []string {
	c, err := findCgroups("x")
	must(s, err)
	var all []string
	for _, h := range c.all {
		if !h.left() {
			all = append(all, h.at)
		}
	}
	return all
}

// TestGroupsGone: a systemd that ended elsewhere on the machine had removed all groups that were empty, that of all steps among them:
// each step after that failed, "no such file or directory".
func TestGroupsGone(t *testing.T) {
	needGroups(t)
	s := newStand(t, Options{})
	for i := range 3 {
		s.cgroups.removeAll()
		step := sh("base", fmt.Sprint("echo ", i))
		step.Limits.Pids = int64(50 * min(i, 1))
		s.ok(step)
	}
	s.clean()
}
