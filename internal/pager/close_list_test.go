package pager_test

import (
	"testing"

	"holdfast/internal/page"
	"holdfast/internal/pager"
	"holdfast/internal/vfs"
)

// Close wrote a list of all free pages after a single small commit: a MiB in a file of which half
// a GiB is free. A long list is written by a session only that has written as much.
func TestCloseListIsBounded(t *testing.T) {
	const free = 20_000 // pages
	e := newEnv(t)
	session := func(what string, commits int, size uint64, listed bool) {
		t.Helper()
		for range commits {
			e.mustCommit("text", size)
		}
		e.ops = nil
		e.close()
		var bytes, flushes int64
		for _, op := range e.ops {
			switch op.Kind {
			case vfs.KindWrite:
				bytes += op.Len
			case vfs.KindSync:
				flushes++
			}
		}
		slots := e.slots()
		best, err := slots.Best()
		if err != nil {
			t.Fatal(err)
		}
		if got := slots.Meta[best].Freelist != page.NoFreelist; got != listed {
			t.Errorf("%s: there is a freelist: %t", what, got)
		}
		if most := int64(3 * pageSize); !listed && (bytes > most || flushes > 1) {
			t.Errorf("%s: Close has written %d bytes and flushed %d times", what, bytes, flushes)
		}
		e.open(pager.Options{})
		if how := e.OpenPath(); how != pager.OpenedByRecord || e.read() != "text" {
			t.Errorf("%s: opened by %s, %q", what, how, e.read())
		}
		e.accounted()
	}
	session("a small file", 1, 1, true)
	e.mustCommit("much", free)
	session("what is freed", 2, 1, true) // which is more than the list
	session("one commit", 1, 1, false)
	session("nothing", 0, 1, false)
	session("some commits", 10, 3, false)
	session("many pages", 2, 8*free/pageSize/2+8, true)
	session("nothing, with a list", 0, 1, true)
}
