package pager_test

import (
	"testing"

	"holdfast/internal/pager"
	"holdfast/internal/vfs"
)

// Switching NoSync off did not flush what was committed with it. Those commits
// may have reused pages of the newest state on the disk, so a crash in the first
// flush of the next commit left older metas over newer pages.
func TestFlushAfterNoSync(t *testing.T) {
	e := newEnv(t)
	e.ops = nil
	e.opts.Mode = pager.None
	e.mustCommit("a", 1)
	e.mustCommit("b", 1)
	if n := count(e, vfs.KindSync); n != 0 {
		t.Errorf("%d flushes with NoSync", n)
	}
	e.opts.Mode = pager.Full
	e.ops = nil
	e.mustCommit("c", 1)
	first := e.ops[0].Kind
	if first == vfs.KindSize { // which changes nothing
		first = e.ops[1].Kind
	}
	if first != vfs.KindSync || count(e, vfs.KindSync) != 2 {
		t.Errorf("the first durable commit made the calls %v: want a flush before all others, and one more", e.ops)
	}
	e.ops = nil
	e.mustCommit("d", 1)
	if n := count(e, vfs.KindSync); n != 1 {
		t.Errorf("%d flushes in the next commit, want 1", n)
	}
}

func count(e *env, kind vfs.Kind) int {
	n := 0
	for _, op := range e.ops {
		if op.Kind == kind {
			n++
		}
	}
	return n
}
