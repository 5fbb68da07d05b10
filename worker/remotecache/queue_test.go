package remotecache

import (
	"strconv"
	"testing"
)

// TestQueue: a name waits once, is tried so many times, and is forgotten then; there is a bound.
func TestQueue(t *testing.T) {
	var q queue
	q.init()
	for range 3 {
		if !q.put("a") || q.waiting() != 1 {
			t.Fatalf("%d wait", q.waiting())
		}
	}
	for i := range attempts {
		name, ok := q.take()
		if !ok || name != "a" {
			t.Fatalf("%q, %v", name, ok)
		}
		if again := q.done(name, true); again != (i < attempts-1) {
			t.Fatalf("%d: %v", i, again)
		}
		q.put(name)
	}
	name, _ := q.take()
	q.put(name) // it was replaced while it is exported
	if q.waiting() != 2 || q.done(name, false) || q.waiting() != 1 || len(q.failed) > 0 {
		t.Errorf("%d wait; failed: %v", q.waiting(), q.failed)
	}
	for i := 1; i < maxQueue; i++ {
		if !q.put(strconv.Itoa(i)) {
			t.Fatalf("%d are too many", i)
		}
	}
	if q.put("too many") || !q.put("1") {
		t.Error("there is no bound, or what waits counts again")
	}
	q.close()
	if _, ok := q.take(); ok || !q.put("x") {
		t.Error("it goes on when it is closed")
	}
}
