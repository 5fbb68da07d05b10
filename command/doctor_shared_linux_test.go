package command_test

import (
	"fmt"
	"io/fs"
	"strings"
	"sync/atomic"
	"testing"

	"holdfast"
	"holdfast/command/internal/hook"
)

// doctor and vacuum --dry-run of a database that its program shares ended with "database not open"; and doctor read the root
// of another state than that which it held, whose pages the program may have used again.
func TestDoctorShared(t *testing.T) {
	shareHere(t)
	db := ownedDB(t, holdfast.Options{NoSync: true})
	fill := func(round int) {
		updateIn(t, db, func(tx *holdfast.Tx) error {
			for bucket := range 40 {
				if err := putIn(fmt.Sprintf("b%02d", bucket), "k", strings.Repeat("v", round%3000))(tx); err != nil {
					return err
				}
			}
			return nil
		})
	}
	fill(1)
	wantIn(t, run(t, "vacuum", "--dry-run", "a.db"), 0, "nothing to do", "read through process")
	var stop atomic.Bool
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for round := 1; !stop.Load(); round++ {
			fill(round)
		}
	}()
	for range 20 {
		wantIn(t, run(t, "doctor", "a.db"), 0, "no fault", "read through process")
	}
	stop.Store(true)
	<-stopped
}

// A command that looked for the share of a program which had locked the file, and not shared it yet, waited for the lock
// until its time was over, and said that the file was locked.
func TestReadWhileOwnerOpens(t *testing.T) {
	shareHere(t)
	check(t, ownedDB(t, holdfast.Options{}).Close())
	opened := hook.OpenDatabase
	t.Cleanup(func() { hook.OpenDatabase = opened })
	var db *holdfast.DB
	hook.OpenDatabase = func(path string, mode fs.FileMode, options *holdfast.Options) (*holdfast.DB, error) {
		if db == nil {
			db = ownedDB(t, holdfast.Options{})
			updateIn(t, db, putIn("b", "k", "v"))
		}
		return opened(path, mode, options)
	}
	wantIn(t, run(t, "get", "a.db", "b", "k", "--timeout", "100ms"), 0, "v", "read through process")
}
