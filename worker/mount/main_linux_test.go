package mount

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/mountinfo"
)

// base is the directory below which all tests work.
var base string

// helpers are what this program does in place of tests when another run of it has started
// it: the value of the environment variable HOLDFAST_MOUNT_HELPER.
var helpers = map[string]func(){}

// preludes are run before anything else, in helpers too.
var preludes []func()

func TestMain(m *testing.M) {
	for _, f := range preludes {
		f()
	}
	if name := os.Getenv("HOLDFAST_MOUNT_HELPER"); name != "" {
		helpers[name]()
		os.Exit(0)
	}
	if os.Geteuid() == 0 && os.Getenv(envInner) == "" {
		os.Exit(inner())
	}
	os.Exit(run(m))
}

// envInner is a directory: this program works in it, in a mount namespace of its own.
const envInner = "HOLDFAST_MOUNT_INNER"

// inner runs this program again in a mount namespace of its own. Nothing else on the
// machine then sees or copies what the tests mount. Whatever happens to the program, its
// mounts end with it, and its files, processes and cgroups are removed here.
func inner() (code int) {
	runtime.LockOSThread() // with the thread that has started it, the program would be killed
	dir, err := os.MkdirTemp("", "holdfast-mount-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		endBelow(dir)
		for _, in := range cgroupRoots {
			steps, _ := filepath.Glob(filepath.Join(in, cgroupName(dir)+"-*", "step"))
			for _, step := range steps {
				_ = os.Remove(step)
				_ = os.Remove(filepath.Dir(step))
			}
		}
		if err := os.RemoveAll(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}()
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), envInner+"="+dir, "TMPDIR="+dir)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	err = cmd.Run()
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

// cgroupRoots are where cgroups of version 1 and of version 2 can be made.
var cgroupRoots = []string{"/sys/fs/cgroup/pids", "/sys/fs/cgroup", "/sys/fs/cgroup/unified"}

// cgroupName is what the names of the cgroups of a run begin with.
func cgroupName(dir string) string { return "holdfast-test-" + filepath.Base(dir) }

// endBelow kills the processes of this program that work below a directory, and waits.
func endBelow(dir string) {
	all, _ := groups()
	for _, g := range all {
		for _, pid := range g.pids {
			env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
			if !strings.Contains(string(env), "TMPDIR="+dir) || pid == os.Getpid() || pid == os.Getppid() {
				continue
			}
			_, _ = endProcess(context.Background(), pid, func(int) bool { return true })
		}
	}
}

// run runs the tests, and fails if they leave anything.
func run(m *testing.M) int {
	var err error
	if os.Geteuid() == 0 {
		err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	}
	dir, e := os.MkdirTemp("", "holdfast-mount-")
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
	if left := leftovers(); len(left) > 0 {
		fmt.Fprintf(os.Stderr, "FAIL: the tests have left:\n%s\n", strings.Join(left, "\n"))
		code = 1
		clean()
	}
	if err := os.RemoveAll(base); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// leftovers lists mounts below base in all namespaces, and loop devices on files there.
func leftovers() []string {
	var left []string
	err := eachNamespace(base, func(g *group, m *mountinfo.Mount) {
		left = append(left, fmt.Sprintf("%s: %s at %s (%s), processes %v", g.namespace, m.Type, m.Point, m.Source, g.pids[:min(5, len(g.pids))]))
	})
	if err != nil {
		left = append(left, err.Error())
	}
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && strings.HasPrefix(string(b), base) {
			left = append(left, f+": "+string(b))
		}
	}
	return left
}

// clean unmounts what is below base here, so that removing files does not empty what is
// mounted, and ends what runs of this program elsewhere.
func clean() {
	var points []string
	_ = eachMount(base, func(m *mountinfo.Mount) { points = append(points, m.Point) })
	slices.Reverse(points)
	for _, p := range points {
		_ = unix.Unmount(p, unix.MNT_DETACH)
	}
	endBelow(base)
}

func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("left out: mounting needs root")
	}
}

func contextOf(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// quiet is a logger for tests that look at results.
var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func textLogger(to io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(to, nil)) }

// stand is a manager with directories to mount.
type stand struct {
	testing.TB
	*Manager
	ctx context.Context
	dir string // of layers and the like
	opt Options
}

func newStand(t testing.TB, o Options) *stand {
	t.Helper()
	needRoot(t)
	s := &stand{TB: t, ctx: contextOf(t), dir: t.TempDir(), opt: o}
	if s.opt.Directory == "" {
		s.opt.Directory = filepath.Join(t.TempDir(), "run")
	}
	s.opt.Keep = append(s.opt.Keep, s.dir)
	if s.opt.Logger == nil {
		s.opt.Logger = quiet
	}
	s.Manager = s.open()
	return s
}

// open opens a manager, which the test closes at its end.
func (s *stand) open() *Manager {
	s.Helper()
	m, err := Open(s.ctx, s.opt)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := m.Close(ctx); err != nil {
			s.Errorf("%v; pending: %+v", err, m.Pending())
		}
	})
	return m
}

func (s *stand) get(spec Spec) *Handle {
	s.Helper()
	h, err := s.Acquire(s.ctx, spec)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(h.Release)
	return h
}

// free releases a handle and waits until what it alone held is gone.
func (s *stand) free(h *Handle) {
	s.Helper()
	h.Release()
	if err := h.Wait(s.ctx); err != nil {
		s.Fatalf("%v; pending: %+v", err, s.Pending())
	}
}

// layer makes a directory with a file "who" that has its name, and a file of its own.
func (s *stand) layer(name string) string {
	s.Helper()
	dir := filepath.Join(s.dir, name)
	must(s, os.MkdirAll(dir, 0o755))
	must(s, os.WriteFile(filepath.Join(dir, "who"), []byte(name), 0o644))
	must(s, os.WriteFile(filepath.Join(dir, filepath.Base(name)), nil, 0o644))
	return dir
}

// work makes an upper and a work directory, and returns their options.
func (s *stand) work(name string) (upper string, options []string) {
	s.Helper()
	upper, work := filepath.Join(s.dir, name, "fs"), filepath.Join(s.dir, name, "work")
	must(s, os.MkdirAll(upper, 0o755))
	must(s, os.MkdirAll(work, 0o755))
	return upper, []string{"upperdir=" + upper, "workdir=" + work}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	return string(b)
}

func overlay(lowers []string, more ...string) Spec {
	options := []string{"lowerdir=" + strings.Join(lowers, ":")}
	return Spec{Mount: Mount{Type: "overlay", Options: append(options, more...)}}
}

func bind(source string, options ...string) Spec {
	return Spec{Mount: Mount{Type: "bind", Source: source, Options: options}}
}

func erofs(source string) Spec {
	return Spec{Mount: Mount{Type: "erofs", Source: source, Options: []string{"ro"}}}
}

// image writes an erofs file system with a file "who" that has a text. (A superblock, an
// inode for the root and one for the file, a block for each.)
func (s *stand) image(path, who string) string {
	s.Helper()
	const block = 4096
	le := binary.LittleEndian
	b := make([]byte, 4*block)
	super := b[1024:]
	le.PutUint32(super[0:], 0xE0F5E1E2)
	super[12] = 12              // log2 of the size of a block
	le.PutUint64(super[16:], 2) // inodes
	le.PutUint32(super[36:], 4) // blocks
	le.PutUint32(super[40:], 1) // the block of the inodes
	inode := func(n int, mode, links uint16, size, at uint32) {
		i := b[block+32*n:]
		le.PutUint16(i[4:], mode)
		le.PutUint16(i[6:], links)
		le.PutUint32(i[8:], size)
		le.PutUint32(i[16:], at)
		le.PutUint32(i[20:], uint32(n+1))
	}
	names := []struct {
		name string
		nid  uint64
		kind byte
	}{{".", 0, 2}, {"..", 0, 2}, {"who", 1, 1}}
	off := 12 * len(names)
	for i, e := range names {
		d := b[2*block+12*i:]
		le.PutUint64(d, e.nid)
		le.PutUint16(d[8:], uint16(off))
		d[10] = e.kind
		off += copy(b[2*block+off:], e.name)
	}
	inode(0, 0o40755, 2, uint32(off), 2)
	inode(1, 0o100644, 1, uint32(len(who)), 3)
	copy(b[3*block:], who)
	must(s, os.MkdirAll(filepath.Dir(path), 0o755))
	must(s, os.WriteFile(path, b, 0o644))
	return path
}
