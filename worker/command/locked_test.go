package command_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"holdfast/worker/command"
	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/copy"
)

// The child that a killed holdfastd was about to start has the lock of the store for a moment: who came
// then was refused. A store that is locked is tried again for a while.
func TestLockedForAMoment(t *testing.T) {
	t.Chdir(t.TempDir())
	s, err := snapshot.Open("store", snapshot.Options{Driver: copy.New()})
	check(t, err)
	tried := 0
	defer command.WhileLocked(func() {
		if tried++; tried == 3 {
			check(t, s.Close())
		}
	})()
	if must(t, "snapshot", "ls"); tried != 3 {
		t.Errorf("tried again %d times", tried)
	}
}

// TestWaits: a second step on a store failed after 0.3 s, so that builds in a shell loop had to take turns by themselves. Commands
// wait until the store is free, and say for whom; not with --wait 0, and not for longer than it says, or than Ctrl-C.
func TestWaits(t *testing.T) {
	t.Chdir(t.TempDir())
	s, err := snapshot.Open("store", snapshot.Options{Driver: copy.New()})
	check(t, err)
	free := time.AfterFunc(1500*time.Millisecond, func() { _ = s.Close() })
	if r := run(t, "", "snapshot", "ls", "--wait", "0"); r.code != command.ExitFailed || !strings.Contains(r.errOut, "longer with --wait") {
		t.Errorf("%+v", r)
	}
	if r := run(t, "", "snapshot", "ls"); r.code != 0 || !strings.Contains(r.errOut, "waiting up to 1m0s: ") || !strings.Contains(r.errOut, fmt.Sprint("process ", os.Getpid())) {
		t.Errorf("%+v", r)
	}
	free.Stop()
	s, err = snapshot.Open("store", snapshot.Options{Driver: copy.New()})
	check(t, err)
	defer s.Close()
	if r := run(t, "", "snapshot", "ls", "--wait", "500ms"); r.code != command.ExitFailed {
		t.Errorf("%+v", r)
	}
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(500*time.Millisecond, cancel)
	if r := runIn(t, ctx, "", "snapshot", "ls", "--wait", "1h"); r.code != 130 || !strings.Contains(r.errOut, "interrupted") {
		t.Errorf("%+v", r)
	}
}
