package remotecache

import "sync"

// queue has the names of results that wait to be exported, each once.
type queue struct {
	mu     sync.Mutex
	more   *sync.Cond
	names  []string
	known  map[string]bool // those that wait
	failed map[string]int  // how often
	busy   int             // those that were taken, and are not done
	closed bool
}

func (q *queue) init() {
	q.more = sync.NewCond(&q.mu)
	q.known, q.failed = map[string]bool{}, map[string]int{}
}

// put adds a name; false: there are too many.
func (q *queue) put(name string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.known[name] {
		return true
	}
	if len(q.names) >= maxQueue {
		return false
	}
	q.names, q.known[name] = append(q.names, name), true
	q.more.Signal()
	return true
}

// take waits for a name; false: the queue is closed. The caller calls done.
func (q *queue) take() (name string, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.names) == 0 && !q.closed {
		q.more.Wait()
	}
	if q.closed {
		return "", false
	}
	name = q.names[0]
	q.names[0] = ""
	q.names = q.names[1:]
	delete(q.known, name)
	q.busy++
	return name, true
}

// done ends the work on a name. If it has failed, again tells whether it should be put back.
func (q *queue) done(name string, failed bool) (again bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.busy--
	if q.failed[name]++; failed && q.failed[name] < attempts {
		return true
	}
	delete(q.failed, name)
	return false
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.more.Broadcast()
}

func (q *queue) waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.names) + q.busy
}
