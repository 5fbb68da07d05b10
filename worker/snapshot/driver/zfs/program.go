package zfs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"holdfast/worker/snapshot"
)

// Failures of the program that the driver tells apart, by what it prints.
var (
	errExists = errors.New("the dataset exists")
	errGone   = errors.New("the dataset does not exist")
	errBusy   = errors.New("the dataset is busy")
)

var messages = []struct {
	text string
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

// limit bounds a call of the program. A slow pool needs its time for what was written.
const limit = 5 * time.Minute

// program is the command zfs.
type program struct {
	path string
	lock string // a file that each command holds while it runs; "": none
}

// findProgram looks for the program, and asks for its version, which OpenZFS tells since 0.8.
func findProgram(ctx context.Context) (*program, error) {
	path, err := LookPath()
	if err != nil {
		return nil, fmt.Errorf("the program zfs is missing; Debian has it in zfsutils-linux: %w (%w)", err, snapshot.ErrUnsupported)
	}
	p := &program{path: path}
	_, err = p.run(ctx, "version")
	if err != nil && strings.Contains(err.Error(), "unrecognized command") {
		err = fmt.Errorf("%s is not OpenZFS 0.8 or later: %w (%w)", path, err, snapshot.ErrUnsupported)
	}
	return p, err
}

// sbin are the directories of an administrator's programs.
var sbin = []string{"/sbin", "/usr/sbin", "/usr/local/sbin"}

// LookPath finds the program zfs as exec.LookPath does, or in the directories of an administrator's programs.
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

// run runs zfs and returns what it prints. The command is not killed when ctx ends: the file system would go on with
// it, and a cleanup would come too early.
func (p *program) run(ctx context.Context, args ...string) (string, error) {
	return p.exec(ctx, p.path, args...)
}

// exec runs zfs or zpool.
func (p *program) exec(ctx context.Context, path string, args ...string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", fmt.Errorf("zfs %s: %w", args[0], err)
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	cmd := exec.CommandContext(bounded, path, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C") // for messages
	cmd.WaitDelay = time.Second
	if p.lock != "" {
		held, err := shareLock(p.lock)
		if err != nil {
			return "", err
		}
		defer held.Close()
		cmd.ExtraFiles = []*os.File{held}
	}
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	err := cmd.Run()
	if err == nil {
		return strings.TrimSpace(out.String()), nil
	}
	if bounded.Err() != nil {
		err = fmt.Errorf("no answer in %v: %w", limit, bounded.Err())
	}
	message := strings.TrimSpace(stderr.String())
	for _, m := range messages {
		if strings.Contains(message, m.text) {
			err = fmt.Errorf("%w (%w)", m.err, err)
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
		return 0, fmt.Errorf("zfs get %s %s: invalid number %q", name, dataset, v)
	}
	return n, nil
}

// sync flushes the pool of a dataset.
func (p *program) sync(ctx context.Context, dataset string) error {
	pool, _, _ := strings.Cut(dataset, "/")
	zpool := filepath.Join(filepath.Dir(p.path), "zpool")
	_, err := p.exec(ctx, zpool, "sync", pool)
	return err
}

// objects counts the objects of all users of a dataset; it is 0 if the pool does not count them.
func (p *program) objects(ctx context.Context, dataset string) (int64, error) {
	out, err := p.run(ctx, "userspace", "-Hp", "-o", "objused", dataset)
	if err != nil {
		return 0, err
	}
	sum := int64(0)
	for _, field := range strings.Fields(out) {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, nil //nolint:nilerr // "-"
		}
		sum += max(0, n)
	}
	return sum, nil
}

// retryFor is how long a command is repeated that fails since the dataset is busy: it leaves the kernel some time after
// the last unmount.
const retryFor = 5 * time.Second

// retry calls f again while it fails with errBusy.
func retry(ctx context.Context, f func() error) error {
	var began time.Time // of the first failure
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
