package step

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/moby/sys/userns"
	"golang.org/x/sys/unix"

	"holdfast/worker/internal/seccomp"
)

// Native is the runtime that makes namespaces by itself: mount, pid, ipc, uts, and net unless a
// step has the host's. The command is the first process of its pid namespace, with no
// new privileges, few capabilities, and a filter of system calls: the default profile of Docker.
//
// Descriptors that the process has inherited are closed in all programs that it starts from then on.
//
// In a user namespace it works as far as the kernel lets it: steps run as users that are mapped
// there, and devices are those of the host.
func Native() Runtime { return native{} }

type native struct {
	init  bool // steps begin with Init, also where the kernel could do without it
	plain bool // steps have no user namespaces
}

func (native) Name() string { return nativeName }

func (n native) open(e *environment) (opened, error) {
	if err := seccomp.Available(); err != nil {
		return nil, fmt.Errorf("%w: %w", err, errors.ErrUnsupported)
	}
	o := &openNative{environment: e, userns: userns.RunningInUserNS()}
	var err error
	if o.filter, err = stepFilter(); err != nil {
		return nil, err
	}
	if o.limits, err = resourceLimits(); err != nil {
		return nil, err
	}
	if err = o.openFiles(); err != nil {
		o.close()
		return nil, err
	}
	o.openGroups()
	// What the process has inherited itself is not for steps.
	if err := closeOnExec(); err != nil {
		o.close()
		return nil, err
	}
	if o.byInit = n.init || o.userns; o.byInit {
		return o, nil
	}
	if err = o.canStop(); err != nil {
		o.byInit = true
		level := slog.LevelWarn
		if o.usersOff { // as was wanted
			level = slog.LevelInfo
		}
		e.log.Log(context.Background(), level, "a step begins with this program, which takes some milliseconds more and has no user namespace", "reason", err)
		return o, nil
	}
	if n.plain {
		o.usersOff = true
	}
	if o.users, err = o.openUsers(); err != nil && !errors.Is(err, errOff) {
		level := slog.LevelWarn
		if errors.Is(err, errZFS) { // what nothing can be done about
			level = slog.LevelInfo
		}
		e.log.Log(context.Background(), level, "steps have no user namespace: root in a step is root of the machine, without its capabilities", "reason", err)
	}
	if o.hollow, err = openHollow(o.space, o.root); err != nil {
		o.close()
		return nil, fmt.Errorf("an empty mount namespace: %w", err)
	}
	o.networks = o.newNetworks()
	return o, nil
}

// openFiles opens what steps are started with.
func (o *openNative) openFiles() error {
	err := o.stepNamespace.Do(func() (err error) {
		o.space, err = os.Open("/proc/thread-self/ns/mnt")
		return err
	})
	if err == nil {
		o.null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0)
	}
	if err == nil {
		o.net, err = os.Open("/proc/self/ns/net")
	}
	if err == nil {
		o.ipc, err = os.Open("/proc/self/ns/ipc")
	}
	if err == nil {
		o.proc, err = os.Open("/proc")
	}
	if err == nil {
		o.self, err = openProgram()
	}
	return err
}

// canStop is why a command cannot be started so that it stops before its first instruction and is given
// then what it could not have before: its own init has to do that. A process of the step has to mount /proc
// where the kernel cannot be told whose processes it is to show (before 6.18), and cannot be stopped where
// tracing is forbidden.
func (o *openNative) canStop() error {
	err := canProc()
	if err == nil {
		err = canTrace()
	}
	if err == nil {
		err = canInject()
	}
	if err == nil && o.places.v2() && !o.places.clone {
		err = fmt.Errorf("a process cannot begin in a cgroup: clone3: %w", unix.ENOSYS)
	}
	return err
}

// openGroups finds out which groups and namespaces of cgroups steps can have.
func (o *openNative) openGroups() {
	o.places = o.cgroups.openPlaces()
	if _, err := os.Stat("/proc/self/ns/cgroup"); err == nil {
		o.cgroupns = syscall.CLONE_NEWCGROUP
	}
	probe, err := o.cgroups.make("probe", &Limits{Pids: DefaultPids})
	if err = errors.Join(err, probe.remove()); err == nil {
		o.pids = DefaultPids
	}
	if !o.userns && (err != nil || len(o.places.in) == 0) {
		o.log.Warn("steps have no cgroups of their own, or no limit of processes", "cgroups", len(o.places.in), "reason", err)
	}
}

type openNative struct {
	*environment
	userns, byInit              bool
	space, net, ipc, null, proc *os.File
	hollow                      *os.File // a mount namespace without anything; nil if steps begin with Init
	self                        *program
	filter                      seccomp.Filter // of system calls, for each command
	limits                      []resourceLimit

	networks *networks // nil if steps begin with Init
	users    *users    // nil if steps have no user namespace
	places   *places
	pids     int64   // the limit of processes that steps have; 0: none can be had
	cgroupns uintptr // the flag of a namespace of cgroups; 0: the kernel has none

	mu      sync.Mutex
	idle    []*thread // started, and without a job
	serving sync.WaitGroup
}

func (o *openNative) close() {
	o.closeThreads()
	o.networks.close() // they use /proc
	for _, f := range []*os.File{o.space, o.hollow, o.net, o.ipc, o.null, o.proc} {
		if f != nil {
			_ = f.Close()
		}
	}
	o.self.close()
	o.places.close()
	o.users.close()
}

// prepare has the cgroups of a job made, and, for one that begins without Init, the file systems of its sandbox.
func (o *openNative) prepare(j *job) prepared {
	r := &nativeRun{openNative: o, job: j, made: make(chan groups, 1), parts: make(chan madeParts, 1)}
	name, limits := fmt.Sprintf("%s-%d", j.id.String()[:16], j.serial), j.step.Limits
	go func() { r.made <- o.groups(name, limits) }()
	if o.byInit {
		r.parts <- madeParts{parts: noParts}
		return r
	}
	go func() {
		p, err := makeParts(o.mark, true, j.ids)
		r.parts <- madeParts{p, err}
	}()
	return r
}

// drop removes what has been made for a job that is not run.
func (r *nativeRun) drop() error {
	if r.begun {
		return nil
	}
	p, g := <-r.parts, <-r.made
	p.close()
	return g.remove()
}

// run runs the job.
func (r *nativeRun) run(ctx context.Context) (done ended, err error) {
	r.begun = true
	made := <-r.parts
	defer made.close()
	defer func() {
		_ = r.awaitGroups()
		r.group.measure(&done)
		removed := make(chan error, 1)
		go func() { removed <- r.groups.remove() }()
		done.remove = func() error { return <-removed }
	}()
	j := r.job
	r.box, r.files, err = r.sandbox(j)
	defer func() {
		for _, f := range r.files {
			_ = f.Close()
		}
	}()
	if err = errors.Join(err, made.err); err != nil {
		return done, err
	}
	if err := r.ownOutput(); err != nil {
		return done, err
	}
	onThread := r.openNative.onThread
	if j.step.NewPrivileges {
		onThread = r.onThreadOnce
	}
	err = onThread(func(t *thread) (err error) {
		if r.openNative.byInit {
			done, err = r.byInit(ctx, t)
		} else {
			done, err = r.onThread(ctx, t, &made.parts)
		}
		return err
	})
	return done, err
}

// sandbox says what a job's command is to see, with clones of the mounts, which are to be closed.
func (o *openNative) sandbox(j *job) (*sandbox, []*os.File, error) {
	b := &sandbox{Point: o.root, Mark: o.mark, Userns: o.userns, IDs: j.ids, Dir: j.step.Dir}
	root, err := j.root.Clone()
	if err != nil {
		return nil, nil, err
	}
	files := []*os.File{root}
	b.Root = int(root.Fd())
	for i, m := range j.step.Mounts {
		s := sandboxMount{FD: -1, Target: m.Target, RO: m.ReadOnly}
		if h := j.binds[i]; h != nil {
			f, err := h.Clone()
			if err != nil {
				return nil, files, err
			}
			files = append(files, f)
			s.FD, s.Plain = int(f.Fd()), j.ids.Set() && !h.MapsIDs()
		}
		b.Mounts = append(b.Mounts, s)
	}
	return b, files, nil
}

// nativeRun is one job on its way.
type nativeRun struct {
	*openNative
	job   *job
	box   *sandbox
	files []*os.File
	begun bool // run was called
	parts chan madeParts
	entry *entry // of its user namespace; nil: it has none
	made  chan groups
	groups
}

// awaitGroups waits until the groups are made.
func (r *nativeRun) awaitGroups() error {
	if r.group == nil && r.groups.err == nil {
		r.groups = <-r.made
	}
	return r.groups.err
}

// leavePlace has the thread leave the groups in which it has started a command.
func (r *nativeRun) leavePlace(t *thread) error {
	if r.place == nil {
		return nil // it has not joined one
	}
	err := r.place.leave()
	t.spent = t.spent || err != nil
	return err
}

// onThread makes the namespaces on the calling thread, and has it start the command. That stops before its
// first instruction, where it is put into its group and gets its /proc.
func (r *nativeRun) onThread(ctx context.Context, t *thread, made *parts) (done ended, err error) {
	if err := t.leaveHome(r.job.step.Network); err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, t.goBack()) }()
	if err := r.enter(*made); err != nil {
		t.spent = t.spent || r.job.ids.Set() // it may not have become again who it was
		return done, err
	}
	p, err := r.start()
	if left := r.leavePlace(t); p == nil || left != nil {
		if p != nil {
			_ = p.Kill()
			_, _ = p.Wait()
		}
		return done, errors.Join(err, left)
	}
	go r.job.root.Entrust() // it goes with the command then
	bounded := make(chan error, 1)
	go func() { bounded <- r.group.bound(0) }() // elsewhere: this thread does not see the cgroups
	err = r.settle(p.Pid, made)
	made.close()
	if err == nil {
		err = t.goBack() // before the command begins: what it leaves is then its alone
	}
	if err = errors.Join(err, <-bounded); err == nil {
		r.job.begun()
		if err = unix.PtraceDetach(p.Pid); err != nil {
			err = fmt.Errorf("letting the command run: %w", err)
		}
	}
	if err != nil {
		_ = p.Kill()
		_, _ = p.Wait()
		return done, err
	}
	return waitFor(ctx, p)
}

// start starts the command in the sandbox that the thread is in.
func (r *nativeRun) start() (*os.Process, error) {
	s := r.job.step
	name, err := find(s.Command[0], s.Dir, s.searchPath())
	if err != nil {
		return nil, err
	}
	in := r.job.in
	if in == nil {
		// With the host's /dev/null as its standard input, root in a step could change the mode of the host's device.
		if in, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
			return nil, err
		}
		defer in.Close()
	}
	attr := &os.ProcAttr{
		Dir: s.Dir, Env: append([]string{}, s.Env...), Files: []*os.File{in, r.job.out, r.job.out},
		Sys: &syscall.SysProcAttr{
			Cloneflags: syscall.CLONE_NEWPID, Unshareflags: r.cgroupns, Pdeathsig: syscall.SIGKILL, Setsid: true, Ptrace: true,
		},
	}
	release, err := r.asUser(attr)
	if err != nil {
		return nil, err
	}
	defer release()
	if err := r.awaitGroups(); err != nil {
		return nil, err
	}
	if err := r.place.join(attr.Sys); err != nil {
		return nil, err
	}
	var p *os.Process
	err = whileBusy(func() (err error) {
		p, err = os.StartProcess(name, s.Command, attr)
		return err
	})
	if err != nil {
		return nil, &startError{126, err}
	}
	return p, nil
}

// busyTries is how often a program is tried to be executed that is open for writing, a millisecond apart.
const busyTries = 200

// whileBusy tries to execute a program. A child that has just become another program can still be closing
// what waitForks was about.
func whileBusy(execute func() error) error {
	for try := 0; ; try++ {
		err := execute()
		if !errors.Is(err, unix.ETXTBSY) || try == busyTries {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// settle waits until a command has stopped, and gives it what it could not have before it was there.
func (r *nativeRun) settle(pid int, made *parts) error {
	if err := stopped(pid); err != nil {
		return err
	}
	// Should this process be killed now, the command must not go on as what it is yet.
	if err := unix.PtraceSetOptions(pid, unix.PTRACE_O_EXITKILL); err != nil {
		return fmt.Errorf("tracing the command: %w", err)
	}
	limits, err := limitOther(pid, r.limits)
	if err != nil {
		return err
	}
	proc, err := r.procOf(pid)
	if err != nil {
		return err
	}
	defer unix.Close(proc)
	// To mount all that takes as long as what the command does meanwhile, and neither needs the other.
	return stoppedProgram{pid, r.proc}.inject(r.filter, limits, r.entry, func() error {
		if r.job.step.NewPrivileges {
			if err := allowSetID(); err != nil {
				return err
			}
		}
		return made.attachProc(proc)
	})
}

// stoppedProgram is a process that the calling thread traces.
type stoppedProgram struct {
	pid  int
	proc *os.File // the machine's /proc
}

// procOf makes a detached /proc for the pid namespace of a process.
func (r *nativeRun) procOf(pid int) (fd int, err error) {
	space, err := unix.Openat(int(r.proc.Fd()), strconv.Itoa(pid)+"/ns/pid", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("the command's namespace: %w", err)
	}
	defer unix.Close(space)
	return newProc(space)
}

// stopped waits until a process that the calling thread traces has stopped at a trap.
func stopped(pid int) error {
	var status unix.WaitStatus
	for {
		_, err := unix.Wait4(pid, &status, 0, nil)
		if err == nil {
			break
		}
		if err != unix.EINTR {
			return fmt.Errorf("waiting for the command to stop: %w", err)
		}
	}
	if status.Stopped() && status.StopSignal() != unix.SIGTRAP {
		// The kernel, or the first instruction, does not find what the file promises.
		return &startError{126, fmt.Errorf("no program that can be executed: it is stopped by the signal %v", status.StopSignal())}
	}
	if !status.Stopped() {
		return fmt.Errorf("the command did not stop at its beginning, but: status %#x", int(status))
	}
	return nil
}

// waitFor waits for a process, and kills it when ctx ends. All processes of its namespace have ended then.
func waitFor(ctx context.Context, p *os.Process) (done ended, err error) {
	stop := context.AfterFunc(ctx, func() { _ = p.Kill() })
	defer stop()
	state, err := p.Wait()
	if err != nil {
		return done, fmt.Errorf("waiting for the command: %w", err)
	}
	status, _ := state.Sys().(syscall.WaitStatus)
	done.code = state.ExitCode()
	if status.Signaled() {
		done.signaled, done.code = true, 128+int(status.Signal())
	}
	done.usage = Usage{User: state.UserTime(), System: state.SystemTime()}
	return done, nil
}
