package step

import (
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/testing/denial"
)

// denials are what a kernel of some age, or a container with a strict filter, refuses.
var denials = map[string]struct {
	deny   []denial.Denial
	byInit bool   // steps begin with Init
	needs  string // what New says is missing; "": nothing
}{
	"no option pidns": {deny: []denial.Denial{{Call: unix.SYS_FSCONFIG, Arg: 1, Is: unix.FSCONFIG_SET_FD, Errno: unix.EINVAL}}, byInit: true},
	"no ptrace":       {deny: []denial.Denial{{Call: unix.SYS_PTRACE, Arg: -1, Errno: unix.EPERM}}, byInit: true},
	"no pidfd": {deny: []denial.Denial{{Call: unix.SYS_PIDFD_OPEN, Arg: -1, Errno: unix.ENOSYS}, {Call: unix.SYS_PIDFD_SEND_SIGNAL, Arg: -1, Errno: unix.ENOSYS},
		{Call: unix.SYS_WAITID, Arg: 0, Is: unix.P_PIDFD, Errno: unix.EINVAL}}},
	"no seccomp": {deny: []denial.Denial{{Call: unix.SYS_SECCOMP, Arg: -1, Errno: unix.ENOSYS}}, needs: "seccomp"},
	"no clone3":  {deny: []denial.Denial{{Call: unix.SYS_CLONE3, Arg: -1, Errno: unix.ENOSYS}}, byInit: true},
	"no inotify": {deny: []denial.Denial{{Call: unix.SYS_INOTIFY_INIT1, Arg: -1, Errno: unix.ENOSYS}}},
	"a filter that answers EPERM": {deny: []denial.Denial{
		{Call: unix.SYS_PTRACE, Arg: -1, Errno: unix.EPERM},
		{Call: unix.SYS_PIDFD_OPEN, Arg: -1, Errno: unix.EPERM}, {Call: unix.SYS_PIDFD_SEND_SIGNAL, Arg: -1, Errno: unix.EPERM},
	}, byInit: true},
	"Linux 6.1": {deny: []denial.Denial{
		{Call: unix.SYS_FSCONFIG, Arg: 1, Is: unix.FSCONFIG_SET_FD, Errno: unix.EINVAL},
		{Call: unix.SYS_MEMFD_CREATE, Arg: 1, Is: unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING | unix.MFD_EXEC, Errno: unix.EINVAL},
		{Call: unix.SYS_FCNTL, Arg: 2, Is: contentSeals | unix.F_SEAL_EXEC, Errno: unix.EINVAL},
	}, byInit: true},
}

const envDeny = "HOLDFAST_STEP_DENY"

// Steps run in processes that the kernel denies calls, or there is an error that says which.
func TestDenied(t *testing.T) {
	needRoot(t)
	for name, d := range denials {
		t.Run(name, func(t *testing.T) {
			self, err := os.Readlink("/proc/self/exe")
			must(t, err)
			tests := []string{"TestLacking"}
			if d.needs == "" {
				tests = append(tests, "TestHitAndMiss", "TestSurroundings", "TestConfined", "TestFailure", "TestUserNames", "TestLinkAtTarget", "TestCancel", "TestTimeLimit", "TestGroups", "TestFreshNetwork", "TestMountFlags", "TestProgramCopies", "TestSecret", "TestStdin")
			}
			cmd := exec.Command(self, "-test.run=^("+strings.Join(tests, "|")+")$/^native$", "-test.v")
			cmd.Env = append(os.Environ(), envDeny+"="+name, "TMPDIR="+t.TempDir())
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			out, err := cmd.CombinedOutput()
			for _, want := range tests {
				if err != nil || !strings.Contains(string(out), "--- PASS: "+want) {
					t.Fatalf("%v; want %q in\n%s", err, want, out)
				}
			}
		})
	}
}

// What is denied is found when the Runner is made, and said once.
func TestLacking(t *testing.T) {
	var log strings.Builder
	o := Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	d := denials[os.Getenv(envDeny)]
	if d.needs != "" {
		needRoot(t)
		s := &stand{TB: t, ctx: contextOf(t), dir: t.TempDir(), opt: o}
		s.prepare()
		err := s.tryOpen()
		s.Runner = nil
		t.Cleanup(s.close)
		if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), d.needs) {
			t.Fatal(err)
		}
		return
	}
	s := newStand(t, o)
	for range 3 {
		s.ok(sh("base", "true"))
	}
	want := 0
	if d.byInit {
		want = 1
	}
	if got := strings.Count(log.String(), "a step begins with this program"); got != want || s.way().runtime.(*openNative).byInit != d.byInit {
		t.Errorf("said %d times, and not %d:\n%s", got, want, log.String())
	}
}
