package step

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/osthread"
)

// A step without limits could start as many processes as the machine has numbers for.
func TestDefaultPids(t *testing.T) {
	for _, name := range []string{"native", "init", "runc"} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, Options{Runtime: runtimeNamed(name)})
			s.whileRunning(sh("base", ""), func() {
				if got := s.groupFile("pids.max"); got != strconv.Itoa(DefaultPids) {
					t.Errorf("%q processes are possible", got)
				}
			})
			s.clean()
		})
	}
}

// What commands begin with, of resources that each process has.
func TestResourceLimits(t *testing.T) {
	list, err := resourceLimits()
	must(t, err)
	for _, name := range []string{"native", "init", "runc"} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, Options{Runtime: runtimeNamed(name)})
			step := sh("base", "ulimit -Sn; ulimit -Hn; grep -E 'Max core' /proc/self/limits | grep -cE ' 1 +1 '")
			step.User = User{UID: 1000, GID: 1000}
			want := strconv.FormatUint(list[0].Cur, 10) + "\n" + strconv.FormatUint(list[0].Max, 10) + "\n1"
			if got := s.text(step); got != want {
				t.Errorf("%q, and not %q", got, want)
			}
		})
	}
}

// A command that was killed for its memory before its first instruction, where it is given its filter and
// namespace, was taken for a fault of the machine: "the command did not stop at its beginning".
func TestMemoryAtBeginning(t *testing.T) {
	natives(t, func(s *stand) {
		step := sh("base", "")
		step.Limits.Memory, step.User = 1<<20, User{UID: 1000, GID: 1000}
		for g := range uint32(60000) {
			step.User.Groups = append(step.User.Groups, g+1)
		}
		for size := 0; size <= 800; size += 25 {
			step.Command = []string{"/bin/true"}
			for left := size; left > 0; left -= min(left, 100) {
				step.Command = append(step.Command, strings.Repeat("a", min(left, 100)<<10))
			}
			_, err := s.Run(s.ctx, step, nil)
			if f := (*Failure)(nil); err != nil && (!errors.As(err, &f) || (!errors.Is(err, ErrMemory) || f.Code != 137) && !errors.Is(err, ErrStart)) {
				s.Errorf("with arguments of %d KiB: %v", size, err)
			}
		}
		s.clean()
	})
}

// A service need not have CAP_SYS_RESOURCE, without which it may not set the limits of another user's
// process: that sets them itself.
func TestResourceLimitsWithout(t *testing.T) {
	needRoot(t)
	self, err := os.Readlink("/proc/self/exe")
	must(t, err)
	cmd := exec.Command(self, "-test.v", "-test.run=^TestResourceLimits$/^native$")
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	done := make(chan error)
	osthread.Own(func() {
		done <- errors.Join(inheritNone(), unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_SYS_RESOURCE, 0, 0, 0), cmd.Run())
	})
	if err := <-done; err != nil || !strings.Contains(out.String(), "--- PASS: TestResourceLimits/native") {
		t.Errorf("%v: %s", err, out.String())
	}
}

// TestKilledForMemory: a command of whose processes one is killed for lack of memory, and which goes on
// without it and ends with 0, had a result like any other: it was a hit for steps with more memory, too,
// though what it has left is something else.
func TestKilledForMemory(t *testing.T) {
	for _, name := range []string{"native", "init"} { // of runc's processes the groups of version 1 do not tell
		t.Run(name, func(t *testing.T) {
			s := newStand(t, Options{Runtime: runtimeNamed(name)})
			step := sh("base", "if dd if=/dev/zero of=/dev/shm/x bs=1048576 count=60 2>/dev/null; then echo all >/made; else echo some >/made; fi; cat /made")
			step.Limits.Memory = 16 << 20
			if _, err := os.Stat("/sys/fs/cgroup/memory/memory.limit_in_bytes"); err != nil { // version 2 kills all processes of a group
				_ = s.fails(step, ErrMemory)
				s.clean()
				return
			}
			narrow := s.ok(step)
			if string(narrow.Output) != "some\n" || !strings.Contains(narrow.Uncached, "more memory than it may") {
				t.Errorf("%+v: %q", narrow, narrow.Output)
			}
			step.Limits.Memory = 0
			for _, hit := range []bool{false, true} {
				if wide := s.ok(step); wide.Hit != hit || string(wide.Output) != "all\n" || wide.Uncached != "" || wide.Snapshot == narrow.Snapshot {
					t.Errorf("%+v: %q", wide, wide.Output)
				}
			}
			s.clean()
		})
	}
}

// TestFewProcessesUnderRunc: runc, which begins within the limits of the step, ended with a Go
// trace if they were below four.
func TestFewProcessesUnderRunc(t *testing.T) {
	s := newStand(t, Options{Runtime: Runc()})
	step := sh("base", "echo begun")
	step.Limits.Pids = runcPids - 1
	if _, err := s.Run(s.ctx, step, nil); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "runc itself") {
		t.Error(err)
	}
	step.Limits.Pids = runcPids
	if got := s.text(step); got != "begun" {
		t.Errorf("%q", got)
	}
}

// TestCrowded: a command that goes on when a process cannot be made had a result that was a hit for steps
// with more processes, too.
func TestCrowded(t *testing.T) {
	for _, name := range []string{"native", "init"} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, Options{Runtime: runtimeNamed(name)})
			step := sh("base", "("+strings.Repeat("sleep 1000 & ", 40)+") >/dev/null 2>&1; echo end") // which ends them
			step.Limits.Pids = 20
			narrow := s.ok(step)
			if string(narrow.Output) != "end\n" || !strings.Contains(narrow.Uncached, "as many as it may") {
				t.Errorf("%+v: %q", narrow, narrow.Output)
			}
			step.Limits.Pids = 100
			for _, hit := range []bool{false, true} {
				if wide := s.ok(step); wide.Hit != hit || wide.Uncached != "" || wide.Snapshot == narrow.Snapshot {
					t.Errorf("%+v: %q", wide, wide.Output)
				}
			}
			s.clean()
		})
	}
}
