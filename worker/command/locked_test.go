package command_test

import (
	"testing"

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
