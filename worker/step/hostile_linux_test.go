package step

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/worker/mount"
	"holdfast/worker/snapshot"
)

// A step hung, and could not be canceled: a file was to be mounted where the base had a FIFO, and that was
// opened for reading.
func TestFIFOAtTarget(t *testing.T) {
	runtimes(t, func(s *stand) {
		file := filepath.Join(s.dir, "file")
		must(s, os.WriteFile(file, []byte("a file"), 0o644))
		made := s.ok(sh("base", "mknod /etc/x p"))
		step := sh(made.Snapshot, "cat /etc/x")
		step.Mounts = []Mount{{Source: file, Target: "/etc/x", ReadOnly: true}}
		if got := s.text(step); got != "a file" {
			s.Errorf("%q", got)
		}
		s.clean()
	})
}

// A directory could not be mounted where the base had a symbolic link, as /var/run mostly is one.
func TestLinkAtTarget(t *testing.T) {
	runtimes(t, func(s *stand) {
		dir := filepath.Join(s.dir, "shared")
		must(s, os.Mkdir(dir, 0o755))
		must(s, os.WriteFile(filepath.Join(dir, "in"), []byte("from the host"), 0o644))
		made := s.ok(sh("base", "mkdir /var /run /real; ln -s /run /var/run; ln -s ../real /var/scratch; echo x >/real/hidden"))
		step := sh(made.Snapshot, "cat /run/in; ls -A /real")
		step.Mounts = []Mount{{Source: dir, Target: "/var/run"}, {Target: "/var/scratch"}}
		if got := s.text(step); got != "from the host" {
			s.Errorf("%q", got)
		}
		s.clean()
	})
}

// Who was not root could not open /dev/stderr: the pipe behind it belonged to root.
func TestOutputOfUser(t *testing.T) {
	runtimes(t, func(s *stand) {
		step := sh("base", "echo out >/dev/stdout; echo err >/dev/stderr")
		step.User = User{UID: 1000, GID: 1000}
		if got := s.text(step); got != "out\nerr" && got != "err\nout" { // runc does not keep the order
			s.Errorf("%q", got)
		}
	})
}

// The output of a command is a descriptor that waits when it is full.
func TestOutputBlocks(t *testing.T) {
	runtimes(t, func(s *stand) {
		flags := s.text(sh("base", "grep flags /proc/self/fdinfo/1"))
		n, err := strconv.ParseUint(strings.TrimSpace(strings.TrimPrefix(flags, "flags:")), 8, 32)
		if err != nil || n&unix.O_NONBLOCK != 0 {
			s.Errorf("%q: %v", flags, err)
		}
	})
}

// An exit code above 128 counted as a signal with runc, whatever it was.
func TestHighExitCode(t *testing.T) {
	runtimes(t, func(s *stand) {
		if f := s.fails(sh("base", "exit 255"), ErrExit); f.Code != 255 {
			s.Errorf("%+v", f)
		}
	})
}

// A step with runc had /run/notify in its result when the Runner was a service that notifies systemd: runc saw its
// environment.
func TestRuncEnvironment(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "n") // the name of a socket is short
	must(t, err)
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "notify")
	l, err := net.ListenPacket("unixgram", socket)
	must(t, err)
	defer l.Close()
	t.Setenv("NOTIFY_SOCKET", socket)
	s := newStand(t, Options{Runtime: Runc()})
	res := s.ok(sh("base", "env; grep -c notify /proc/self/mountinfo; true"))
	if strings.TrimSpace(string(res.Output)) == "" || bytes.Contains(res.Output, []byte("NOTIFY")) || !bytes.HasSuffix(res.Output, []byte("\n0\n")) {
		t.Errorf("%q", res.Output)
	}
	if got := s.text(sh(res.Snapshot, "test -e /run && ls -A /run; true")); got != "" {
		t.Errorf("in the result: %q", got)
	}
}

// A program that the kernel kills while it loads it is a failure of the step, and no error of the machine.
func TestKilledAtExec(t *testing.T) {
	const base = 0x7fffffffe000 // the last page of the address space, and beyond
	var elf bytes.Buffer
	for _, v := range []any{
		[]byte("\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00"), uint16(2), uint16(62), uint32(1),
		uint64(base), uint64(64), uint64(0), uint32(0), uint16(64), uint16(56), uint16(1), uint16(0), uint16(0), uint16(0),
		uint32(1), uint32(5), uint64(0), uint64(base), uint64(base), uint64(0x3000), uint64(0x30000), uint64(0x1000),
	} {
		must(t, binary.Write(&elf, binary.LittleEndian, v))
	}
	elf.Write(make([]byte, 0x3000))
	runtimes(t, func(s *stand) {
		file := filepath.Join(s.dir, "bad")
		must(s, os.WriteFile(file, elf.Bytes(), 0o755))
		must(s, os.Chmod(file, 0o755))
		step := sh("base", "")
		step.Command = []string{"/bad"}
		step.Mounts = []Mount{{Source: file, Target: "/bad", ReadOnly: true}}
		_, err := s.Run(s.ctx, step, nil)
		var f *Failure
		if !errors.As(err, &f) || f.Code < 126 {
			s.Errorf("%v", err)
		}
		s.clean()
	})
}

// A step waited for ever for a thread that had just ended, because something was left of its last job that
// could not be undone.
func TestSpentThreads(t *testing.T) {
	s := newStand(t, Options{Concurrency: 1})
	o := s.way().runtime.(*openNative)
	for range 100 {
		must(t, o.onThread(func(t *thread) error {
			t.spent = true
			return nil
		}))
		must(t, o.onThread(func(*thread) error { return nil }))
	}
	s.ok(sh("base", "true"))
	if len(o.idle) != 1 {
		t.Errorf("%d threads", len(o.idle))
	}
}

// A step waited for the end of another while slots were free: who had started a thread for its command had it taken away
// by a second caller, and no third thread was started. Steps that waited for each other waited for ever.
func TestThreadOfItsOwn(t *testing.T) {
	const callers = 8
	s := newStand(t, Options{Concurrency: callers})
	o := s.way().runtime.(*openNative)
	for round := range 50 {
		var begun, all sync.WaitGroup
		begun.Add(callers)
		for i := range callers {
			all.Go(func() {
				err := o.onThread(func(t *thread) error {
					begun.Done()
					begun.Wait()
					t.spent = (i+round)%3 == 0 // some threads are old, some new
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if len(o.idle) > callers {
			t.Fatalf("%d threads", len(o.idle))
		}
	}
}

// Close returned while what it had started went on: threads, and who measures what a step writes.
func TestCloseWaits(t *testing.T) {
	s := newStand(t, Options{})
	step := sh("base", "true")
	step.Limits.Disk = 1 << 30
	s.ok(step)
	must(t, s.Runner.Close())
	buf := make([]byte, 1<<20)
	stacks := string(buf[:runtime.Stack(buf, true)])
	for _, f := range []string{"(*openNative).serve", "watchDisk", "(*Runner).fly", "removeLater"} {
		if strings.Contains(stacks, f) {
			t.Errorf("%s is still there", f)
		}
	}
}

// A step that was canceled while its root was being mounted left that to itself, and deleted the directories below it.
func TestCanceledMount(t *testing.T) {
	served := &slowMounter{began: make(chan struct{}), left: make(chan struct{}), gone: make(chan struct{})}
	s := newStand(t, Options{})
	s.close()
	s.driver = servedDriver{s.driver, served}
	s.mopt.Mounters = map[string]mount.Mounter{"slow": served}
	s.open()
	served.slow = true
	ctx, cancel := context.WithCancel(s.ctx)
	go func() {
		<-served.began
		cancel()
	}()
	_, err := s.Run(ctx, sh("base", "true"), nil)
	close(served.left)
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	select {
	case <-served.gone:
	default:
		t.Error("Run has returned, and the mount is still there, or about to be")
	}
	if n := countSnapshots(s); n != 1 {
		t.Errorf("%d snapshots", n)
	}
}

// slowMounter binds what a driver has, and takes some time for it.
type slowMounter struct {
	slow              bool
	began, left, gone chan struct{}
}

func (m *slowMounter) Mount(_ context.Context, what mount.Mount) (string, func() error, error) {
	if !m.slow {
		return what.Source, func() error { return nil }, nil
	}
	close(m.began)
	select { // time for whoever does not wait
	case <-m.left:
	case <-time.After(200 * time.Millisecond):
	}
	if _, err := os.Stat(what.Source); err != nil {
		return "", nil, err
	}
	return what.Source, func() error {
		close(m.gone)
		return nil
	}, nil
}

// servedDriver has a Mounter mount what can be written.
type servedDriver struct {
	snapshot.Driver
	by *slowMounter
}

func (d servedDriver) Mounts(ctx context.Context, t snapshot.Tree, readonly bool) ([]mount.Mount, error) {
	list, err := d.Driver.Mounts(ctx, t, readonly)
	for _, o := range list[0].Options {
		if dir, ok := strings.CutPrefix(o, "upperdir="); ok {
			return []mount.Mount{{Type: "slow", Source: dir}}, err
		}
	}
	return list, err
}

// When runc itself is killed nothing is left of its container.
func TestRuncKilled(t *testing.T) {
	s := newStand(t, Options{Runtime: Runc()})
	for i := range 6 {
		step := sh("base", "sleep 1000 & echo begun; sleep 1000 # "+strconv.Itoa(i))
		if i%2 == 0 {
			step.Limits.Pids = 50
		}
		killed := 0
		_, err := s.Run(s.ctx, step, writerFunc(func(b []byte) (int, error) {
			killed += killProgram(s, "run\x00--bundle\x00"+s.root())
			return len(b), nil
		}))
		if err == nil || killed == 0 {
			t.Errorf("%v; %d killed", err, killed)
		}
		s.clean()
		groups, _ := filepath.Glob("/sys/fs/cgroup/*/" + DefaultCgroup(s.root()) + "/*-*")
		if len(groups) > 0 {
			t.Errorf("left: %v", groups)
		}
	}
}

// killProgram kills the programs whose arguments have a text.
func killProgram(s *stand, args string) (killed int) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range all {
		b, _ := os.ReadFile(f)
		if bytes.Contains(b, []byte(args)) {
			pid, err := strconv.Atoi(strings.Split(f, "/")[2])
			must(s, err)
			must(s, unix.Kill(pid, unix.SIGKILL))
			killed++
		}
	}
	return killed
}

// What root in a step can write in /proc, without writing it: nothing that is not its own.
func TestProcIsReadOnly(t *testing.T) {
	runtimes(t, func(s *stand) {
		got := s.text(sh("base", `cd /proc; find . -path './[0-9]*' -prune -o -path ./self -prune -o -path ./thread-self -prune -o -type f -perm -200 -print 2>/dev/null |
while read f; do (: >>$f) 2>/dev/null && echo $f; done; true`))
		if got != "" {
			s.Errorf("can be written: %s", strings.ReplaceAll(got, "\n", " "))
		}
	})
}
func init() {
	// leaver runs a step that changes its user and its root directory, and kills itself when it has.
	helpers["leaver"] = func() {
		s := &stand{dir: os.Getenv(envDir), ctx: context.Background()}
		s.opt.Runtime = runtimeNamed(os.Getenv(envRuntime))
		s.prepare()
		base = os.Getenv("TMPDIR")
		if err := s.tryOpen(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		_, err := s.Run(s.ctx, sh("base", `mkdir -p /sub/bin /sub/etc && cp /bin/busybox /sub/bin && cd /sub/bin && ln -s busybox sh && ln -s busybox su && ln -s busybox sleep &&
echo u:x:1000:1000::/:/bin/sh >/sub/etc/passwd && echo u:x:1000: >/sub/etc/group && exec chroot /sub /bin/su -s /bin/sh u -c 'echo begun; exec sleep 1000'`),
			writerFunc(func(b []byte) (int, error) {
				if bytes.Contains(b, []byte("begun")) {
					_ = unix.Kill(os.Getpid(), unix.SIGKILL)
					select {}
				}
				fmt.Fprintf(os.Stderr, "%s", b)
				return len(b), nil
			}))
		fmt.Fprintln(os.Stderr, err)
	}
}

// A command that had changed its user, and so was not killed with the process that had started it, and its root
// directory, lived on for ever: recovery looks at mounts, and did not see those outside of that directory.
func TestOrphanInChroot(t *testing.T) {
	for _, name := range []string{"native", "init", "runc"} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, Options{Runtime: runtimeNamed(name)})
			s.close()
			self, err := os.Readlink("/proc/self/exe")
			must(t, err)
			cmd := exec.Command(self)
			cmd.Env = append(os.Environ(), envHelper+"=leaver", envDir+"="+s.dir, envRuntime+"="+name)
			if out, err := cmd.CombinedOutput(); err == nil || len(out) > 0 {
				t.Fatalf("%v: %s", err, out)
			}
			s.open()
			s.clean()
		})
	}
}

// Users by name, in the files of the base.
func TestUserNames(t *testing.T) {
	runtimes(t, func(s *stand) {
		made := s.ok(sh("base", "echo 'ann:x:1000:100::/:/bin/sh' >/etc/passwd; echo 'video:x:44:ann' >/etc/group"))
		run := func(name string) Step {
			step := sh(made.Snapshot, "id -u; id -g; id -G")
			step.User = User{Name: name}
			return step
		}
		for name, want := range map[string]string{
			"ann": "1000\n100\n100 44", "1000": "1000\n100\n100 44", "ann:video": "1000\n44\n44", "ann:7": "1000\n7\n7", "5": "5\n0\n0", "5:video": "5\n44\n44",
		} {
			if got := s.text(run(name)); got != want {
				s.Errorf("%s: %q, and not %q", name, got, want)
			}
		}
		numbers := sh(made.Snapshot, "id -u; id -g; id -G")
		numbers.User = User{UID: 1000, GID: 100, Groups: []uint32{44}}
		if res := s.ok(numbers); res.Hit {
			s.Error("a name and the numbers behind it are the same step")
		}
		for _, name := range []string{"eve", "ann:eve"} {
			if f := s.fails(run(name), ErrNoUser); !errors.Is(f, ErrStart) || !strings.Contains(f.Error(), "eve") {
				s.Errorf("%v", f)
			}
		}
		s.clean()
	})
}

// A link in the base leads to what is in the base.
func TestUserFileIsLink(t *testing.T) {
	s := newStand(t, Options{})
	made := s.ok(sh("base", "mkdir /real; echo 'ann:x:1000:100::/:/bin/sh' >/real/passwd; ln -s /real/passwd /etc/passwd; ln -s ../../../real/passwd /etc/group"))
	step := sh(made.Snapshot, "id -u")
	step.User.Name = "ann"
	if got := s.text(step); got != "1000" {
		t.Errorf("%q", got)
	}
}

// Files of users that are not what they should be neither hang a step nor lead it out of the base.
func TestUserFilesOfBase(t *testing.T) {
	s := newStand(t, Options{})
	outside := filepath.Join(s.dir, "outside")
	must(t, os.WriteFile(outside, []byte("ann:x:1:1::/:\n"), 0o644))
	bases := map[string]string{"no /etc": "none", "/etc is a link": "link"}
	s.change("none", func(dir string) error { return os.RemoveAll(dir + "/etc") })
	s.change("link", func(dir string) error { return errors.Join(os.RemoveAll(dir+"/etc"), os.Symlink("/dev", dir+"/etc")) })
	for _, script := range []string{
		"mknod /etc/passwd p", "mkdir /etc/passwd", "ln -s passwd /etc/passwd", "ln -s " + outside + " /etc/passwd", "ln -s ../../../../../.." + outside + " /etc/passwd",
		"ln -s /proc/self/root" + outside + " /etc/passwd", "dd if=/dev/zero of=/etc/passwd bs=1024 count=5000 2>/dev/null",
	} {
		bases[script] = s.ok(sh("base", script)).Snapshot
	}
	for script, name := range bases {
		step := sh(name, "id -u")
		step.User.Name = "ann"
		if f := s.fails(step, ErrStart); !strings.Contains(f.Error(), "ann") {
			t.Errorf("%s: %v", script, f)
		}
	}
	s.clean()
}

// A base whose /dev is a link to /proc had what is hidden of /proc unhidden: /dev/null, which is put over
// it, was not to be found there when /proc was mounted, and that was taken for a kernel that has no such
// file.
func TestSystemDirectoryIsLink(t *testing.T) {
	runtimes(t, func(s *stand) {
		for _, link := range [][2]string{{"dev", "proc"}, {"dev", "proc/dev"}, {"dev", "tmp"}, {"proc", "tmp"}, {"proc", "dev"}, {"sys", "tmp"}, {"sys", "proc"}, {"sys", "dev"}} {
			dir := filepath.Join(s.dir, link[0]+"-"+strings.ReplaceAll(link[1], "/", "-"))
			must(s, os.MkdirAll(filepath.Join(dir, link[1]), 0o755))
			must(s, os.Symlink(link[1], filepath.Join(dir, link[0])))
			step := sh("base", "cat /proc/timer_list /proc/interrupts; find /sys -type f; true")
			step.Copies = []Copy{{dir, "/"}}
			var f *Failure
			if res, err := s.Run(s.ctx, step, nil); err == nil && len(bytes.TrimSpace(res.Output)) > 0 {
				s.Errorf("%v: the command sees %.100q", link, res.Output)
			} else if n, ok := s.way().runtime.(*openNative); ok && (!errors.As(err, &f) || f.Code != 126 || !strings.Contains(err.Error(), "/"+link[0])) {
				s.Errorf("%v, init %t: %v", link, n.byInit, err)
			}
		}
		for _, name := range []string{"dev", "proc", "sys"} {
			file := filepath.Join(s.dir, name)
			must(s, os.WriteFile(file, nil, 0o644))
			step := sh("base", "true")
			step.Copies = []Copy{{file, "/" + name}}
			if res, err := s.Run(s.ctx, step, nil); err == nil {
				s.Errorf("%s is a file: %+v", name, res)
			}
		}
		s.clean()
	})
}
