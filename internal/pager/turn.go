package pager

// turn is a lock that its waiters get in the order in which they came. A sync.Mutex
// lets goroutines that run overtake those that sleep, for up to a millisecond: with 64
// writers one commit in a hundred took six times the median.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

// Lock sends: of the goroutines blocked in that, a channel takes the first.
func (t turn) Lock() { t <- struct{}{} }

// TryLock takes the lock if it is free. It overtakes no waiter: a channel that has waiters is full.
func (t turn) TryLock() bool {
	select {
	case t <- struct{}{}:
		return true
	default:
		return false
	}
}

// Unlock is for the one that has the lock, in any goroutine.
func (t turn) Unlock() { <-t }
