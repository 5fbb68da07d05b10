package zfsfuse

import (
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

	"holdfast/worker/mount"
)

// Mounter mounts datasets for mount.Options.Mounters, each at a place of its own while it is held.
type Mounter struct {
	mu     sync.Mutex
	points map[string]*point
}

// Mounters returns one for mount.Options, in a process that Own has started, else none.
func Mounters() map[string]mount.Mounter {
	if !InOwn() {
		return nil
	}
	return map[string]mount.Mounter{"zfs": NewMounter()}
}

// NewMounter returns a Mounter.
func NewMounter() *Mounter { return &Mounter{points: map[string]*point{}} }

// point is where a dataset is mounted while it is held.
type point struct {
	sync.Mutex
	refs int // of holders, and of callers that wait for the lock
	held int
}

// enter locks the point of a dataset; leave unlocks it.
func (m *Mounter) enter(dataset string) *point {
	m.mu.Lock()
	p := m.points[dataset]
	if p == nil {
		p = &point{}
		m.points[dataset] = p
	}
	p.refs++
	m.mu.Unlock()
	p.Lock()
	return p
}

func (m *Mounter) leave(dataset string, p *point) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p.refs--
	if p.refs == 0 && p.held == 0 {
		delete(m.points, dataset)
	}
	p.Unlock()
}

// Mount implements mount.Mounter.
func (m *Mounter) Mount(ctx context.Context, what mount.Mount) (string, func() error, error) {
	dataset := what.Source
	p := m.enter(dataset)
	defer m.leave(dataset, p)
	path := filepath.Join(os.Getenv(envPoints), dataset)
	if p.held == 0 {
		if err := mountAt(ctx, dataset, path); err != nil {
			return "", nil, err
		}
	}
	p.held++
	released := false
	return path, func() error {
		p := m.enter(dataset)
		defer m.leave(dataset, p)
		if released {
			return nil
		}
		if p.held == 1 {
			if err := unmountAt(path); err != nil {
				return err
			}
		}
		p.held--
		released = true
		return nil
	}, nil
}

// mountAt mounts a dataset, or binds the place where it is mounted already: a file system of a server has one
// superblock, which others may still have. It tries again for some time what is busy: the daemon learns of an unmount
// later.
func mountAt(ctx context.Context, dataset, path string) (err error) {
	for began := time.Now(); time.Since(began) < 5*time.Second; time.Sleep(20 * time.Millisecond) {
		if err = mountOnce(ctx, dataset, path); err == nil || !strings.Contains(err.Error(), "busy") && !strings.Contains(err.Error(), "already mounted") {
			return err
		}
	}
	return err
}

func mountOnce(ctx context.Context, dataset, path string) error {
	s, err := Begin(ctx)
	if err != nil {
		return err
	}
	defer s.End()
	places, err := mountsOf(dataset)
	if err != nil {
		return err
	}
	for _, at := range places {
		if at == path {
			return s.orAbort(path)
		}
	}
	if len(places) == 0 {
		at, err := s.mount(ctx, dataset)
		if err == nil && at != path {
			err = fmt.Errorf("%s was mounted at %s, not at %s", dataset, at, path)
		}
		return err
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	if err := unix.Mount(places[0], path, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("binding %s, where %s is mounted: %w", places[0], dataset, err)
	}
	return nil
}

// unmountAt unmounts without a question to the daemon, which may be gone. It is not an error if nothing is mounted.
func unmountAt(path string) error {
	s, err := Begin(context.Background())
	if err != nil {
		return err
	}
	defer s.End()
	if err := s.Unmount(path); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// leftMounted lists what is mounted below the directory of all points.
func leftMounted() (left []Mount, err error) {
	mounts, err := Mounts()
	for _, m := range mounts {
		if strings.HasPrefix(m.At, os.Getenv(envPoints)+"/") {
			left = append(left, m)
		}
	}
	return left, err
}

// Clear unmounts what a killed process has left mounted.
func Clear() error {
	left, err := leftMounted()
	for _, m := range left {
		if err == nil {
			err = unmountAt(m.At)
		}
	}
	return err
}

// answerIn is how long a dataset may take to answer after it was mounted.
var answerIn = time.Minute

// AnswerIn changes how long a dataset may take to answer, for the time of a test.
func AnswerIn(t *testing.T, limit time.Duration) {
	old := answerIn
	answerIn = limit
	t.Cleanup(func() { answerIn = old })
}

// answers waits for an answer from a dataset that was mounted. The daemon never unmounts what goes before its first.
func answers(path string) error {
	said := make(chan error, 1)
	go func() { // which waits until the connection has ended
		_, err := statObjects(path)
		said <- err
	}()
	select {
	case err := <-said:
		return err
	case <-time.After(answerIn):
		return fmt.Errorf("zfs-fuse does not answer: statfs %s has taken %v", path, answerIn)
	}
}

func statObjects(path string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, fmt.Errorf("statfs %s: %w", path, err)
	}
	if st.Files < st.Ffree {
		return 0, nil
	}
	return int64(st.Files - st.Ffree), nil
}
