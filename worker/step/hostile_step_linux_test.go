package step

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/worker/mount"
)

// stillPossible lists attempts of the hostile step that a runtime does not refuse, with the reason. What is listed and
// refused fails the test too.
var stillPossible = map[string]map[string]string{
	"native":       {},
	"plain":        {},
	"init":         {},
	"runc":         {},
	"rootless":     {},
	"native gains": gained,
	"runc gains":   {"new privileges can be had": gained["new privileges can be had"]},
}

// gained is what a step with NewPrivileges has asked for.
var gained = map[string]string{
	"new privileges can be had": "they can, up to those of root in the step",
	"set-user-ID program":       "it is root in the step, with the capabilities of that",
	"program with capabilities": "it has those that root in the step can give",
}

// A step could freeze and kill processes of its host, lift its own limits, read the keys of root, and reach
// parts of the kernel that no build needs. The hostile step tries that and more, in each runtime.
func TestHostileStep(t *testing.T) {
	for _, name := range []string{"native", "plain", "init", "runc"} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, Options{Runtime: runtimeNamed(name), Concurrency: 1})
			h := newHostileHost(t, s.dir, hostileForks)
			if s.way().ids.Set() {
				h.unmapped()
			} else if name == "native" {
				t.Log("this machine gives steps no user namespaces")
			}
			hostile := s.hostileBase("")
			leave := h.step(hostile)
			leave.Command = []string{"/hostile", "leave"} // connections, by the same thread
			s.ok(leave)
			res := s.ok(h.step(hostile))
			h.verify(name, string(res.Output))
			h.unharmed()
			s.noDevices(res.Snapshot)
			h.remove()
			s.clean()
		})
	}
	// As another user, whose programs get what root has: set-user-ID programs count.
	for _, name := range []string{"native", "runc"} {
		t.Run(name+" gains", func(t *testing.T) {
			s := newStand(t, Options{Runtime: runtimeNamed(name), Concurrency: 1})
			if name == "native" && !s.way().ids.Set() {
				t.Skip("left out: this machine gives steps no user namespaces")
			}
			h := newHostileHost(t, s.dir, hostileForks)
			if name == "native" {
				h.unmapped()
			}
			set := sh(s.hostileBase(""), "chmod 4755 /hostile")
			step := h.step(s.ok(set).Snapshot)
			step.User, step.NewPrivileges = User{UID: 1000, GID: 1000}, true
			res := s.ok(step)
			h.verify(name+" gains", string(res.Output))
			h.unharmed()
			s.noDevices(res.Snapshot)
			h.remove()
			s.clean()
		})
	}
	t.Run("rootless", func(t *testing.T) {
		cmd := asUser(t, "hostile")
		dir := filepath.Dir(cmd.Path)
		forks := DefaultPids
		if text := os.Getenv(envProcesses); text != "" { // where so many take too long
			var err error
			forks, err = strconv.Atoi(text)
			must(t, err)
			cmd.Env = append(cmd.Env, envProcesses+"="+text)
		}
		h := newHostileHost(t, dir, forks)
		must(t, os.Chmod(filepath.Join(dir, "ro"), 0o755))
		program := filepath.Join(dir, "hostile")
		copyProgram(t, hostileProgram(t), program)
		cmd.Env = append(cmd.Env, h.env()...)
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS
		uid, gid := os.Geteuid(), os.Getegid()
		if uid == 0 {
			uid, gid = 65534, 65534
			cmd.SysProcAttr.GidMappingsEnableSetgroups = true
			cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 0, Gid: 0} // of the namespace
		}
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}}
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) {
			t.Skip("left out: this machine lets unprivileged users have no user namespaces: ", err)
		}
		if err != nil {
			t.Fatalf("%v: %s%s", err, out, errs.String())
		}
		h.verify("rootless", string(out))
		h.unharmed()
	})
}

func init() {
	// hostile runs the hostile step as root of a user namespace, in which it is, and prints what that has said.
	helpers["hostile"] = func() {
		s := &stand{dir: os.Getenv(envDir), ctx: context.Background(), opt: Options{Concurrency: 1}}
		s.prepareRootless()
		must2(s.tryOpen())
		must2(makeBusybox(s.ctx, s.namespace, s.mounts, "base"))
		h := &hostileHost{dir: s.dir}
		into := sh("base", "cp /in /hostile; mkdir /ro /rw")
		into.Mounts = []Mount{{Source: filepath.Join(s.dir, "hostile"), Target: "/in", ReadOnly: true}}
		made, err := s.Run(s.ctx, into, nil)
		must2(err)
		step := h.step(made.Snapshot)
		for _, e := range os.Environ() {
			if strings.HasPrefix(e, "HOSTILE_") {
				step.Env = append(step.Env, e)
			}
		}
		step.Limits = Limits{} // there are none without root, but that of all steps
		_, err = s.Run(s.ctx, step, os.Stdout)
		must2(errors.Join(err, s.Runner.Close(), s.mounts.Close(s.ctx), s.store.Close()))
	}
}

// hostileForks is how many processes the hostile step may have.
const hostileForks = 100

// hostileHost is what a host has that a step must not reach.
type hostileHost struct {
	testing.TB
	dir    string
	victim *exec.Cmd
	told   []string
	before string
	remove func() // the mounts
	more   []Mount
}

// newHostileHost makes the directories ro and rw, and things of all kinds elsewhere.
func newHostileHost(t testing.TB, dir string, forks int) *hostileHost {
	h := &hostileHost{TB: t, dir: dir}
	must(t, os.Mkdir(filepath.Join(dir, "rw"), 0o777))
	below := filepath.Join(dir, "ro/below")
	must(t, os.MkdirAll(below, 0o755))
	must(t, unix.Mount("below", below, "tmpfs", 0, "size=64k"))
	h.remove = sync.OnceFunc(func() { must(t, unix.Unmount(below, 0)) })
	t.Cleanup(h.remove)
	secret := filepath.Join(dir, "secret")
	for _, name := range []string{secret, filepath.Join(dir, "ro/file"), filepath.Join(below, "file")} {
		must(t, os.WriteFile(name, []byte("of the host"), 0o666))
	}
	// It stands for a disk: this one can be opened without harm wherever devices can.
	must(t, unix.Mknod(filepath.Join(dir, "rw/disk"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))))
	// Not with a number that the step reaches by itself: a thread of its own that had it was taken for the victim.
	for h.victim == nil || h.victim.Process.Pid < 2000 {
		if h.victim != nil {
			must(t, h.victim.Process.Kill())
			_ = h.victim.Wait()
		}
		h.victim = exec.Command("sleep", "1000")
		h.victim.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		must(t, h.victim.Start())
	}
	t.Cleanup(func() {
		_ = h.victim.Process.Kill()
		_ = h.victim.Wait()
	})
	handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, secret, 0)
	must(t, err)
	serial, key := 0, fmt.Sprintf("holdfast-secret-%d", os.Getpid())
	for _, ring := range []int{unix.KEY_SPEC_USER_KEYRING, unix.KEY_SPEC_USER_SESSION_KEYRING} {
		serial, err = unix.AddKey("user", key, []byte("of the host"), ring)
		must(t, err)
		id := serial
		t.Cleanup(func() { _, _ = unix.KeyctlInt(unix.KEYCTL_REVOKE, id, 0, 0, 0) })
	}
	local, err := net.Listen("unix", "@"+key)
	must(t, err)
	t.Cleanup(func() { local.Close() })
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { tcp.Close() })
	shmKey := 0x40000000 | os.Getpid()
	shm, err := unix.SysvShmGet(shmKey, 4096, unix.IPC_CREAT|0o666)
	must(t, err)
	t.Cleanup(func() { _, _ = unix.SysvShmCtl(shm, unix.IPC_RMID, nil) })
	h.told = []string{
		fmt.Sprintf("HOSTILE_PID=%d", h.victim.Process.Pid), "HOSTILE_SECRET=" + secret, "HOSTILE_KEY=" + key, fmt.Sprintf("HOSTILE_SERIAL=%d", serial),
		fmt.Sprintf("HOSTILE_HANDLE=%d:%s", handle.Type(), hex.EncodeToString(handle.Bytes())), "HOSTILE_SOCKET=" + key,
		fmt.Sprintf("HOSTILE_PORT=%d", tcp.Addr().(*net.TCPAddr).Port), fmt.Sprintf("HOSTILE_SHM=%d", shmKey), fmt.Sprintf("HOSTILE_FORKS=%d", forks),
	}
	h.before = h.state()
	return h
}

func (h *hostileHost) env() []string { return h.told }

// step is the hostile step on a base that has its program.
func (h *hostileHost) step(base string) Step {
	hidden := secretOf("secret", "of the caller")
	hidden.Target = "/hidden/secret"
	return Step{Base: base, Command: []string{"/hostile"}, Secrets: []Secret{hidden}, Env: append([]string{"HOLDFAST_STEP_MARK=" + baseMark()}, h.told...), Limits: Limits{Pids: hostileForks},
		Mounts: append([]Mount{{Source: filepath.Join(h.dir, "ro"), Target: "/ro", ReadOnly: true}, {Source: filepath.Join(h.dir, "rw"), Target: "/rw"}}, h.more...)}
}

// unmapped adds a directory of the host's root on a file system that cannot show other ids, and what is
// tried where steps have user namespaces.
func (h *hostileHost) unmapped() {
	h.Helper()
	for _, d := range []string{"bottom", "upper", "work", "over"} {
		must(h, os.Mkdir(filepath.Join(h.dir, d), 0o755))
	}
	over := filepath.Join(h.dir, "over")
	must(h, unix.Mount("over", over, "overlay", 0, fmt.Sprintf("lowerdir=%[1]s/bottom,upperdir=%[1]s/upper,workdir=%[1]s/work", h.dir)))
	remove, last := h.remove, sync.OnceFunc(func() { must(h, unix.Unmount(over, 0)) })
	h.remove = func() { remove(); last() }
	h.Cleanup(last)
	must(h, os.WriteFile(filepath.Join(over, "file"), []byte("of the host"), 0o644))
	must(h, os.WriteFile(filepath.Join(over, "private"), []byte("of the host"), 0o600))
	must(h, os.WriteFile(filepath.Join(h.dir, "rw/own"), nil, 0o644))
	h.more = []Mount{{Source: over, Target: "/unmapped"}}
	h.told = append(h.told, fmt.Sprintf("HOSTILE_CAPS=%x", allowed()))
	h.before = h.state()
}

// state is what a step must not change.
func (h *hostileHost) state() string {
	var b strings.Builder
	for _, name := range []string{"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hostname", fmt.Sprintf("/proc/%d/limits", h.victim.Process.Pid),
		filepath.Join(h.dir, "ro/file"), filepath.Join(h.dir, "ro/below/file"),
		filepath.Join(h.dir, "over/file"), filepath.Join(h.dir, "over/private"), "/sys/fs/cgroup/freezer/freezer.state"} {
		text, err := os.ReadFile(name)
		fmt.Fprintf(&b, "%s: %q %v\n", name, text, err)
	}
	info, err := os.Stat(os.DevNull)
	must(h, err)
	fmt.Fprintf(&b, "%s: %v\n", os.DevNull, info.Mode())
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", h.victim.Process.Pid))
	must(h, err)
	for line := range strings.Lines(string(status)) {
		// It may not sleep yet when this is first asked.
		if strings.HasPrefix(line, "State:") && !strings.ContainsAny(line, "SRD") {
			fmt.Fprintf(&b, "the other process: %s", line)
		}
	}
	return b.String()
}

// unharmed fails if the step has changed anything.
func (h *hostileHost) unharmed() {
	h.Helper()
	if after := h.state(); after != h.before {
		h.Errorf("the host was\n%s\nand is\n%s", h.before, after)
		_ = os.Chmod(os.DevNull, 0o666)
	}
}

// verify compares what the hostile step says with what its runtime is known to allow.
func (h *hostileHost) verify(runtime, said string) {
	h.Helper()
	known, seen, refused := stillPossible[runtime], map[string]bool{}, 0
	for line := range strings.Lines(said) {
		name, result, _ := strings.Cut(strings.TrimSpace(line), "\t")
		seen[name] = true
		_, listed := known[name]
		switch {
		case strings.HasPrefix(result, "refused") && listed:
			h.Errorf("%s is listed as possible: %s", name, result)
		case strings.HasPrefix(result, "refused"):
			refused++
		case !listed || !strings.HasPrefix(result, "SUCCEEDED"):
			h.Errorf("%s: %s", name, result)
		}
		h.Logf("%s: %s", name, result)
	}
	for name := range known {
		if !seen[name] {
			h.Errorf("%s is listed, and was not tried", name)
		}
	}
	if refused < 100 {
		h.Errorf("only %d attempts were refused", refused)
	}
}

// noDevices fails if there is a device node in a snapshot.
func (s *stand) noDevices(name string) {
	s.Helper()
	list, err := s.namespace.View(s.ctx, "devices", name)
	must(s, err)
	spec, err := mount.FromMounts(list)
	must(s, err)
	m, err := s.mounts.Acquire(s.ctx, spec)
	must(s, err)
	err = filepath.WalkDir(m.Path(), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type()&os.ModeDevice != 0 {
			s.Errorf("a device node in the result: %s", path)
		}
		return err
	})
	m.Release()
	must(s, err)
	must(s, s.mounts.Forget(s.ctx, filepath.Join(s.root(), "snapshots")))
	must(s, s.namespace.Remove(s.ctx, "devices"))
}
