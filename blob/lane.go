package blob

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"

	"holdfast"
)

// lane does one thing to tasks, begun in their order, in a goroutine, or several, that ends when there
// is nothing to do: so none is left by a blob that is never finished.
type lane struct {
	run   func() // loop, made once, since each use of a method as a value allocates
	do    func(*task)
	width int // how many goroutines, at most

	mu      sync.Mutex
	queue   [laneDepth]*task
	first   int
	waiting int
	running int
}

// laneDepth is how many tasks there can be at a time.
const laneDepth = 16

// task is a piece of a blob that is being worked on; nothing else may change it or use
// its sum until it is done.
type task struct {
	p        []byte
	sum      Address
	promises bool    // p may become shorter by compression
	frame    *[]byte // of p, empty: it is to be stored as it is
	panicked any     // what doing it ended with, if it panicked
	done     chan struct{}
}

func newLane(do func(*task)) *lane {
	l := &lane{do: do, width: 1}
	l.run = l.loop
	return l
}

// start has p worked on. At most laneDepth tasks may be started and not waited for.
func (l *lane) start(t *task, p []byte) {
	if t.done == nil {
		t.done = make(chan struct{}, 1)
	}
	t.p, t.panicked = p, nil
	l.mu.Lock()
	l.queue[(l.first+l.waiting)%laneDepth] = t
	l.waiting++
	begin := l.running < l.width
	if begin {
		l.running++
	}
	l.mu.Unlock()
	if begin {
		go l.run()
	}
}

// help does a task that waits, the oldest, in the caller's goroutine; false if there is none.
func (l *lane) help() bool {
	t := l.take()
	if t == nil {
		return false
	}
	l.work(t)
	t.done <- struct{}{}
	return true
}

// take takes the oldest task that waits; nil if there is none.
func (l *lane) take() *task {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting == 0 {
		return nil
	}
	t := l.queue[l.first]
	l.queue[l.first] = nil
	l.first = (l.first + 1) % laneDepth
	l.waiting--
	return t
}

// helped is wait of a task of the lane, which must be one whose tasks can be done in any
// order: meanwhile the caller does what waits.
func (l *lane) helped(t *task) error {
	if t.p != nil && len(t.done) == 0 {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		for len(t.done) == 0 && l.help() {
		}
	}
	return t.wait()
}

// ready tells whether the task is done, and wait would not wait.
func (t *task) ready() bool {
	select {
	case <-t.done:
		t.done <- struct{}{}
		return true
	default:
		return false
	}
}

// wait returns when the task is done, if it was started. Its error is that the bytes could not
// be read: they are mapped, and their file has been shortened.
func (t *task) wait() error {
	if t.p == nil {
		return nil
	}
	<-t.done
	t.p = nil
	if t.panicked == nil {
		return nil
	}
	if fault, ok := t.panicked.(interface {
		runtime.Error
		Addr() uintptr
	}); ok {
		return fmt.Errorf("%w: %w", holdfast.ErrUnreadable, fault)
	}
	panic(t.panicked)
}

func (l *lane) loop() {
	debug.SetPanicOnFault(true) // of this goroutine
	for {
		if !l.help() {
			l.mu.Lock()
			more := l.waiting > 0
			if !more {
				l.running--
			}
			l.mu.Unlock()
			if !more {
				return
			}
		}
	}
}

// work does a task. A panic is the caller's who waits for it.
func (l *lane) work(t *task) {
	defer func() { t.panicked = recover() }()
	l.do(t)
}
