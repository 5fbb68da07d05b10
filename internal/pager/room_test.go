package pager_test

import (
	"fmt"
	"testing"

	"holdfast/internal/pager"
)

// What is prepared and not written is bounded: the next writer waits until the group
// is written, and goes on.
func TestWritersWaitForRoom(t *testing.T) {
	const most = 1024
	g := newGate(t, pager.Options{})
	first := finish(g.prepare("first", 1))
	<-g.arrived
	var rest []chan error
	for i := range most + 1 {
		rest = append(rest, finish(g.prepare(fmt.Sprint(i), 1)))
	}
	begun := make(chan error, 1)
	var w *pager.WriteTx
	go func() {
		var err error
		w, err = g.BeginWrite()
		begun <- err
	}()
	waits := pending(begun)
	if !waits {
		t.Errorf("a writer begins behind %d transactions that are not written", most+1)
	}
	g.pass <- nil
	wait(t, "the first commit", first, nil)
	<-g.arrived // of the group
	g.pass <- nil
	if waits {
		wait(t, "begin", begun, nil)
	}
	for _, done := range rest {
		wait(t, "a commit of the group", done, nil)
	}
	g.letAll()
	if err := w.Rollback(); err != nil {
		t.Error(err)
	}
	if g.read() != fmt.Sprint(most) {
		t.Errorf("reads %q", g.read())
	}
	g.accounted()
}
