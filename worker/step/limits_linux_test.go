package step

import (
	"strconv"
	"testing"
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
