package step

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast"
	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/overlay"
)

func init() {
	// mapped runs steps as root of a user namespace, which is an unprivileged user outside of it.
	helpers["mapped"] = func() {
		s := &stand{dir: os.Getenv(envDir), ctx: context.Background()}
		s.prepareRootless()
		fail := func(err error) {
			if err != nil {
				fmt.Println("failed:", err)
				os.Exit(1)
			}
		}
		fail(s.tryOpen())
		fail(makeBusybox(s.ctx, s.namespace, s.mounts, "base"))
		step := Step{Base: "base", Command: []string{"sh", "-c", "id -u; pwd; echo made >/file; test -c /dev/null && echo x >/dev/null && cat /proc/self/comm; set -- /proc/[0-9]*; echo $#"}, Env: []string{"PATH=/bin"}, Dir: "/w"}
		first, err := s.Run(s.ctx, step, nil)
		fail(err)
		fmt.Printf("%q %v\n", first.Output, first.Hit)
		again, err := s.Run(s.ctx, step, nil)
		fail(err)
		above, err := s.Run(s.ctx, Step{Base: first.Snapshot, Command: []string{"/bin/cat", "/file"}}, nil)
		fail(err)
		fmt.Printf("%q %v\n", above.Output, again.Hit)
		step.User.UID = 7
		_, err = s.Run(s.ctx, step, nil)
		fmt.Println("other user:", err)
		step.User.UID = 0
		step.Limits.Memory = 1 << 30
		_, err = s.Run(s.ctx, step, nil)
		fmt.Println("limit, of a hit:", err)
		step.Dir = "/other"
		_, err = s.Run(s.ctx, step, nil)
		fmt.Println("limit:", err != nil && errors.Is(err, errors.ErrUnsupported))
		_, err = Runc().open(&environment{})
		fmt.Println("runc:", err)
		fail(s.Runner.Close())
		fail(s.mounts.Close(s.ctx))
		fail(s.store.Close())
	}
	// unprivileged opens a store without any privilege.
	helpers["unprivileged"] = func() {
		s := &stand{dir: os.Getenv(envDir), ctx: context.Background()}
		s.driver, s.dur = overlay.New(), holdfast.None
		fmt.Println(s.tryOpen())
	}
}

// envProcesses is how many processes a helper may have that runs as root of a user namespace.
const envProcesses = "HOLDFAST_STEP_PROCESSES"

// prepareRootless is prepare in a user namespace.
func (s *stand) prepareRootless() {
	s.driver, s.dur, s.sync = overlay.New("volatile", "userxattr"), holdfast.None, snapshot.SyncDeferred
}

// fewProcesses lowers the limit of processes of this one to what envProcesses says.
func fewProcesses() error {
	text := os.Getenv(envProcesses)
	if text == "" {
		return nil
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return err
	}
	return unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: n, Max: n})
}

// asUser prepares a helper that runs as an unprivileged user.
func asUser(t *testing.T, name string) *exec.Cmd {
	dir := filepath.Join(base, "user-"+name+strings.ReplaceAll(t.Name(), "/", "-"))
	must(t, os.MkdirAll(dir, 0o777))
	program := filepath.Join(dir, "program")
	from, err := os.Open("/proc/self/exe")
	must(t, err)
	defer from.Close()
	to, err := os.OpenFile(program, os.O_CREATE|os.O_WRONLY, 0o755)
	must(t, err)
	_, err = io.Copy(to, from)
	must(t, errors.Join(err, to.Close()))
	cmd := exec.Command(program)
	cmd.Env = []string{envHelper + "=" + name, envDir + "=" + dir, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if os.Geteuid() == 0 {
		const nobody = 65534
		must(t, os.Chmod(base, 0o755))
		must(t, os.Chown(dir, nobody, nobody))
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	return cmd
}

// An unprivileged user can run steps in a user namespace. The step counts the processes it sees in its shell:
// with a pipeline it saw one less when the second program had not begun yet.
func TestUserNamespace(t *testing.T) { stepsOfUser(t, "mapped") }

// TestUserOfFewProcesses: no step of a user who may have fewer processes than DefaultPids could be run:
// "RLIMIT_NPROC: operation not permitted".
func TestUserOfFewProcesses(t *testing.T) { stepsOfUser(t, "mapped", envProcesses+"=1000") }

func stepsOfUser(t *testing.T, helper string, env ...string) {
	t.Helper()
	if _, err := exec.LookPath("busybox"); err != nil && os.Geteuid() != 0 {
		t.Skip("left out: steps need Debian's package busybox-static, which only root can install")
	}
	cmd := asUser(t, helper)
	cmd.Env = append(cmd.Env, env...)
	uid, gid := os.Geteuid(), os.Getegid()
	if uid == 0 {
		uid, gid = 65534, 65534
		cmd.SysProcAttr.Credential = nil
		// As root of the machine the maps are written from outside.
		cmd.SysProcAttr.GidMappingsEnableSetgroups = true
	}
	cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS
	cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
	cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 0, Gid: 0} // of the namespace
	}
	b, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) {
		t.Skip("left out: this machine lets unprivileged users have no user namespaces: ", err)
	}
	lines := strings.Split(string(b), "\n")
	if err != nil || len(lines) != 7 || lines[0] != `"0\n/w\ncat\n1\n" false` || lines[1] != `"made\n" true` ||
		!strings.Contains(lines[2], "must be mapped") || lines[3] != "limit, of a hit: <nil>" || lines[4] != "limit: true" ||
		!strings.Contains(lines[5], "native can work here") {
		t.Errorf("%v: %s", err, b)
	}
}

func TestUnprivileged(t *testing.T) {
	b, err := asUser(t, "unprivileged").CombinedOutput()
	if err != nil || !strings.Contains(string(b), "CAP_SYS_ADMIN") {
		t.Errorf("%v: %s", err, b)
	}
}
