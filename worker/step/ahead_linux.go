package step

import "holdfast/worker/internal/osthread"

// ahead makes what steps are to have before they begin. There is never more than one of a kind that waits, and no step gets
// what another has had.
type ahead[T any] struct {
	make  func() (T, error)
	drop  func(T)
	ready chan T // the receiver owns what it gets
	stop  chan struct{}
	done  chan struct{}
}

// newAhead calls make on a thread of its own, which make may leave in whatever namespaces.
func newAhead[T any](make func() (T, error), drop func(T)) *ahead[T] {
	a := &ahead[T]{make: make, drop: drop}
	a.start()
	return a
}

func (a *ahead[T]) start() {
	a.ready, a.stop, a.done = make(chan T), make(chan struct{}), make(chan struct{})
	osthread.Own(a.serve)
}

// serve makes one after the other, until there is an error: a step then makes its own, and says what is wrong.
func (a *ahead[T]) serve() {
	defer close(a.done)
	for {
		one, err := a.make()
		if err != nil {
			return
		}
		select {
		case a.ready <- one:
		case <-a.stop:
			a.drop(one)
			return
		}
	}
}

// take returns one if it is ready.
func (a *ahead[T]) take() (one T, ok bool) {
	select {
	case one = <-a.ready:
		return one, true
	default:
		return one, false
	}
}

func (a *ahead[T]) close() {
	if a != nil {
		close(a.stop)
		<-a.done
	}
}
