package command_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"holdfast"
	"holdfast/command"
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

// pages, too, which opens the file in a way of its own.
func TestPagesWhileOwnerOpens(t *testing.T) {
	shareHere(t)
	t.Setenv("HOLDFAST_SHARE", "") // a program that shares nothing has it open
	before := ownedDB(t, holdfast.Options{})
	dir, err := filepath.Abs("share")
	check(t, err)
	t.Setenv("HOLDFAST_SHARE", dir)
	ended := make(chan result, 1)
	go func() { ended <- run(t, "pages", "a.db", "--timeout", "0") }()
	time.Sleep(50 * time.Millisecond) // for it to wait; if it does not yet, this tests less
	check(t, before.Close())
	after := ownedDB(t, holdfast.Options{})
	select {
	case r := <-ended:
		wantIn(t, r, 0, "meta", "")
	case <-time.After(watchdog):
		t.Error("it waits until the program that shares the file closes it")
		check(t, after.Close())
		<-ended
	}
}

// compact blamed the copy, and said no next step, when the program had closed the source since it was opened.
func TestCompactOwnerClosed(t *testing.T) {
	shareHere(t)
	db := ownedDB(t, holdfast.Options{})
	updateIn(t, db, putIn("b", "k", "v"))
	root, said := command.NewRootCommand(), &strings.Builder{}
	root.SetOut(io.Discard)
	root.SetErr(writerFunc(func(p []byte) (int, error) {
		check(t, db.Close()) // when the note is printed that the database is open; later it does nothing
		return said.Write(p)
	}))
	root.SetArgs([]string{"compact", "-o", "copy.db", "a.db"})
	const want = "a.db: the program that had it open, and through which it was to be read, has closed it, or has ended; run the command again"
	if code := command.Execute(t.Context(), root); code != 1 || !strings.Contains(said.String(), "holdfast: "+want) {
		t.Errorf("exit code %d, %s", code, said)
	}
	if _, err := os.Lstat("copy.db"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
