package step

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/worker/mount"
	"holdfast/worker/snapshot"
)

// newMapped is newStand, where steps must have user namespaces.
func newMapped(t testing.TB, o Options) *stand {
	t.Helper()
	s := newStand(t, o)
	s.needIDs()
	return s
}

func (s *stand) needIDs() {
	s.Helper()
	if !s.way().ids.Set() {
		s.Skip("left out: this machine gives steps no user namespaces: ", Isolations(s.ctx, s.root(), "overlay")[0].Lacks)
	}
}

// statusOf are fields of a text like /proc/self/status.
func statusOf(text, field string) string {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.Join(strings.Fields(rest), " ")
		}
	}
	return "none"
}

// namedZFS is another driver under the name of zfs, whose steps are told apart by it.
type namedZFS struct{ snapshot.Driver }

func (namedZFS) Name() string { return "zfs" }

// TestNoUsersOnZFS: whether steps of a store on ZFS can have a user namespace was asked of what
// serves mounts of zfs-fuse, so that with OpenZFS they were thought to have one.
func TestNoUsersOnZFS(t *testing.T) {
	needRoot(t)
	s := &stand{TB: t, ctx: contextOf(t), dir: t.TempDir()}
	s.prepare()
	s.driver = namedZFS{s.driver}
	s.open()
	t.Cleanup(s.close)
	s.busybox("base")
	if got := s.text(sh("base", "cat /proc/self/uid_map")); !strings.Contains(got, "4294967295") {
		t.Errorf("a step has a user namespace: %s", got)
	}
}

// Root in a step was root of the machine, and only what it could not reach kept it from that one's files,
// processes and cgroups.
func TestRootIsUnprivileged(t *testing.T) {
	s := newMapped(t, Options{})
	step := sh("base", "cat /proc/self/uid_map /proc/self/gid_map; cat /proc/self/status; echo begun; sleep 0.2")
	var seen []string
	var text bytes.Buffer
	_, err := s.Run(s.ctx, step, writerFunc(func(b []byte) (int, error) {
		text.Write(b)
		if bytes.Contains(b, []byte("begun")) {
			seen = outsideIDs(t)
		}
		return len(b), nil
	}))
	must(t, err)
	base := strconv.Itoa(int(s.way().ids.Base))
	outside := strings.Join([]string{base, base, base, base}, " ")
	if len(seen) == 0 || slices.ContainsFunc(seen, func(ids string) bool { return ids != outside }) {
		t.Errorf("outside the users of its processes are %q", seen)
	}
	if want := fmt.Sprintf("0 %s %d", base, idCount); strings.Join(strings.Fields(text.String())[:6], " ") != want+" "+want {
		t.Errorf("%s, and not %s", text.String(), want)
	}
	keep := fmt.Sprintf("%016x", allowed())
	none := fmt.Sprintf("%016x", 0)
	for field, want := range map[string]string{
		"CapInh": none, "CapPrm": keep, "CapEff": keep, "CapBnd": keep, "CapAmb": none, "NoNewPrivs": "1", "Seccomp": "2", "Uid": "0 0 0 0", "Gid": "0 0 0 0", "Groups": "none",
	} {
		if got := statusOf(text.String(), field); got != want && !(field == "Groups" && got == "") {
			t.Errorf("%s: %s, and not %s", field, got, want)
		}
	}
}

// outsideIDs are the users of the processes of steps, as the machine sees them.
func outsideIDs(t testing.TB) (list []string) {
	t.Helper()
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range all {
		env, err := os.ReadFile(p + "/environ")
		if err != nil || !strings.Contains(string(env), "HOLDFAST_STEP_MARK="+base) {
			continue
		}
		if status, err := os.ReadFile(p + "/status"); err == nil {
			list = append(list, statusOf(string(status), "Uid"))
		}
	}
	return list
}

// A process that enters a user namespace has all privileges there, and is bounded by nothing. None of its
// children has any that root in a step must not have, whatever they execute and become.
func TestMappedPrivileges(t *testing.T) {
	s := newMapped(t, Options{})
	made := s.ok(sh("base", "echo u:x:1000:1000::/:/bin/sh >/etc/passwd; echo u:x:1000: >/etc/group; mkdir /suid /tmp/suid; cp /bin/busybox /suid/cat; chmod 4755 /suid/cat; cp /bin/busybox /tmp/suid/cat; chown 1000 /tmp/suid/cat; chmod 6755 /tmp/suid/cat"))
	all, none, caps, own := fmt.Sprintf("%016x", allowed()), fmt.Sprintf("%016x", 0), "cat /proc/self/status", "/cat /proc/self/status"
	root := map[string]string{"Uid": "0 0 0 0", "CapInh": none, "CapPrm": all, "CapEff": all, "CapBnd": all, "CapAmb": none, "NoNewPrivs": "1"}
	user := map[string]string{"Uid": "1000 1000 1000 1000", "CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": all, "CapAmb": none, "NoNewPrivs": "1"}
	for _, c := range []struct {
		script string
		uid    uint32
		want   map[string]string
	}{
		{caps, 0, root}, {"sh -c \"exec sh -c '" + caps + "'\"", 0, root}, {"/suid" + own, 0, root}, {"/tmp/suid" + own, 0, root},
		{"su u -s /bin/sh -c \"" + caps + "\"", 0, user}, {"chroot / sh -c \"" + caps + "\"", 0, root},
		{caps, 1000, user}, {"/suid" + own, 1000, user}, {"/tmp/suid" + own, 1000, user},
	} {
		step := sh(made.Snapshot, c.script)
		step.User.UID, step.User.GID = c.uid, c.uid
		got := s.text(step)
		for field, want := range c.want {
			if has := statusOf(got, field); has != want {
				t.Errorf("%s as %d: %s is %s, and not %s", c.script, c.uid, field, has, want)
			}
		}
	}
}

// Results are the same with a user namespace as without one: an id on the disk is what it was for the step.
func TestMappedResults(t *testing.T) {
	host := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(host, "dir/below"), 0o755))
	must(t, os.WriteFile(filepath.Join(host, "dir/file"), []byte("copied"), 0o4750))
	must(t, os.Chown(filepath.Join(host, "dir/file"), 1234, 1234))
	trees := map[UserNamespaces]string{}
	for _, mode := range []UserNamespaces{UserNamespacesAuto, UserNamespacesOff} {
		s := newStand(t, Options{UserNamespaces: mode})
		if mode == UserNamespacesAuto {
			s.needIDs()
		} else if s.way().ids.Set() {
			t.Fatal("there are ids though it is off")
		}
		first := sh("base", `mkdir -p /made/deep /tmp/x; echo x >/made/file; chown 1000:1001 /made/file; chmod 6755 /made/file; mknod /made/fifo p; ln -s ../x /made/link; ln /made/file /made/hard
echo more >>/etc/base; rm /bin/nc; mkdir /made/user; chown 1000 /made/user; mv /made/deep /made/moved; chown 65535:65535 /made/moved; chown -h 7:7 /made/link
echo cached >/cache/file; echo x >/mem/file; stat -c '%u %g %a %n' /mem/* /cache/* /copied/* /dir/* >/made/seen`)
		first.Dir = "/build/dir"
		first.Mounts = []Mount{{Target: "/mem"}, {Cache: "c", Target: "/cache"}}
		first.Copies = []Copy{{Source: filepath.Join(host, "dir"), Target: "/copied/"}, {Source: filepath.Join(host, "dir/file"), Target: "/dir/other"}}
		made := s.ok(first)
		second := sh(made.Snapshot, `id; echo mine >/made/user/mine; mkdir /tmp/mine; chmod 700 /tmp/mine; ! echo x >/made/file; ! chown 0 /made/user/mine; cat /cache/file; echo mine >/cache/mine`)
		second.User, second.Dir, second.Mounts = User{UID: 1000, GID: 1000, Groups: []uint32{5, 65535}}, "/made/user", []Mount{{Cache: "c", Target: "/cache"}}
		res := s.ok(second)
		third := s.ok(sh(res.Snapshot, "stat -c '%u %g %a %n' /made/* /build /build/dir /dir/other >/list; rm -r /made/user; mkdir /made/user"))
		trees[mode] = s.tree(third.Snapshot) + "\n" + string(res.Output) + s.read(third.Snapshot, "made/seen")
		s.clean()
	}
	if a, b := trees[UserNamespacesAuto], trees[UserNamespacesOff]; a != b || !strings.Contains(a, "made/moved d--------- 65535 65535") {
		t.Errorf("with a user namespace\n%s\nand without\n%s", a, b)
	}
}

// tree lists what a snapshot has: kinds, owners, modes, extended attributes.
func (s *stand) tree(name string) string {
	s.Helper()
	list, err := s.namespace.View(s.ctx, "tree", name)
	must(s, err)
	spec, err := mount.FromMounts(list)
	must(s, err)
	h, err := s.mounts.Acquire(s.ctx, spec)
	must(s, err)
	var b strings.Builder
	must(s, filepath.WalkDir(h.Path()+"/", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		names := make([]byte, 1024)
		n, _ := unix.Llistxattr(path, names)
		fmt.Fprintf(&b, "%s %s %d %d %o %d %d %q\n", strings.TrimPrefix(path, h.Path()+"/"), d.Type(), st.Uid, st.Gid, st.Mode, st.Nlink, st.Rdev, names[:max(n, 0)])
		return nil
	}))
	h.Release()
	must(s, s.mounts.Forget(s.ctx, filepath.Join(s.root(), "snapshots")))
	must(s, s.namespace.Remove(s.ctx, "tree"))
	return b.String()
}

// A user whose number is above the ids of a namespace has none, by number and by the name that the base has for it.
func TestUserAboveIDs(t *testing.T) {
	s := newMapped(t, Options{})
	made := s.ok(sh("base", "echo 'high:x:70000:100::/:/bin/sh' >/etc/passwd; echo 'low:x:1000:70000::/:/bin/sh' >>/etc/passwd; mkdir -m 777 /all"))
	for name, u := range map[string]User{"number": {UID: 70000}, "group": {UID: 1, Groups: []uint32{65536}}, "name": {Name: "high"}, "name of a group": {Name: "low"}} {
		step := sh(made.Snapshot, "cat /proc/self/uid_map; id -u; echo x >/all/file; ls -n /all/file")
		step.User = u
		got := s.text(step)
		if !strings.Contains(got, "4294967295") || (strings.Contains(name, "number") || name == "name") && !strings.Contains(got, "70000") {
			t.Errorf("%s: %s", name, got)
		}
	}
	step := sh(made.Snapshot, "cat /proc/self/uid_map")
	step.User.UID = 65535
	if got := s.text(step); strings.Contains(got, "4294967295") {
		t.Error("the last id has no namespace: ", got)
	}
	s.clean()
}

// More users than namespaces are kept.
func TestManyUsers(t *testing.T) {
	s := newMapped(t, Options{})
	for uid := range uint32(maxUsers + 3) {
		step := sh("base", "id -u")
		step.User.UID = uid
		if got := s.text(step); got != fmt.Sprint(uid) {
			t.Errorf("%d: %s", uid, got)
		}
	}
	if n := len(s.way().runtime.(*openNative).users.others); n != maxUsers {
		t.Errorf("%d are kept", n)
	}
}

// What a user may execute, and where it may begin, is found out before it is in its namespace, by ids of the machine.
func TestMappedExecute(t *testing.T) {
	s := newMapped(t, Options{})
	made := s.ok(sh("base", "mkdir /own /group; cp /bin/busybox /own/echo; chown 1000:1000 /own/echo; chmod 700 /own/echo; mkdir -m 700 /private; chown 1000:1000 /private; cp /bin/busybox /group/echo; chown 0:44 /group/echo; chmod 750 /group/echo; cp /own/echo /own/sh; chown 1000 /own/sh; chmod 700 /own/sh; mkdir /only; cp /bin/busybox /only/stat; chmod 711 /only/stat; "+
		"echo '#!/own/sh\necho script' >/bin/script; chmod 755 /bin/script"))
	run := func(uid, gid uint32, dir string, command ...string) (string, error) {
		step := sh(made.Snapshot, "")
		step.Command, step.Dir, step.User = command, dir, User{UID: uid, GID: gid, Groups: []uint32{44 * (uid % 2)}}
		res, err := s.Run(s.ctx, step, nil)
		if err != nil {
			return "", err
		}
		return strings.TrimSpace(string(res.Output)), nil
	}
	for _, c := range []struct {
		uid     uint32
		dir     string
		command []string
		want    string // "": refused
	}{
		{0, "/", []string{"/own/echo", "x"}, "x"}, {1000, "/", []string{"/own/echo", "x"}, "x"}, {1001, "/", []string{"/own/echo", "x"}, ""},
		{0, "/private", []string{"/bin/pwd"}, "/private"}, {1000, "/private", []string{"/bin/pwd"}, "/private"}, {1001, "/private", []string{"/bin/pwd"}, ""},
		{1001, "/", []string{"/group/echo", "x"}, "x"}, {1002, "/", []string{"/group/echo", "x"}, ""}, {0, "/", []string{"/bin/script"}, "script"}, {1001, "/", []string{"/bin/script"}, ""},
		// What a user may execute and not read could not be started; and must not be made to be looked into.
		{0, "/", []string{"/only/stat", "-c", "%u", "/proc/self/environ"}, "0"}, {1001, "/", []string{"/only/stat", "-c", "%u", "/proc/self/environ"}, "65534"},
		{1001, "/", []string{"/bin/stat", "-c", "%u", "/proc/self/environ"}, "1001"},
	} {
		got, err := run(c.uid, c.uid, c.dir, c.command...)
		var f *Failure
		if c.want == "" && (!errors.As(err, &f) || f.Code != 126) || c.want != "" && (err != nil || got != c.want) {
			t.Errorf("%q in %s as %d: %q %v", c.command, c.dir, c.uid, got, err)
		}
	}
	s.clean()
}

// TestExecuteOnly: a program that a user may execute but not read could not be started by that user: the
// filter is written into it.
func TestExecuteOnly(t *testing.T) {
	runtimes(t, func(s *stand) {
		made := s.ok(sh("base", "mkdir /only; cp /bin/busybox /only/id; chmod 711 /only/id"))
		for _, uid := range []uint32{0, 1000, 70000} {
			step := sh(made.Snapshot, "")
			step.Command, step.User = []string{"/only/id", "-u"}, User{UID: uid, GID: uid}
			if got, want := s.text(step), strconv.Itoa(int(uid)); got != want {
				s.Errorf("%s, and not %s", got, want)
			}
		}
		s.clean()
	})
}

// /dev is as it was, but that its nodes belong to no user of the step.
func TestMappedDev(t *testing.T) {
	s := newMapped(t, Options{})
	got := s.text(sh("base", `stat -c '%n %u %g %a' /dev /dev/null /dev/zero /dev/shm /dev/pts /sys /proc/self/ /proc/self/fd/1 2>&1; chmod 600 /dev/null 2>&1 | grep -c permitted; echo x >/dev/null && head -c 1 /dev/zero | wc -c
echo x >/dev/shm/file && stat -c '%u %g' /dev/shm/file; exec 5<>/dev/ptmx && stat -c '%u %g' /dev/pts/0; echo out >/dev/stdout; echo err >/dev/stderr`))
	want := "/dev 0 0 755\n/dev/null 65534 65534 666\n/dev/zero 65534 65534 666\n/dev/shm 0 0 1777\n/dev/pts 65534 65534 755\n/sys 0 0 555\n/proc/self/ 0 0 555\n/proc/self/fd/1 0 0 300\n1\n1\n0 0\n0 5\nout\nerr"
	if got != want {
		t.Errorf("%s\nand not\n%s", got, want)
	}
}

// A network namespace belongs to the machine's user namespace: there root in a step has no privilege to
// listen at low ports.
func TestMappedPorts(t *testing.T) {
	s := newMapped(t, Options{Concurrency: 4})
	var all sync.WaitGroup
	for i := range 8 { // more at once than are made ahead
		all.Go(func() {
			step := sh("base", fmt.Sprintf("(sleep 1000 | nc -l -p 80 >/dev/null &); until nc 127.0.0.1 80 </dev/null 2>/dev/null; do sleep 0.01; done; echo ok %d", i))
			if res, err := s.Run(s.ctx, step, nil); err != nil || !strings.HasPrefix(string(res.Output), "ok") {
				t.Errorf("%v", err)
			}
		})
	}
	all.Wait()
	s.clean()
}

// Root in a step has the rights of root in a directory of the host where ids can be mapped, and those of
// user 65534 elsewhere.
func TestMappedMounts(t *testing.T) {
	s := newMapped(t, Options{})
	dir, over := filepath.Join(s.dir, "shared"), filepath.Join(s.dir, "over")
	for _, d := range []string{dir, over, filepath.Join(s.dir, "u"), filepath.Join(s.dir, "w"), filepath.Join(s.dir, "bottom")} {
		must(t, os.Mkdir(d, 0o755))
	}
	must(t, os.WriteFile(dir+"/private", []byte("private"), 0o600))
	must(t, os.WriteFile(dir+"/public", []byte("public"), 0o644))
	must(t, os.WriteFile(dir+"/all", []byte("all"), 0o666))
	must(t, os.Chmod(dir+"/all", 0o666))
	for _, name := range []string{"private", "public", "all"} { // of their own: a mode that is changed below would show
		b, err := os.ReadFile(filepath.Join(dir, name))
		must(t, err)
		info, err := os.Stat(filepath.Join(dir, name))
		must(t, err)
		must(t, os.WriteFile(filepath.Join(s.dir, "u", name), b, info.Mode()))
		must(t, os.Chmod(filepath.Join(s.dir, "u", name), info.Mode()))
	}
	must(t, unix.Mount("over", over, "overlay", 0, fmt.Sprintf("lowerdir=%s/bottom,upperdir=%s/u,workdir=%s/w", s.dir, s.dir, s.dir)))
	unmount := sync.OnceFunc(func() { must(t, unix.Unmount(over, unix.MNT_DETACH)) })
	t.Cleanup(unmount)
	const script = "stat -c '%u %a' /m/private; cat /m/private /m/public 2>/dev/null; (echo x >>/m/public) 2>/dev/null && echo written; (echo x >>/m/all) && echo all; (echo x >/m/new) 2>/dev/null && echo new; chmod 777 /m/public 2>/dev/null && echo mode; chown 5 /m/all 2>/dev/null && echo owner; true"
	for source, want := range map[string]string{
		dir:  "0 600\nprivatepublicwritten\nall\nnew\nmode\nowner",
		over: "65534 600\npublicall",
	} {
		step := sh("base", script)
		step.Mounts = []Mount{{Source: source, Target: "/m"}}
		if got := s.text(step); got != want {
			t.Errorf("%s: %q, and not %q", source, got, want)
		}
		step = sh("base", "cat /m/public; touch /m/public /m/x 2>/dev/null; chmod 777 /m/all 2>/dev/null; true")
		step.Mounts = []Mount{{Source: source, Target: "/m", ReadOnly: true}}
		if got := s.text(step); !strings.HasPrefix(got, "public") {
			t.Errorf("%s, read-only: %q", source, got)
		}
	}
	unmount()
	var st unix.Stat_t
	must(t, unix.Stat(dir+"/new", &st))
	if st.Uid != 0 {
		t.Errorf("what root in a step has made belongs to %d", st.Uid)
	}
	s.clean()
}

// TestUnmappedSource: what a step had found where the owners of files cannot be shown, all of them 65534
// and nothing private to be read, was the hit of the same step on the same content where they can.
func TestUnmappedSource(t *testing.T) {
	s := newMapped(t, Options{})
	plain, over := filepath.Join(s.dir, "plain"), filepath.Join(s.dir, "over")
	for _, d := range []string{plain, over, filepath.Join(s.dir, "u"), filepath.Join(s.dir, "w"), filepath.Join(s.dir, "bottom")} {
		must(t, os.Mkdir(d, 0o755))
	}
	for _, d := range []string{plain, filepath.Join(s.dir, "bottom")} {
		must(t, os.WriteFile(d+"/private", []byte("private"), 0o600))
	}
	must(t, unix.Mount("over", over, "overlay", 0, fmt.Sprintf("lowerdir=%s/bottom,upperdir=%s/u,workdir=%s/w", s.dir, s.dir, s.dir)))
	unmount := sync.OnceFunc(func() { must(t, unix.Unmount(over, unix.MNT_DETACH)) })
	t.Cleanup(unmount)
	for _, hit := range []bool{false, true} {
		for source, want := range map[string]string{over: "65534\nno", plain: "0\nprivate"} {
			step := sh("base", "stat -c %u /m/private; cat /m/private 2>/dev/null || echo no")
			step.Mounts = []Mount{{Source: source, Target: "/m", ReadOnly: true}}
			res := s.ok(step)
			if got := strings.TrimSpace(string(res.Output)); got != want || res.Hit != hit || res.Uncached != "" {
				t.Errorf("%s: %q, a hit %t, %q; and not %q, %t", source, got, res.Hit, res.Uncached, want, hit)
			}
		}
	}
	// Part of it is enough: what is mounted below cannot be left out.
	must(t, os.Mkdir(plain+"/below", 0o755))
	must(t, unix.Mount(over, plain+"/below", "", unix.MS_BIND, ""))
	below := sync.OnceFunc(func() { must(t, unix.Unmount(plain+"/below", unix.MNT_DETACH)) })
	t.Cleanup(below)
	step := sh("base", "stat -c %u /m/private")
	step.Mounts = []Mount{{Source: plain, Target: "/m", ReadOnly: true}}
	if got := s.text(step); got != "65534" {
		t.Errorf("with a mount below: %s", got)
	}
	below()
	must(t, os.Remove(plain+"/below"))
	unmount()
	s.clean()
}

// TestTargetInUnmapped: directories that were made for a mount and the command, in a directory of the
// machine where ids cannot be shown, belonged to the outside number of root, so to no user of the machine.
func TestTargetInUnmapped(t *testing.T) {
	s := newMapped(t, Options{})
	plain, over := filepath.Join(s.dir, "plain"), filepath.Join(s.dir, "over")
	for _, d := range []string{plain, over, filepath.Join(s.dir, "u"), filepath.Join(s.dir, "w"), filepath.Join(s.dir, "bottom")} {
		must(t, os.Mkdir(d, 0o755))
	}
	must(t, unix.Mount("over", over, "overlay", 0, fmt.Sprintf("lowerdir=%s/bottom,upperdir=%s/u,workdir=%s/w", s.dir, s.dir, s.dir)))
	unmount := sync.OnceFunc(func() { must(t, unix.Unmount(over, unix.MNT_DETACH)) })
	t.Cleanup(unmount)
	must(t, os.WriteFile(s.dir+"/file", nil, 0o644))
	step := sh("base", "stat -c '%n %u' /over/a /over/a/b /over/new /plain/a /plain/a/b /new /new/er; echo x >/new/file")
	step.Mounts = []Mount{
		{Source: over, Target: "/over"}, {Source: plain, Target: "/plain"}, {Target: "/over/a/b"}, {Target: "/plain/a/b"}, {Target: "/new/er"},
		{Source: s.dir + "/file", Target: "/over/file", ReadOnly: true},
	}
	step.Dir = "/over/new/there"
	const want = "/over/a 65534\n/over/a/b 0\n/over/new 65534\n/plain/a 0\n/plain/a/b 0\n/new 0\n/new/er 0"
	if got := s.text(step); got != want {
		t.Errorf("%s\nand not\n%s", got, want)
	}
	for _, name := range []string{over + "/a", over + "/a/b", over + "/new/there", over + "/file", plain + "/a/b"} {
		var st unix.Stat_t
		if err := unix.Stat(name, &st); err != nil || st.Uid != 0 || st.Gid != 0 {
			t.Errorf("%s belongs to %d:%d, %v", name, st.Uid, st.Gid, err)
		}
	}
	unmount()
	s.clean()
}

// Where ids cannot be mapped steps run without, under other ids of their own, and the reason is said once.
func TestMapFallback(t *testing.T) {
	var log bytes.Buffer
	s := newMapped(t, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	mappedID := s.ok(sh("base", "cat /proc/self/uid_map; echo first")).ID
	s.close()
	log.Reset()
	s.mopt.Without = []mount.Feature{mount.FeatureLayerFD}
	s.open()
	if first := s.ok(sh("base", "cat /proc/self/uid_map; echo first")); first.ID == mappedID || first.Hit {
		t.Error("steps with and without are the same")
	}
	res := s.ok(sh("base", "cat /proc/self/uid_map"))
	if !strings.Contains(string(res.Output), "4294967295") {
		t.Errorf("%s", res.Output)
	}
	if n := strings.Count(log.String(), "no user namespace"); n != 1 {
		t.Errorf("said %d times: %s", n, log.String())
	}
	s.close()

	// A driver whose mounts turn out to be of a file system that cannot do it.
	log.Reset()
	s.mopt.Without = nil
	by := &overMounter{dir: filepath.Join(s.dir, "over")}
	must(t, os.Mkdir(by.dir, 0o755))
	s.driver = overDriver{s.driver}
	s.mopt.Mounters = map[string]mount.Mounter{"over": by}
	s.open()
	for range 3 {
		again := s.ok(sh("base", "cat /proc/self/uid_map"))
		if again.ID != res.ID || !again.Hit {
			t.Errorf("another step: %v %v", again.ID == res.ID, again.Hit)
		}
		other := sh("base", "cat /proc/self/uid_map; echo other")
		other.NoCache = true
		if out := s.ok(other); !strings.Contains(string(out.Output), "4294967295") {
			t.Errorf("%s", out.Output)
		}
	}
	if n := strings.Count(log.String(), "no user namespace"); n != 1 {
		t.Errorf("said %d times: %s", n, log.String())
	}
	s.clean()
}

// overMounter mounts overlays at paths: they cannot show other ids.
type overMounter struct {
	dir    string
	mu     sync.Mutex
	serial int
}

func (m *overMounter) Mount(_ context.Context, what mount.Mount) (string, func() error, error) {
	m.mu.Lock()
	m.serial++
	at := filepath.Join(m.dir, fmt.Sprint(m.serial))
	m.mu.Unlock()
	err := os.Mkdir(at, 0o755)
	if err == nil {
		err = unix.Mount("over", at, "overlay", 0, what.Source)
	}
	return at, func() error { return errors.Join(unix.Unmount(at, 0), os.Remove(at)) }, err
}

type overDriver struct{ snapshot.Driver }

func (d overDriver) Mounts(ctx context.Context, t snapshot.Tree, readonly bool) ([]mount.Mount, error) {
	list, err := d.Driver.Mounts(ctx, t, readonly)
	if err == nil && !readonly && list[0].Type == "overlay" {
		list = []mount.Mount{{Type: "over", Source: strings.Join(list[0].Options, ",")}}
	}
	return list, err
}
