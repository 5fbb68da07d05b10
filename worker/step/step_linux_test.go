package step

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/worker/snapshot"
)

// runtimes runs a test with each runtime.
func runtimes(t *testing.T, f func(*stand)) {
	for name, r := range map[string]Runtime{"native": Native(), "init": native{init: true}, "runc": Runc()} {
		t.Run(name, func(t *testing.T) { f(newStand(t, Options{Runtime: r})) })
	}
}

// natives runs a test with both ways of the runtime native to start a command, and without user namespaces.
func natives(t *testing.T, f func(*stand)) {
	for name, r := range map[string]Runtime{"native": Native(), "init": native{init: true}, "plain": native{plain: true}} {
		t.Run(name, func(t *testing.T) { f(newStand(t, Options{Runtime: r})) })
	}
}

func TestHitAndMiss(t *testing.T) {
	runtimes(t, func(s *stand) {
		one := sh("base", "echo said; echo made >/file; cat /etc/base")
		first := s.ok(one)
		if first.Hit || string(first.Output) != "said\nbase\n" || first.OutputSize != 10 {
			s.Fatalf("%+v: %s", first, first.Output)
		}
		second := s.ok(one)
		if !second.Hit || string(second.Output) != "said\nbase\n" || second.Snapshot != first.Snapshot {
			s.Fatalf("%+v", second)
		}
		if got := s.read(first.Snapshot, "file"); got != "made\n" {
			s.Fatalf("%q", got)
		}
		if got := s.text(sh(first.Snapshot, "cat /file /etc/base")); got != "made\nbase" {
			s.Fatalf("%q", got)
		}
		s.clean()
		s.close()
		s.open()
		third := s.ok(one)
		if !third.Hit || string(third.Output) != "said\nbase\n" || third.Duration != second.Duration {
			s.Fatalf("%+v", third)
		}
	})
}

// What the same step sees in each runtime.
func TestSurroundings(t *testing.T) {
	runtimes(t, func(s *stand) {
		dir, file := filepath.Join(s.dir, "shared"), filepath.Join(s.dir, "file")
		must(s, os.Mkdir(dir, 0o777))
		must(s, os.Chmod(dir, 0o777))
		must(s, os.WriteFile(filepath.Join(dir, "in"), []byte("from the host"), 0o644))
		must(s, os.WriteFile(file, []byte("a file"), 0o666))
		must(s, os.Chmod(file, 0o666))
		step := sh("base", `set -e
id -u; id -g; id -G; pwd; echo "$A $B"; hostname; cat /in/in; echo; cat /etc/x/f; echo
echo out >/in/out; echo t >/scratch/t
(echo no >/etc/x/f) 2>/dev/null && echo written
ls -A /dev | sort | tr '\n' ' ' 2>/dev/null || true
echo; echo mine >mine; umask`)
		step.Env = append(step.Env, "B=b c", "A=a")
		step.Dir = "/work/deep"
		step.User = User{UID: 1000, GID: 100, Groups: []uint32{7, 5, 7}}
		step.Mounts = []Mount{{Source: dir, Target: "/in"}, {Source: file, Target: "/etc/x/f", ReadOnly: true}, {Target: "/scratch"}}
		step.Command[2] = strings.Replace(step.Command[2], "echo mine >mine", "test -d /work/deep", 1)
		step.Command[2] = strings.Replace(step.Command[2], "ls -A /dev | sort | tr '\\n' ' ' 2>/dev/null || true", "test -c /dev/null && test -c /dev/urandom && echo x >/dev/null && touch /dev/shm/x && readlink /dev/stdout", 1)
		res := s.ok(step)
		want := "1000\n100\n100 5 7\n/work/deep\na b c\nholdfast\nfrom the host\na file\n/proc/self/fd/1\n\n0022\n"
		if string(res.Output) != want {
			s.Fatalf("%q, and not %q", res.Output, want)
		}
		if b, err := os.ReadFile(filepath.Join(dir, "out")); err != nil || string(b) != "out\n" {
			s.Fatal(string(b), err)
		}
		if got := s.text(sh(res.Snapshot, "ls -A /in /scratch; wc -c </etc/x/f; ls -ld /work/deep")); !strings.HasPrefix(got, "/in:\n\n/scratch:\n0\ndrwxr-xr-x") {
			s.Fatalf("%q", got)
		}
		s.clean()
	})
}

// What a step must not be able to do, as root.
func TestConfined(t *testing.T) {
	runtimes(t, func(s *stand) {
		for name, script := range map[string]string{
			"mount":            "mount -t tmpfs x /tmp",
			"device":           "mknod /sda b 8 0",
			"sysctl":           "echo x >/proc/sys/kernel/core_pattern",
			"sysrq":            "echo h >/proc/sysrq-trigger",
			"hostname":         "hostname other",
			"other processes":  "test $(ls /proc | grep -c '^[0-9]') -gt 6",
			"root of the host": "test -e /usr/bin || test -e " + s.dir,
			"network":          "test $(ls /proc/self/net/dev >/dev/null; grep -c : /proc/self/net/dev) -gt 1",
			"loopback is off":  "ip addr show lo | grep -q 'state DOWN'",
			"new privileges":   "grep -q 'NoNewPrivs:.*0' /proc/self/status",
			"capabilities":     "! grep -q 'CapBnd:.*00000000a00405fb' /proc/self/status || ! grep -q 'CapEff:.*00000000a00405fb' /proc/self/status",
			// Those that the program had inherited, and would have its children inherit, were given to commands.
			"inherited capabilities": "! grep -q 'CapInh:.*0000000000000000' /proc/self/status || ! grep -q 'CapAmb:.*0000000000000000' /proc/self/status",
			"descriptors":            "ls -l /proc/self/fd | grep -q -e '-> /usr'",
			"session":                "kill -0 -1 2>/dev/null && kill -0 $PPID",
		} {
			res, err := s.Run(s.ctx, sh("base", "if { "+script+"; } 2>/dev/null; then echo could; fi"), nil)
			must(s, err)
			if len(res.Output) > 0 {
				s.Errorf("%s: %s", name, res.Output)
			}
		}
		host := sh("base", "grep -c : /proc/self/net/dev")
		host.Network = NetworkHost
		own, err := os.ReadFile("/proc/self/net/dev")
		must(s, err)
		if got := s.text(host); got != fmt.Sprint(bytes.Count(own, []byte(":"))) {
			s.Errorf("%s network devices of %d", got, bytes.Count(own, []byte(":")))
		}
		// And back, if it is the same thread.
		if got := s.text(sh("base", "grep -c : /proc/self/net/dev # again")); got != "1" && got != "2" {
			s.Errorf("%s network devices without a network", got)
		}
		s.clean()
	})
}

// A symbolic link in the base leads nowhere else than into the base.
func TestLinksStayInside(t *testing.T) {
	runtimes(t, func(s *stand) {
		outside := filepath.Join(s.dir, "outside")
		must(s, os.Mkdir(outside, 0o777))
		made := s.ok(sh("base", "ln -s "+outside+" /link; ln -s ../../../../../../../../"+outside+" /rel"))
		step := sh(made.Snapshot, "true")
		step.Mounts = []Mount{{Target: "/link/a"}, {Target: "/rel/b"}}
		if _, err := s.Run(s.ctx, step, nil); err != nil {
			s.Log(err) // it may be refused
		}
		entries, err := os.ReadDir(outside)
		must(s, err)
		if len(entries) > 0 {
			s.Errorf("made outside: %v", entries)
		}
	})
}

// A failed step leaves nothing but what it has said.
func TestFailure(t *testing.T) {
	runtimes(t, func(s *stand) {
		before := countSnapshots(s)
		f := s.fails(sh("base", "echo oh no; dd if=/dev/zero of=/big bs=1024 count=100 2>/dev/null; sleep 1000 & exit 3"), ErrExit)
		if f.Code != 3 || string(f.Output) != "oh no\n" || f.Duration <= 0 {
			s.Errorf("%+v: %s", f, f.Output)
		}
		if f := s.fails(sh("base", "echo x; kill -9 $$; exit 5"), errAny); f.Code == 0 {
			s.Errorf("%+v", f)
		}
		missing := sh("base", "")
		missing.Command = []string{"no-such-program"}
		if f := s.fails(missing, ErrStart); f.Code != 127 {
			s.Errorf("%+v", f)
		}
		missing.Command = []string{"/etc/base"}
		if f := s.fails(missing, ErrStart); f.Code != 126 {
			s.Errorf("%+v", f)
		}
		none := sh("base", "")
		none.Mounts = []Mount{{Source: filepath.Join(s.dir, "nothing"), Target: "/x"}}
		if _, err := s.Run(s.ctx, none, nil); !errors.Is(err, os.ErrNotExist) {
			s.Error(err)
		}
		if _, err := s.Run(s.ctx, sh("no such base", ""), nil); !errors.Is(err, snapshot.ErrNotFound) {
			s.Error(err)
		}
		if after := countSnapshots(s); after != before {
			s.Errorf("%d snapshots, and %d before", after, before)
		}
		s.clean()
		// It is not a hit, and may succeed at another time.
		dir := filepath.Join(s.dir, "d")
		must(s, os.Mkdir(dir, 0o755))
		later := sh("base", "test -e /d/there")
		later.Mounts = []Mount{{Source: dir, Target: "/d"}}
		_ = s.fails(later, ErrExit)
		must(s, os.WriteFile(filepath.Join(dir, "there"), nil, 0o644))
		if res := s.ok(later); res.Hit {
			s.Errorf("%+v", res)
		}
	})
}

// errAny stands for every reason: the first process of a namespace cannot kill itself, so a shell that tries exits.
var errAny = errors.New("any")

func countSnapshots(s *stand) int {
	n := 0
	must(s, s.namespace.Walk(s.ctx, func(snapshot.Info) error { n++; return nil }))
	return n
}

// The same step, wanted by many at once, runs once.
func TestSameAtOnce(t *testing.T) {
	runtimes(t, func(s *stand) {
		dir := s.cache("count")
		step := sh("base", "echo ran >>/count/runs; echo begin; while ! test -e /count/go; do sleep 0.01; done; echo end")
		step.Mounts = []Mount{{Cache: "count", Target: "/count"}}
		var wg sync.WaitGroup
		results := make([]*Result, 20)
		logs := make([]bytes.Buffer, 20)
		for i := range results {
			wg.Go(func() {
				res, err := s.Run(s.ctx, step, &logs[i])
				if err != nil {
					s.Error(err)
					return
				}
				results[i] = res
			})
		}
		waitFile(s, filepath.Join(dir, "runs"))
		// One more that does not wait for the end.
		ctx, cancel := context.WithCancel(s.ctx)
		gone := make(chan error)
		go func() {
			_, err := s.Run(ctx, step, writerFunc(func(b []byte) (int, error) { cancel(); return len(b), nil }))
			gone <- err
		}()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			s.Error(err)
		}
		must(s, os.WriteFile(filepath.Join(dir, "go"), nil, 0o644))
		wg.Wait()
		b, err := os.ReadFile(filepath.Join(dir, "runs"))
		must(s, err)
		if string(b) != "ran\n" {
			s.Errorf("%q", b)
		}
		for i, res := range results {
			if res == nil || string(res.Output) != "begin\nend\n" || logs[i].String() != "begin\nend\n" {
				s.Errorf("%+v, log %q", res, logs[i].String())
			}
		}
		s.clean()
	})
}

// cache makes a cache, and is where its content is.
func (s *stand) cache(name string) string {
	s.Helper()
	step := sh("base", "true")
	step.Mounts = []Mount{{Cache: name, Target: "/cache"}}
	s.ok(step)
	mounts, err := s.namespace.Mounts(s.ctx, CachePrefix+name)
	must(s, err)
	return mounts[0].Source
}

type writerFunc func([]byte) (int, error)

func (w writerFunc) Write(b []byte) (int, error) { return w(b) }

func waitFile(s *stand, path string) {
	s.Helper()
	for s.ctx.Err() == nil {
		if st, err := os.Stat(path); err == nil && st.Size() > 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
	s.Fatalf("%s does not come", path)
}

// When the last who waits goes, the step is killed with all that it has started.
func TestCancel(t *testing.T) {
	runtimes(t, func(s *stand) {
		dir := s.cache("count")
		step := sh("base", "sleep 1000 & (sleep 1000 &); echo ran >>/count/runs; while true; do sleep 1000; done")
		step.Mounts = []Mount{{Cache: "count", Target: "/count"}}
		ctx, cancel := context.WithCancel(s.ctx)
		errs := make(chan error, 3)
		for range 3 {
			go func() {
				_, err := s.Run(ctx, step, nil)
				errs <- err
			}()
		}
		waitFile(s, filepath.Join(dir, "runs"))
		cancel()
		for range 3 {
			if err := <-errs; !errors.Is(err, context.Canceled) {
				s.Error(err)
			}
		}
		// Callers that go first do not wait until it is gone: the same step again does.
		s.close()
		s.open()
		s.clean()
	})
}

// A container that is still being made is killed too.
func TestCancelSoon(t *testing.T) {
	for _, name := range []string{"native", "init", "runc"} {
		s := newStand(t, Options{Runtime: runtimeNamed(name)})
		for i := range 25 {
			ctx, cancel := context.WithCancel(s.ctx)
			s.hook = func(p point, _ ID) {
				if p == atMounted {
					time.AfterFunc(time.Duration(i)*3*time.Millisecond, cancel)
				}
			}
			if _, err := s.Run(ctx, sh("base", "sleep 1000 & sleep 1000"), nil); !errors.Is(err, context.Canceled) {
				t.Errorf("%s, %d: %v", name, i, err)
			}
			s.hook = nil
			s.clean()
		}
	}
}

// Each moment of a run at which it is canceled leaves nothing.
func TestCancelAnywhere(t *testing.T) {
	s := newStand(t, Options{})
	for p := atPrepared; p <= atUnmounted; p++ {
		ctx, cancel := context.WithCancel(s.ctx)
		s.hook = func(now point, _ ID) {
			if now == p {
				cancel()
				<-ctx.Done()
				for { // until the flight knows
					s.mu.Lock()
					left := 0
					for _, f := range s.flights {
						if !f.leaving {
							left++
						}
					}
					s.mu.Unlock()
					if left == 0 {
						return
					}
					time.Sleep(time.Millisecond)
				}
			}
		}
		_, err := s.Run(ctx, sh("base", "echo x >/x"), nil)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("point %d: %v", p, err)
		}
		s.hook = nil
		if n := countSnapshots(s); n != 1 {
			t.Errorf("point %d: %d snapshots", p, n)
		}
		s.clean()
	}
}

func TestTimeLimit(t *testing.T) {
	runtimes(t, func(s *stand) {
		step := sh("base", "echo waiting; sleep 1000 & sleep 1000")
		// A command that says something takes how long the machine lets it take.
		for limit := 100 * time.Millisecond; ; limit *= 2 {
			step.Limits.Time = limit
			f := s.fails(step, ErrTime)
			if string(f.Output) == "waiting\n" {
				break
			}
			if limit > time.Minute {
				s.Fatalf("%q in %v", f.Output, limit)
			}
		}
		s.clean()
	})
}

func TestLimits(t *testing.T) {
	runtimes(t, func(s *stand) {
		step := sh("base", "head -c 100000000 /dev/zero >/dev/shm/x; echo $?")
		step.Limits.Memory = 16 << 20
		f := s.fails(sh2(step, "exec dd if=/dev/zero of=/dev/shm/x bs=1048576 count=60"), ErrMemory)
		if f.Usage.Memory > 16<<20 || f.Usage.Memory == 0 {
			s.Errorf("%+v", f.Usage)
		}
		pids := sh("base", "for i in $(seq 40); do sleep 1000 & done; echo all")
		pids.Limits.Pids = 20 // runc needs some itself, before the command begins
		if f := s.fails(pids, ErrExit); strings.Contains(string(f.Output), "all") {
			s.Errorf("%q", f.Output)
		}
		all := sh("base", "")
		all.Limits.CPU, all.Limits.Pids, all.Limits.Memory = 0.5, 100, 1<<30
		s.whileRunning(all, func() {
			if got := s.groupFile("pids.max"); got != "100" {
				s.Errorf("%q processes are possible", got)
			}
		})
		disk := sh("base", "dd if=/dev/urandom of=/big bs=1024 count=300; echo done")
		disk.Limits.Disk = 256 << 10
		s.diskInterval = time.Hour // it ends by itself, on a slow machine, too
		if f := s.fails(disk, ErrDisk); !strings.Contains(string(f.Output), "done") {
			s.Errorf("%q", f.Output)
		}
		s.diskInterval = diskInterval
		endless := sh("base", "while true; do dd if=/dev/urandom of=/big bs=1024 count=300 conv=notrunc; done")
		endless.Limits.Disk = 256 << 10
		_ = s.fails(endless, ErrDisk)
		s.clean()
	})
}

// whileRunning runs a step that does nothing, and calls a function meanwhile.
func (s *stand) whileRunning(step Step, do func()) {
	s.Helper()
	dir, err := os.MkdirTemp(s.dir, "hold")
	must(s, err)
	must(s, os.Chmod(dir, 0o777))
	step.Mounts = append(step.Mounts, Mount{Source: dir, Target: "/hold"})
	ended := make(chan error, 1)
	go func() {
		_, err := s.Run(s.ctx, sh2(step, "echo begun >/hold/begun; while ! test -e /hold/go; do sleep 0.01; done"), nil)
		ended <- err
	}()
	waitFile(s, filepath.Join(dir, "begun"))
	do()
	must(s, os.WriteFile(filepath.Join(dir, "go"), nil, 0o644))
	must(s, <-ended)
}

// groupFile is a file of the cgroup of the one step that runs.
func (s *stand) groupFile(name string) string {
	s.Helper()
	var found []string
	for _, where := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		files, _ := filepath.Glob(filepath.Join(where, DefaultCgroup(s.root()), "*-*", name))
		found = append(found, files...)
	}
	if len(found) != 1 {
		s.Fatalf("files %s: %v", name, found)
	}
	b, err := os.ReadFile(found[0])
	must(s, err)
	return strings.TrimSpace(string(b))
}

func sh2(s Step, script string) Step {
	s.Command = []string{"/bin/sh", "-c", script}
	return s
}

// A limit that cannot be had is an error, not ignored.
func TestNoCgroups(t *testing.T) {
	for _, r := range []Runtime{Native(), Runc()} {
		s := newStand(t, Options{Runtime: r})
		switch o := s.way().runtime.(type) {
		case *openNative:
			o.cgroups.v1, o.cgroups.has = map[string]string{}, nil
		case *openRunc:
			o.cgroups.v1, o.cgroups.has = map[string]string{}, nil
		}
		step := sh("base", "true")
		step.Limits.Memory = 1 << 20
		if _, err := s.Run(s.ctx, step, nil); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "memory") {
			t.Error(err)
		}
		s.clean()
	}
}

func TestOutputIsBounded(t *testing.T) {
	runtimes(t, func(s *stand) {
		s.close()
		s.opt.MaxOutput = 1000
		s.open()
		res := s.ok(sh("base", "echo first; yes x | head -n 100000; echo last"))
		if res.OutputSize != 200011 || len(res.Output) > 1100 || !bytes.HasPrefix(res.Output, []byte("first\nx\n")) || !bytes.HasSuffix(res.Output, []byte("x\nlast\n")) ||
			!bytes.Contains(res.Output, []byte("\n[199011 bytes of the output are left out here]\n")) {
			s.Errorf("%d: %q", res.OutputSize, res.Output)
		}
		again := s.ok(sh("base", "echo first; yes x | head -n 100000; echo last"))
		if !again.Hit || !bytes.Equal(again.Output, res.Output) || again.OutputSize != 200011 {
			s.Errorf("%+v", again)
		}
		s.clean()
	})
}

// While a step runs its base cannot be taken away; after it, and after a crash, its base is as free as before.
func TestBaseIsHeld(t *testing.T) {
	s := newStand(t, Options{Hold: -1})
	prune := func() int {
		var list []snapshot.Doomed
		must(t, s.store.Prunable(s.ctx, func(c snapshot.Candidate) bool {
			list = append(list, snapshot.Doomed{ID: c.ID, LastUsed: c.LastUsed})
			return true
		}))
		removed, err := s.store.Prune(s.ctx, list)
		must(t, err)
		return len(removed)
	}
	for p := atPrepared; p <= atUnmounted; p++ {
		s.hook = func(now point, _ ID) {
			if now != p {
				return
			}
			if n := prune(); n != 0 {
				t.Errorf("point %d: %d pruned", p, n)
			}
			if err := s.namespace.Remove(s.ctx, "base"); !errors.Is(err, snapshot.ErrInUse) {
				t.Errorf("point %d: %v", p, err)
			}
		}
		_ = s.fails(sh("base", "false"), ErrExit)
	}
	s.hook = nil
	s.ok(sh("base", "true"))
	if n := prune(); n != 1 {
		t.Errorf("%d pruned", n)
	}
	if n := prune(); n != 1 {
		t.Errorf("%d pruned: the base", n)
	}
}

// A hit whose snapshot was pruned runs again; its record goes.
func TestPruned(t *testing.T) {
	s := newStand(t, Options{MaxOutput: 1 << 20})
	long := sh("base", "seq 50000") // output that takes blobs
	first := s.ok(long)
	short := s.ok(sh("base", "echo x"))
	must(t, s.namespace.Remove(s.ctx, first.Snapshot))
	must(t, s.namespace.Remove(s.ctx, short.Snapshot))
	if _, err := s.Lookup(s.ctx, long); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	second := s.ok(long)
	if second.Hit || second.ID != first.ID || !bytes.Equal(second.Output, first.Output) {
		t.Errorf("%+v", second)
	}
	if res, err := s.Lookup(s.ctx, long); err != nil || !res.Hit {
		t.Error(err)
	}
	must(t, s.Forget(s.ctx, []string{"base", first.Snapshot, short.Snapshot}))
	if report, err := s.Check(s.ctx); err != nil || report.Results != 1 || report.Pruned != 0 {
		t.Error(report, err)
	}
	must(t, s.namespace.Remove(s.ctx, first.Snapshot))
	s.close()
	s.open()
	s.Runner.background.Wait() // the sweep
	if report, err := s.Check(s.ctx); err != nil || report.Results != 0 {
		t.Error(report, err)
	}
	s.clean()
}

// A snapshot without a record is adopted.
func TestAdopted(t *testing.T) {
	s := newStand(t, Options{})
	step := sh("base", "echo x; echo y >/y")
	res := s.ok(step)
	must(t, s.results.drop([]ID{res.ID}, ^uint64(0)))
	for range 2 {
		again := s.ok(step)
		if !again.Hit || !again.Adopted || len(again.Output) != 0 {
			t.Errorf("%+v", again)
		}
	}
	if got := s.read(res.Snapshot, "y"); got != "y\n" {
		t.Error(got)
	}
	s.clean()
}

// A base of the same name is another base, unless its name is that of a result.
func TestOtherBase(t *testing.T) {
	s := newStand(t, Options{})
	first := s.ok(sh("base", "cat /etc/base"))
	upper := s.ok(sh(first.Snapshot, "echo upper"))
	for _, name := range []string{upper.Snapshot, first.Snapshot, "base"} {
		must(t, s.namespace.Remove(s.ctx, name))
	}
	s.busybox("base")
	second := s.ok(sh("base", "cat /etc/base"))
	if second.ID == first.ID || second.Hit {
		t.Errorf("%+v", second)
	}
	must(t, s.namespace.Remove(s.ctx, second.Snapshot))
	second = s.ok(sh("base", "cat /etc/base"))
	again := s.ok(sh(second.Snapshot, "echo upper"))
	must(t, s.namespace.Remove(s.ctx, again.Snapshot))
	must(t, s.namespace.Remove(s.ctx, second.Snapshot))
	second = s.ok(sh("base", "cat /etc/base"))
	if same := s.ok(sh(second.Snapshot, "echo upper")); same.ID != again.ID {
		t.Errorf("%v and %v", same.ID, again.ID)
	}
}

func TestRuncMissing(t *testing.T) {
	s := newStand(t, Options{})
	s.Runner.Close()
	s.opt.Runtime = runc{program: "holdfast-no-runc"}
	_, err := New(s.ctx, s.opt)
	if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "package runc") {
		t.Error(err)
	}
	s.opt.Runtime = nil
	s.Runner, err = New(s.ctx, s.opt)
	must(t, err)
	s.ok(sh("base", "true"))
}

func TestClosed(t *testing.T) {
	s := newStand(t, Options{})
	done := make(chan error)
	begun := make(chan struct{})
	go func() {
		_, err := s.Run(s.ctx, sh("base", "echo begun; sleep 1000"), writerFunc(func(b []byte) (int, error) { close(begun); return len(b), nil }))
		done <- err
	}()
	<-begun
	must(t, s.Runner.Close())
	if err := <-done; !errors.Is(err, ErrCanceled) {
		t.Error(err)
	}
	if _, err := s.Run(s.ctx, sh("base", "true"), nil); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	must(t, s.Runner.Close())
	if n := countSnapshots(s); n != 1 {
		t.Errorf("%d snapshots", n)
	}
}

// Threads that start commands lose their privileges; others do not.
func TestPrivilegesStay(t *testing.T) {
	s := newStand(t, Options{})
	for i := range 10 {
		s.ok(sh("base", fmt.Sprint("true ", i)))
	}
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			n, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
			if err != nil || n != 0 {
				t.Error("a goroutine has lost privileges", n, err)
			}
		})
	}
	wg.Wait()
}

// A step that was run again after its result was removed keeps its record, however late the old one is forgotten.
func TestForgetFresh(t *testing.T) {
	s := newStand(t, Options{})
	step := sh("base", "echo x")
	res := s.ok(step)
	must(t, s.results.drop([]ID{res.ID}, uint64(res.Created.UnixNano())))
	if again := s.ok(step); !again.Hit || again.Adopted {
		t.Errorf("%+v", again)
	}
}
