package engine

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"holdfast"
	"holdfast/test/hook"
)

// heardWarnings is a logger that hands on heardWarnings only.
type heardWarnings struct {
	*holdfast.DefaultLogger
	said chan string
}

func hearWarnings() *heardWarnings {
	return &heardWarnings{&holdfast.DefaultLogger{Logger: log.New(io.Discard, "", 0)}, make(chan string, 100)}
}

func (w *heardWarnings) Warningf(format string, v ...any) { w.said <- fmt.Sprintf(format, v...) }

// next is the next warning.
func (w *heardWarnings) next(t *testing.T) (text string) {
	t.Helper()
	must(t, within(t, "a warning", func() error { text = <-w.said; return nil }))
	return text
}

func wantWords(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("nothing of %q in: %s", word, text)
		}
	}
}

// holdTheLock is in the stack of who has the writer lock.
func holdTheLock(db *holdfast.DB, has chan<- bool, release <-chan bool) error {
	return db.Update(func(*holdfast.Tx) error {
		close(has)
		<-release
		return nil
	})
}

// beginByHand is where a transaction was begun that is not ended.
func beginByHand(db *holdfast.DB) (*holdfast.Tx, error) { return db.Begin(true) }

// nestedUpdate waits for itself.
func nestedUpdate(db *holdfast.DB) error {
	return db.Update(func(*holdfast.Tx) error {
		return db.Update(func(*holdfast.Tx) error { return nil })
	})
}

// A program hung without a word: of several writers one had the lock and waited for something else. A writer
// that waits long says who has the writer lock.
func TestLongWaitForAnother(t *testing.T) {
	logger := hearWarnings()
	db := open(t, tempPath(t), &holdfast.Options{NoSync: true, Logger: logger})
	hook.WarnAfter(db, time.Millisecond)
	has, release, done := make(chan bool), make(chan bool), make(chan error, 3)
	go func() { done <- holdTheLock(db, has, release) }()
	<-has
	for range 2 {
		go func() { done <- db.Update(func(*holdfast.Tx) error { return nil }) }()
	}
	text := logger.next(t)
	wantWords(t, text, db.Path(), "has waited 1ms for the writer lock, which another goroutine has had all the while; its stack:\ngoroutine ", "holdTheLock")
	if strings.Contains(text, "waitForTurn") {
		t.Errorf("not of the goroutine that has the lock: %s", text)
	}
	close(release)
	for range 3 {
		must(t, within(t, "the writers", func() error { return <-done }))
	}
	if len(logger.said) > 0 { // of those that waited for the same
		t.Errorf("said twice: %s", <-logger.said)
	}
}

// The same of a transaction that Begin began and that its program has forgotten: nothing of it is in any stack.
func TestLongWaitForBegin(t *testing.T) {
	logger := hearWarnings()
	db := open(t, tempPath(t), &holdfast.Options{NoSync: true, Logger: logger})
	hook.WarnAfter(db, time.Millisecond)
	tx, err := beginByHand(db)
	must(t, err)
	done := make(chan error, 1)
	go func() { done <- db.Update(func(*holdfast.Tx) error { return nil }) }()
	text := logger.next(t)
	wantWords(t, text, "was begun with Begin(true), and has not ended yet; by:\n", "beginByHand(...)", "TestLongWaitForBegin", "longwait_test.go:")
	if strings.Contains(text, "holdfast.(*DB).Begin(") {
		t.Errorf("the engine's own calls are told: %s", text)
	}
	must(t, tx.Rollback())
	must(t, within(t, "the writer", func() error { return <-done }))
}

// A slowLogger says when a warning begins, and takes its time.
type slowLogger struct {
	*holdfast.DefaultLogger
	begins chan bool
	ended  bool
}

func (l *slowLogger) Warningf(string, ...any) {
	close(l.begins)
	time.Sleep(20 * time.Millisecond)
	l.ended = true
}

// What happened: the wait ended and the database was closed while the log was told of it. Close returned, and a logger that was used up
// with the database was called.
func TestCloseWaitsForTheWarning(t *testing.T) {
	logger := &slowLogger{hearWarnings().DefaultLogger, make(chan bool), false}
	db, err := holdfast.Open(tempPath(t), 0o600, &holdfast.Options{NoSync: true, Logger: logger})
	must(t, err)
	hook.WarnAfter(db, time.Millisecond)
	tx, err := db.Begin(true)
	must(t, err)
	done := make(chan error, 1)
	go func() { done <- db.Update(func(*holdfast.Tx) error { return nil }) }()
	<-logger.begins
	must(t, tx.Rollback())
	must(t, <-done)
	must(t, db.Close())
	if !logger.ended {
		t.Error("Close has returned while the log was told something")
	}
}

// An Update within the function of an Update waits for itself for ever, and nothing said so. (In another process,
// which ends with it.)
func TestNestedUpdateIsTold(t *testing.T) {
	self, err := os.Executable()
	must(t, err)
	cmd := exec.Command(self, tempPath(t))
	cmd.Env = append(os.Environ(), childEnv+"=nested", "HOLDFAST_LOG=stderr")
	errOut, err := cmd.StderrPipe()
	must(t, err)
	must(t, cmd.Start())
	defer func() { _ = cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }()
	var text strings.Builder
	must(t, within(t, "the warning", func() error {
		for lines := bufio.NewScanner(errOut); lines.Scan(); {
			text.WriteString(lines.Text() + "\n")
			if strings.Contains(lines.Text(), "nestedUpdate(") {
				return nil
			}
		}
		return fmt.Errorf("it ended, and said only: %s", text.String())
	}))
	wantWords(t, text.String(), "WARN: ", "which its own goroutine has: it waits for itself, for ever. An Update was begun within the function of an Update",
		"waitForTurn", "holdfast.(*DB).Update")
}

// The timer of a writer whose wait had just ended was started again, and told of a writer that waits when the
// database was idle.
func TestNoWaitIsToldAfterItsEnd(t *testing.T) {
	log := hearWarnings()
	db := open(t, tempPath(t), &holdfast.Options{Logger: log})
	for _, busy := range []bool{false, true} {
		if started := hook.FireAfterWait(db, func() {
			if busy {
				must(t, db.Update(countUp))
			}
		}); started {
			t.Errorf("busy %v: the timer was started again", busy)
		}
		if len(log.said) > 0 {
			t.Errorf("busy %v: no writer waits, and the log says %s", busy, <-log.said)
		}
	}
	must(t, db.Close())
}
