package step

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/seccomp"
)

// initName is what the program is called that is to become the first process of a step.
const initName = "holdfast-step-init"

// Descriptors of that program. Those of mounts follow.
const (
	initOrders = 3 // where it reads what to do
	initReport = 4 // where it writes why it could not; closed when the command begins
	initSelf   = 5 // the program itself
	initMounts = 6
)

// initPids is how many threads it can have. A lower limit is set when it is ready to become the command.
const initPids = 32

// initReady is what it says then. (A report begins otherwise.)
const initReady = 'r'

// orders are what it reads.
type orders struct {
	Box     sandbox
	Command []string
	Env     []string
	Search  []string
	User    User
	Groups  bool   // groups can be set
	Filter  []byte // of system calls
	Cgroups int    // the flag of a namespace of cgroups
	Stdin   bool   // it has a standard input
	Wait    bool   // say when all is done, and wait for the end of the orders before the command begins
}

// report is what it writes.
type report struct {
	Code int // of a startError; 0: another error
	Text string
}

// Init must be the first call in the main function of each program that runs steps: where the kernel lacks
// what Native prefers, the program is started again as the first process of a step, and Init then does not
// return. Otherwise it does nothing.
func Init() {
	if os.Args[0] != initName {
		return
	}
	runtime.LockOSThread()
	err := become()
	rep := report{Text: err.Error()}
	var start *startError
	if errors.As(err, &start) {
		rep.Code = start.code
	}
	b, _ := json.Marshal(rep)
	_, _ = unix.Write(initReport, b)
	os.Exit(1)
}

// become does what the orders say, and returns only if that fails.
func become() error {
	// Until the command begins no other process may look into this one, or take descriptors from it.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("dumpable: %w", err)
	}
	in := os.NewFile(initOrders, "orders")
	var o orders
	if err := json.NewDecoder(in).Decode(&o); err != nil {
		return fmt.Errorf("orders: %w", err)
	}
	if !o.Wait {
		_ = in.Close()
	}
	if err := closeOnExec(); err != nil {
		return err
	}
	if err := unix.Unshare(o.Cgroups); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if o.Box.Loopback {
		if err := loopbackUp(); err != nil {
			return err
		}
	}
	if err := unix.Sethostname([]byte(hostname)); err != nil {
		return fmt.Errorf("sethostname: %w", err)
	}
	unix.Umask(0)
	if err := o.Box.enter(); err != nil {
		return err
	}
	unix.Umask(0o022)
	o.closeMounts()
	if !o.Stdin {
		if err := ownNull(); err != nil {
			return err
		}
	}
	name, err := find(o.Command[0], o.Box.Dir, o.Search)
	if err != nil {
		return err
	}
	if err := unix.Chdir(o.Box.Dir); err != nil {
		return fmt.Errorf("working directory: %w", err)
	}
	if err := o.confine(); err != nil {
		return err
	}
	if err := install(o.Filter); err != nil {
		return err
	}
	if o.Wait {
		if err := awaitEnd(in); err != nil {
			return err
		}
	}
	err = whileBusy(func() error { return syscall.Exec(name, o.Command, o.Env) })
	return &startError{126, fmt.Errorf("%s: %w", name, err)}
}

// confine limits this process, and makes it the user of the command.
func (o *orders) confine() error {
	if err := limitResources(); err != nil {
		return err
	}
	if o.Box.Userns {
		if err := limitProcesses(); err != nil {
			return err
		}
	}
	if err := confine(); err != nil {
		return err
	}
	if err := ownKeyring(); err != nil {
		return err
	}
	return o.become()
}

// install installs an encoded filter.
func install(filter []byte) error {
	f, err := seccomp.Parse(filter)
	if err == nil {
		err = f.Install()
	}
	return err
}

// awaitEnd says that the command can begin, and waits until it may.
func awaitEnd(orders *os.File) error {
	if _, err := unix.Write(initReport, []byte{initReady}); err != nil {
		return fmt.Errorf("the report: %w", err)
	}
	if _, err := io.ReadAll(orders); err != nil {
		return fmt.Errorf("orders: %w", err)
	}
	return orders.Close()
}

// closeMounts closes what only entering the sandbox needed, and the program itself: when the command is executed it is
// looked for by a path, which can lead to a descriptor of this process.
func (o *orders) closeMounts() {
	_ = unix.Close(initSelf)
	_ = unix.Close(o.Box.Root)
	for _, fd := range mountFDs(o.Box.Mounts) {
		if *fd >= 0 {
			_ = unix.Close(*fd)
		}
	}
}

// ownNull has the command read the sandbox's /dev/null. With that of the host it could change the mode of the host's
// device, as root.
func ownNull() error {
	fd, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("standard input: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.Dup3(fd, 0, 0); err != nil {
		return fmt.Errorf("standard input: %w", err)
	}
	return nil
}

// become takes on the user.
func (o *orders) become() error {
	if o.Groups {
		groups := make([]int, len(o.User.Groups))
		for i, g := range o.User.Groups {
			groups[i] = int(g)
		}
		if err := syscall.Setgroups(groups); err != nil {
			return fmt.Errorf("groups: %w", err)
		}
	}
	uid, gid := int(o.User.UID), int(o.User.GID)
	if err := syscall.Setresgid(gid, gid, gid); err != nil {
		return fmt.Errorf("group %d (in a user namespace it must be mapped): %w", gid, err)
	}
	if err := syscall.Setresuid(uid, uid, uid); err != nil {
		return fmt.Errorf("user %d (in a user namespace it must be mapped): %w", uid, err)
	}
	// Another user is another process to the kernel: it forgets what was to happen when the one above ends.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("the signal at the end: %w", err)
	}
	return nil
}

// closeOnExec keeps what this program has open from the command.
func closeOnExec() error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range entries {
		var fd int
		if _, err := fmt.Sscan(e.Name(), &fd); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

// byInit starts this program again, which becomes the command.
func (r *nativeRun) byInit(ctx context.Context, t *thread) (done ended, err error) {
	s := r.job.step
	if err := r.awaitGroups(); err != nil {
		return done, err
	}
	ordersIn, ordersOut, err := os.Pipe()
	if err != nil {
		return done, err
	}
	defer ordersOut.Close()
	defer ordersIn.Close()
	reportIn, reportOut, err := os.Pipe()
	if err != nil {
		return done, err
	}
	defer reportIn.Close()
	defer reportOut.Close()
	self, err := r.self.copy()
	if err != nil {
		return done, err
	}
	defer self.Close()
	in := r.null
	if r.job.in != nil {
		in = r.job.in
	}
	files := []*os.File{in, r.job.out, r.job.out, ordersIn, reportOut, self}
	o := r.orders()
	files = append(files, r.files...)
	flags := uintptr(syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS)
	if s.Network == NetworkNone {
		flags |= syscall.CLONE_NEWNET
		o.Box.Loopback = true
	}
	attr := &os.ProcAttr{
		Dir: "/", Env: []string{"GOMAXPROCS=1", "GOGC=off"}, Files: files,
		Sys: &syscall.SysProcAttr{Cloneflags: flags, Pdeathsig: syscall.SIGKILL, Setsid: true},
	}
	p, err := r.startInit(t, attr)
	_ = ordersIn.Close()
	_ = reportOut.Close()
	for _, f := range r.files {
		_ = f.Close()
	}
	if err != nil {
		return done, fmt.Errorf("starting the init of a step: %w", err)
	}
	rep, err := r.command(ctx, p, o, ordersOut, reportIn)
	if err != nil || len(rep) > 0 {
		_ = p.Kill()
		_, _ = p.Wait()
		if err == nil {
			err = parseReport(rep)
		}
		return done, err
	}
	return waitFor(ctx, p)
}

// orders tells the init what to do. The descriptors in it are those that the init will have.
func (r *nativeRun) orders() *orders {
	s := r.job.step
	o := &orders{Box: *r.box, Command: s.Command, Env: s.Env, Search: s.searchPath(), User: s.User, Groups: !r.userns || mayGroups(), Filter: r.filter.Bytes(), Cgroups: int(r.cgroupns), Stdin: r.job.in != nil,
		Wait: r.group.limits.Pids > 0 && r.group.limits.Pids < initPids}
	o.Box.Mounts = slices.Clone(o.Box.Mounts)
	at := initMounts
	for _, fd := range append([]*int{&o.Box.Root}, mountFDs(o.Box.Mounts)...) {
		if *fd >= 0 {
			*fd = at
			at++
		}
	}
	return o
}

// startInit starts the init in the cgroups of the step, where the thread t does not stay.
func (r *nativeRun) startInit(t *thread, attr *os.ProcAttr) (p *os.Process, err error) {
	if err = r.place.join(attr.Sys); err == nil {
		p, err = os.StartProcess(fmt.Sprintf("/proc/self/fd/%d", initSelf), []string{initName}, attr)
	}
	if left := r.leavePlace(t); left != nil {
		if p != nil {
			_ = p.Kill()
			_, _ = p.Wait()
		}
		err = errors.Join(err, left)
	}
	return p, err
}

// command gives an init its orders, and returns its report: empty when the command has begun.
func (r *nativeRun) command(ctx context.Context, p *os.Process, o *orders, to, from *os.File) ([]byte, error) {
	if err := r.place.move(p.Pid); err != nil {
		return nil, err
	}
	if err := r.group.bound(initPids); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = p.Kill() })
	defer stop()
	r.job.begun()
	b, err := json.Marshal(o)
	if err == nil {
		_, err = to.Write(b)
	}
	var rep []byte
	if err == nil && o.Wait {
		rep, err = r.ready(from)
	}
	if err == nil {
		err = to.Close()
	}
	if err != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("the orders of a step's init: %w", err)
	}
	rest, err := io.ReadAll(from)
	if err != nil {
		return nil, fmt.Errorf("the report of a step's init: %w", err)
	}
	return append(rep, rest...), nil
}

// ready waits until an init is ready to become the command, and sets the limit of processes then. It returns
// what it has read of a report of something else.
func (r *nativeRun) ready(from *os.File) ([]byte, error) {
	b := make([]byte, 1)
	n, err := from.Read(b)
	if err != nil || b[0] != initReady {
		return b[:n], nil // that it has ended, or why, is found out later
	}
	return nil, r.group.bound(0)
}

func parseReport(b []byte) error {
	var rep report
	if err := json.Unmarshal(b, &rep); err != nil {
		return fmt.Errorf("the report of a step's init: %w", err)
	}
	err := errors.New(rep.Text)
	if rep.Code != 0 {
		return &startError{rep.Code, err}
	}
	return fmt.Errorf("the init of a step: %w", err)
}

func mountFDs(mounts []sandboxMount) []*int {
	fds := make([]*int, len(mounts))
	for i := range mounts {
		fds[i] = &mounts[i].FD
	}
	return fds
}

// mayGroups tells whether groups can be set in the user namespace of the process.
func mayGroups() bool {
	b, err := os.ReadFile("/proc/self/setgroups")
	return err == nil && strings.TrimSpace(string(b)) == "allow"
}
