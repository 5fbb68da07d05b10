package vfs

import "time"

// lockRetryInterval is the pause between two attempts to take a file's lock.
const lockRetryInterval = 50 * time.Millisecond

// retryLock calls try at once and then every lockRetryInterval until it
// returns true, an error, or timeout has passed (0: for ever); then it returns
// ErrTimeout. The last attempt is made when the time is up, not before.
func retryLock(timeout time.Duration, try func() (bool, error)) error {
	start := time.Now()
	for {
		if ok, err := try(); ok || err != nil {
			return err
		}
		pause := lockRetryInterval
		if timeout != 0 {
			left := timeout - time.Since(start)
			if left <= 0 {
				return ErrTimeout
			}
			pause = min(pause, left)
		}
		time.Sleep(pause)
	}
}
