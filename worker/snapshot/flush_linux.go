package snapshot

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// sharedFlush: one flush is for all snapshots.
const sharedFlush = true

// syncTarget is a file system. The descriptor stays open: a failure to write is told to each descriptor once,
// and only if it was open then.
type syncTarget struct{ dir *os.File }

func (t *syncTarget) open(dir string) (err error) {
	t.dir, err = os.Open(dir)
	return err
}

func (t *syncTarget) sync() error {
	if err := unix.Syncfs(int(t.dir.Fd())); err != nil {
		return fmt.Errorf("syncfs %s: %w", t.dir.Name(), err)
	}
	return nil
}

func (t *syncTarget) close() error { return t.dir.Close() }

// flushTree is not used where a flush is for all.
func flushTree(string) error { return nil }

// bootID is another one after each start of the machine.
func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
}
