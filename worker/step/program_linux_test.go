package step

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// hostileProgram builds internal/testing/hostile, for the base of a step. HOLDFAST_HOSTILE names one that is built,
// for machines without Go. It is linked at an address that is not that of the program whose interpreter it replaces.
func hostileProgram(t testing.TB) string {
	t.Helper()
	if name := os.Getenv("HOLDFAST_HOSTILE"); name != "" {
		return name
	}
	name := filepath.Join(base, "hostile-program")
	if _, err := os.Stat(name); err == nil {
		return name
	}
	cmd := exec.Command("go", "build", "-ldflags=-T 0x40000000", "-o", name, "../internal/testing/hostile")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building the hostile step: %v: %s", err, out)
	}
	return name
}

// interpreterOf is what the kernel loads a program with; "" if it is static.
func interpreterOf(t testing.TB, name string) string {
	f, err := elf.Open(name)
	must(t, err)
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			b := make([]byte, p.Filesz)
			_, err := p.ReadAt(b, 0)
			must(t, err)
			return strings.TrimRight(string(b), "\x00")
		}
	}
	return ""
}

// hostileBase makes a base with the hostile program, also as an interpreter.
func (s *stand) hostileBase(interpreter string) string {
	s.Helper()
	script := "cp /in /hostile; mkdir -p /ro /rw"
	if interpreter != "" {
		script += "; mkdir -p " + filepath.Dir(interpreter) + "; cp /in " + interpreter
	}
	step := sh("base", script)
	step.Mounts = []Mount{{Source: hostileProgram(s), Target: "/in", ReadOnly: true}}
	return s.ok(step).Snapshot
}

func init() {
	// overwritten runs a step whose command is what the runtime was started from.
	helpers["overwritten"] = func() {
		s := &stand{dir: os.Getenv(envDir), ctx: context.Background()}
		s.opt.Runtime = runtimeNamed(os.Getenv(envRuntime))
		if program := os.Getenv("HOLDFAST_STEP_RUNC"); program != "" {
			s.opt.Runtime = runc{program: program}
		}
		s.prepare()
		base = os.Getenv("TMPDIR")
		err := s.tryOpen()
		if err == nil {
			_, err = s.Run(s.ctx, Step{Base: os.Getenv("HOLDFAST_STEP_BASE"), Command: []string{"/proc/self/exe"},
				Env:    []string{"HOSTILE_OVERWRITE=1", envHelper + "=overwriter", "HOLDFAST_STEP_MARK=" + base},
				Mounts: []Mount{{Source: filepath.Join(s.dir, "rw"), Target: "/rw"}}}, os.Stderr)
		}
		fmt.Fprintln(os.Stderr, err)
	}
	// overwriter is this program as the command of a step, if it is static: it executes the hostile program as if that
	// were its interpreter.
	helpers["overwriter"] = func() {
		must2(unix.Exec("/hostile", []string{"/hostile"}, os.Environ()))
	}
}

func must2(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A step could overwrite the program that had started it, as CVE-2019-5736 did with runc: by its first process
// /proc/self/exe led to the file on the disk. It executed that, with a dynamic linker of the base's own in it, kept
// the file by a descriptor, and wrote when the runtime had ended.
func TestProgramIsNotOverwritten(t *testing.T) {
	for _, name := range []string{"native", "init", "runc"} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, Options{Runtime: runtimeNamed(name)})
			program := filepath.Join(s.dir, "program")
			copyProgram(t, "/proc/self/exe", program)
			victim := program
			if name == "runc" {
				path, err := exec.LookPath("runc")
				must(t, err)
				victim = filepath.Join(s.dir, "runc-program")
				copyProgram(t, path, victim)
				t.Setenv("HOLDFAST_STEP_RUNC", victim)
			}
			before, err := os.ReadFile(victim)
			must(t, err)
			hostile := s.hostileBase(interpreterOf(t, victim))
			s.close()
			rw := filepath.Join(s.dir, "rw")
			must(t, os.Mkdir(rw, 0o777))
			cmd := exec.Command(program)
			cmd.Env = append(os.Environ(), envHelper+"=overwritten", envDir+"="+s.dir, envRuntime+"="+name, "HOLDFAST_STEP_BASE="+hostile)
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			var out bytes.Buffer
			cmd.Stderr = &out
			must(t, cmd.Start())
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			found := waitAny(s, ended, filepath.Join(rw, "waiting"), filepath.Join(rw, "result"))
			if found == "" && name == "native" && strings.Contains(out.String(), "/proc/self/exe") {
				s.open()
				return // there is no /proc yet when the command is executed
			}
			if found == "" {
				t.Fatalf("the step has ended: %s", out.String())
			}
			_ = cmd.Process.Kill() // after which the file is in use by no process
			waitAny(s, nil, filepath.Join(rw, "result"))
			result, err := os.ReadFile(filepath.Join(rw, "result"))
			must(t, err)
			t.Logf("%s", result)
			if !strings.HasPrefix(string(result), "refused") {
				t.Errorf("%s", result)
			}
			after, err := os.ReadFile(victim)
			must(t, err)
			if !bytes.Equal(before, after) {
				t.Errorf("the program has %d bytes and had %d", len(after), len(before))
			}
			if info, err := os.Stat(victim); err != nil || info.Mode().Perm() != 0o755 {
				t.Errorf("%v %v", info.Mode(), err)
			}
			s.open()
			s.clean()
		})
	}
}

// All steps share one copy of the program if its mode is sealed too, and otherwise have one each: root in a step could
// make a shared one unusable for others.
func TestProgramCopies(t *testing.T) {
	p, err := openProgram()
	must(t, err)
	defer p.close()
	inode := func() (uint64, bool) {
		f, err := p.copy()
		must(t, err)
		defer f.Close()
		var st unix.Stat_t
		must(t, unix.Fstat(int(f.Fd()), &st))
		if st.Mode&0o777 != 0o555 {
			t.Errorf("mode %o", st.Mode)
		}
		if _, err := f.WriteAt([]byte("x"), 0); err == nil {
			t.Error("it can be written")
		}
		return st.Ino, f.Chmod(0o444) != nil
	}
	one, fixed := inode()
	two, _ := inode()
	if fixed != (one == two) {
		t.Errorf("the mode is sealed: %v; the copies are the same: %v", fixed, one == two)
	}
}

// waitAny waits for one of some files; "" if a process has ended meanwhile.
func waitAny(s *stand, ended <-chan error, files ...string) string {
	s.Helper()
	for s.ctx.Err() == nil {
		for _, f := range files {
			if _, err := os.Stat(f); err == nil {
				return f
			}
		}
		select {
		case <-ended:
			return ""
		case <-time.After(time.Millisecond):
		}
	}
	s.Fatalf("none of %v comes", files)
	return ""
}

func copyProgram(t testing.TB, from, to string) {
	b, err := os.ReadFile(from)
	must(t, err)
	must(t, os.WriteFile(to, b, 0o755))
}
