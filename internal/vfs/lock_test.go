package vfs

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestRetryLock(t *testing.T) {
	const ms = time.Millisecond
	broken := errors.New("broken")
	for _, c := range []struct {
		name     string
		timeout  time.Duration
		free     time.Duration // when the lock is to be had
		fail     error         // returned by the second attempt
		attempts []time.Duration
		want     error
	}{
		{name: "at once", attempts: []time.Duration{0}},
		{name: "already late", timeout: -1, free: time.Hour, attempts: []time.Duration{0}, want: ErrTimeout},
		{name: "short", timeout: 20 * ms, free: time.Hour, attempts: []time.Duration{0, 20 * ms}, want: ErrTimeout},
		{name: "between", timeout: 120 * ms, free: time.Hour, attempts: []time.Duration{0, 50 * ms, 100 * ms, 120 * ms}, want: ErrTimeout},
		{name: "just in time", timeout: 120 * ms, free: 110 * ms, attempts: []time.Duration{0, 50 * ms, 100 * ms, 120 * ms}},
		{name: "for ever", free: 101 * ms, attempts: []time.Duration{0, 50 * ms, 100 * ms, 150 * ms}},
		{name: "error", free: time.Hour, fail: broken, attempts: []time.Duration{0, 50 * ms}, want: broken},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var attempts []time.Duration
				start := time.Now()
				err := retryLock(c.timeout, func() (bool, error) {
					attempts = append(attempts, time.Since(start))
					if c.fail != nil && len(attempts) == 2 {
						return false, c.fail
					}
					return time.Since(start) >= c.free, nil
				})
				if err != c.want || !slices.Equal(attempts, c.attempts) {
					t.Errorf("tried at %v: %v; want %v: %v", attempts, err, c.attempts, c.want)
				}
			})
		})
	}
}
