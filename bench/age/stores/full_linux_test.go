package stores

import (
	"context"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/bench/age"
)

// TestFullDisk: with each store, a disk that is full fails the run, and the error says so, and what to do.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("left out: it mounts, which needs root")
	}
	all, err := traces()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range All() {
		t.Run(p.Name, func(t *testing.T) {
			dir := t.TempDir()
			if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=512k"); err != nil {
				t.Skipf("left out: no tmpfs can be mounted: %v", err)
			}
			t.Cleanup(func() {
				if err := unix.Unmount(dir, 0); err != nil {
					t.Error(err)
				}
			})
			c := small
			c.Cycles = 20
			quiet := age.Watcher{Say: func(string) {}, Measured: func(*age.Result) error { return nil }}
			err := age.Run(context.Background(), dir, c, []age.Peer{p}, all, &age.Result{}, quiet)
			if err == nil || !strings.HasPrefix(err.Error(), p.Name+", day ") || !strings.Contains(err.Error(), "give a -dir with more space") {
				t.Errorf("on a full disk: %v", err)
			}
		})
	}
}
