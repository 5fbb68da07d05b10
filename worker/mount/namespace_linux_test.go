package mount

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/mountinfo"
)

func TestStepNamespace(t *testing.T) {
	eachKernel(t, func(s *stand) {
		foreign := filepath.Join(s.dir, "foreign")
		must(s, os.Mkdir(foreign, 0o755))
		must(s, unix.Mount("foreign", foreign, "tmpfs", 0, ""))
		s.Cleanup(func() { must(s, unix.Unmount(foreign, unix.MNT_DETACH)) })
		must(s, os.WriteFile(foreign+"/seen", nil, 0o600))

		n, err := s.StepNamespace()
		must(s, err)
		again, err := s.StepNamespace()
		must(s, err)
		if n != again {
			s.Error("a second step namespace")
		}
		h := s.get(overlay([]string{s.layer("a"), s.layer("b")}))
		at, err := h.Attach(n, "")
		must(s, err)
		script := fmt.Sprintf(`cat %s/who; echo; ls %s; readlink /proc/self/ns/mnt; pwd; test -r /proc/self/status; test -c /dev/null; test -d /sys/fs/cgroup; echo ok`, at, foreign)
		cmd := exec.Command("/bin/sh", "-c", script)
		var out strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &out
		must(s, n.Start(cmd))
		err = cmd.Wait()
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if err != nil || len(lines) != 4 || lines[0] != "a" || lines[3] != "ok" || lines[2] != "/" {
			s.Fatalf("%v: %q", err, lines)
		}
		if own, _ := os.Readlink("/proc/self/ns/mnt"); lines[1] == own {
			s.Error("the program is in the host's namespace")
		}
		marks := 0
		must(s, n.Do(func() error {
			return eachMount(" "+s.StepMark()+" ", func(m *mountinfo.Mount) {
				if m.Type == "tmpfs" {
					marks++
				}
			})
		}))
		if marks != 1 {
			s.Errorf("%d mounts have the mark %s", marks, s.StepMark())
		}
	})
}

// A recursive bind that was attached in the step namespace could not be unmounted there if anything was mounted below
// its source: a step of the runtime runc left it for ever.
func TestRecursiveInStepNamespace(t *testing.T) {
	eachKernel(t, func(s *stand) {
		source := filepath.Join(s.dir, "source")
		for _, name := range []string{"a", "a/b c"} {
			below := filepath.Join(source, name)
			must(s, os.MkdirAll(below, 0o755))
			must(s, unix.Mount("below", below, "tmpfs", 0, ""))
			s.Cleanup(func() { must(s, unix.Unmount(below, unix.MNT_DETACH)) })
			s.opt.Keep = append(s.opt.Keep, below) // else it is refused where it is made elsewhere; see TestMountedBelow
		}
		s.opt.Directory = filepath.Join(s.TempDir(), "run")
		s.Manager = s.open()
		n, err := s.StepNamespace()
		must(s, err)
		h := s.get(Spec{Mount: Mount{Type: "bind", Source: source, Options: []string{"rbind"}}})
		at, err := h.Attach(n, "")
		must(s, err)
		must(s, n.Do(func() error {
			_, err := os.Stat(filepath.Join(at, "a/b c"))
			return err
		}))
		h.Release()
		must(s, h.Wait(s.ctx))
	})
}

// A step namespace has as many mounts as ever, however many the host has.
func TestStepNamespaceIsSmall(t *testing.T) {
	s := newStand(t, Options{})
	count := func() int {
		n, err := newNamespace(s.kernel.dir, "holdfast-test", s.kernel.keep)
		must(t, err)
		defer n.close()
		mounts, err := n.Mounts()
		must(t, err)
		return mounts
	}
	few := count()
	for i := range 50 {
		dir := filepath.Join(s.dir, fmt.Sprint("foreign", i))
		must(t, os.Mkdir(dir, 0o755))
		must(t, unix.Mount("foreign", dir, "tmpfs", 0, ""))
		t.Cleanup(func() { must(t, unix.Unmount(dir, 0)) })
	}
	if many := count(); many != few {
		t.Errorf("%d mounts, and %d with 50 more in the host's", few, many)
	}
}

// What a thread in a namespace starts must leave the threads of other goroutines where
// they are.
func TestThreadsStay(t *testing.T) {
	s := newStand(t, Options{})
	n, err := s.StepNamespace()
	must(t, err)
	own, err := os.Readlink("/proc/self/ns/mnt")
	must(t, err)
	errs := make(chan error, 64)
	for range 64 {
		go func() {
			errs <- n.Do(func() error {
				in, err := os.Readlink("/proc/thread-self/ns/mnt")
				if err == nil && in == own {
					err = errors.New("Do runs in the host's namespace")
				}
				return err
			})
		}()
		go func() {
			in, err := os.Readlink("/proc/thread-self/ns/mnt")
			if err == nil && in != own {
				err = errors.New("a goroutine runs in the step namespace")
			}
			errs <- err
		}()
	}
	for range 128 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// helper prepares this program to be run as one of the helpers. It is killed at the end of
// the test if it still runs.
func helper(t testing.TB, name string, env ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	self, err := os.Readlink("/proc/self/exe")
	must(t, err)
	cmd.Path = self
	cmd.Env = append(append(os.Environ(), "HOLDFAST_MOUNT_HELPER="+name), env...)
	cmd.Stderr = os.Stderr
	t.Cleanup(func() {
		if cmd.Process != nil {
			_ = cmd.Process.Kill()
			_, _ = cmd.Process.Wait()
		}
	})
	return cmd
}

func init() {
	// sleeper does nothing, until it is killed or its input ends.
	helpers["sleeper"] = func() {
		fmt.Println("ready")
		if os.Getenv(envStay) != "" {
			time.Sleep(time.Hour)
		}
		_, _ = os.Stdin.Read(make([]byte, 1))
	}
	// copier has a private copy of the mount namespace it is started in.
	helpers["copier"] = func() {
		check(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
		helpers["sleeper"]()
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// started starts a helper, in a namespace, and waits until it says that it is ready. The
// function returned ends it.
func (s *stand) started(cmd *exec.Cmd, n *Namespace) (end func()) {
	s.Helper()
	in, err := cmd.StdinPipe()
	must(s, err)
	out, err := cmd.StdoutPipe()
	must(s, err)
	must(s, n.Start(cmd))
	buf := make([]byte, 6)
	if k, err := out.Read(buf); string(buf[:k]) != "ready\n" {
		s.Fatalf("a helper: %q, %v", buf[:k], err)
	}
	return func() {
		s.Helper()
		must(s, in.Close())
		must(s, cmd.Wait())
	}
}

// A release while a program uses the mount: it is parked and reported, the upper directory
// refused, and all goes on when the program has ended.
func TestParked(t *testing.T) {
	eachKernelWith(t, Options{ParkAfter: 50 * time.Millisecond}, func(s *stand) {
		n, err := s.StepNamespace()
		must(s, err)
		_, options := s.work("up")
		spec := overlay([]string{s.layer("a")}, options...)
		h := s.get(spec)
		at, err := h.Attach(n, "")
		must(s, err)
		cmd := helper(s, "sleeper")
		cmd.Dir = at
		end := s.started(cmd, n)
		h.Release()
		if err := h.Wait(s.ctx); !errors.Is(err, ErrBusy) {
			s.Errorf("waiting for what is in use: %v", err)
		}
		p := s.Pending()
		if len(p) != 1 || !p[0].Parked || p[0].Err == nil || !strings.Contains(p[0].What, at) {
			s.Errorf("pending: %+v", p)
		}
		if st := s.Stats(); st.Parked != 1 || st.Parks != 1 {
			s.Errorf("%+v", st)
		}
		if _, err := s.Acquire(s.ctx, overlay([]string{s.layer("b")}, options...)); !errors.Is(err, ErrBusy) {
			s.Errorf("another overlay on the upper: %v", err)
		}
		end()
		s.settle()
		if st := s.Stats(); st.Mounts != 0 || st.Parked != 0 {
			s.Errorf("%+v", st)
		}
		s.free(s.get(overlay([]string{s.layer("b")}, options...)))
	})
}

// What is unmounted can live on in a copy of the namespace: then the upper directory is
// still in use.
func TestCopiedNamespace(t *testing.T) {
	eachKernelWith(t, Options{ParkAfter: 50 * time.Millisecond}, func(s *stand) {
		n, err := s.StepNamespace()
		must(s, err)
		_, options := s.work("up")
		spec := overlay([]string{s.layer("a")}, options...)
		h := s.get(spec)
		own := filepath.Join(s.dir, "point")
		must(s, os.Mkdir(own, 0o700))
		_, err = h.Attach(n, own)
		must(s, err)
		cmd := helper(s, "copier")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
		end := s.started(cmd, n)
		h.Release()
		if err := h.Wait(s.ctx); !errors.Is(err, ErrBusy) {
			s.Errorf("waiting for what another namespace has: %v", err)
		}
		if p := s.Pending(); len(p) != 1 || !strings.Contains(fmt.Sprint(p[0].Err), fmt.Sprint(cmd.Process.Pid)) {
			s.Errorf("pending: %+v; want the pid %d", p, cmd.Process.Pid)
		}
		if _, err := s.Acquire(s.ctx, spec); !errors.Is(err, ErrBusy) {
			s.Errorf("the same again: %v", err)
		}
		end()
		s.settle()
		s.free(s.get(spec))
	})
}

// A copy that lives for a moment only, as when a container starts, delays Wait and is not an error.
func TestBriefCopy(t *testing.T) {
	s := newStand(t, Options{})
	n, err := s.StepNamespace()
	must(t, err)
	for i := range 20 {
		_, options := s.work(fmt.Sprint("up", i))
		h := s.get(overlay([]string{s.layer("a")}, options...))
		_, err = h.Attach(n, "")
		must(t, err)
		cmd := exec.Command("/bin/true")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
		must(t, n.Start(cmd))
		s.free(h)
		must(t, cmd.Wait())
	}
}

// Where the host's mounts are shared, as under systemd, nothing that is mounted in the
// step namespace shows in the host's namespace.
func TestSharedHost(t *testing.T) {
	eachKernel(t, func(s *stand) {
		shared := filepath.Join(s.dir, "shared")
		must(s, os.Mkdir(shared, 0o755))
		must(s, unix.Mount("shared", shared, "tmpfs", 0, ""))
		s.Cleanup(func() { must(s, unix.Unmount(shared, unix.MNT_DETACH)) })
		must(s, unix.Mount("", shared, "", unix.MS_SHARED, ""))
		must(s, os.MkdirAll(shared+"/dir/sub", 0o755))
		s.opt.Directory = filepath.Join(shared, "run")
		s.opt.Keep = []string{shared}
		s.Manager = s.open()

		h := s.get(bind(shared + "/dir"))
		n, err := s.StepNamespace()
		must(s, err)
		at, err := h.Attach(n, "")
		must(s, err)
		must(s, n.Do(func() error { return unix.Mount("below", at+"/sub", "tmpfs", 0, "") }))
		for _, p := range mountsBelow(s, shared) {
			if p != shared && p != s.opt.Directory {
				s.Errorf("%s shows in the host's namespace", p)
			}
		}
		must(s, n.Do(func() error { return unix.Unmount(at+"/sub", 0) }))
		s.free(h)
	})
}

// A call that is given up while the mount is being made returns at once, and holds nothing.
func TestGivenUp(t *testing.T) {
	s := newStand(t, Options{Without: []Feature{FeatureCloneDetached}})
	_, options := s.work("up")
	spec := overlay([]string{s.layer("a")}, options...)
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	if h, err := s.Acquire(ctx, spec); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", h, err)
	}

	// All threads that could mount are taken.
	staging, err := s.kernel.stagingNamespace()
	must(t, err)
	release, taken := make(chan struct{}), make(chan struct{})
	for range maxThreads {
		go func() {
			_ = staging.Do(func() error {
				taken <- struct{}{}
				<-release
				return nil
			})
		}()
		<-taken
	}
	ctx, cancel = context.WithCancel(s.ctx)
	result := make(chan error)
	go func() {
		_, err := s.Acquire(ctx, spec)
		result <- err
	}()
	for s.Stats().Mounts == 0 {
		must(t, s.ctx.Err())
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	close(release)
	for s.Stats().Mounts > 0 {
		if s.ctx.Err() != nil {
			t.Fatalf("%+v", s.Stats())
		}
		time.Sleep(time.Millisecond)
	}
	s.free(s.get(spec))
}

// An unmount that does not return holds up nobody, and is listed.
func TestHung(t *testing.T) {
	s := newStand(t, Options{})
	release := make(chan struct{})
	s.mu.Lock()
	p := s.register("a server that is gone")
	s.mu.Unlock()
	done, begun := make(chan bool), make(chan struct{})
	go func() {
		done <- s.persist(p, func() {}, func(bool) error {
			close(begun)
			<-release
			return nil
		})
	}()
	<-begun
	if list := s.Pending(); len(list) != 1 || !list[0].Running || list[0].What != "a server that is gone" {
		t.Errorf("%+v", list)
	}
	s.get(bind(s.layer("a"), "ro")).Release()
	must(t, s.DropIdle(s.ctx))
	close(release)
	if !<-done || len(s.Pending()) != 0 {
		t.Errorf("%+v", s.Pending())
	}
}

func init() {
	helpers["unprivileged"] = func() {
		_, err := Open(context.Background(), Options{Directory: os.Getenv(envRun)})
		if !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), "CAP_SYS_ADMIN") {
			check(fmt.Errorf("without privileges: %w", err))
		}
		fmt.Println("ready")
	}
	// userns is root in a user namespace: an overlay, and a program in the step namespace.
	helpers["userns"] = func() {
		m := helperManager()
		n, err := m.StepNamespace()
		check(err)
		root, options := layersOf(os.Getenv(envLayers), 0)
		h, err := m.Acquire(context.Background(), overlay([]string{root}, append(options, "userxattr")...))
		check(err)
		at, err := h.Attach(n, "")
		check(err)
		cmd := exec.Command("/bin/sh", "-c", "echo written > "+at+"/file")
		cmd.Stderr = os.Stderr
		check(n.Start(cmd))
		check(cmd.Wait())
		h.Release()
		check(h.Wait(context.Background()))
		check(m.Close(context.Background()))
		fmt.Println("ready")
	}
}

func TestUnprivileged(t *testing.T) {
	if os.Geteuid() != 0 {
		if _, err := Open(contextOf(t), Options{Directory: t.TempDir()}); !errors.Is(err, os.ErrPermission) {
			t.Errorf("without privileges: %v", err)
		}
		return
	}
	if out, _ := exec.Command("setpriv", "--version").Output(); !strings.Contains(string(out), "util-linux") {
		t.Skip("left out: setpriv is not that of util-linux")
	}
	cmd := helper(t, "unprivileged", envRun+"=/nonexistent")
	// Root without the privilege.
	cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", `exec setpriv --bounding-set -sys_admin --inh-caps -sys_admin "$0"`, cmd.Path}
	out, err := cmd.Output()
	if err != nil || string(out) != "ready\n" {
		t.Errorf("%q, %v", out, err)
	}
}

func TestUserNamespace(t *testing.T) {
	s := killable(t, 1)
	cmd := helper(t, "userns", envRun+"="+s.opt.Directory, envLayers+"="+s.dir)
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 65536}}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS, UidMappings: ids, GidMappings: ids}
	out, err := cmd.Output()
	if err != nil || string(out) != "ready\n" {
		t.Fatalf("%q, %v", out, err)
	}
	if got := read(t, filepath.Join(s.dir, "up0", "fs", "file")); got != "written\n" {
		t.Errorf("%q", got)
	}
}
