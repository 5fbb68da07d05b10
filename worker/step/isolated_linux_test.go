package step

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// One step saw the connections of another: the network namespace belonged to the thread, which starts one
// after the other.
func TestFreshNetwork(t *testing.T) {
	needRoot(t)
	for name, r := range map[string]Runtime{"native": Native(), "init": native{init: true}} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, Options{Runtime: r, Concurrency: 1})
			connect := "(sleep 1000 | nc -l -p 5000 >/dev/null &); until nc 127.0.0.1 5000 </dev/null 2>/dev/null; do sleep 0.01; done; cat /proc/self/net/tcp"
			if got := s.text(sh("base", connect)); !strings.Contains(got, ":1388 ") {
				t.Fatalf("no connection: %s", got)
			}
			if got := s.text(sh("base", "cat /proc/self/net/tcp; ip addr add 10.1.1.1/8 dev lo 2>/dev/null; true")); strings.Contains(got, ":1388 ") {
				t.Errorf("of another step: %s", got)
			}
			s.clean()
		})
	}
}

// Directories of the host that a step sees had their devices, and programs that set the user.
func TestMountFlags(t *testing.T) {
	natives(t, func(s *stand) {
		dir := filepath.Join(s.dir, "shared")
		below := filepath.Join(dir, "below")
		must(s, os.MkdirAll(below, 0o755))
		must(s, unix.Mount("below", below, "tmpfs", 0, ""))
		s.Cleanup(func() { _ = unix.Unmount(below, unix.MNT_DETACH) })
		for _, d := range []string{dir, below} {
			must(s, unix.Mknod(filepath.Join(d, "null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
		}
		for _, readOnly := range []bool{true, false} {
			step := sh("base", "grep ' /shared' /proc/self/mountinfo | grep -v nosuid,nodev; for f in /shared/null /shared/below/null; do test -c $f && (echo x >$f) 2>/dev/null && echo device $f; done; "+
				"test "+fmt.Sprint(readOnly)+" = false || ! test -c /shared/below/null || ! touch /shared/below/new 2>/dev/null || echo written below; true")
			step.Mounts = []Mount{{Source: dir, Target: "/shared", ReadOnly: readOnly}}
			if got := s.text(step); got != "" {
				s.Errorf("read-only %t: %s", readOnly, got)
			}
		}
		must(s, unix.Unmount(below, unix.MNT_DETACH))
		s.clean()
	})
}

// The file systems that a sandbox has for itself are made before the step is there: two steps at once must
// not get the same, in which one could watch or lock what the other uses.
func TestFreshParts(t *testing.T) {
	natives(t, func(s *stand) {
		const look = "for d in /dev /dev/pts /sys; do stat -c %d $d; done; "
		dir := filepath.Join(s.dir, "shared")
		must(s, os.Mkdir(dir, 0o755))
		first := sh("base", look+"echo >/shared/begun; while ! test -e /shared/go; do sleep 0.01; done")
		first.Mounts = []Mount{{Source: dir, Target: "/shared"}}
		ended := make(chan string, 1)
		go func() { ended <- s.text(first) }()
		waitFile(s, filepath.Join(dir, "begun"))
		all := s.text(sh("base", look))
		must(s, os.WriteFile(filepath.Join(dir, "go"), nil, 0o644))
		all += "\n" + <-ended
		numbers := strings.Fields(all)
		slices.Sort(numbers)
		if n := len(slices.Compact(numbers)); n != 6 {
			s.Errorf("%d file systems of two steps: %q", n, all)
		}
		s.clean()
	})
}

// What is hidden of /proc does not become what a step mounts over that by which it is hidden.
func TestHiddenWhenCovered(t *testing.T) {
	natives(t, func(s *stand) {
		step := sh("base", "ln -s sys /s; ln -s proc /p")
		step = sh(s.ok(step).Snapshot, "touch /sys/new && cat /proc/keys /proc/timer_list /proc/interrupts /proc/kmsg; ls /proc/acpi")
		step.Mounts = []Mount{{Target: "/s"}}
		if got := s.text(step); got != "" {
			s.Errorf("not hidden: %q", got)
		}
		// With Init a mount could lie over /proc itself, where a symbolic link of the base led there.
		for _, target := range []string{"/p", "/p/sys", "/p/kcore"} {
			step.Command[2] = "cat /proc/sys/kernel/ostype; cat /proc/kcore; touch /proc/sys/new || touch /proc/new || ls /proc/kcore/"
			step.Mounts = []Mount{{Target: target}}
			if _, err := s.Run(s.ctx, step, nil); err == nil {
				s.Errorf("%s was written to", target)
			} else if f := (*Failure)(nil); !errors.As(err, &f) || !strings.Contains(string(f.Output), "Linux") {
				s.Errorf("%s: %v", target, err)
			}
		}
		s.clean()
	})
}
