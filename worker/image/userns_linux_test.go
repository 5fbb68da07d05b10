package image_test

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/worker/image"
	"holdfast/worker/snapshot/driver/overlay"
	"holdfast/worker/snapshot/drivertest"
)

// asWhom is the environment variable that has a test run as somebody else.
const asWhom = "BASE_AS"

// runAs runs a test of this binary again, as an unprivileged user, or as root of a user namespace of his.
// It reports whether this is that run.
func runAs(t *testing.T, whom string) bool {
	t.Helper()
	if os.Getenv(asWhom) == whom {
		return true
	}
	dir, err := os.MkdirTemp("", "as-"+whom+"-")
	must(t, err)
	t.Cleanup(func() {
		writable(dir)
		must(t, os.RemoveAll(dir))
	})
	program := filepath.Join(dir, "program")
	from, err := os.Open("/proc/self/exe")
	must(t, err)
	defer from.Close()
	to, err := os.OpenFile(program, os.O_CREATE|os.O_WRONLY, 0o755)
	must(t, err)
	_, err = io.Copy(to, from)
	must(t, errors.Join(err, to.Close()))
	cmd := exec.Command(program, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = []string{asWhom + "=" + whom, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + dir}
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	uid, gid := os.Geteuid(), os.Getegid()
	if uid == 0 {
		uid, gid = 65534, 65534
		must(t, os.Chown(dir, uid, gid))
		must(t, os.Chmod(filepath.Dir(dir), 0o711)) // this binary's own
	}
	if whom == "mapped" {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}}
		if os.Geteuid() == 0 {
			cmd.SysProcAttr.GidMappingsEnableSetgroups = true
			cmd.SysProcAttr.Credential = &syscall.Credential{} // root of the namespace
		}
	} else if os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) {
		t.Skip("left out: this machine lets unprivileged users have no user namespaces: ", err)
	}
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("as %s: %v: %s", whom, err, out)
	}
	return false
}

// TestInUserNamespace: root of a user namespace imports into overlays with the option userxattr, and mounts what he has
// imported: whiteouts and opaque directories hide what they should.
func TestInUserNamespace(t *testing.T) {
	if !runAs(t, "mapped") {
		return
	}
	l := simple(t, rich(t)...)
	whole := store(t, "", nil)
	r, err := image.Import(ctx, whole, l.dir, image.Options{})
	must(t, err)
	namespace := store(t, t.TempDir(), overlay.New("userxattr"))
	_, err = image.Import(ctx, namespace, l.dir, image.Options{})
	must(t, err)
	for _, one := range r.Layers {
		drivertest.Equal(t, one.Snapshot, unlinked(see(t, namespace, one.Snapshot)), unlinked(see(t, whole, one.Snapshot)))
	}
}

// TestAsUser: an unprivileged user who imports into overlays, which he cannot mount, leaves the marks that
// count when his namespace mounts them.
func TestAsUser(t *testing.T) {
	if !runAs(t, "user") {
		return
	}
	namespace := store(t, t.TempDir(), overlay.New())
	r, err := image.Import(ctx, namespace, simple(t, rich(t)...).dir, image.Options{})
	must(t, err)
	for _, at := range []struct {
		layer int
		name  string
	}{{1, "opaque"}, {2, "kept"}, {2, "data"}} {
		info, err := namespace.Stat(ctx, r.Layers[at.layer].Snapshot)
		must(t, err)
		path := filepath.Join(namespace.Store().Root(), "snapshots", info.ID.String(), "fs", at.name)
		value := make([]byte, 8)
		n, err := unix.Getxattr(path, "user.overlay.opaque", value)
		if err != nil || string(value[:n]) != "y" {
			t.Errorf("%s: %q, %v", at.name, value[:max(n, 0)], err)
		}
	}
}

// TestUnreadable: an unprivileged user could not import files and directories that their owner may not
// read, as images have for passwords: what he cannot read he cannot copy for the next layer, or measure.
func TestUnreadable(t *testing.T) {
	if !runAs(t, "user") {
		return
	}
	mode := func(m int64) func(h *tar.Header) { return func(h *tar.Header) { h.Mode = m } }
	l := simple(t, gz(archive(t, file("shadow", "x").with(mode(0)), file("sudo", "y").with(mode(0o4111)),
		dir("closed").with(mode(0)), file("closed/f", "z"), dir("listed").with(mode(0o300)), file("listed/f", "z").with(mode(0o200)))),
		gz(archive(t, file("more", "x"), file("closed/g", "z"))))
	namespace := store(t, "", nil)
	r, err := image.Import(ctx, namespace, l.dir, image.Options{})
	must(t, err)
	if r.LeftOut.Modes != 5 {
		t.Errorf("left out: %+v", r.LeftOut)
	}
	info, err := namespace.Stat(ctx, r.Snapshot)
	must(t, err)
	root := filepath.Join(namespace.Store().Root(), "snapshots", info.ID.String(), "fs")
	for name, want := range map[string]fs.FileMode{"shadow": 0o400, "sudo": fs.ModeSetuid | 0o511, "closed": fs.ModeDir | 0o500,
		"listed": fs.ModeDir | 0o700, "listed/f": 0o600, "closed/g": 0o644} {
		if info, err := os.Lstat(filepath.Join(root, name)); err != nil || info.Mode() != want || !info.ModTime().Equal(stamp) {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}
