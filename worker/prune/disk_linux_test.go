package prune

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/worker/disk"
	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/copy"
	"holdfast/worker/snapshot/drivertest"
)

// fullStand is a store on a small file system of its own.
func fullStand(t *testing.T, o snapshot.Options) *stand {
	t.Helper()
	dir := t.TempDir()
	drivertest.Filesystem(t, "ext4", dir)
	o.Driver = copy.New()
	store, err := snapshot.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	s := &stand{TB: t, driver: &sized{}, store: store}
	t.Cleanup(func() { s.must(store.Close()) })
	return s
}

// file writes a file of a size, whose blocks are allocated when it returns.
func file(path string, size int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(unix.Fallocate(int(f.Fd()), 0, 0, size), f.Close())
}

// heavy commits a snapshot with a file of a size.
func (s *stand) heavy(t *snapshot.Namespace, name string, size int64) {
	s.Helper()
	m, err := t.Prepare(ctx, "active "+name, "")
	s.must(err)
	s.must(file(filepath.Join(m[0].Source, "file"), size))
	s.must(t.Commit(ctx, name, "active "+name))
}

// fill takes all that is free, to the last block.
func (s *stand) fill() string {
	s.Helper()
	path := filepath.Join(s.store.Root(), "filler")
	f, err := os.Create(path)
	s.must(err)
	defer f.Close()
	end := int64(0)
	for size := int64(1 << 30); size >= 4096; {
		if unix.Fallocate(int(f.Fd()), 0, end, size) != nil {
			size /= 2
		} else {
			end += size
		}
	}
	return path
}

// grow makes metadata.db need more than it has: until that fails, or it is a MiB longer.
func (s *stand) grow(t *snapshot.Namespace) error {
	s.Helper()
	before := s.metadata()
	for i := range 200 {
		labels := map[string]string{"l": strings.Repeat("x", 50000)}
		if _, err := t.Update(ctx, snapshot.Info{Name: fmt.Sprint("small ", i), Labels: labels}); err != nil {
			return err
		}
		if s.metadata() > before+1<<20 {
			return nil
		}
	}
	s.Fatal("the file has not grown")
	return nil
}

func (s *stand) metadata() int64 {
	info, err := os.Stat(filepath.Join(s.store.Root(), metadataName))
	s.must(err)
	return info.Size()
}

// TestEmergencyReserve: on a disk without a free block metadata cannot grow; with an emergency file they can, and it is
// made anew when something was removed.
func TestEmergencyReserve(t *testing.T) {
	for _, with := range []bool{false, true} {
		t.Run(fmt.Sprint(with), func(t *testing.T) {
			var space *disk.Space
			s := fullStand(t, snapshot.Options{Full: func() bool { return space.GiveUp() }})
			size := int64(0)
			if with {
				size = 64 << 20
			}
			var err error
			space, err = disk.Open(s.store.Root(), disk.Options{Emergency: size})
			s.must(err)
			a := s.namespace("a")
			for i := range 200 {
				s.layer(a, fmt.Sprint("small ", i), "", 0)
			}
			filler := s.fill()
			err = s.grow(a)
			if !with {
				if !errors.Is(err, unix.ENOSPC) {
					t.Fatalf("without an emergency file: %v", err)
				}
				return
			}
			s.must(err)
			if f, err := space.Figures(); err != nil || f.Emergency != 0 {
				t.Errorf("it was not given up: %+v, %v", f, err)
			}
			if err := space.Restore(); !errors.Is(err, disk.ErrFull) {
				t.Errorf("it was made anew on a full disk: %v", err)
			}
			s.sound()
			s.must(os.Remove(filler))
			r, err := space.Reserve(ctx, 1<<20)
			s.must(err)
			r.Release()
			var st unix.Stat_t
			s.must(unix.Stat(filepath.Join(s.store.Root(), disk.EmergencyName), &st))
			if st.Blocks*512 < size {
				t.Errorf("the new one takes %d bytes", st.Blocks*512)
			}
		})
	}
}

// TestReserveMakesRoom: who reserves what is not there gets it, if policies let enough go, and no more goes
// than must; else it is refused with the figures.
func TestReserveMakesRoom(t *testing.T) {
	const mib = 1 << 20
	s := fullStand(t, snapshot.Options{})
	a, b := s.namespace("a"), s.namespace("b")
	for i := range 5 {
		s.heavy(a, fmt.Sprint(i), 50*mib)
		s.heavy(b, fmt.Sprint(i), 50*mib)
	}
	s.must(a.Pin(ctx, "4"))
	f, err := ParseFilter("namespace==a")
	s.must(err)
	p, err := New(s.store, Options{Config: Config{Policies: []Policy{{Filters: []Filter{f}, MaxUsedSpace: Size{Percent: 90}}}}})
	s.must(err)
	space, err := disk.Open(s.store.Root(), disk.Options{Keep: 10 * mib, MakeRoom: p.MakeRoom})
	s.must(err)
	p.opts.Reserved = space.Reserved
	before, err := space.Figures()
	s.must(err)
	first, err := space.Reserve(ctx, before.Free-60*mib) // there is as much
	s.must(err)
	if len(s.all()) != 10 {
		t.Fatalf("left: %d", len(s.all()))
	}
	second, err := space.Reserve(ctx, 120*mib) // 80 are missing
	s.must(err)
	left := s.all()
	if _, oldest := left["a/0"]; oldest || len(left) != 8 {
		t.Errorf("left: %d", len(left))
	}
	_, err = space.Reserve(ctx, 500*mib) // there is one more pair of a's
	var full *disk.FullError
	if !errors.As(err, &full) || full.Reserved != first.Bytes()+second.Bytes() || full.Free < before.Free+195*mib || full.Wanted != 500*mib {
		t.Errorf("%v", err)
	}
	if left := s.all(); len(left) != 6 || left["a/4"].Name == "" {
		t.Errorf("left: %d", len(left))
	}
	first.Release()
	if _, err = space.Reserve(ctx, 400*mib); err != nil {
		t.Error(err)
	}
	s.sound()
}

// TestMinFree: the bound holds on a real file system when trees are deleted.
func TestMinFree(t *testing.T) {
	const mib = 1 << 20
	s := fullStand(t, snapshot.Options{})
	a := s.namespace("a")
	for i := range 8 {
		s.heavy(a, fmt.Sprint(i), 20*mib)
	}
	fs, err := disk.Measure(s.store.Root())
	s.must(err)
	want := fs.Free + 50*mib
	p, err := New(s.store, Options{Config: Config{Policies: []Policy{{MinFreeSpace: Size{Bytes: want}}}}})
	s.must(err)
	dry, err := p.DryRun(ctx, nil)
	s.must(err)
	r, err := p.Run(ctx)
	if err != nil || r.Snapshots != 3 || dry.Snapshots != 3 {
		t.Errorf("%+v, %v; dry %+v", r, err, dry)
	}
	again, err := p.Run(ctx) // the trees may or may not be deleted yet
	if err != nil || again.Snapshots != 0 {
		t.Errorf("%+v, %v", again, err)
	}
	s.must(s.store.Cleanup(ctx))
	if fs, err = disk.Measure(s.store.Root()); err != nil || fs.Free < want {
		t.Errorf("%d are free, and %d should be; %v", fs.Free, want, err)
	}
}
