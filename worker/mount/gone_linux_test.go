package mount

import (
	"encoding/binary"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// On a host with tens of thousands of mounts, steps at once were four times as slow: while others still had a
// copy of an overlay, the mounts of all processes were read with every fourth try to learn whether it was gone.
func TestNobodySearches(t *testing.T) {
	s := newStand(t, Options{ParkAfter: time.Hour})
	_, options := s.work("up")
	h := s.get(overlay([]string{s.layer("a")}, options...))
	copied, err := h.Clone()
	must(t, err)
	h.Release()
	tries := 0
	for tries < 3*thoroughEach {
		for _, p := range s.Pending() {
			tries = p.Tries
		}
		time.Sleep(time.Millisecond)
	}
	must(t, copied.Close())
	must(t, h.Wait(s.ctx))
	if n := s.Stats().Searches; n > 0 {
		t.Errorf("the mounts of all processes were read %d times", n)
	}
}

// Without what tells it, an overlay that others still have is waited for all the same, also when it stops telling
// meanwhile.
func TestEventsAreLost(t *testing.T) {
	s := newStand(t, Options{})
	_, options := s.work("up")
	h := s.get(overlay([]string{s.layer("a")}, options...))
	copied, err := h.Clone()
	must(t, err)
	d := s.kernel.events
	for _, lost := range [][]byte{event(-1, unix.IN_Q_OVERFLOW, 0), event(1, unix.IN_UNMOUNT, 16), event(1, unix.IN_UNMOUNT, 1<<32-1)} {
		if err := d.tell(lost); err == nil {
			t.Errorf("%x: nothing was lost", lost)
		}
	}
	must(t, d.file.Close()) // the reader fails
	h.Release()
	for len(s.Pending()) == 0 || s.Pending()[0].Tries == 0 {
		time.Sleep(time.Millisecond)
	}
	must(t, copied.Close())
	must(t, h.Wait(s.ctx))
	s.free(s.get(overlay([]string{s.layer("a")}, options...)))
	for _, f := range s.Features() {
		if f.Feature == FeatureInotify && f.Used {
			t.Error("it counts as used")
		}
	}
}

func event(watch int32, mask, size uint32) []byte {
	b := binary.NativeEndian.AppendUint32(nil, uint32(watch))
	b = binary.NativeEndian.AppendUint32(b, mask)
	b = binary.NativeEndian.AppendUint32(b, 0)
	return binary.NativeEndian.AppendUint32(b, size)
}
