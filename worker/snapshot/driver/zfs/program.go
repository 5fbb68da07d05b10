package zfs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"holdfast/worker/internal/zfsfuse"
	"holdfast/worker/snapshot"
)

// What the program says that is to be told from other failures.
var (
	errExists = errors.New("the dataset exists")
	errGone   = errors.New("the dataset does not exist")
	errBusy   = errors.New("the dataset is busy")
)

var sayings = []struct {
	said string
	err  error
}{
	{"dataset already exists", errExists},
	{"dataset does not exist", errGone},
	{"could not find any snapshots to destroy", errGone},
	{"dataset is busy", errBusy},
	{"filesystem already mounted", errBusy},
	{"mountpoint or dataset is busy", errBusy},
	{"out of space", syscall.ENOSPC},
	{"No space left on device", syscall.ENOSPC},
}

// limit is how long a call of the program may take: as long as a pool that is slow needs for what
// was written.
const limit = 5 * time.Minute

// program is zfs, and what it can do.
type program struct {
	path string
	lock string // a file that commands which change something hold while they run; "": none
	fuse bool   // zfs-fuse: it mounts by itself, and lacks what came later
}

// findProgram looks for the program, and asks it what it is.
func findProgram(ctx context.Context) (*program, error) {
	path, err := LookPath()
	if err != nil {
		return nil, fmt.Errorf("the program zfs is missing; Debian has it in zfsutils-linux, and in zfs-fuse: %w (%w)", err, snapshot.ErrUnsupported)
	}
	p := &program{path: path, fuse: zfsfuse.Seen()} // until it is known: it asks the daemon even for what it does not know
	// OpenZFS knows the command since 0.8. What is older and not on Linux is in the kernel all
	// the same.
	_, err = p.run(ctx, "version")
	switch {
	case err == nil:
		p.fuse = false
	case strings.Contains(err.Error(), "unrecognized command") || strings.Contains(err.Error(), "zfs-fuse daemon"): // is running, or is not
		p.fuse = runtime.GOOS == "linux"
	default:
		return nil, err
	}
	return p, nil
}

// sbin is where the programs of an administrator are.
var sbin = []string{"/sbin", "/usr/sbin", "/usr/local/sbin"}

// LookPath finds the program zfs as exec.LookPath does, and where the programs of an administrator are.
func LookPath() (string, error) {
	path, err := exec.LookPath("zfs")
	if !errors.Is(err, exec.ErrNotFound) {
		return path, err
	}
	for _, dir := range sbin {
		if found, e := exec.LookPath(filepath.Join(dir, "zfs")); e == nil {
			return found, nil
		}
	}
	return "", err
}

// run runs zfs and returns what it prints. It is not killed when ctx ends: the file system goes on with
// what it was asked for, and whoever cleans up would be too early.
func (p *program) run(ctx context.Context, args ...string) (string, error) {
	if !p.fuse {
		return p.runIn(ctx, nil, p.path, args...)
	}
	turn, err := zfsfuse.Begin(ctx)
	if err != nil {
		return "", fmt.Errorf("zfs %s: %w", args[0], err)
	}
	defer turn.End()
	return p.runIn(ctx, turn, p.path, args...)
}

// runIn runs a program in a turn, which with OpenZFS is nil.
func (p *program) runIn(ctx context.Context, turn *zfsfuse.Turn, path string, args ...string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", fmt.Errorf("zfs %s: %w", args[0], err)
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	cmd := exec.CommandContext(bounded, path, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C") // what it says is read
	cmd.WaitDelay = time.Second
	if p.lock != "" {
		held, err := shareLock(p.lock)
		if err != nil {
			return "", err
		}
		defer held.Close()
		cmd.ExtraFiles = []*os.File{held}
	}
	if turn != nil && turn.Lock() != nil {
		cmd.ExtraFiles = append(cmd.ExtraFiles, turn.Lock())
	}
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	if err == nil {
		return strings.TrimSpace(out.String()), nil
	}
	if bounded.Err() != nil {
		err = fmt.Errorf("no answer in %v: %w", limit, bounded.Err())
	}
	message := strings.TrimSpace(said.String())
	for _, s := range sayings {
		if strings.Contains(message, s.said) {
			err = fmt.Errorf("%w (%w)", s.err, err)
			break
		}
	}
	if line, _, more := strings.Cut(message, "\nusage:"); more {
		message = line
	}
	return "", fmt.Errorf("%s %s: %w: %s", filepath.Base(path), strings.Join(args, " "), err, message)
}

// property is the value of a property, "" if it is not set.
func (p *program) property(ctx context.Context, name, dataset string) (string, error) {
	v, err := p.run(ctx, "get", "-Hp", "-o", "value", name, dataset)
	if v == "-" {
		v = ""
	}
	return v, err
}

func (p *program) number(ctx context.Context, name, dataset string) (int64, error) {
	v, err := p.property(ctx, name, dataset)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("zfs get %s %s: the answer %q is no number", name, dataset, v)
	}
	return n, nil
}

// sync returns when all that the pool was given is on the disk.
func (p *program) sync(ctx context.Context, dataset string) error {
	if p.fuse {
		// It has no command for that, but a property is set when it is on the disk, and
		// what was written before goes first.
		_, err := p.run(ctx, "set", "holdfast:synced=yes", dataset)
		return err
	}
	pool, _, _ := strings.Cut(dataset, "/")
	zpool := filepath.Join(filepath.Dir(p.path), "zpool")
	_, err := p.runIn(ctx, nil, zpool, "sync", pool)
	return err
}

// countObjects adds up what OpenZFS accounts to the users of a dataset.
func (p *program) countObjects(ctx context.Context, dataset string) (int64, error) {
	out, err := p.run(ctx, "userspace", "-Hp", "-o", "objused", dataset)
	if err != nil {
		return 0, err
	}
	sum := int64(0)
	for _, field := range strings.Fields(out) {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, nil // the pool does not count them
		}
		sum += max(0, n)
	}
	return sum, nil
}

// retryFor is how long it is tried again to do what is refused since something has not yet gone: a server
// learns some time later that what it has mounted is unmounted.
const retryFor = 5 * time.Second

// retry calls f again while it fails with errBusy.
func retry(ctx context.Context, f func() error) error {
	var began time.Time // what it waits before does not count
	for delay := 2 * time.Millisecond; ; delay = min(2*delay, 200*time.Millisecond) {
		err := f()
		if !errors.Is(err, errBusy) || !began.IsZero() && time.Since(began) > retryFor {
			return err
		}
		if began.IsZero() {
			began = time.Now()
		}
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		}
	}
}
