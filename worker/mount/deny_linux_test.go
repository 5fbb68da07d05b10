package mount

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/testing/denial"
)

// denials are what an older kernel, or one that is out of something, refuses.
var denials = map[string]struct {
	deny []denial.Denial
	lack []Feature // what the manager must find missing
}{
	"Linux 6.1": {
		[]denial.Denial{{Call: unix.SYS_FSCONFIG, Arg: 1, Is: unix.FSCONFIG_SET_FD, Errno: unix.EINVAL}},
		[]Feature{FeatureLayerFD},
	},
	"no clones of detached mounts": {
		[]denial.Denial{{Call: unix.SYS_OPEN_TREE, Arg: 2, Is: unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_EMPTY_PATH, Errno: unix.EINVAL}},
		[]Feature{FeatureCloneDetached},
	},
	"no inotify": {
		[]denial.Denial{{Call: unix.SYS_INOTIFY_INIT1, Arg: -1, Errno: unix.EMFILE}},
		[]Feature{FeatureInotify},
	},
	"no watches": { // found with the first overlay
		[]denial.Denial{{Call: unix.SYS_INOTIFY_ADD_WATCH, Arg: -1, Errno: unix.ENOSPC}},
		[]Feature{FeatureInotify},
	},
}

const envDeny = "HOLDFAST_MOUNT_DENY"

func init() {
	// The tests in a process to which calls are denied for good.
	preludes = append(preludes, func() {
		if name := os.Getenv(envDeny); name != "" {
			check(denial.Install(denials[name].deny))
		}
	})
}

// The tests that matter run again in processes that the kernel denies calls.
func TestDenied(t *testing.T) {
	needRoot(t)
	if os.Getenv(envDeny) != "" {
		return // this is such a process
	}
	for name := range denials {
		t.Run(name, func(t *testing.T) {
			self, err := os.Readlink("/proc/self/exe")
			must(t, err)
			cmd := exec.Command(self, "-test.run=^(TestLacking|TestWork|TestKilled)$", "-test.v")
			cmd.Env = append(os.Environ(), envDeny+"="+name, "TMPDIR="+t.TempDir())
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			out, err := cmd.CombinedOutput()
			for _, want := range []string{"--- PASS: TestLacking", "--- PASS: TestWork", "--- PASS: TestKilled"} {
				if err != nil || !strings.Contains(string(out), want) {
					t.Fatalf("%v; want %q in\n%s", err, want, out)
				}
			}
		})
	}
}

// What is denied is found, and said once.
func TestLacking(t *testing.T) {
	var log strings.Builder
	s := newStand(t, Options{Logger: textLogger(&log)})
	_, options := s.work("up")
	s.free(s.get(overlay([]string{s.layer("a")}, options...)))
	lack := denials[os.Getenv(envDeny)].lack
	for _, w := range s.Features() {
		missing := false
		for _, c := range lack {
			missing = missing || c == w.Feature
		}
		if w.Used == missing && !(!missing && kernelBefore(t, w.Since)) {
			t.Errorf("%s: used %t, %v", w.Feature, w.Used, w.Err)
		}
		if n := strings.Count(log.String(), fmt.Sprintf("feature=%q", string(w.Feature))) + strings.Count(log.String(), fmt.Sprintf("feature=%s ", w.Feature)); missing && n != 1 {
			t.Errorf("%s was logged %d times:\n%s", w.Feature, n, log.String())
		}
	}
}

// kernelBefore tells whether the machine's kernel is older than a version such as "6.13"; "" is none.
func kernelBefore(t *testing.T, version string) bool {
	t.Helper()
	var u unix.Utsname
	must(t, unix.Uname(&u))
	var have, want [2]int
	if _, err := fmt.Sscanf(version, "%d.%d", &want[0], &want[1]); err != nil {
		return false
	}
	_, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &have[0], &have[1])
	must(t, err)
	return slices.Compare(have[:], want[:]) < 0
}

// TestWork is TestKinds with whatever there is.
func TestWork(t *testing.T) { kinds(newStand(t, Options{})) }

// TestOldKernel: a kernel below 5.14 is refused, and the error says which one is needed.
func TestOldKernel(t *testing.T) {
	for release, want := range map[string]bool{
		"5.13.19-amd64": false, "4.19.0": false, "2.6.78": false, "5.14.0": true, "5.14-rc1": true, "6.1.0-28-amd64": true, "10.0": true,
	} {
		err := supported(release)
		if (err == nil) != want || !want && (!errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "5.14")) {
			t.Errorf("%s: %v", release, err)
		}
	}
	needRoot(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const uname26 = 0x0020000 // the kernel says that it is 2.6
	was, _, errno := unix.Syscall(unix.SYS_PERSONALITY, uname26, 0, 0)
	if errno != 0 {
		t.Fatal(errno)
	}
	m, err := Open(contextOf(t), Options{Directory: filepath.Join(t.TempDir(), "run"), Logger: quiet})
	if _, _, errno := unix.Syscall(unix.SYS_PERSONALITY, was, 0, 0); errno != 0 {
		t.Fatal(errno)
	}
	if err == nil || !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "Linux 2.6") || !strings.Contains(err.Error(), "5.14 or newer") {
		t.Errorf("%v", err)
	}
	if err == nil {
		must(t, m.Close(contextOf(t)))
	}
}
