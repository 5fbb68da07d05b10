package command_test

import (
	"bytes"
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

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

// TestWaits: a second step on a store failed after 0.3 s, so that builds in a shell loop had to take turns
// by themselves. Commands wait until the store is free, and say for whom; not with --wait 0, and not for
// longer than it says, or than Ctrl-C.
func TestWaits(t *testing.T) {
	t.Chdir(t.TempDir())
	s, err := snapshot.Open("store", snapshot.Options{Driver: copy.New()})
	check(t, err)
	if r := run(t, "", "snapshot", "ls", "--wait", "0"); r.code != command.ExitFailed || !strings.Contains(r.errOut, "longer with --wait") {
		t.Errorf("%+v", r)
	}
	var out, errOut bytes.Buffer
	root := command.NewRootCommand()
	root.SetOut(&out)
	root.SetErr(writer(func(b []byte) (int, error) { // what it waits for happens when it has said that it waits
		if strings.Contains(string(b), "waiting up to 1m: ") {
			check(t, s.Close())
		}
		return errOut.Write(b)
	}))
	root.SetArgs([]string{"--root", "store", "--run", "run", "snapshot", "ls"})
	if code := command.Execute(t.Context(), root); code != 0 || !strings.Contains(errOut.String(), fmt.Sprint("process ", os.Getpid())) {
		t.Errorf("exit code %d: %s", code, &errOut)
	}
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
