package step

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestNewPrivileges: set-user-ID programs and capabilities of files count where a step says so, with what root in a
// step has at most, and nowhere else.
func TestNewPrivileges(t *testing.T) {
	everyWay(t, func(s *stand) {
		made := s.ok(sh(s.hostileBase(""), "cp /hostile /bin/suid; chmod 4755 /bin/suid; cp /hostile /bin/capable; chmod 755 /hostile /bin/capable; /hostile capable /bin/capable"))
		step := sh(made.Snapshot, "suid who; echo; capable who")
		step.User = User{UID: 1000, GID: 1000}
		fields := func(text string) map[string]string {
			all := map[string]string{}
			for line := range strings.Lines(text) {
				name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
				all[name] = value
			}
			return all
		}
		verify := func(what, text string, want map[string]string) {
			s.Helper()
			got := fields(text)
			for name, value := range want {
				if got[name] != value {
					s.Errorf("%s: %s is %q, and not %q", what, name, got[name], value)
				}
			}
		}
		none, caps := "0000000000000000", fmt.Sprintf("%016x", allowed())
		without := s.ok(step)
		suid, capable, _ := strings.Cut(string(without.Output), "\n\n")
		verify("set-user-ID, on", suid, map[string]string{"Uid": "1000 1000 1000 1000", "CapEff": none, "NoNewPrivs": "1", "Seccomp": "2"})
		verify("capability, on", capable, map[string]string{"Uid": "1000 1000 1000 1000", "CapEff": none, "NoNewPrivs": "1"})
		step.NewPrivileges = true
		if native := s.way().name == nativeName; native && !s.way().ids.Set() {
			if _, err := s.Run(s.ctx, step, nil); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "user namespace") {
				s.Errorf("%v", err)
			}
			s.clean()
			return
		}
		with := s.ok(step)
		if with.Hit || with.ID == without.ID {
			s.Errorf("%+v", with)
		}
		suid, capable, _ = strings.Cut(string(with.Output), "\n\n")
		verify("set-user-ID, off", suid, map[string]string{"Uid": "1000 0 0 0", "CapEff": caps, "CapBnd": caps, "CapInh": none, "CapAmb": none, "NoNewPrivs": "0", "Seccomp": "2"})
		verify("capability, off", capable, map[string]string{"Uid": "1000 1000 1000 1000", "CapEff": "0000000000000020", "CapBnd": caps, "NoNewPrivs": "0", "Seccomp": "2"})
		root := step
		root.User = User{}
		suid, _, _ = strings.Cut(s.text(root), "\n\n")
		verify("root", suid, map[string]string{"Uid": "0 0 0 0", "CapEff": caps, "CapBnd": caps, "CapInh": none})

		// What a step brings along from elsewhere, or makes in a mount, does not count.
		elsewhere := sh(made.Snapshot, "for d in /cache /t /dev/shm; do cp /bin/suid $d/suid; chmod 4755 $d/suid; $d/suid who | grep Uid; done")
		elsewhere.Mounts = []Mount{{Cache: "c", Target: "/cache"}, {Target: "/t"}}
		s.ok(elsewhere) // as root, who can make them for all
		after := sh(made.Snapshot, "/cache/suid who | grep Uid")
		after.Mounts, after.User, after.NewPrivileges = elsewhere.Mounts, step.User, true
		if got := s.text(after); got != "Uid 1000 1000 1000 1000" {
			s.Errorf("from a cache: %q", got)
		}

		// The next step on the same thread has none again.
		if again := s.text(sh(made.Snapshot, "suid who | grep NoNew; true # again")); again != "NoNewPrivs 1" {
			s.Errorf("%q", again)
		}
		s.clean()
	})
}

// A command that has set-user-ID itself is executed outside its user namespace: it gets nothing there.
func TestNewPrivilegesCommand(t *testing.T) {
	s := newStand(t, Options{})
	if !s.way().ids.Set() {
		t.Skip("left out: this machine gives steps no user namespaces")
	}
	made := s.ok(sh(s.hostileBase(""), "cp /hostile /bin/suid; chmod 6755 /bin/suid; cp /hostile /bin/capable; /hostile capable /bin/capable"))
	for _, user := range []User{{}, {UID: 1000, GID: 1000}} {
		for _, name := range []string{"suid", "capable"} {
			step := sh(made.Snapshot, "")
			step.Command, step.User, step.NewPrivileges = []string{"/bin/" + name, "who"}, user, true
			uid := fmt.Sprint(user.UID)
			if got := s.text(step); !strings.HasPrefix(got, "Uid "+uid+" "+uid+" "+uid+" "+uid+"\n") || user.UID != 0 && !strings.Contains(got, "CapEff 0000000000000000") {
				t.Errorf("%s of %d: %q", name, user.UID, got)
			}
		}
	}
	s.clean()
}
