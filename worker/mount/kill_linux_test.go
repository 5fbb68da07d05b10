package mount

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/mountinfo"
)

// Directories of a helper that is a worker and gets killed.
const (
	envRun    = "HOLDFAST_MOUNT_RUN"
	envLayers = "HOLDFAST_MOUNT_LAYERS"
	envCgroup = "HOLDFAST_MOUNT_CGROUP"
	envRoot   = "HOLDFAST_MOUNT_ROOT"
	envPlace  = "HOLDFAST_MOUNT_PLACE" // where else the overlay is attached
	envStay   = "HOLDFAST_MOUNT_STAY"  // a sleeper that outlives who has started it
)

// programDir is a directory with this program, of which a root file system is made.
func (s *stand) programDir() string {
	s.Helper()
	dir := filepath.Join(s.dir, "root")
	for _, d := range []string{"proc", "dev"} {
		must(s, os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	from, err := os.Open("/proc/self/exe")
	must(s, err)
	defer from.Close()
	to, err := os.OpenFile(filepath.Join(dir, "program"), os.O_CREATE|os.O_WRONLY, 0o755)
	must(s, err)
	_, err = io.Copy(to, from)
	must(s, errors.Join(err, to.Close()))
	return dir
}

func layersOf(dir string, n int) (root string, options []string) {
	up := filepath.Join(dir, fmt.Sprint("up", n))
	return filepath.Join(dir, "root"), []string{"upperdir=" + up + "/fs", "workdir=" + up + "/work"}
}

func helperManager() *Manager {
	m, err := Open(context.Background(), Options{
		Directory: os.Getenv(envRun), Keep: []string{os.Getenv(envLayers)}, Logger: quiet,
	})
	check(err)
	return m
}

func init() {
	// holder is a worker in the middle of its work: mounts in both namespaces, and
	// programs in every place where a program can be.
	helpers["holder"] = func() {
		ctx := context.Background()
		m := helperManager()
		n, err := m.StepNamespace()
		check(err)
		root, options := layersOf(os.Getenv(envLayers), 0)
		h, err := m.Acquire(ctx, overlay([]string{root}, options...))
		check(err)
		attachInHost(m, h, "")
		at, err := h.Attach(n, "")
		check(err)
		ro, err := m.Acquire(ctx, bind(root, "ro"))
		check(err)
		own := filepath.Join(os.Getenv(envLayers), "point")
		attachInHost(m, ro, own)
		if os.Getenv(envPlace) != "" {
			attachInHost(m, h, os.Getenv(envPlace))
		}
		check(os.WriteFile(filepath.Join(h.Path(), "written"), []byte("before the kill"), 0o644))

		start := func(n *Namespace, name string, change func(*exec.Cmd)) {
			cmd := exec.Command("/proc/self/exe")
			cmd.Path, _ = os.Readlink("/proc/self/exe")
			cmd.Env = append(os.Environ(), "HOLDFAST_MOUNT_HELPER="+name, envRoot+"="+at, envStay+"=1")
			cmd.Stderr = os.Stderr
			cmd.SysProcAttr = &syscall.SysProcAttr{}
			change(cmd)
			out, err := cmd.StdoutPipe()
			check(err)
			check(n.Start(cmd))
			line, err := bufio.NewReader(out).ReadString('\n')
			if line != "ready\n" {
				check(fmt.Errorf("%s: %q %w", name, line, err))
			}
			fmt.Println(cmd.Process.Pid)
		}
		start(n, "sleeper", func(cmd *exec.Cmd) { cmd.Dir = at })
		start(n, "sleeper", func(cmd *exec.Cmd) { cmd.Path, cmd.SysProcAttr.Chroot, cmd.Dir = "/program", at, "/" })
		start(n, "copier", func(cmd *exec.Cmd) { cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS })
		start(n, "container", func(cmd *exec.Cmd) { cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS })
		if cgroup := os.Getenv(envCgroup); cgroup != "" {
			start(m.Host(), "sleeper", func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "HOLDFAST_MOUNT_HELPER=grouped") })
		}
		fmt.Println("ready")
		_, _ = os.Stdin.Read(make([]byte, 1))
	}
	// grouped is a sleeper that goes into a cgroup.
	helpers["grouped"] = func() {
		check(os.WriteFile(filepath.Join(os.Getenv(envCgroup), "step", "cgroup.procs"), []byte("0"), 0))
		helpers["sleeper"]()
	}
	// container turns to its root file system and leaves everything else behind, as runc does.
	helpers["container"] = func() {
		check(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
		check(unix.Chdir(os.Getenv(envRoot)))
		check(unix.PivotRoot(".", "."))
		check(unix.Unmount(".", unix.MNT_DETACH))
		check(unix.Chdir("/"))
		check(os.Setenv("HOLDFAST_MOUNT_HELPER", "sleeper"))
		check(syscall.Exec("/program", []string{"program"}, os.Environ()))
	}
	// churner is a worker under load, to be killed at any moment.
	helpers["churner"] = func() {
		m := helperManager()
		n, err := m.StepNamespace()
		check(err)
		fmt.Println("ready")
		for g := range 20 {
			go func() {
				for i := g; ; i = rand.IntN(30) {
					churn(m, n, i)
				}
			}()
		}
		time.Sleep(time.Hour)
	}
}

// attachInHost does so where the kernel can.
func attachInHost(m *Manager, h *Handle, path string) {
	if _, err := h.Attach(m.Host(), path); !errors.Is(err, errors.ErrUnsupported) {
		check(err)
	}
}

// churn makes a step of a kind.
func churn(m *Manager, n *Namespace, i int) {
	root, options := layersOf(os.Getenv(envLayers), i)
	h, err := m.Acquire(context.Background(), overlay([]string{root}, options...))
	if errors.Is(err, ErrBusy) {
		return
	}
	check(err)
	defer h.Release()
	at, err := h.Attach(n, "")
	check(err)
	if i%3 == 0 {
		_, err := h.Attach(m.Host(), "")
		check(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Path, _ = os.Readlink("/proc/self/exe")
	cmd.Env = []string{"HOLDFAST_MOUNT_HELPER=container", envRoot + "=" + at, envStay + "=1", "TMPDIR=" + os.TempDir()}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	check(n.Start(cmd))
	time.Sleep(time.Duration(rand.IntN(int(20 * time.Millisecond))))
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// killable prepares layers for a worker that will be killed, and is the stand without a
// manager.
func killable(t *testing.T, uppers int) *stand {
	needRoot(t)
	s := &stand{TB: t, ctx: contextOf(t), dir: t.TempDir()}
	s.opt = Options{Directory: filepath.Join(t.TempDir(), "run"), Keep: []string{s.dir}, Logger: quiet}
	s.programDir()
	must(t, os.Mkdir(filepath.Join(s.dir, "point"), 0o700))
	for i := range uppers {
		s.work(fmt.Sprint("up", i))
	}
	return s
}

// cgroup makes a cgroup of a version, with one below it, or returns "" if the system has
// not mounted that version.
func (s *stand) cgroup(version int) string {
	s.Helper()
	for _, in := range cgroupRoots {
		var st unix.Statfs_t
		want := int64(map[int]int{1: unix.CGROUP_SUPER_MAGIC, 2: unix.CGROUP2_SUPER_MAGIC}[version])
		if unix.Statfs(in, &st) != nil || typeOf(&st) != want {
			continue
		}
		dir := filepath.Join(in, cgroupName(os.Getenv(envInner))+"-"+strconv.Itoa(os.Getpid()))
		must(s, os.MkdirAll(filepath.Join(dir, "step"), 0o755))
		s.Cleanup(func() {
			must(s, errors.Join(os.Remove(filepath.Join(dir, "step")), os.Remove(dir)))
		})
		return dir
	}
	return ""
}

// left lists what runs of the stand's directories have mounted, in all namespaces.
func (s *stand) left() (left []string) {
	s.Helper()
	must(s, eachNamespace("", func(g *group, m *mountinfo.Mount) {
		_, _, ours := runOf(m.Source)
		if under(m.Point, s.opt.Directory) && m.Point != s.opt.Directory ||
			ours && under(m.Option("upperdir"), s.dir) || under(m.Point, s.dir) {
			left = append(left, fmt.Sprintf("%s at %s in %s of %v", m.Source, m.Point, g.namespace, g.pids))
		}
	}))
	return left
}

func TestKilled(t *testing.T) {
	for _, version := range []int{1, 2} {
		t.Run(fmt.Sprint("cgroup v", version), func(t *testing.T) {
			s := killable(t, 1)
			cgroup := s.cgroup(version)
			cmd := helper(t, "holder", envRun+"="+s.opt.Directory, envLayers+"="+s.dir, envCgroup+"="+cgroup)
			pids := s.readPids(cmd)
			must(t, cmd.Process.Kill())
			_, _ = cmd.Process.Wait()
			if n := len(s.left()); n < 4 {
				t.Fatalf("the worker that was killed has left %d mounts: there is nothing to find", n)
			}
			if cgroup != "" {
				s.opt.Cgroups = []string{cgroup}
			}
			s.Manager = s.open()
			found := s.Recovered()
			slices.Sort(pids)
			slices.Sort(found.Ended)
			const unmounted = 2
			if found.Runs != 1 || !slices.Equal(found.Ended, pids) || len(found.Unmounted) != unmounted || len(found.Foreign) != 0 {
				t.Errorf("found %+v; want the processes %v, and %d attachments", found, pids, unmounted)
			}
			for _, pid := range pids {
				if !ended(pid) {
					t.Errorf("the process %d lives", pid)
				}
			}
			if left := s.left(); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
			s.usableAgain(1)
			if got := read(t, filepath.Join(s.dir, "up0", "fs", "written")); got != "before the kill" {
				t.Errorf("the upper directory has %q", got)
			}
		})
	}
}

// readPids starts a helper and reads the numbers that it prints before it is ready.
func (s *stand) readPids(cmd *exec.Cmd) (pids []int) {
	s.Helper()
	_, err := cmd.StdinPipe()
	must(s, err)
	out, err := cmd.StdoutPipe()
	must(s, err)
	must(s, cmd.Start())
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if lines.Text() == "ready" {
			s.Cleanup(func() {
				for _, pid := range pids {
					_ = unix.Kill(pid, unix.SIGKILL)
				}
			})
			return pids
		}
		pid, err := strconv.Atoi(lines.Text())
		must(s, err)
		pids = append(pids, pid)
	}
	s.Fatal("the helper has ended")
	return nil
}

// usableAgain checks that nothing of an earlier run is recorded, and that its upper
// directories can be used.
func (s *stand) usableAgain(uppers int) {
	s.Helper()
	k, err := s.records.all()
	must(s, err)
	if len(k.runs) != 1 || len(k.attached) != 0 || len(k.uppers) != 0 {
		s.Errorf("records: %+v", k)
	}
	for i := range uppers {
		root, options := layersOf(s.dir, i)
		s.free(s.get(overlay([]string{root}, options...)))
	}
}

// A worker under load is killed at a random moment, again and again, on one directory.
func TestKilledAtRandom(t *testing.T) {
	rounds := 12
	if v := os.Getenv("HOLDFAST_MOUNT_ROUNDS"); v != "" {
		n, err := strconv.Atoi(v)
		must(t, err)
		rounds = n
	}
	s := killable(t, 30)
	ended, unmounted, n := 0, 0, 0
	// A slow machine may have done nothing yet when it is killed: then later, and again.
	for ; n < rounds || (ended == 0 || unmounted == 0) && n < 10*rounds; n++ {
		s.ctx = contextOf(t)
		cmd := helper(t, "churner", envRun+"="+s.opt.Directory, envLayers+"="+s.dir)
		s.readPids(cmd)
		time.Sleep(time.Duration(rand.IntN((1 + n/rounds) * int(60*time.Millisecond))))
		must(t, cmd.Process.Kill())
		_, _ = cmd.Process.Wait()
		m, err := Open(s.ctx, s.opt)
		must(t, err)
		s.Manager = m
		found := m.Recovered()
		ended += len(found.Ended)
		unmounted += len(found.Unmounted)
		if found.Runs != 1 || len(found.Foreign) != 0 || len(m.Pending()) != 0 {
			t.Errorf("found %+v; pending %+v", found, m.Pending())
		}
		if left := s.left(); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
		s.usableAgain(30)
		must(t, m.Close(s.ctx))
	}
	t.Logf("%d rounds: %d processes ended, %d attachments unmounted", n, ended, unmounted)
	if ended == 0 || unmounted == 0 {
		t.Error("there was nothing to find")
	}
}

// A process that has copied the host's namespace is not ours: it is reported, not killed,
// and the upper directory refused until it has ended.
func TestForeignHolder(t *testing.T) {
	for _, use := range []string{"shows it", "uses it unseen", "does not use it"} {
		t.Run(use, func(t *testing.T) {
			s := killable(t, 1)
			env := []string{envRun + "=" + s.opt.Directory, envLayers + "=" + s.dir}
			if use == "shows it" {
				// A mount point that is not the manager's is not removed.
				place := filepath.Join(s.dir, "place")
				must(t, os.Mkdir(place, 0o700))
				env = append(env, envPlace+"="+place)
			}
			cmd := helper(t, "holder", env...)
			s.readPids(cmd)
			foreign := helper(t, "copier")
			foreign.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
			if use == "uses it unseen" {
				at, err := filepath.Glob(filepath.Join(s.opt.Directory, pointsDir, "*"))
				must(t, err)
				for _, dir := range at {
					if _, err := os.Stat(filepath.Join(dir, "written")); err == nil {
						foreign.Dir = dir
					}
				}
			}
			end := s.started(foreign, &Namespace{})
			must(t, cmd.Process.Kill())
			_, _ = cmd.Process.Wait()
			s.checkForeign(use, foreign.Process.Pid)
			end()
			s.settle()
			root, options := layersOf(s.dir, 0)
			s.free(s.get(overlay([]string{root}, options...)))
			k, err := s.records.all()
			must(t, err)
			if len(k.uppers) != 0 {
				t.Errorf("records: %+v", k)
			}
		})
	}
}

// checkForeign opens a manager, and checks what it says of an overlay that a foreign
// process has in some way.
func (s *stand) checkForeign(use string, pid int) {
	s.Helper()
	s.Manager = s.open()
	found := s.Recovered()
	if slices.Contains(found.Ended, pid) {
		s.Error("a foreign process was ended")
	}
	root, options := layersOf(s.dir, 0)
	h, err := s.Acquire(s.ctx, overlay([]string{root}, options...))
	if use == "does not use it" {
		if err != nil || len(found.Foreign) != 0 {
			s.Errorf("found %+v; its upper directory: %v", found, err)
			return
		}
		s.free(h)
		return
	}
	if len(found.Foreign) != 1 || "upperdir="+found.Foreign[0].Upper != options[0] {
		s.Errorf("found %+v", found)
	}
	if !errors.Is(err, ErrBusy) {
		s.Errorf("its upper directory: %v", err)
	}
	if use == "shows it" && !strings.Contains(fmt.Sprint(err), fmt.Sprint(pid)) {
		s.Errorf("%v; want the pid %d", err, pid)
	}
}

// The records are damaged while the worker is dead: what is mounted tells enough.
func TestDamagedRecords(t *testing.T) {
	s := killable(t, 1)
	cmd := helper(t, "holder", envRun+"="+s.opt.Directory, envLayers+"="+s.dir)
	pids := s.readPids(cmd)
	must(t, cmd.Process.Kill())
	_, _ = cmd.Process.Wait()
	file := filepath.Join(s.opt.Directory, recordsFile)
	must(t, os.WriteFile(file, []byte(strings.Repeat("not a database", 1000)), 0o600))

	s.Manager = s.open()
	if _, err := os.Stat(file + ".damaged"); err != nil {
		t.Error(err)
	}
	found := s.Recovered()
	// In the overlay: one that is chrooted, and one like a container.
	for _, pid := range []int{pids[1], pids[3]} {
		if !slices.Contains(found.Ended, pid) {
			t.Errorf("the process %d, whose root is an overlay below Keep, was not ended: %+v", pid, found)
		}
	}
	// The others, in the step namespace, cannot be told from those of another worker.
	root, options := layersOf(s.dir, 0)
	if _, err := s.Acquire(s.ctx, overlay([]string{root}, options...)); !errors.Is(err, ErrBusy) {
		t.Errorf("the upper directory that they hold: %v", err)
	}
	for _, pid := range pids {
		_, err := endProcess(s.ctx, pid, func(int) bool { return true })
		must(t, err)
	}
	s.settle()
	must(t, unix.Unmount(filepath.Join(s.dir, "point"), 0)) // its record is lost
	s.free(s.get(overlay([]string{root}, options...)))
}

// Records of another boot are of mounts that are gone.
func TestOtherBoot(t *testing.T) {
	s := newStand(t, Options{})
	must(t, s.Close(s.ctx))
	must(t, os.MkdirAll(s.opt.Directory, 0o700))
	must(t, unix.Mount(tmpfsSource, s.opt.Directory, "tmpfs", 0, "mode=0700"))
	r, _, err := openRecords(s.opt.Directory)
	must(t, err)
	must(t, r.putRun("0123456789abcdef", runRecord{pid: 1, boot: "another"}))
	must(t, r.putAttached(7, attachedRecord{dev: 1, path: "/"}))
	must(t, r.putUpper("holdfast-0123456789abcdef-1", upperRecord{s.dir, s.dir, 0}))
	must(t, r.db.Close())
	s.Manager = s.open()
	s.usableAgain(0)
	if found := s.Recovered(); found.Runs != 0 || len(found.Unmounted) != 0 {
		t.Errorf("%+v", found)
	}
}

// A path that a record names, and at which something else is by now, is left alone.
func TestRecordOfAnother(t *testing.T) {
	s := newStand(t, Options{})
	must(t, s.Close(s.ctx))
	point := filepath.Join(s.dir, "point")
	must(t, os.MkdirAll(point, 0o700))
	must(t, unix.Mount("another", point, "tmpfs", 0, ""))
	defer func() { must(t, unix.Unmount(point, 0)) }()
	must(t, os.MkdirAll(s.opt.Directory, 0o700))
	must(t, unix.Mount(tmpfsSource, s.opt.Directory, "tmpfs", 0, "mode=0700"))
	r, _, err := openRecords(s.opt.Directory)
	must(t, err)
	boot := strings.TrimSpace(read(t, "/proc/sys/kernel/random/boot_id"))
	must(t, r.putRun("0123456789abcdef", runRecord{pid: 1, boot: boot}))
	var st unix.Stat_t
	must(t, unix.Stat(point, &st))
	must(t, r.putAttached(7, attachedRecord{dev: deviceOf(&st) + 1, path: point}))
	must(t, r.db.Close())
	s.Manager = s.open()
	if got := mountsBelow(t, point); len(got) != 1 {
		t.Errorf("at %s there is %v", point, got)
	}
	s.usableAgain(0)
}

// On btrfs a file has another number than the mount that it is in.
func TestKilledOnBtrfs(t *testing.T) {
	needRoot(t)
	mkfs, err := exec.LookPath("mkfs.btrfs")
	if err != nil {
		t.Skip("left out: there is no mkfs.btrfs (Debian: btrfs-progs)")
	}
	image, dir := filepath.Join(t.TempDir(), "image"), t.TempDir()
	must(t, os.WriteFile(image, nil, 0o600))
	must(t, os.Truncate(image, 256<<20))
	out, err := exec.Command(mkfs, "-q", image).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	loop, err := attachLoop(image, false)
	must(t, err)
	must(t, errors.Join(unix.Mount(loop.Name(), dir, "btrfs", 0, ""), loop.Close()))
	t.Cleanup(func() { must(t, unix.Unmount(dir, 0)) })

	s := &stand{TB: t, ctx: contextOf(t), dir: filepath.Join(dir, "store")}
	s.opt = Options{Directory: filepath.Join(t.TempDir(), "run"), Keep: []string{s.dir}, Logger: quiet}
	s.programDir()
	must(t, os.Mkdir(filepath.Join(s.dir, "point"), 0o700))
	s.work("up0")
	cmd := helper(t, "holder", envRun+"="+s.opt.Directory, envLayers+"="+s.dir)
	s.readPids(cmd)
	must(t, cmd.Process.Kill())
	_, _ = cmd.Process.Wait()
	s.Manager = s.open()
	if found := s.Recovered(); len(found.Unmounted) != 2 || len(found.Foreign) != 0 {
		t.Errorf("found %+v; want two attachments", found)
	}
	if left := s.left(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	s.usableAgain(1)
}

// ended tells whether a process has given back all that it had: it does not exist, or is a
// zombie. Its first thread can be one while others go on.
func ended(pid int) bool {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	threads, err := os.ReadDir(filepath.Join(dir, "task"))
	if err != nil {
		return true
	}
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return true
	}
	// The name before the state is in parentheses, and can have some itself.
	i := strings.LastIndexByte(string(stat), ')')
	return len(threads) <= 1 && i >= 0 && i+2 < len(stat) && (stat[i+2] == 'Z' || stat[i+2] == 'X')
}
