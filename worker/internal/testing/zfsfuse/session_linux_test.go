package zfsfuse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/mountinfo"
)

// envPolls has this program wait with poll, in as many threads.
const envPolls = "HOLDFAST_TEST_POLLS"

func TestMain(m *testing.M) {
	polls := 0
	if _, err := fmt.Sscan(os.Getenv(envPolls), &polls); err == nil {
		var forever uintptr // to ppoll
		if sysPoll != unix.SYS_PPOLL {
			forever = 1 << 30
		}
		for range polls {
			go func() { _, _, _ = unix.Syscall6(sysPoll, 0, 0, forever, 0, 0, 0) }()
		}
		fmt.Println("ready")
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestBusy: a process in which one thread waits, as that of commands does while the other unmounts, is busy; one in
// which both do is not, and one that has ended.
func TestBusy(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it looks at threads")
	}
	for polls := range 3 {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), fmt.Sprint(envPolls, "=", polls))
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		if polls == 2 {
			for !Idle(cmd.Process.Pid) { // until they wait
				time.Sleep(time.Millisecond)
			}
		} else {
			for range 20 {
				if Idle(cmd.Process.Pid) {
					t.Errorf("%d threads wait, and it is taken to be idle", polls)
				}
				time.Sleep(time.Millisecond)
			}
		}
		if err := in.Close(); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait()
		if !Idle(cmd.Process.Pid) {
			t.Error("one that has ended is taken to be busy")
		}
	}
}

// TestSession: there is one at a time, of this process and of others, and of commands that outlive their process. A
// caller that waits can give up.
func TestSession(t *testing.T) {
	was, limit := locks, sessionLimit
	t.Cleanup(func() { locks, sessionLimit = was, limit })
	locks = t.TempDir()
	begin := func() *Session {
		t.Helper()
		s, err := Begin(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	refused := func(while string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		if _, err := Begin(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("while %s: %v", while, err)
		}
	}
	s := begin()
	refused("this process has one")
	cmd := exec.Command("cat")
	cmd.ExtraFiles = []*os.File{s.Lock()}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.End()
	refused("a command has one")
	sessionLimit = 20 * time.Millisecond
	if _, err := Begin(context.Background()); !errors.Is(err, ErrTaken) || !strings.Contains(err.Error(), locks) {
		t.Errorf("a command that does not end: %v", err)
	}
	sessionLimit = limit
	if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
		t.Error(err)
	}
	begin().End()
	if err := os.Chmod(locks, 0o777); err != nil {
		t.Fatal(err)
	}
	if s := begin(); s.Lock() != nil {
		t.Error("a lock where anybody may write")
	} else {
		s.End()
	}
	locks += "/missing"
	begin().End()
}

func TestDatasetAt(t *testing.T) {
	var got []Mount
	err := mountinfo.Read(strings.NewReader(`36 35 98:0 / / rw,noatime master:1 - ext4 /dev/root rw
72 44 0:44 / /tmp/with\040a\134blank rw,relatime - fuse.zfs tank/a\040b rw,user_id=0
73 44 0:45 /sub /tmp/sub rw - fuse.zfs tank/c rw
74 44 0:46 / /tmp/d rw shared:7 master:3 - fuse.zfs tank/d rw
`), func(m *mountinfo.Mount) {
		if d, ok := datasetAt(m); ok {
			got = append(got, d)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []Mount{{"tank/a b", `/tmp/with a\blank`, "44"}, {"tank/d", "/tmp/d", "46"}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}
