//go:build unix

package zfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// shareLock gives a file that a command holds while it runs: a lock of the Store that outlives this process as
// long as the command does.
func shareLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock(f, unix.LOCK_SH); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return f, nil
}

// awaitCommands returns when the commands have ended that a killed process had started.
func awaitCommands(ctx context.Context, path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		err := flock(f, unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Since(began) > awaitFor || ctx.Err() != nil {
			return fmt.Errorf("waiting for what an earlier process has told zfs to do (%s is locked): %w", path, errors.Join(err, ctx.Err()))
		}
	}
}

// awaitFor is how long Start waits for such commands.
const awaitFor = 30 * time.Second

func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); err != unix.EINTR {
			return err
		}
	}
}
