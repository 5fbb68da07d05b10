package step

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/seccomp"
)

func init() {
	// keyed runs a step that reads a key of the process that has started it, with nothing but its keyring between.
	helpers["keyed"] = func() {
		s := &stand{dir: os.Getenv(envDir), ctx: context.Background()}
		s.opt.Runtime = runtimeNamed(os.Getenv(envRuntime))
		s.prepare()
		base = os.Getenv("TMPDIR")
		err := s.tryOpen()
		if err == nil {
			s.way().runtime.(*openNative).filter = seccomp.Filter{{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ALLOW}}
			_, err = s.Run(s.ctx, Step{Base: "base", Command: []string{"/program"}, Mounts: []Mount{{Source: filepath.Join(s.dir, "program"), Target: "/program"}}}, nil)
		}
		var f *Failure
		if errors.As(err, &f) {
			err = errors.Join(nil, s.Runner.Close(), s.mounts.Close(s.ctx), s.store.Close())
			fmt.Println(f.Code)
		}
		fmt.Fprint(os.Stderr, err)
	}
}

// A step read the keys of root's session.
func TestOwnKeyring(t *testing.T) {
	needRoot(t)
	for _, name := range []string{"native", "init"} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, Options{Runtime: runtimeNamed(name)})
			s.close()
			runtime.LockOSThread() // which the keyring is that of; what it starts has it too. It ends with the test.
			_, err := unix.KeyctlInt(unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0)
			must(t, err)
			key, err := unix.AddKey("user", "holdfast-test", []byte("secret"), unix.KEY_SPEC_SESSION_KEYRING)
			must(t, err)
			const possessorOnly = 0x3f000000
			must(t, unix.KeyctlSetperm(key, possessorOnly))
			must(t, os.WriteFile(filepath.Join(s.dir, "program"), elf64(t, call(unix.SYS_KEYCTL, unix.KEYCTL_READ, uint32(key), 0)), 0o755))
			self, err := os.Readlink("/proc/self/exe")
			must(t, err)
			cmd := exec.Command(self)
			cmd.Env = append(os.Environ(), envHelper+"=keyed", envDir+"="+s.dir, envRuntime+"="+name)
			out, err := cmd.CombinedOutput()
			if want := fmt.Sprintf("%d\n<nil>", int(unix.EACCES)); err != nil || string(out) != want {
				t.Errorf("%v: %s", err, out)
			}
			s.open()
			s.clean()
		})
	}
}
