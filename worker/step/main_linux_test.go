package step

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast"
	"holdfast/worker/internal/testing/denial"
	"holdfast/worker/mount"
	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/overlay"
)

// base is the directory below which all tests work.
var base string

// helpers are what this program does in place of tests when another run of it has started it.
var helpers = map[string]func(){}

const (
	envHelper = "HOLDFAST_STEP_HELPER"
	envInner  = "HOLDFAST_STEP_INNER" // the program is in a mount namespace of its own
)

func TestMain(m *testing.M) {
	Init()
	if name := os.Getenv(envHelper); name != "" {
		if err := fewProcesses(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		helpers[name]()
		os.Exit(0)
	}
	if os.Geteuid() == 0 && os.Getenv(envInner) == "" {
		os.Exit(inner())
	}
	os.Exit(run1(m))
}

// inner runs this program again in a mount namespace of its own: what the tests mount ends with it.
func inner() int {
	runtime.LockOSThread() // with the thread that has started it, the program would be killed
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), envInner+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if err := inheritAll(); err != nil { // capabilities that steps must not inherit either
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if dir, err := os.Open("/usr"); err == nil { // a descriptor that steps must not inherit from the program
		cmd.ExtraFiles = []*os.File{dir}
		defer dir.Close()
	}
	err := cmd.Run()
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		return max(ended.ExitCode(), 1)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// inheritAll has programs inherit all capabilities of the thread, as some services and containers do.
func inheritAll() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	for i := range data {
		data[i].Inheritable = data[i].Permitted
	}
	if err := unix.Capset(&header, &data[0]); err != nil {
		return err
	}
	return unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, unix.CAP_SYS_ADMIN, 0, 0)
}

// run1 runs the tests, and fails if they leave anything.
func run1(m *testing.M) int {
	var err error
	if name := os.Getenv(envDeny); name != "" {
		err = denial.Install(denials[name].deny)
	}
	if os.Geteuid() == 0 && err == nil {
		err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	}
	dir, e := os.MkdirTemp("", "holdfast-step-")
	err = errors.Join(err, e)
	if err == nil {
		base, err = filepath.EvalSymlinks(dir)
	}
	if err == nil {
		err = os.Setenv("TMPDIR", base)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	for _, name := range usedCgroups { // of Runners that are closed
		dirs, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup/*", name))
		for _, d := range append(dirs, filepath.Join("/sys/fs/cgroup", name)) {
			if _, err := os.Stat(d); err == nil {
				fmt.Fprintln(os.Stderr, "FAIL: the tests have left", d)
				code = 1
			}
		}
	}
	if left := leftovers(); len(left) > 0 {
		fmt.Fprintf(os.Stderr, "FAIL: the tests have left:\n%s\n", strings.Join(left, "\n"))
		code = 1
	}
	if err := os.RemoveAll(base); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// leftovers lists what steps could leave: mounts of files below base in any mount namespace, processes of
// which one sees the mark of a test, cgroups.
func leftovers() []string {
	var left []string
	processes, _ := filepath.Glob("/proc/[0-9]*")
	seen := map[string]bool{}
	for _, p := range processes {
		if env, err := os.ReadFile(p + "/environ"); err == nil && strings.Contains(string(env), "HOLDFAST_STEP_MARK="+base) {
			cmdline, _ := os.ReadFile(p + "/cmdline")
			left = append(left, fmt.Sprintf("process %s: %q", p, cmdline))
		}
		ns, err := os.Readlink(p + "/ns/mnt")
		if err != nil || seen[ns] {
			continue
		}
		b, err := os.ReadFile(p + "/mountinfo")
		if err != nil {
			continue
		}
		seen[ns] = true
		for _, line := range strings.Split(string(b), "\n") {
			if strings.Contains(line, base) {
				left = append(left, ns+" of "+p+": "+line)
			}
		}
	}
	for _, name := range usedCgroups {
		for _, where := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
			groups, _ := filepath.Glob(filepath.Join(where, name, "*-*"))
			left = append(left, groups...)
		}
	}
	return left
}

// usedCgroups are the names of all cgroups that tests had.
var usedCgroups []string

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("left out: running steps needs root")
	}
}

func contextOf(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 120*time.Second)
	t.Cleanup(cancel)
	return ctx
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// stand is a Runner with a store and a base of busybox.
type stand struct {
	testing.TB
	*Runner
	ctx    context.Context
	dir    string
	opt    Options
	driver snapshot.Driver
	sync   snapshot.SyncMode
	mopt   mount.Options
	dur    holdfast.Durability

	store     *snapshot.Store
	namespace *snapshot.Namespace
	mounts    *mount.Manager
}

// way is that of steps that name no runtime.
func (s *stand) way() *way {
	w, err := s.wayOf(&Step{})
	if err != nil {
		s.Fatal(err)
	}
	return w
}

func newStand(t testing.TB, o Options) *stand {
	t.Helper()
	needRoot(t)
	s := &stand{TB: t, ctx: contextOf(t), dir: t.TempDir(), opt: o}
	s.prepare()
	s.open()
	t.Cleanup(s.close)
	s.busybox("base")
	return s
}

func (s *stand) prepare() {
	s.driver, s.dur, s.sync = overlay.New("volatile"), holdfast.None, snapshot.SyncDeferred
}

func (s *stand) root() string { return filepath.Join(s.dir, "store") }

// open opens everything.
func (s *stand) open() {
	s.Helper()
	for {
		// A child that a killed process was about to start has its locks until it is another program.
		err := s.tryOpen()
		if errors.Is(err, snapshot.ErrLocked) && s.ctx.Err() == nil {
			time.Sleep(time.Millisecond)
			continue
		}
		must(s, err)
		return
	}
}

func (s *stand) tryOpen() (err error) {
	if s.opt.Logger == nil {
		s.opt.Logger = quiet
	}
	if s.store, err = snapshot.Open(s.root(), snapshot.Options{Driver: s.driver, Sync: s.sync, Durability: s.dur}); err != nil {
		return err
	}
	o := s.mopt
	o.Directory, o.Keep, o.Logger = filepath.Join(s.dir, "run"), []string{s.root()}, quiet
	o.Cgroups = Cgroups(DefaultCgroup(s.root()))
	usedCgroups = append(usedCgroups, DefaultCgroup(s.root()))
	if s.mounts, err = mount.Open(s.ctx, o); err != nil {
		return err
	}
	if s.namespace, err = s.store.Namespace("t"); err != nil {
		return err
	}
	s.opt.Namespace, s.opt.Mounts, s.opt.Durability = s.namespace, s.mounts, s.dur
	s.Runner, err = New(s.ctx, s.opt)
	return err
}

func (s *stand) close() {
	s.Helper()
	if s.Runner != nil {
		if err := s.Runner.Close(); err != nil {
			s.Error(err)
		}
	}
	if s.store == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := s.mounts.Close(ctx); err != nil {
		s.Errorf("%v; pending: %+v", err, s.mounts.Pending())
	}
	if err := s.store.Close(); err != nil {
		s.Error(err)
	}
}

// applets are the commands of the base.
var applets = strings.Fields("sh true false cat find cp mv echo ls id pwd env sleep kill mkdir rm dd ln mknod touch test wc hostname ip ps stat head yes chmod grep mount chroot su nc seq readlink sync unshare")

// busybox commits a base with busybox and what a step looks for.
func (s *stand) busybox(name string) {
	s.Helper()
	must(s, makeBusybox(s.ctx, s.namespace, s.mounts, name))
}

func makeBusybox(ctx context.Context, namespace *snapshot.Namespace, mounts *mount.Manager, name string) error {
	program, err := exec.LookPath("busybox")
	if err != nil {
		return fmt.Errorf("the tests need Debian's package busybox-static: %w", err)
	}
	list, err := namespace.Prepare(ctx, name+" active", "")
	if err != nil {
		return err
	}
	spec, err := mount.FromMounts(list)
	if err != nil {
		return err
	}
	h, err := mounts.Acquire(ctx, spec)
	if err != nil {
		return err
	}
	fill := func(dir string) error {
		b, err := os.ReadFile(program)
		if err != nil {
			return err
		}
		for _, d := range []string{"bin", "etc", "tmp"} {
			if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
				return err
			}
		}
		if err := unix.Chmod(filepath.Join(dir, "tmp"), 0o1777); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "bin/busybox"), b, 0o755); err != nil {
			return err
		}
		for _, a := range applets {
			if err := os.Symlink("busybox", filepath.Join(dir, "bin", a)); err != nil {
				return err
			}
		}
		return os.WriteFile(filepath.Join(dir, "etc/base"), []byte(name+"\n"), 0o644)
	}
	err = fill(h.Path())
	h.Release()
	if err := errors.Join(err, h.Wait(ctx)); err != nil {
		return err
	}
	return namespace.Commit(ctx, name, name+" active")
}

// sh is a step on a base.
func sh(base, script string) Step {
	return Step{Base: base, Command: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=/bin", "HOLDFAST_STEP_MARK=" + baseMark()}}
}

func baseMark() string { return base }

// ok runs a step that is to succeed.
func (s *stand) ok(step Step) *Result {
	s.Helper()
	res, err := s.Run(s.ctx, step, nil)
	if err != nil {
		var f *Failure
		if errors.As(err, &f) {
			s.Fatalf("%v; output: %s", err, f.Output)
		}
		s.Fatal(err)
	}
	return res
}

// fails runs a step that is to fail for a reason.
func (s *stand) fails(step Step, reason error) *Failure {
	s.Helper()
	_, err := s.Run(s.ctx, step, nil)
	var f *Failure
	if reason != errAny && !errors.Is(err, reason) || !errors.As(err, &f) {
		out := ""
		if f != nil {
			out = string(f.Output)
		}
		s.Fatalf("%v, and not %v; output %q", err, reason, out)
	}
	return f
}

// text is what a step that succeeds writes.
func (s *stand) text(step Step) string {
	s.Helper()
	return strings.TrimSpace(string(s.ok(step).Output))
}

// clean fails if anything is there that no result accounts for.
func (s *stand) clean() {
	s.Helper()
	report, err := s.Check(s.ctx)
	must(s, err)
	for _, p := range report.Problems {
		s.Error(p)
	}
	problems, err := s.store.Check(s.ctx)
	must(s, err)
	for _, p := range problems {
		s.Errorf("store: %v", p)
	}
	if stats := s.mounts.Stats(); stats.Held+stats.Going+stats.Pending > 0 {
		s.Errorf("mounts: %+v", stats)
	}
	for _, l := range leftovers() {
		if !strings.Contains(l, " - tmpfs holdfast ") { // a manager's own
			s.Error("left: ", l)
		}
	}
	must(s, s.store.Cleanup(s.ctx))
	var want []string
	must(s, s.namespace.Walk(s.ctx, func(i snapshot.Info) error {
		want = append(want, i.ID.String())
		return nil
	}))
	entries, err := os.ReadDir(filepath.Join(s.root(), "snapshots"))
	must(s, err)
	var have []string
	for _, e := range entries {
		have = append(have, e.Name())
	}
	slices.Sort(want)
	slices.Sort(have)
	if !slices.Equal(want, have) {
		s.Errorf("directories %v of snapshots %v", have, want)
	}
}

// read is a file of a snapshot.
func (s *stand) read(name, file string) string {
	s.Helper()
	key := "view " + strconv.FormatInt(time.Now().UnixNano(), 36)
	list, err := s.namespace.View(s.ctx, key, name)
	must(s, err)
	spec, err := mount.FromMounts(list)
	must(s, err)
	h, err := s.mounts.Acquire(s.ctx, spec)
	must(s, err)
	b, err := os.ReadFile(filepath.Join(h.Path(), file))
	h.Release()
	must(s, err)
	must(s, s.mounts.Forget(s.ctx, filepath.Join(s.root(), "snapshots")))
	must(s, s.namespace.Remove(s.ctx, key))
	return string(b)
}
