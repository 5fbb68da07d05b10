package step

import (
	"fmt"
	"sync"
)

// output keeps what a command writes: its beginning and its end, if it is more than is kept.
type output struct {
	mu      sync.Mutex
	half    int
	head    []byte
	tail    []byte // a ring when it is full
	next    int    // where in the ring the next byte goes
	total   int64
	changed chan struct{} // closed, and made anew, with each Write
}

func newOutput(limit int) *output {
	return &output{half: limit / 2, changed: make(chan struct{})}
}

// Write takes all of p, and never fails.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.total += int64(len(p))
	all := len(p)
	n := min(len(p), o.half-len(o.head))
	o.head = append(o.head, p[:n]...)
	p = p[n:]
	if n = min(len(p), o.half-len(o.tail)); n > 0 {
		o.tail = append(o.tail, p[:n]...)
		p = p[n:]
	}
	if len(p) > o.half {
		p = p[len(p)-o.half:]
	}
	for len(p) > 0 {
		n = copy(o.tail[o.next:], p)
		o.next = (o.next + n) % o.half
		p = p[n:]
	}
	close(o.changed)
	o.changed = make(chan struct{})
	return all, nil
}

// written is how many bytes were written.
func (o *output) written() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.total
}

// text is what is kept, with a line in between that tells what is not.
func (o *output) text() ([]byte, int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	b := append([]byte(nil), o.head...)
	if left := o.total - int64(len(o.head)) - int64(len(o.tail)); left > 0 {
		b = fmt.Appendf(b, "\n[%d bytes of the output are left out here]\n", left)
	}
	b = append(b, o.tail[o.next:]...)
	return append(b, o.tail[:o.next]...), o.total
}

// from returns what is kept from an offset on, where that ends, and a channel that is closed when
// there is more.
func (o *output) from(at int64) (b []byte, next int64, more <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if at < int64(len(o.head)) {
		b = append(b, o.head[at:]...)
		at = int64(len(o.head))
	}
	begin := o.total - int64(len(o.tail)) // of the tail
	if skip := max(at, begin) - begin; skip < int64(len(o.tail)) {
		if begin > at {
			b = fmt.Appendf(b, "\n[%d bytes of the output are left out here]\n", begin-at)
		}
		tail := append(append([]byte(nil), o.tail[o.next:]...), o.tail[:o.next]...)
		b = append(b, tail[skip:]...)
	}
	return b, o.total, o.changed
}
