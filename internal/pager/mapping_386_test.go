package pager_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"holdfast/internal/pager"
	"holdfast/internal/vfs"
)

// sparse is a file that grows without taking blocks, and fails to be mapped in long pieces if
// there is a limit.
type sparse struct {
	vfs.File
	longest int64
	maps    []int64
}

func (f *sparse) Grow(size int64) error { return f.File.Truncate(size) }

func (f *sparse) Map(length int64, opts vfs.MapOptions) (vfs.Mapping, error) {
	if f.longest > 0 && length > f.longest {
		return nil, fmt.Errorf("no room: %w", vfs.ErrMapping)
	}
	f.maps = append(f.maps, length)
	return f.File.Map(length, opts)
}

func openSparse(t *testing.T, longest int64) (*env, *sparse) {
	t.Helper()
	file, err := vfs.OpenOS(filepath.Join(t.TempDir(), "db"), os.O_RDWR|os.O_CREATE, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	f := &sparse{File: file, longest: longest}
	p, err := pager.Open(f, pager.Options{PageSize: pageSize, Scan: scan, PlainDelay: -1, NoSeals: true})
	if err != nil {
		t.Fatal(err)
	}
	e := &env{Pager: p, t: t}
	t.Cleanup(func() {
		if err := e.Close(pager.CloseOptions{NoFreelist: true}); err != nil {
			t.Error(err)
		}
	})
	return e, f
}

// rise makes the file so many bytes longer.
func (e *env) rise(bytes int64) error {
	w, err := e.BeginWrite()
	if err != nil {
		return err
	}
	if err := w.Rise(uint64(bytes / int64(e.PageSize()))); err != nil {
		w.Rollback()
		return err
	}
	pr, err := w.Prepare(w.Base().Meta.Root, 0, pager.CommitOptions{AllocSize: 1, Mode: pager.None})
	if err != nil {
		return err
	}
	return pr.Finish()
}

// A program with 32 bits could not have a file beyond 1.2 GiB: the mapping before and the longer
// one must both fit. bbolt, which waits for readers and unmaps first, goes to 1.9 GB. Now the one
// room is reserved early, and readers of each mapping before stay as they are.
func TestGrowsInSmallAddressSpace(t *testing.T) {
	const alone = "HOLDFAST_TEST_ALONE"
	if os.Getenv(alone) == "" { // in a process of its own: other tests leave their heap all over the address space
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), alone+"=1")
		if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	e, f := openSparse(t, 0)
	e.mustCommit("text", 1)
	const most = 2_040 << 20
	var held []pager.Snapshot
	defer func() {
		for _, s := range held {
			s.Release()
		}
	}()
	for size := int64(0); size < most; {
		s, err := e.Begin()
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, s)
		step := min(24<<20, most-size)
		if err := e.rise(step); err != nil {
			t.Fatalf("from %d MiB on, with %d readers: %v; mapped %d", size>>20, len(held), err, f.maps)
		}
		size = int64(len(held)) * 24 << 20
		data := e.Data()
		if length, err := e.File().Size(); err != nil || int64(len(data)) < length || data[length-1] != 0 {
			t.Fatalf("%d bytes of %d are mapped, %v", len(data), length, err)
		}
	}
	for _, s := range held {
		if got := textOf(t, s.Value()); got != "text" {
			t.Errorf("a reader sees %q", got)
		}
	}
	if n := len(f.maps); n > 8 {
		t.Errorf("the file was mapped %d times: %d", n, f.maps)
	}
	// What cannot be mapped at all is refused, and all else goes on.
	if err := e.rise(64 << 20); !errors.Is(err, vfs.ErrMapping) || errors.Is(err, pager.ErrStopped) {
		t.Errorf("beyond the address space: %v", err)
	}
	e.opts.AllocSize = 1
	e.mustCommit("goes on", 3)
	if e.read() != "goes on" {
		t.Errorf("readers see %q", e.read())
	}
}

// Where so much cannot be reserved, the file is mapped with little room, as long as that fits.
func TestNothingToReserve(t *testing.T) {
	e, f := openSparse(t, 600<<20)
	e.mustCommit("text", 1)
	for size := int64(0); size < 500<<20; size += 20 << 20 {
		if err := e.rise(20 << 20); err != nil {
			t.Fatalf("at %d MiB: %v", size>>20, err)
		}
	}
	if e.read() != "text" {
		t.Errorf("readers see %q", e.read())
	}
	if last := f.maps[len(f.maps)-1]; last > 600<<20 || last < 500<<20 {
		t.Errorf("mapped %d", f.maps)
	}
}
