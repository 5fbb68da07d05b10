package step

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/worker/mount"
)

// onSnapshot calls a function with a directory in which a snapshot is mounted.
func (s *stand) onSnapshot(name string, do func(dir string)) {
	s.Helper()
	list, err := s.namespace.View(s.ctx, "looked at", name)
	must(s, err)
	spec, err := mount.FromMounts(list)
	must(s, err)
	h, err := s.mounts.Acquire(s.ctx, spec)
	must(s, err)
	do(h.Path())
	h.Release()
	must(s, s.mounts.Forget(s.ctx, filepath.Join(s.root(), "snapshots")))
	must(s, s.namespace.Remove(s.ctx, "looked at"))
}

// change commits a snapshot that is the base with a change.
func (s *stand) change(name string, do func(dir string) error) {
	s.Helper()
	list, err := s.namespace.Prepare(s.ctx, name+" active", "base")
	must(s, err)
	spec, err := mount.FromMounts(list)
	must(s, err)
	h, err := s.mounts.Acquire(s.ctx, spec)
	must(s, err)
	err = do(h.Path())
	h.Release()
	must(s, errors.Join(err, h.Wait(s.ctx)))
	must(s, s.namespace.Commit(s.ctx, name, name+" active"))
}

// A step had no /etc/hosts if its base had none, so localhost was not a name; and what it now sees there
// must not be in its result.
func TestNameFiles(t *testing.T) {
	runtimes(t, func(s *stand) {
		var made time.Time
		s.onSnapshot("base", func(dir string) {
			info, err := os.Stat(filepath.Join(dir, "etc"))
			must(s, err)
			made = info.ModTime()
		})
		res := s.ok(sh("base", "cat /etc/hostname; grep -c localhost /etc/hosts; (echo x >/etc/hosts) 2>/dev/null || echo no; test -e /etc/resolv.conf || echo none"))
		if got := string(res.Output); got != "holdfast\n2\nno\nnone\n" {
			s.Errorf("%q", got)
		}
		s.onSnapshot(res.Snapshot, func(dir string) {
			entries, err := os.ReadDir(filepath.Join(dir, "etc"))
			must(s, err)
			if len(entries) != 1 || entries[0].Name() != "base" {
				s.Errorf("in the result: %v", entries)
			}
			if info, err := os.Stat(filepath.Join(dir, "etc")); err != nil || !info.ModTime().Equal(made) {
				s.Errorf("/etc is of %v, and was of %v: %v", info.ModTime(), made, err)
			}
		})
		// What the command makes in /etc is its own, and is what it gives the directory for a time.
		res = s.ok(sh("base", "echo x >/etc/own"))
		s.onSnapshot(res.Snapshot, func(dir string) {
			if info, err := os.Stat(filepath.Join(dir, "etc")); err != nil || info.ModTime().Equal(made) {
				s.Errorf("/etc is of %v: %v", info.ModTime(), err)
			}
			if b, err := os.ReadFile(filepath.Join(dir, "etc/own")); err != nil || string(b) != "x\n" {
				s.Error(string(b), err)
			}
		})
		s.clean()
	})
}

// A base's own files stay, unless they are empty, as those of an exported container are.
func TestNameFilesOfBase(t *testing.T) {
	runtimes(t, func(s *stand) {
		s.change("own", func(dir string) error {
			return errors.Join(os.WriteFile(dir+"/etc/hosts", []byte("mine\n"), 0o644), os.WriteFile(dir+"/etc/hostname", nil, 0o644), os.Symlink("nowhere", dir+"/etc/resolv.conf"))
		})
		step := sh("own", "cat /etc/hosts /etc/hostname; test -L /etc/resolv.conf && echo link")
		step.Network = NetworkHost
		res := s.ok(step)
		if got := string(res.Output); got != "mine\nholdfast\nlink\n" {
			s.Errorf("%q", got)
		}
		s.onSnapshot(res.Snapshot, func(dir string) {
			b, err := os.ReadFile(filepath.Join(dir, "etc/hostname"))
			if err != nil || len(b) > 0 {
				s.Errorf("%q %v", b, err)
			}
		})
		s.change("none", func(dir string) error { return os.RemoveAll(dir + "/etc") })
		if got := s.text(sh("none", "test -e /etc || echo none")); got != "none" {
			s.Errorf("%q", got)
		}
		s.clean()
	})
}

// With the host's network a step could not look up names: it had no resolv.conf.
func TestResolvConf(t *testing.T) {
	host, err := os.ReadFile("/etc/resolv.conf")
	if err != nil {
		t.Skip("left out: this machine has no resolv.conf: ", err)
	}
	runtimes(t, func(s *stand) {
		step := sh("base", "cat /etc/resolv.conf")
		step.Network = NetworkHost
		if got := s.text(step); got != strings.TrimSpace(string(host)) {
			s.Errorf("%q", got)
		}
		other := sh(s.ok(sh("base", "echo other >/etc/resolv.conf")).Snapshot, "cat /etc/resolv.conf")
		if got := s.text(other); got != "other" {
			s.Errorf("%q", got)
		}
		other.Network = NetworkHost
		res := s.ok(other)
		if string(res.Output) != string(host) {
			s.Errorf("%q", res.Output)
		}
		if got := s.read(res.Snapshot, "etc/resolv.conf"); got != "other\n" {
			s.Errorf("in the result: %q", got)
		}
		s.clean()
	})
}

// A step had no HOME, so ~ was nothing, and programs wrote into the working directory.
func TestHome(t *testing.T) {
	runtimes(t, func(s *stand) {
		if got := s.text(sh("base", "echo $HOME")); got != "/" {
			s.Errorf("%q", got)
		}
		made := s.ok(sh("base", "echo 'root:x:0:0::/root:/bin/sh' >/etc/passwd; echo 'ann:x:1000:100::/home/ann:/bin/sh' >>/etc/passwd; echo 'odd:x:7:7::odd:' >>/etc/passwd"))
		for _, c := range []struct {
			user User
			env  []string
			want string
		}{
			{User{}, nil, "/root"}, {User{Name: "ann"}, nil, "/home/ann"}, {User{UID: 1000, GID: 5}, nil, "/home/ann"}, {User{UID: 7}, nil, "/"}, {User{UID: 8}, nil, "/"},
			{User{}, []string{"HOME=/given"}, "/given"}, {User{}, []string{"HOME="}, "/root"},
		} {
			step := sh(made.Snapshot, "echo $HOME")
			step.User, step.Env = c.user, append(step.Env, c.env...)
			if got := s.text(step); got != c.want {
				s.Errorf("%+v %v: %q", c.user, c.env, got)
			}
		}
	})
}

// Terminals are the step's own, and /sys is there and empty.
func TestTerminalsAndSys(t *testing.T) {
	runtimes(t, func(s *stand) {
		for name, script := range map[string]string{
			"terminals":       "test -c /dev/ptmx && test -c /dev/pts/ptmx && ls /dev/pts | wc -l",
			"a terminal":      "exec 3<>/dev/ptmx && ls /dev/pts | grep -c '^0$'",
			"/sys is missing": "test -d /sys && ls -A /sys | wc -l | grep -qx 0 && (mkdir /sys/x 2>/dev/null || echo 1)",
		} {
			if got := s.text(sh("base", script)); got != "1" {
				s.Errorf("%s: %q", name, got)
			}
		}
		user := sh("base", "exec 3<>/dev/ptmx && echo 1")
		user.User = User{UID: 1000, GID: 1000}
		if got := s.text(user); got != "1" {
			s.Errorf("%q", got)
		}
	})
}
