package step

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/worker/mount"
)

// secretOf is a secret with a content.
func secretOf(id, text string) Secret {
	return Secret{ID: id, Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }}
}

// everyWay runs a test in all ways in which a step can run here.
func everyWay(t *testing.T, f func(*stand)) {
	for _, name := range []string{"native", "plain", "init", "runc"} {
		t.Run(name, func(t *testing.T) { f(newStand(t, Options{Runtime: runtimeNamed(name)})) })
	}
}

// TestSecret: the step's user sees a read-only file, and the result has neither it nor what it was mounted on.
func TestSecret(t *testing.T) {
	everyWay(t, func(s *stand) {
		made := s.ok(sh("base", "true")) // with the directories that each step has
		root := s.text(sh(made.Snapshot, "stat -c %Y%n /"))
		step := sh(made.Snapshot, "cat /run/secrets/one; stat -c ' %a %u:%g' /run/secrets/one; cat /etc/x/two; stat -c ' %a' /etc/x/two; grep -c ' /run/secrets/one ro,' /proc/self/mountinfo; stat -f -c %T /etc/x/two")
		two := secretOf("two", "another")
		two.Target, two.Mode = "/etc/x/two", 0o440
		step.Secrets, step.User = []Secret{secretOf("one", "hidden"), two}, User{UID: 1000, GID: 50}
		res := s.ok(step)
		if got := string(res.Output); got != "hidden 400 1000:50\nanother 440\n1\nramfs\n" && got != "hidden 400 1000:50\nanother 440\n1\nUNKNOWN\n" {
			s.Errorf("%q", got)
		}
		look := sh(res.Snapshot, "ls -d /run /etc/x 2>/dev/null; stat -c %Y%n /; true")
		if got := s.text(look); got != root {
			s.Errorf("the result has %q, and the base %q", got, root)
		}
		step.Secrets = []Secret{two, secretOf("one", "changed")}
		step.Secrets[1].Open = func() (io.ReadCloser, error) { return nil, errors.New("it was opened") }
		if again := s.ok(step); !again.Hit || again.ID != res.ID {
			s.Errorf("another content: %+v", again)
		}
		for what, change := range map[string]func(*Secret){"name": func(o *Secret) { o.ID = "other" }, "target": func(o *Secret) { o.Target = "/else" }, "mode": func(o *Secret) { o.Mode = 0o404 }} {
			other := step
			one := secretOf("one", "hidden")
			one.Target = "/run/secrets/one"
			change(&one)
			other.Secrets = []Secret{two, one}
			p, err := s.plan(s.ctx, normal(s, other))
			if err != nil || p.id == res.ID {
				s.Errorf("another %s is the same step: %v", what, err)
			}
		}
		s.clean()
	})
}

// holding lists the files below a directory that have a text, and the processes with one in their command line or
// environment.
func holding(t testing.TB, text, dir string) (found []string) {
	t.Helper()
	look := func(name string) {
		f, err := os.Open(name)
		if err != nil {
			return // a process that has ended, or a socket
		}
		defer f.Close()
		b, _ := io.ReadAll(f)
		if bytes.Contains(b, []byte(text)) {
			found = append(found, name)
		}
	}
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			look(path)
		}
		if strings.Contains(path, text) {
			found = append(found, path)
		}
		return nil
	}))
	for _, what := range []string{"cmdline", "environ"} {
		all, _ := filepath.Glob("/proc/[0-9]*/" + what)
		for _, name := range all {
			look(name)
		}
	}
	return found
}

// TestSecretIsNowhere looks for a secret while the step runs and afterwards, when it succeeds, fails, and is canceled.
func TestSecretIsNowhere(t *testing.T) {
	for _, name := range []string{"native", "plain", "init", "runc"} {
		t.Run(name, func(t *testing.T) {
			var log lockedBuffer
			s := newStand(t, Options{Runtime: runtimeNamed(name), Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
			text := rand.Text()
			for _, end := range []string{"exit 0", "exit 3", "sleep 1000; exit"} {
				ctx, cancel := context.WithCancel(s.ctx)
				step := sh("base", "wc -c </run/secrets/s; cp /run/secrets/s /dev/shm/copy; echo begun; sleep 0.3; "+end)
				step.Secrets = []Secret{secretOf("s", text)}
				looked := false
				res, err := s.Run(ctx, step, writerFunc(func(b []byte) (int, error) {
					if bytes.Contains(b, []byte("begun")) {
						looked = true
						if found := holding(t, text, s.dir); len(found) > 0 {
							t.Errorf("%s: while it runs it is in %v", end, found)
						}
						if strings.HasPrefix(end, "sleep") {
							cancel()
						}
					}
					return len(b), nil
				}))
				cancel()
				if !looked || (err == nil) != (end == "exit 0") {
					t.Errorf("%s: %v, %t", end, err, looked)
				}
				if err == nil && string(res.Output) != fmt.Sprintf("%d\nbegun\n", len(text)) {
					t.Errorf("%q", res.Output)
				}
				if found := holding(t, text, s.dir); len(found) > 0 {
					t.Errorf("%s: afterwards it is in %v", end, found)
				}
				if err != nil && strings.Contains(fmt.Sprintf("%+v", err), text) {
					t.Errorf("%s: the error has it: %v", end, err)
				}
				s.clean()
			}
			if strings.Contains(log.String(), text) {
				t.Errorf("the log has it: %s", log.String())
			}
		})
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// TestSecretHostile: root in a step neither writes a secret nor leaves the file system that it is in, nor has it stay.
func TestSecretHostile(t *testing.T) {
	everyWay(t, func(s *stand) {
		text := rand.Text()
		step := sh("base", `f=/run/secrets/s; cd /
try() { ("$@") >/dev/null 2>&1 && echo "SUCCEEDED: $*"; }
put() { echo x >>$f; }
cut() { : >$f; }
try put; try cut; try chmod 666 $f; try touch $f; try rm $f; try mv $f /s; try ln $f /hard; try dd if=/dev/zero of=$f bs=1 count=1 conv=notrunc
try mount -o remount,rw $f; try mount -o remount,bind,rw $f; try mount -o bind $f /tmp; try chmod 777 /proc/self/fd/3 3<$f
try test -e $f/..; try ls /run/secrets/../../0; try cat /run/secrets/0
ls /run/secrets | grep -v '^s$'; cat $f`)
		step.Secrets = []Secret{secretOf("s", text), secretOf("t", "of the other")}
		step.Secrets[1].Target = "/run/t"
		if got := s.text(step); got != text {
			s.Errorf("%s", strings.ReplaceAll(got, text, "SECRET"))
		}
		s.clean()
	})
}

// TestSecretTargets: links of the base lead a secret nowhere out of the step, and nothing of the base is changed by
// what it is mounted on.
func TestSecretTargets(t *testing.T) {
	everyWay(t, func(s *stand) {
		outside := filepath.Join(s.dir, "outside")
		must(s, os.MkdirAll(outside, 0o777))
		text := rand.Text()
		for script, works := range map[string]bool{
			"true":                                        true,
			"mkdir -p /run; ln -s /etc /run/secrets":      true,  // mounted in /etc, and gone from there
			"ln -s " + outside + " /run":                  false, // nothing in the base is there
			"ln -s ../../../../../.." + outside + " /run": false,
			"mkdir -p /run/secrets; ln -s " + outside + "/x /run/secrets/s":       false,
			"mkdir -p /run/secrets; ln -s /kept /run/secrets/s; echo kept >/kept": true,
			"mkdir -p /run/secrets; ln -s s /run/secrets/s":                       false,
			"mkdir -p /run/secrets; echo kept >/run/secrets/s":                    true,
			"mkdir -p /run/secrets/s":                                             false,
			"echo x >/run":                                                        false,
			"mkdir -p /run/secrets; mknod /run/secrets/s p":                       true,
		} {
			made := s.ok(sh("base", script))
			const list = "find / -xdev -path /proc -prune -o -path /sys -prune -o -path /dev -prune -o -print; test ! -f /run/secrets/s || cat /run/secrets/s; stat -c %Y /; true"
			before := s.text(sh(made.Snapshot, list))
			step := sh(made.Snapshot, "wc -c </run/secrets/s")
			step.Secrets = []Secret{secretOf("s", text)}
			res, err := s.Run(s.ctx, step, nil)
			if (err == nil) != works || err == nil && string(res.Output) != fmt.Sprintln(len(text)) {
				s.Errorf("%s: %+v, %v", script, res, err)
			}
			if err == nil {
				if after := s.text(sh(res.Snapshot, list)); after != before {
					s.Errorf("%s: before\n%s\nand after\n%s", script, before, after)
				}
			}
		}
		if found, err := os.ReadDir(outside); err != nil || len(found) > 0 {
			s.Errorf("of the host: %v, %v", found, err)
		}
		if found := holding(s, text, s.dir); len(found) > 0 {
			s.Errorf("it is in %v", found)
		}
		s.clean()
	})
}

// TestSecretPoints: what a command puts beside a secret stays, and what it puts in the place of a directory that was
// made for it is not taken away.
func TestSecretPoints(t *testing.T) {
	everyWay(t, func(s *stand) {
		step := sh("base", "echo mine >/run/mine; mkdir /moved; mv /run/secrets /moved/secrets; mkdir /run/secrets; : >/run/secrets/s; mkdir /keep; : >/keep/s; mkdir /a; mv /tmp /a/tmp; mv /x/y /a/y; mkdir /x/y")
		other := secretOf("t", "hidden")
		other.Target = "/x/y/t"
		step.Secrets = []Secret{secretOf("s", "hidden"), other}
		res := s.ok(step)
		if got := s.text(sh(res.Snapshot, "cat /run/mine; find /run /moved /keep -type f | while read f; do echo $f $(wc -c <$f); done; find /x /a/y")); got != "mine\n/run/mine 5\n/run/secrets/s 0\n/keep/s 0\n/x\n/x/y\n/a/y" {
			s.Errorf("%q", got)
		}
		inTmpfs := sh("base", "cat /t/d/s")
		inTmpfs.Mounts, inTmpfs.Secrets = []Mount{{Target: "/t"}}, []Secret{secretOf("s", "hidden")}
		inTmpfs.Secrets[0].Target = "/t/d/s"
		res = s.ok(inTmpfs)
		if got := s.text(sh(res.Snapshot, "find /t")); string(res.Output) != "hidden" || got != "/t" {
			s.Errorf("in a tmpfs: %q; and then %q", res.Output, got)
		}
		s.clean()
	})
}

// TestSecretContent: what is too long, cannot be had, or never comes.
func TestSecretContent(t *testing.T) {
	s := newStand(t, Options{})
	step := sh("base", "wc -c </run/secrets/s")
	for size, want := range map[int]error{0: nil, MaxSecret: nil, MaxSecret + 1: ErrInvalid, 8 << 20: ErrInvalid} {
		step.Env = append(sh("", "").Env, fmt.Sprint("N=", size))
		step.Secrets = []Secret{secretOf("s", strings.Repeat("x", size))}
		res, err := s.Run(s.ctx, step, nil)
		if !errors.Is(err, want) || err == nil && strings.TrimSpace(string(res.Output)) != fmt.Sprint(size) {
			t.Errorf("%d bytes: %+v, %v", size, res, err)
		}
	}
	broken := errors.New("broken")
	step.Env = sh("", "").Env
	step.Secrets[0].Open = func() (io.ReadCloser, error) { return nil, broken }
	if _, err := s.Run(s.ctx, step, nil); !errors.Is(err, broken) || !strings.Contains(err.Error(), "secret s") {
		t.Error(err)
	}
	r, w := io.Pipe()
	ctx, cancel := context.WithCancel(s.ctx)
	step.Secrets[0].Open = func() (io.ReadCloser, error) {
		time.AfterFunc(10*time.Millisecond, cancel)
		return r, nil
	}
	if _, err := s.Run(ctx, step, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	must(t, w.Close())
	s.clean()
}

// TestSecretInvalid: what can never be right.
func TestSecretInvalid(t *testing.T) {
	good := secretOf("s", "x")
	with := func(change func(*Step, *Secret)) Step {
		step, one := sh("base", "true"), good
		change(&step, &one)
		step.Secrets = append(step.Secrets, one)
		return step
	}
	if _, err := with(func(*Step, *Secret) {}).normalize(); err != nil {
		t.Error(err)
	}
	for what, bad := range map[string]Step{
		"no name":     with(func(_ *Step, s *Secret) { s.ID = "" }),
		"..":          with(func(_ *Step, s *Secret) { s.ID = ".." }),
		"/":           with(func(_ *Step, s *Secret) { s.ID = "a/b" }),
		"newline":     with(func(_ *Step, s *Secret) { s.ID = "a\n" }),
		"relative":    with(func(_ *Step, s *Secret) { s.Target = "s" }),
		"root":        with(func(_ *Step, s *Secret) { s.Target = "/" }),
		"directory":   with(func(_ *Step, s *Secret) { s.Target = "/s/" }),
		"proc":        with(func(_ *Step, s *Secret) { s.Target = "/proc/self/x" }),
		"dev":         with(func(_ *Step, s *Secret) { s.Target = "/x/../dev/shm/s" }),
		"set-user-ID": with(func(_ *Step, s *Secret) { s.Mode = 0o400 | fs.ModeSetuid }),
		"no content":  with(func(_ *Step, s *Secret) { s.Open = nil }),
		"twice":       with(func(st *Step, _ *Secret) { st.Secrets = []Secret{good} }),
		"in a mount":  with(func(st *Step, _ *Secret) { st.Mounts = []Mount{{Source: "/usr", Target: "/run"}} }),
		"in a cache":  with(func(st *Step, _ *Secret) { st.Mounts = []Mount{{Cache: "c", Target: "/run/secrets"}} }),
		"at a tmpfs":  with(func(st *Step, _ *Secret) { st.Mounts = []Mount{{Target: "/run/secrets/s"}} }),
		"too many":    with(func(st *Step, _ *Secret) { st.Secrets = make([]Secret, MaxSecrets) }),
	} {
		if _, err := bad.normalize(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestSecretHeldOpen: a process outside that has got hold of the file, as only root can, finds it empty when the step
// has ended.
func TestSecretHeldOpen(t *testing.T) {
	everyWay(t, func(s *stand) {
		mark := rand.Text()
		gate := filepath.Join(s.dir, "gate")
		must(s, os.Mkdir(gate, 0o777))
		must(s, os.Chmod(gate, 0o777))
		step := sh("base", "echo begun; while ! test -e /gate/go; do sleep 0.01; done")
		step.Env = append(step.Env, "MARK="+mark)
		step.Mounts = []Mount{{Source: gate, Target: "/gate"}}
		step.Secrets = []Secret{secretOf("s", "hidden")}
		var held *os.File
		_, err := s.Run(s.ctx, step, writerFunc(func(b []byte) (int, error) {
			all, _ := filepath.Glob("/proc/[0-9]*/environ")
			for _, name := range all {
				if env, err := os.ReadFile(name); err == nil && held == nil && bytes.Contains(env, []byte("MARK="+mark)) {
					held, _ = os.Open(filepath.Join(filepath.Dir(name), "root/run/secrets/s"))
				}
			}
			return len(b), os.WriteFile(filepath.Join(gate, "go"), nil, 0o644)
		}))
		must(s, err)
		if held == nil {
			s.Fatal("the file was not found")
		}
		if n, err := held.ReadAt(make([]byte, 10), 0); n != 0 || !errors.Is(err, io.EOF) {
			s.Errorf("%d bytes, %v", n, err)
		}
		must(s, held.Close())
		s.clean()
	})
}

// TestSecretOnOlderKernels: before Linux 6.15 a mount that is not attached cannot be cloned.
func TestSecretOnOlderKernels(t *testing.T) {
	for _, name := range []string{"plain", "init", "runc"} {
		t.Run(name, func(t *testing.T) {
			needRoot(t)
			s := &stand{TB: t, ctx: contextOf(t), dir: t.TempDir(), opt: Options{Runtime: runtimeNamed(name)}, mopt: mount.Options{Without: []mount.Feature{mount.FeatureCloneDetached}}}
			s.prepare()
			s.open()
			t.Cleanup(s.close)
			s.busybox("base")
			step := sh("base", "cat /run/secrets/one /two")
			step.Secrets = []Secret{secretOf("one", "hidden "), secretOf("two", "too")}
			step.Secrets[1].Target = "/two"
			if got := s.text(step); got != "hidden too" {
				t.Errorf("%q", got)
			}
			s.clean()
		})
	}
}
