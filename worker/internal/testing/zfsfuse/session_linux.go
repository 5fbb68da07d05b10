package zfsfuse

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/mountinfo"
)

// locks is the directory with the daemon's own lock. If it does not exist, or others than root may write to it, only
// sessions of one process exclude each other.
var locks = "/var/lock/zfs"

// sessionLimit is how long Begin waits: longer than a command or an unmount may take.
var sessionLimit = 6 * time.Minute

// ErrTaken is the error of Begin when another session does not end in time.
var ErrTaken = errors.New("another command of zfs, or an unmount, still runs")

// Session is the right to talk to the daemon. There is one at a time on the machine.
type Session struct{ lock *os.File }

// mine excludes other sessions of this process.
var mine = make(chan struct{}, 1)

// Begin waits until there is no other session, for six minutes at most (ErrTaken), and until the daemon is idle.
func Begin(ctx context.Context) (*Session, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, sessionLimit, fmt.Errorf("%w, after %v (fuser %s lists processes)", ErrTaken, sessionLimit, filepath.Join(locks, "holdfast")))
	defer cancel()
	s := &Session{}
	select {
	case mine <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for zfs-fuse: %w", context.Cause(ctx))
	}
	err := s.exclude(ctx)
	if err == nil {
		rest(ctx)
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
	}
	if err != nil {
		s.End()
		return nil, fmt.Errorf("waiting for zfs-fuse: %w", err)
	}
	return s, nil
}

// exclude excludes sessions of other processes.
func (s *Session) exclude(ctx context.Context) error {
	var st unix.Stat_t
	if err := unix.Lstat(locks, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Uid != uint32(os.Geteuid()) || st.Mode&0o022 != 0 {
		return nil
	}
	f, err := os.OpenFile(filepath.Join(locks, "holdfast"), os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) || errors.Is(err, unix.EROFS) {
		return nil
	}
	if err != nil {
		return err
	}
	s.lock = f
	return lock(ctx, f)
}

func lock(ctx context.Context, f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil || !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return err
		}
		select {
		case <-time.After(2 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Lock returns a file for a command to inherit: the session then lasts as long as the command, also if this process is
// killed. It is nil if sessions exclude those of this process only.
func (s *Session) Lock() *os.File { return s.lock }

// End ends the session.
func (s *Session) End() {
	if s.lock != nil {
		_ = s.lock.Close()
	}
	<-mine
}

// Mount is a place where a dataset is mounted.
type Mount struct {
	Dataset, At string
	device      string // of the superblock, as the directory of its connection is called
}

// Mounts are the places in this mount namespace where the root of a dataset is mounted.
func Mounts() ([]Mount, error) {
	var all []Mount
	err := mountinfo.Each(mountinfo.Own, func(m *mountinfo.Mount) {
		if d, ok := datasetAt(m); ok {
			all = append(all, d)
		}
	}, " fuse")
	return all, err
}

// datasetAt is the dataset whose root is mounted; false if it is something else.
func datasetAt(m *mountinfo.Mount) (Mount, bool) {
	return Mount{Dataset: m.Source, At: m.Point, device: strconv.FormatUint(uint64(m.Minor), 10)}, strings.HasPrefix(m.Type, "fuse") && m.Root == "/"
}

// Unmount unmounts what is mounted at a path, without a question to the daemon, which may be gone. It is not an error
// if nothing is, or nothing is there.
func (s *Session) Unmount(path string) error {
	device := ""
	mounts, err := Mounts()
	if err != nil {
		return err
	}
	for _, m := range mounts {
		if m.At == path {
			device = m.device // the last one is on top
		}
	}
	until := time.Now().Add(waitRequests) // for all tries together
	answered := func() bool {
		n := waiting(device)
		if n < 0 && device != "" {
			time.Sleep(blind) // it is not to be seen
		}
		return n <= 0
	}
	await(time.Until(until), answered)
	err = unix.Unmount(path, unix.UMOUNT_NOFOLLOW)
	for try := 0; err == unix.EBUSY && try < 20; try++ {
		// A child that this process is starting has its open files until it executes its program.
		time.Sleep(5 * time.Millisecond)
		await(time.Until(until), answered)
		err = unix.Unmount(path, unix.UMOUNT_NOFOLLOW)
	}
	if err == unix.EINVAL || err == unix.ENOENT {
		return nil
	}
	if err != nil {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	// Such a child keeps a clone of the mount for that time. Others may have one as long as they like.
	await(waitGone, func() bool { return waiting(device) < 0 })
	time.Sleep(time.Millisecond) // the daemon is being woken
	if !rest(context.Background()) {
		time.Sleep(blind)
	}
	return nil
}

// Abort unmounts a file system that does not answer: requests for it fail, which a plain unmount would wait for.
func (s *Session) Abort(path string) error {
	_ = unix.Unmount(path, unix.MNT_FORCE|unix.UMOUNT_NOFOLLOW) // it ends the connection first, and may be refused then
	return s.Unmount(path)
}

// Limits of waiting. After them the caller goes on: the daemon may be stuck, and unmounting is what ends that.
const (
	waitRequests = 30 * time.Second
	waitGone     = 200 * time.Millisecond
	waitRest     = 30 * time.Second      // it calls sync, for the whole machine
	blind        = 10 * time.Millisecond // if it cannot be seen
)

// await calls done until it says so, or for some time, and tells which.
func await(limit time.Duration, done func() bool) bool {
	began := time.Now()
	for delay := 200 * time.Microsecond; !done(); delay = min(2*delay, 20*time.Millisecond) {
		if time.Since(began) > limit {
			return false
		}
		time.Sleep(delay)
	}
	return true
}

// connections is the root of fusectl, which has a directory for each FUSE file system; -1 if it cannot be had.
var connections = sync.OnceValue(func() int {
	// It is not mounted everywhere, and there is one for the whole machine.
	fs, err := unix.Fsopen("fusectl", unix.FSOPEN_CLOEXEC)
	if err == nil {
		defer func() { _ = unix.Close(fs) }()
		if err = unix.FsconfigCreate(fs); err == nil {
			if fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0); err == nil {
				return fd
			}
		}
	}
	fd, err := unix.Open("/sys/fs/fuse/connections", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	const fusectl = 0x65735543
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil || uint32(st.Type) != fusectl { // the empty directory for it
		_ = unix.Close(fd)
		return -1
	}
	return fd
})

// waiting is how many requests of a file system are not answered, also those for which nothing waits. It
// is -1 if there is no such file system, and if that is not to be seen.
func waiting(device string) int {
	dir := connections()
	if dir < 0 || device == "" {
		return -1
	}
	fd, err := unix.Openat(dir, device+"/waiting", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	defer func() { _ = unix.Close(fd) }()
	b := make([]byte, 32)
	k, err := unix.Read(fd, b)
	if err != nil {
		return -1
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b[:k])))
	if err != nil {
		return -1
	}
	return n
}

// rest waits until the daemon is idle, and tells whether it can be seen.
func rest(ctx context.Context) bool {
	pid := findDaemon()
	if pid == "" {
		return false
	}
	await(waitRest, func() bool { return ctx.Err() != nil || !busy(pid) })
	return true
}

// Idle tells whether the daemon whose process id is pid has nothing to do, or cannot be looked at.
func Idle(pid int) bool { return !busy(strconv.Itoa(pid)) }

// busy tells whether the daemon handles something. It has one thread that waits for commands and one that waits for
// requests, both with poll; the latter does not while it unmounts.
func busy(pid string) bool {
	dir := filepath.Join("/proc", pid, "task")
	threads, err := os.ReadDir(dir)
	if err != nil {
		return false // it has ended
	}
	polls, looked := 0, false
	for _, thread := range threads {
		call, err := os.ReadFile(filepath.Join(dir, thread.Name(), "syscall"))
		if err != nil {
			continue
		}
		looked = true
		if number, _, _ := strings.Cut(string(call), " "); slices.Contains(pollCalls, number) {
			if polls++; polls == 2 {
				return false
			}
		}
	}
	if !looked {
		time.Sleep(blind)
	}
	return looked
}

// pollCalls are the system call poll of the C library. On amd64 and 386 the daemon may be a program for the other one.
var pollCalls = map[string][]string{"amd64": {"7", "168"}, "386": {"168", "7"}}[runtime.GOARCH]

func init() {
	if pollCalls == nil {
		pollCalls = []string{strconv.Itoa(sysPoll)}
	}
}

// known is the process id of the daemon that was found last.
var known atomic.Value

// findDaemon returns the process id of the daemon of this mount namespace, "" if there is none that can be seen.
func findDaemon() string {
	if pid, ok := known.Load().(string); ok && isDaemon(pid) {
		return pid
	}
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return ""
	}
	for _, p := range processes {
		if _, err := strconv.Atoi(p.Name()); err == nil && isDaemon(p.Name()) {
			known.Store(p.Name())
			return p.Name()
		}
	}
	return ""
}

func isDaemon(pid string) bool {
	name, err := os.ReadFile(filepath.Join("/proc", pid, "comm"))
	if err != nil || string(name) != "zfs-fuse\n" {
		return false
	}
	var st unix.Stat_t // anybody may call a program so
	if err := unix.Stat(filepath.Join("/proc", pid), &st); err != nil || st.Uid != uint32(os.Geteuid()) {
		return false
	}
	theirs, err := os.Readlink(filepath.Join("/proc", pid, "ns/mnt"))
	ours, e := os.Readlink("/proc/self/ns/mnt")
	return err == nil && e == nil && theirs == ours
}
