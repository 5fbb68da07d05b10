package step

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/moby/sys/userns"
	"github.com/opencontainers/runtime-spec/specs-go"

	"holdfast/worker/internal/idmap"
	"holdfast/worker/internal/seccomp"
)

// This file has runc run commands. containerd/go-runc does not serve: it gives runc the environment of this process,
// starts it where this process is (but for a variable of the whole program), kills runc itself when a context ends,
// and does not say what a command took or that runc was killed.

// Runc is the runtime that has the program runc run commands, as Debian's package of that name has
// it, with the namespaces, filter of system calls and limits that Native has. It needs root.
func Runc() Runtime { return runc{program: "runc"} }

type runc struct{ program string }

func (runc) Name() string { return "runc" }

func (r runc) open(e *environment) (opened, error) {
	program, err := exec.LookPath(r.program)
	if err != nil {
		return nil, fmt.Errorf("the program %s is missing; Debian has it in the package runc: %w: %w", r.program, err, errors.ErrUnsupported)
	}
	if userns.RunningInUserNS() {
		return nil, fmt.Errorf("runc needs root of the machine, and this is a user namespace; the runtime native can work here: %w", errors.ErrUnsupported)
	}
	o := &openRunc{environment: e, program: program, dir: filepath.Join(e.root, bundlesDir)}
	// What an earlier run has left; its processes have ended.
	if err := os.RemoveAll(o.dir); err != nil {
		return nil, err
	}
	if err := os.Mkdir(o.dir, 0o700); err != nil {
		return nil, err
	}
	if err := e.stepNamespace.Do(func() error { _, err := os.Stat(program); return err }); err != nil {
		return nil, fmt.Errorf("the program cannot be seen in the step namespace: %w", err)
	}
	return o, nil
}

type openRunc struct {
	*environment
	program string
	dir     string // of bundles and runc's own state
}

func (o *openRunc) close() { _ = os.RemoveAll(o.dir) }

// runcRun is a job for runc.
type runcRun struct {
	*openRunc
	job *job
}

func (o *openRunc) prepare(j *job) prepared { return &runcRun{o, j} }

func (r *runcRun) run(ctx context.Context) (ended, error) { return r.openRunc.run(ctx, r.job) }

func (r *runcRun) drop() error { return nil }

func (o *openRunc) ids() idmap.Map { return idmap.Map{} }

// runcPids is how many threads runc's own part in a container can have. With fewer than four Go's
// runtime ends with a trace of all of them; how many it makes is up to it.
const runcPids = 8

// run runs a job as a container.
func (o *openRunc) run(ctx context.Context, j *job) (done ended, err error) {
	if p := j.step.Limits.Pids; p > 0 && p < runcPids {
		return done, fmt.Errorf("%w: at most %d processes: runc itself, which starts in the step's limits, needs %d", ErrInvalid, p, runcPids)
	}
	name := fmt.Sprintf("%s-%d", j.id.String()[:16], j.serial)
	bundle := filepath.Join(o.dir, name)
	if err := os.Mkdir(bundle, 0o700); err != nil {
		return done, err
	}
	defer func() {
		err = errors.Join(err, os.RemoveAll(bundle))
	}()
	// The limits are those of a group of ours, in which the container has one of its own: that is gone with the
	// container, and with it what there was to know; and a step that could write its own could not lift the limits.
	var g *group
	defer func() { err = errors.Join(err, g.remove(), o.cgroups.removeEverywhere(name)) }()
	if g, err = o.cgroups.make(name, o.limits(&j.step.Limits)); err != nil {
		return done, err
	}
	config, err := o.config(j, "/"+o.cgroups.name+"/"+name+"/container")
	if err != nil {
		return done, err
	}
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), config, 0o600); err != nil {
		return done, err
	}
	done, err = o.container(ctx, j, name, bundle)
	g.measure(&done)
	return done, err
}

// limits are those of a step, with the number of processes that all steps have a limit of.
func (o *openRunc) limits(l *Limits) *Limits {
	all := *l
	if all.Pids == 0 && o.cgroups.can("pids") {
		all.Pids = DefaultPids
	}
	return &all
}

// container runs a bundle, and sees to it that nothing is left of it.
func (o *openRunc) container(ctx context.Context, j *job, name, bundle string) (done ended, err error) {
	logName := filepath.Join(bundle, "log")
	cmd := o.command("--log", logName, "--log-format", "json", "run", "--bundle", bundle, name)
	cmd.Stdout, cmd.Stderr = j.out, j.out
	if j.in != nil {
		cmd.Stdin = j.in
	}
	j.begun()
	if err := o.stepNamespace.Start(cmd); err != nil {
		return done, fmt.Errorf("starting runc: %w", err)
	}
	ending := make(chan struct{})
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		select {
		case <-ctx.Done():
			o.kill(name, cmd.Process, ending)
		case <-ending:
		}
	}()
	err = cmd.Wait()
	close(ending)
	<-killed
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return done, fmt.Errorf("runc: %w", err)
	}
	state := cmd.ProcessState
	done.usage.User, done.usage.System = state.UserTime(), state.SystemTime()
	done.code = state.ExitCode()
	lost := done.code < 0 // runc itself was killed
	if lost {
		done.code = 128 + int(syscall.SIGKILL)
	}
	// Signals have the numbers up to 64: what is more is the command's own.
	done.signaled = done.code > 128 && done.code <= 128+64
	if lost || ctx.Err() != nil {
		o.cgroups.kill(name)
	}
	err = o.forget(name)
	if lost {
		err = errors.Join(err, o.cgroups.removeEverywhere(name))
	}
	return done, errors.Join(err, o.complaint(logName, done.code))
}

func (o *openRunc) command(args ...string) *exec.Cmd {
	cmd := exec.Command(o.program, append([]string{"--root", filepath.Join(o.dir, stateDir)}, args...)...)
	cmd.Dir = "/"
	// Nothing more: it would have the container notify systemd in our place, and pass descriptors on.
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true}
	return cmd
}

// killInterval is how long after an attempt to kill a container the next one is made: it may not
// have been there yet. killTries is after how many runc itself is killed.
const (
	killInterval = 20 * time.Millisecond
	killTries    = 250
)

// kill ends a container until the runc that runs it has ended, which cleans up then. It kills what is in the cgroup,
// and does not ask runc to: that would take a container that is still being made for none.
func (o *openRunc) kill(name string, p *os.Process, ending <-chan struct{}) {
	for try := 0; ; try++ {
		o.cgroups.kill(name)
		if try >= killTries {
			_ = p.Kill()
		}
		select {
		case <-ending:
			return
		case <-time.After(killInterval):
		}
	}
}

// forget removes what runc keeps of a container, if it has left anything when it ended. runc itself gives up where a
// cgroup or a state is not as it expects; the processes are ended with the step's cgroups.
func (o *openRunc) forget(name string) error {
	dir := filepath.Join(o.dir, stateDir, name)
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	cmd := o.command("delete", "--force", name)
	if o.stepNamespace.Start(cmd) == nil {
		_ = cmd.Wait()
	}
	return os.RemoveAll(dir)
}

// complaint is the error that runc has logged, if it was runc that failed.
func (o *openRunc) complaint(logName string, code int) error {
	if code == 0 {
		return nil
	}
	b, err := os.ReadFile(logName)
	if err != nil {
		return nil //nolint:nilerr // nothing was logged
	}
	for _, line := range bytes.Split(b, []byte("\n")) {
		var entry struct{ Level, Msg string }
		if json.Unmarshal(line, &entry) != nil || entry.Level != "error" {
			continue
		}
		if strings.Contains(entry.Msg, "executable file not found") || strings.Contains(entry.Msg, "no such file or directory") && strings.Contains(entry.Msg, "exec") {
			return &startError{127, errors.New(entry.Msg)}
		}
		if strings.Contains(entry.Msg, "permission denied") && strings.Contains(entry.Msg, "exec") || strings.Contains(entry.Msg, "exec format error") {
			return &startError{126, errors.New(entry.Msg)}
		}
		return fmt.Errorf("runc: %s", entry.Msg)
	}
	return nil
}

// configVersion is the version of the specification that config.json follows.
const configVersion = "1.0.2"

// config returns the config.json of a job, and attaches its mounts in the step namespace.
func (o *openRunc) config(j *job, cgroup string) ([]byte, error) {
	root, err := j.root.Attach(o.stepNamespace, "")
	if err != nil {
		return nil, err
	}
	mounts, err := o.configMounts(j)
	if err != nil {
		return nil, err
	}
	process, err := configProcess(j.step)
	if err != nil {
		return nil, err
	}
	filter, err := seccomp.Profile(capabilityNames())
	if err != nil {
		return nil, err
	}
	return json.Marshal(specs.Spec{
		Version: configVersion, Hostname: hostname, Root: &specs.Root{Path: root}, Mounts: mounts, Process: process,
		Linux: &specs.Linux{
			CgroupsPath: cgroup, Namespaces: configNamespaces(j.step), ReadonlyPaths: readOnlyProc, MaskedPaths: hiddenProc, Seccomp: filter,
			Resources: &specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}},
		},
	})
}

// configMounts returns the file systems of the sandbox, and then what the step asks for.
func (o *openRunc) configMounts(j *job) ([]specs.Mount, error) {
	pts := append([]string{"nosuid", "noexec", fmt.Sprintf("gid=%d", ptsGroup)}, strings.Split(ptsOptions, ",")...)
	empty := append([]string{"ro", "nosuid", "nodev", "noexec"}, strings.Split(emptyOptions, ",")...)
	mounts := []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "nodev", "noexec"}},
		{Destination: "/dev", Type: "tmpfs", Source: o.mark, Options: []string{"nosuid", "mode=755", "size=64m"}},
		{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "nodev", "mode=1777", "size=64m"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: pts},
		{Destination: "/sys", Type: "tmpfs", Source: "tmpfs", Options: empty},
	}
	for i, m := range j.step.Mounts {
		options := []string{"nosuid", "nodev"}
		if m.ReadOnly {
			options = append(options, "ro")
		}
		h := j.binds[i]
		if h == nil {
			mounts = append(mounts, specs.Mount{Destination: m.Target, Type: "tmpfs", Source: "tmpfs", Options: append(options, "mode=1777")})
			continue
		}
		at, err := h.Attach(o.stepNamespace, "")
		if err != nil {
			return nil, fmt.Errorf("mount at %s: %w", m.Target, err)
		}
		mounts = append(mounts, specs.Mount{Destination: m.Target, Type: "bind", Source: at, Options: append(options, "rbind", "rprivate")})
	}
	return mounts, nil
}

func configProcess(s *Step) (*specs.Process, error) {
	list, err := resourceLimits()
	if err != nil {
		return nil, err
	}
	limits := make([]specs.POSIXRlimit, len(list))
	for i, l := range list {
		limits[i] = specs.POSIXRlimit{Type: l.name, Soft: l.Cur, Hard: l.Max}
	}
	names, umask := capabilityNames(), uint32(0o022)
	caps := &specs.LinuxCapabilities{Bounding: names}
	if s.User.UID == 0 {
		caps.Effective, caps.Permitted = names, names
	}
	return &specs.Process{
		Args: s.Command, Env: s.Env, Cwd: s.Dir, NoNewPrivileges: !s.NewPrivileges, Capabilities: caps, Rlimits: limits,
		User: specs.User{UID: s.User.UID, GID: s.User.GID, AdditionalGids: s.User.Groups, Umask: &umask},
	}, nil
}

func configNamespaces(s *Step) []specs.LinuxNamespace {
	list := []specs.LinuxNamespace{
		{Type: specs.PIDNamespace}, {Type: specs.MountNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace}, {Type: specs.CgroupNamespace},
	}
	if s.Network == NetworkNone {
		list = append(list, specs.LinuxNamespace{Type: specs.NetworkNamespace})
	}
	return list
}
