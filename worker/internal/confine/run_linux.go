package confine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/osthread"
)

// nobody is the user that the program runs as.
const nobody = 65534

// capabilities of the program.
var capabilities = []uintptr{unix.CAP_DAC_READ_SEARCH, unix.CAP_SYS_ADMIN}

const (
	stackBytes    = 64 << 20 // a tree of any depth that has a path: programs recurse
	defaultTime   = time.Hour
	defaultMemory = 4 << 30
	maxOutput     = 64 << 10
)

// Run runs the program, and returns what it wrote to its standard output and error. When ctx ends it is killed.
func Run(ctx context.Context, c Command) (out []byte, err error) {
	if _, err := os.Stat(c.Program); err != nil {
		return nil, err
	}
	filter, err := newFilter()
	if err != nil {
		return nil, err
	}
	if err := os.Chown(c.File, nobody, nobody); err != nil {
		return nil, err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, errors.Join(err, write.Close())
	}
	defer null.Close()
	ended := make(chan error, 1)
	osthread.Own(func() {
		// The thread ends with this; nothing else of the process gets to see its namespaces, or lose what it loses.
		err := c.enter()
		if err == nil {
			err = filter.Install()
		}
		if err != nil {
			err = fmt.Errorf("confining %s: %w", c.Program, err)
		} else {
			err = c.run(ctx, null, write)
		}
		ended <- errors.Join(err, write.Close())
	})
	text, readErr := io.ReadAll(io.LimitReader(read, maxOutput))
	_, _ = io.Copy(io.Discard, read) // so that it is not ended by a full pipe
	err = <-ended
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return bytes.TrimSpace(text), errors.Join(err, readErr, os.Chown(c.File, os.Geteuid(), os.Getegid()))
}

// limited is a shell command that bounds what it and the program take that it becomes. (The limits of a process of
// another user can be set from outside only with CAP_SYS_RESOURCE, which root of a container lacks.) One that cannot
// be set is as it was.
const limited = `ulimit -s "$1"; ulimit -t "$2"; ulimit -v "$3"; ulimit -c 0; ulimit -n 1024; shift 3; exec "$@"`

// run starts the program from the calling thread, which is confined, and waits for it.
func (c *Command) run(ctx context.Context, null, out *os.File) error {
	seconds, memory := int64(defaultTime/time.Second), int64(defaultMemory)
	if c.Time > 0 {
		seconds = max(int64(c.Time/time.Second), 1)
	}
	if c.Memory > 0 {
		memory = c.Memory
	}
	args := []string{"-c", limited, "sh", fmt.Sprint(stackBytes >> 10), fmt.Sprint(seconds), fmt.Sprint(memory >> 10), c.Program}
	cmd := exec.CommandContext(ctx, "/bin/sh", append(args, c.Args...)...)
	cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = null, out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID, Pdeathsig: unix.SIGKILL, Setsid: true,
		Credential:  &syscall.Credential{Uid: nobody, Gid: nobody},
		AmbientCaps: capabilities,
	}
	return cmd.Run()
}

// system is what a program needs of the machine to start, besides its own directory. What is not there is left out.
var system = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc/ld.so.cache", "/nix/store", "/gnu/store"}

// enter gives the calling thread namespaces and a root directory of its own, and takes from it what the program must
// not have.
func (c *Command) enter() error {
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS); err != nil {
		return fmt.Errorf("namespaces: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	if err := unix.Mount("holdfast-confined", c.Point, "tmpfs", unix.MS_NODEV|unix.MS_NOSUID|unix.MS_NOEXEC, "size=1m,mode=755"); err != nil {
		return fmt.Errorf("root directory: %w", err)
	}
	const readOnly = unix.MS_RDONLY | unix.MS_NODEV | unix.MS_NOSUID
	for _, path := range append(append([]string{}, system...), filepath.Dir(c.Program)) {
		if err := c.show(path, path, readOnly); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if err := c.show(os.DevNull, os.DevNull, unix.MS_NOSUID|unix.MS_NOEXEC); err != nil {
		return err
	}
	if err := c.show(c.Tree, Tree, readOnly|unix.MS_NOEXEC); err != nil {
		return err
	}
	if err := c.show(c.File, File, unix.MS_NODEV|unix.MS_NOSUID|unix.MS_NOEXEC); err != nil {
		return err
	}
	if err := unix.Mount("", c.Point, "", unix.MS_REMOUNT|readOnly, "size=1m,mode=755"); err != nil {
		return fmt.Errorf("root directory: %w", err)
	}
	if err := unix.Chdir(c.Point); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("detaching the old root: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	var keep uint64
	for _, c := range capabilities {
		keep |= 1 << c
	}
	return osthread.Confine(keep) // the thread needs what it has to start the program as another user
}

// show binds what is at a path of the machine to a name below the root directory; a symbolic link is copied.
func (c *Command) show(path, name string, flags uintptr) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	at := filepath.Join(c.Point, name)
	if _, err := os.Lstat(at); err == nil { // a part of what is there already
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	switch {
	case info.Mode()&os.ModeSymlink != 0:
		target, err := os.Readlink(path)
		if err != nil {
			return err
		}
		return os.Symlink(target, at)
	case info.IsDir():
		err = os.Mkdir(at, 0o755)
	default:
		err = unix.Mknod(at, unix.S_IFREG|0o600, 0) // not opened: a child that is being started would have it open, too
	}
	if err != nil {
		return err
	}
	if err := unix.Mount(path, at, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mounting %s: %w", path, err)
	}
	if err := unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_BIND|flags, ""); err != nil {
		return fmt.Errorf("flags of %s: %w", path, err)
	}
	return nil
}
