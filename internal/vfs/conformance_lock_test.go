package vfs

import (
	"testing"
	"time"
)

func testLockExcludes(t *testing.T, open func() File) {
	const exclusive, shared = true, false
	a, b, c := opened(t, open), opened(t, open), opened(t, open)
	refused := func(file File, mode bool) {
		t.Helper()
		if err := file.Lock(mode, time.Nanosecond); err != ErrTimeout {
			t.Fatalf("got %v, want a bare ErrTimeout", err)
		}
	}
	must(t, a.Unlock())
	must(t, a.Lock(exclusive, time.Nanosecond))
	refused(b, exclusive)
	refused(b, shared)
	must(t, b.Unlock())
	refused(b, shared)
	must(t, a.Unlock())

	must(t, b.Lock(shared, time.Nanosecond))
	must(t, c.Lock(shared, 0))
	refused(a, exclusive)
	must(t, b.Unlock())
	refused(a, exclusive)
	must(t, c.Unlock())
	must(t, a.Lock(exclusive, time.Nanosecond))
	must(t, a.Unlock())
}

func testLockTimeout(t *testing.T, open func() File) {
	holder, waiter := opened(t, open), opened(t, open)
	must(t, holder.Lock(true, 0))
	// A negative timeout is one that has passed already.
	for _, timeout := range []time.Duration{-time.Second, time.Millisecond, 20 * time.Millisecond, 130 * time.Millisecond} {
		start := time.Now()
		if err := waiter.Lock(true, timeout); err != ErrTimeout {
			t.Fatalf("got %v, want a bare ErrTimeout", err)
		}
		if took := time.Since(start); took < timeout || took > timeout+2*time.Second {
			t.Errorf("gave up after %v, want %v", took, timeout)
		}
	}
}

func testLockWaits(t *testing.T, open func() File) {
	for _, timeout := range []time.Duration{0, time.Minute} {
		holder, waiter := open(), opened(t, open)
		must(t, holder.Lock(false, 0))
		const held = 120 * time.Millisecond
		closed := make(chan error, 1)
		start := time.Now()
		time.AfterFunc(held, func() { closed <- holder.Close() })
		must(t, waiter.Lock(true, timeout))
		if took := time.Since(start); took < held || took > held+2*time.Second {
			t.Errorf("waited %v for a lock held for %v", took, held)
		}
		must(t, <-closed)
		must(t, waiter.Unlock())
	}
}
