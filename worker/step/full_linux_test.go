package step

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast"
)

// On a full disk a step had run and was committed, and its result could not be written down, though the store had
// a file that it gives up for that.
func TestResultsOnAFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts a tmpfs")
	}
	dir := t.TempDir()
	must(t, unix.Mount("full", dir, "tmpfs", 0, "size=1m"))
	defer func() { must(t, unix.Unmount(dir, 0)) }()
	r, err := openResults(dir, holdfast.Full, nil)
	must(t, err)
	emergency := filepath.Join(dir, "emergency")
	f, err := os.Create(emergency)
	must(t, err)
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	must(t, f.Close())
	id, out := ID{1}, make([]byte, 200<<10)
	for i := range out {
		out[i] = byte(i * i >> 8)
	}
	if err := r.put(id, &record{snapshot: id.Snapshot()}, out); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("there is room: %v", err)
	}
	asked := 0
	r.full = func() bool {
		asked++
		return os.Remove(emergency) == nil
	}
	must(t, r.put(id, &record{snapshot: id.Snapshot()}, out))
	if _, got, err := r.get(id); err != nil || len(got) != len(out) || asked != 1 {
		t.Errorf("%d bytes, %v, asked %d times", len(got), err, asked)
	}
	must(t, r.close())
}
