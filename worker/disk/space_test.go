package disk

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

var ctx = context.Background()

// fake is a Space on a file system of which the test says what is free.
func fake(t *testing.T, o Options) (*Space, *atomic.Int64) {
	t.Helper()
	s, err := Open(t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	var free atomic.Int64
	free.Store(1000)
	s.measure = func(string) (FS, error) { return FS{Size: 1 << 20, Free: free.Load()}, nil }
	return s, &free
}

func reserved(t *testing.T, s *Space, bytes int64, reservations int) {
	t.Helper()
	if f, err := s.Figures(); err != nil || f.Reserved != bytes || f.Reservations != reservations || s.Reserved() != bytes {
		t.Errorf("%+v, %v; %d bytes in %d should be reserved", f, err, bytes, reservations)
	}
}

func TestReserve(t *testing.T) {
	s, free := fake(t, Options{Keep: 100})
	a, err := s.Reserve(ctx, 600)
	if err != nil || a.Bytes() != 600 {
		t.Fatal(a, err)
	}
	_, err = s.Reserve(ctx, 301)
	var full *FullError
	if !errors.Is(err, ErrFull) || !errors.As(err, &full) || *full != (FullError{Dir: s.dir, Wanted: 301, Free: 1000, Reserved: 600, Keep: 100, Size: 1 << 20}) {
		t.Errorf("%+v", err)
	}
	for _, part := range []string{"301", "1000", "600", "100", s.dir} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %s", err, part)
		}
	}
	b, err := s.Reserve(ctx, 300)
	if err != nil {
		t.Fatal(err)
	}
	reserved(t, s, 900, 2)
	free.Store(600) // a has written 400
	if _, err := s.Reserve(ctx, 1); !errors.Is(err, ErrFull) {
		t.Errorf("what was written counts twice until it is said: %v", err)
	}
	a.Spent(400)
	a.Spent(-1) // nothing was written after all
	a.Spent(400)
	reserved(t, s, 500, 2)
	free.Store(400)
	a.Spent(700) // more than it had reserved
	reserved(t, s, 300, 2)
	a.Release()
	a.Release()
	a.Spent(0)
	reserved(t, s, 300, 1)
	b.Release()
	reserved(t, s, 0, 0)
	if _, err := s.Reserve(ctx, -1); err == nil {
		t.Error("a negative number was reserved")
	}
	if _, err := s.Reserve(ctx, math.MaxInt64); !errors.Is(err, ErrFull) {
		t.Errorf("all there is: %v", err)
	}
	if _, err := s.Reserve(ctx, 0); err != nil {
		t.Errorf("nothing: %v", err)
	}
}

// TestReserveInodes: the room that was reserved was bytes alone. When a step within its limit had taken all inodes of
// the file system, further ones got their reservation, nothing was removed, and they ran out of inodes.
func TestReserveInodes(t *testing.T) {
	fs := FS{Size: 1 << 20, Free: 1 << 20, Inodes: 1000, FreeInodes: 500}
	var wanted []int64
	var s *Space
	s, _ = fake(t, Options{Keep: 1 << 17, MakeRoom: func(_ context.Context, bytes int64) error {
		wanted = append(wanted, bytes)
		if bytes <= 1<<19 {
			fs.FreeInodes = 500
		}
		return nil
	}})
	s.measure = func(string) (FS, error) { return fs, nil }
	a, err := s.Reserve(ctx, 1<<18) // and 250 of them, beside 125 that are kept
	if err != nil || len(wanted) > 0 {
		t.Fatal(err, wanted)
	}
	fs.FreeInodes = 499
	if _, err := s.Reserve(ctx, 1<<17); err != nil || len(wanted) != 1 || wanted[0] != 1<<19 {
		t.Errorf("%v, room for %v", err, wanted)
	}
	_, err = s.Reserve(ctx, 1<<17)
	var full *FullError
	if !errors.As(err, &full) || !full.OfInodes() || full.Inodes != 625 || full.FreeInodes != 500 || full.TooLarge() || !strings.Contains(err.Error(), "625 inodes") {
		t.Errorf("%v: %+v", err, full)
	}
	a.Release()
	if _, err := s.Reserve(ctx, 1<<17); err != nil {
		t.Error(err)
	}
	fs.Inodes, fs.FreeInodes = 0, 0 // they are not counted
	if _, err := s.Reserve(ctx, 1<<19); err != nil {
		t.Error(err)
	}
}

func TestShare(t *testing.T) {
	const all = math.MaxInt64
	for _, c := range []struct{ size, inodes, bytes, want int64 }{
		{1000, 100, 0, 0}, {1000, 100, -1, 0}, {1000, 100, 9, 0}, {1000, 100, 10, 1}, {1000, 100, 999, 99}, {1000, 100, 1000, 100},
		{1000, 100, all, 100}, {1000, 0, 500, 0}, {0, 100, 500, 0}, {all, all, all - 1, all - 1}, {all, 3, all / 2, 1}, {2, all, 1, all / 2},
	} {
		if got := (FS{Size: c.size, Inodes: c.inodes}).Share(c.bytes); got != c.want {
			t.Errorf("%d of %d bytes with %d inodes: %d, not %d", c.bytes, c.size, c.inodes, got, c.want)
		}
	}
}

// TestReserveAtOnce: together they never get more than there is, and all of that.
func TestReserveAtOnce(t *testing.T) {
	s, _ := fake(t, Options{})
	var wg sync.WaitGroup
	var got atomic.Int64
	for range 50 {
		wg.Go(func() {
			for range 20 {
				if _, err := s.Reserve(ctx, 7); err == nil {
					got.Add(7)
				} else if !errors.Is(err, ErrFull) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got.Load() != 1000/7*7 {
		t.Errorf("%d of 1000 bytes were given out", got.Load())
	}
	reserved(t, s, got.Load(), int(got.Load()/7))
}

// TestMakeRoom: room is made by one at a time, for as much as is missing, and only then.
func TestMakeRoom(t *testing.T) {
	var free *atomic.Int64
	var s *Space
	var wanted []int64
	var making atomic.Int64
	failure := errors.New("nothing goes")
	s, free = fake(t, Options{Keep: 50, MakeRoom: func(_ context.Context, bytes int64) error {
		if making.Add(1) != 1 {
			t.Error("two make room at once")
		}
		defer making.Add(-1)
		wanted = append(wanted, bytes)
		if bytes > 5000 {
			return failure
		}
		free.Store(max(free.Load(), bytes))
		return nil
	}})
	if _, err := s.Reserve(ctx, 900); err != nil || len(wanted) != 0 {
		t.Errorf("%v, room for %v", err, wanted)
	}
	if _, err := s.Reserve(ctx, 600); err != nil || len(wanted) != 1 || wanted[0] != 1550 {
		t.Errorf("%v, room for %v", err, wanted)
	}
	_, err := s.Reserve(ctx, 5000)
	if !errors.Is(err, ErrFull) || !errors.Is(err, failure) || !strings.Contains(err.Error(), failure.Error()) {
		t.Errorf("%v", err)
	}
	if _, err := s.Reserve(ctx, math.MaxInt64); !errors.Is(err, ErrFull) || len(wanted) != 2 {
		t.Errorf("%v, room for %v", err, wanted)
	}
	reserved(t, s, 1500, 2)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := s.Reserve(ctx, 100); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	reserved(t, s, 3500, 22)
	s.making <- struct{}{} // somebody is at it
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.Reserve(ended, 100); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting with a context that has ended: %v", err)
	}
}

// TestMadeRoomIsTaken: room was made for a reservation, another took it first, and the one
// that it was made for failed, as if the disk were full.
func TestMadeRoomIsTaken(t *testing.T) {
	var free *atomic.Int64
	var s *Space
	made := 0
	s, free = fake(t, Options{MakeRoom: func(_ context.Context, bytes int64) error {
		free.Store(bytes)
		if made++; made <= 3 {
			if _, err := s.Reserve(ctx, 100); err != nil {
				t.Error(err)
			}
		}
		return nil
	}})
	if _, err := s.Reserve(ctx, 2000); err != nil || made != 4 {
		t.Errorf("%v, room was made %d times", err, made)
	}
	reserved(t, s, 2300, 4)
}

// TestEmergency: the file takes its bytes, is given up once, and made anew when there is room.
func TestEmergency(t *testing.T) {
	const size = 1 << 20
	dir := t.TempDir()
	s, err := Open(dir, Options{Emergency: size, Keep: 10})
	if err != nil {
		t.Fatal(err)
	}
	there := func(want bool) {
		t.Helper()
		info, err := os.Stat(filepath.Join(dir, EmergencyName))
		if f, _ := s.Figures(); (err == nil) != want || (f.Emergency == size) != want || want && info.Size() != size {
			t.Errorf("the file: %v, %v; figures %+v", info, err, f)
		}
	}
	there(true)
	free := int64(0)
	s.measure = func(string) (FS, error) { return FS{Free: free}, nil }
	if !s.GiveUp() {
		t.Error("it was not given up")
	}
	there(false)
	if !s.GiveUp() {
		t.Error("who failed before it was given up is not to try again")
	}
	free = 2*size + 9
	if err := s.Restore(); !errors.Is(err, ErrFull) {
		t.Errorf("it was made anew too early: %v", err)
	}
	there(false)
	free++
	if _, err := s.Reserve(ctx, 1); err != nil { // which makes it
		t.Error(err)
	}
	there(true)
	if s, err = Open(dir, Options{Emergency: size}); err != nil { // a new process finds it
		t.Fatal(err)
	}
	there(true)
	if s, err = Open(dir, Options{Emergency: 2 * size}); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(dir, EmergencyName)); err != nil || info.Size() != 2*size {
		t.Errorf("of another size: %v, %v", info, err)
	}
	if s, err = Open(dir, Options{}); err != nil {
		t.Fatal(err)
	}
	there(false)
	if s.GiveUp() {
		t.Error("without one there is nothing to be given up")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestOpenRefuses(t *testing.T) {
	if _, err := Open(filepath.Join(t.TempDir(), "none"), Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
	for _, o := range []Options{{Keep: -1}, {Emergency: -1}} {
		if _, err := Open(t.TempDir(), o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
}

func TestMeasure(t *testing.T) {
	if fs, err := Measure(t.TempDir()); err != nil || fs.Size <= 0 || fs.Free <= 0 || fs.Free > fs.Size {
		t.Errorf("%+v, %v", fs, err)
	}
}

// TestLeftEmergency: what a process that was killed while it made the emergency file had left took room for
// ever, when there was not enough for another; and a file of another size than is configured now was not
// given up on a full disk.
func TestLeftEmergency(t *testing.T) {
	dir := t.TempDir()
	left := filepath.Join(dir, EmergencyName)
	for _, path := range []string{left, left + partSuffix} {
		if err := os.WriteFile(path, make([]byte, 4096), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Open(dir, Options{Emergency: 1 << 62}) // for which there is no room
	if err != nil {
		t.Fatal(err)
	}
	if !s.GiveUp() {
		t.Error("nothing was given up")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("there is %v, %v", entries, err)
	}
	if s.Restore() == nil {
		t.Error("it was made")
	}
}

// All was removed that could be, for a reservation that no disk of that size has room for.
func TestReserveMoreThanThereIs(t *testing.T) {
	asked := 0
	s, free := fake(t, Options{Keep: 100, MakeRoom: func(context.Context, int64) error { asked++; return nil }})
	free.Store(1 << 20)
	var full *FullError
	if _, err := s.Reserve(ctx, 1<<20-99); !errors.As(err, &full) || !full.TooLarge() || asked > 0 {
		t.Errorf("%v, asked for room %d times", err, asked)
	}
	free.Store(1<<20 - 1)
	if _, err := s.Reserve(ctx, 1<<20-100); !errors.As(err, &full) || full.TooLarge() || asked != 1 {
		t.Errorf("%v, asked for room %d times", err, asked)
	}
}
