package confine_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/confine"
)

// stage has a tree, with a file that only its owner may read and one attribute that only root sees, and
// what else Run needs.
func stage(t *testing.T, program string, args ...string) confine.Command {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes namespaces")
	}
	dir := t.TempDir()
	c := confine.Command{Program: program, Args: args, Tree: filepath.Join(dir, "tree"), File: filepath.Join(dir, "file"), Point: filepath.Join(dir, "point")}
	secret := filepath.Join(c.Tree, "closed", "secret")
	check(t, os.MkdirAll(filepath.Dir(secret), 0o700))
	check(t, os.Mkdir(c.Point, 0o700))
	check(t, os.WriteFile(secret, []byte("of the tree"), 0o600))
	check(t, os.Chown(secret, 4711, 4711))
	check(t, unix.Setxattr(filepath.Dir(secret), "trusted.overlay.opaque", []byte("y"), 0))
	check(t, os.WriteFile(c.File, nil, 0o600))
	return c
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestReads: the program reads all of the tree, whatever the modes are, and writes its file, which is
// root's again afterwards.
func TestReads(t *testing.T) {
	c := stage(t, "/bin/sh", "-c", "cat /tree/closed/secret > /file && echo said && echo so >&2")
	out, err := confine.Run(t.Context(), c)
	if err != nil || string(out) != "said\nso" {
		t.Fatalf("%q, %v", out, err)
	}
	if b, err := os.ReadFile(c.File); err != nil || string(b) != "of the tree" {
		t.Errorf("%q, %v", b, err)
	}
	info, err := os.Stat(c.File)
	var st unix.Stat_t
	if e := unix.Stat(c.File, &st); err != nil || e != nil || st.Uid != 0 || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, owner %d, %v", info.Mode(), st.Uid, err)
	}
	if left, err := os.ReadDir(c.Point); err != nil || len(left) > 0 {
		t.Errorf("the root directory is to be seen outside: %v, %v", left, err)
	}
}

// TestConfined: mkfs.erofs ran as root, in the namespaces of the machine, on trees that commands had made.
// What a program tries that such a tree has taken over fails.
func TestConfined(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer l.Close()
	for what, script := range map[string]string{
		"writes to the tree":           "echo x > /tree/new",
		"changes a file of the tree":   "echo x >> /tree/closed/secret",
		"changes an owner in the tree": "chown 0 /tree/closed/secret",
		"reads files of the machine":   "cat /etc/passwd || cat /etc/shadow || ls /root || ls /home || ls /var || ls /proc/1 || ls /sys",
		"writes to the system":         "echo x > /usr/x || echo x > /x || rm /usr/bin/env",
		"sees other processes":         "[ $$ != 1 ]",
		"is root":                      "[ $(id -u) = 0 ]",
		"mounts":                       "mount -t tmpfs none /tree || mount -o remount,rw,bind /tree || umount /tree",
		"makes namespaces":             "unshare -U true || unshare -m true || unshare -r true",
		"enters namespaces":            "nsenter -t 1 -m true",
		"sets the name of the machine": "hostname x",
		"reaches the network":          "exec 3<>/dev/tcp/127.0.0.1/" + l.Addr().String()[strings.LastIndex(l.Addr().String(), ":")+1:],
		"makes devices":                "mknod /file.dev b 8 0",
		"mounts by the call itself":    fmt.Sprintf("perl -e 'exit(syscall(%d, qq(none), qq(/tree), qq(tmpfs), 0, 0) == 0 ? 0 : 1)'", unix.SYS_MOUNT),
		"asks a file system for more":  fmt.Sprintf("perl -e 'open F, qq(/tree/closed/secret); $x = pack(qq(q), 0); exit(ioctl(F, %d, $x) ? 0 : 1)'", uint32(unix.FS_IOC_GETFLAGS)),
		"filters packets":              fmt.Sprintf("perl -e 'exit(syscall(%d, 0, 0, 0) >= 0 ? 0 : 1)'", unix.SYS_BPF),
	} {
		shell := "/bin/sh"
		if strings.Contains(script, "/dev/tcp") {
			shell = "/bin/bash"
		}
		c := stage(t, shell, "-c", script)
		before, err := os.ReadFile(filepath.Join(c.Tree, "closed", "secret"))
		check(t, err)
		out, err := confine.Run(t.Context(), c)
		if err == nil || strings.Contains(err.Error(), "confining") {
			t.Errorf("%s: %v: %s", what, err, out)
		}
		after, err := os.ReadFile(filepath.Join(c.Tree, "closed", "secret"))
		if err != nil || string(after) != string(before) {
			t.Errorf("%s: the tree has %q, %v", what, after, err)
		}
	}
}

// TestEnds: a program that goes on, or takes too much, is killed, with all that it has started.
func TestEnds(t *testing.T) {
	c := stage(t, "/usr/bin/perl", "-e", "$| = 1; fork; print qq(begun\n); sleep 1000")
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(300*time.Millisecond, cancel)
	if out, err := confine.Run(ctx, c); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %q, %v", out, err)
	}
	c = stage(t, "/bin/sh", "-c", "while :; do :; done")
	c.Time = time.Second
	if out, err := confine.Run(t.Context(), c); err == nil {
		t.Errorf("time: %q, %v", out, err)
	}
	c = stage(t, "/usr/bin/perl", "-e", "$x = 'x' x (1 << 30); print length $x")
	c.Memory = 256 << 20
	if out, err := confine.Run(t.Context(), c); err == nil {
		t.Errorf("memory: %q, %v", out, err)
	}
	c = stage(t, "/bin/sh", "-c", "ulimit -s")
	if out, err := confine.Run(t.Context(), c); err != nil || string(out) != "65536" {
		t.Errorf("stack: %q, %v", out, err)
	}
	c = stage(t, "/bin/nothing")
	if out, err := confine.Run(t.Context(), c); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no program: %q, %v", out, err)
	}
}

// TestManyLines: a program that writes without end does not wait for who reads it.
func TestManyLines(t *testing.T) {
	c := stage(t, "/bin/sh", "-c", "i=0; while [ $i -lt 30000 ]; do echo a line of some length; i=$((i+1)); done; exit 3")
	out, err := confine.Run(t.Context(), c)
	if err == nil || len(out) == 0 || len(out) > 64<<10 {
		t.Errorf("%d bytes, %v", len(out), err)
	}
}

// A program could not be run: a child that was being started at that moment, beside it, had a file of the
// new root directory open for writing, which could then not be made read-only.
func TestBesideForks(t *testing.T) {
	c := stage(t, "/bin/true")
	stop := make(chan struct{})
	var forks sync.WaitGroup
	defer forks.Wait()
	defer close(stop)
	for range 4 {
		forks.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_ = exec.Command("/bin/true").Run()
				}
			}
		})
	}
	for range 100 {
		if out, err := confine.Run(t.Context(), c); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
	}
}
