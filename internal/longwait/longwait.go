// Package longwait tells the log of a writer that waits long for the writer lock, with the
// stack of the goroutine that has the lock: an Update within the function of an Update
// waits for itself for ever, and nothing else would say so. Who has the lock is not
// recorded when it is taken, which would cost each transaction. It is found in the stacks
// of all goroutines, which show the transaction as an argument of Tx.manage. Only for
// Begin(true) there may be no such call: with a logger its callers are recorded.
package longwait

import (
	"cmp"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"time"
)

// longWait is how long a writer waits for the writer lock before it says so.
const longWait = 5 * time.Second

// Bounds on what is looked at and told of a long wait.
const (
	maxStacks = 8 << 20 // bytes of the stacks of all goroutines
	maxTold   = 16 << 10
	maxFrames = 32
)

// Waits finds out for whom the writers of a database wait. Its fields are set before the
// first of them.
type Waits struct {
	After time.Duration                    // how long a wait is told; 0: 5 seconds
	Path  string                           // of the database
	Warn  func(format string, args ...any) // writes to the log
	Lock  any                              // the pointer on which a waiting writer calls waitForTurn

	mu     sync.Mutex
	number uint64             // of write transactions, so far; nothing is counted without a logger
	holder uintptr            // address of the newest, which has the writer lock or had it last
	pcs    [maxFrames]uintptr // where that was begun, if by Begin(true)
	n      int
	told   uint64 // of which transaction the log has it
	warns  sync.WaitGroup
	closed bool
}

// Begun records that the transaction at the pointer tx has the writer lock. byHand says
// that the caller of Begin is to be known.
func (w *Waits) Begun(tx any, byHand bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.number++
	w.holder, w.n = reflect.ValueOf(tx).Pointer(), 0
	if byHand {
		w.n = runtime.Callers(4, w.pcs[:]) // without Callers, Begun, beginWrite and Begin
	}
}

// A Wait is that of one writer.
type Wait struct {
	w      *Waits
	after  time.Duration
	timer  *time.Timer
	number uint64 // of the transaction that is waited for
	ended  bool   // stopping the timer does not wait for a look that has begun
}

// Wait is called by a writer that has to wait for the writer lock, and what it returns once
// the writer has it.
func (w *Waits) Wait() (done func()) { return w.New().End }

// New begins the wait of a writer.
func (w *Waits) New() *Wait {
	w.mu.Lock()
	defer w.mu.Unlock()
	one := &Wait{w: w, after: cmp.Or(w.After, longWait), number: w.number}
	one.timer = time.AfterFunc(one.after, func() { one.Look() })
	return one
}

// Look is called by the timer. It tells whether it is to look again: others had the writer
// lock meanwhile, which is busy, and not stuck.
func (o *Wait) Look() (again bool) {
	text := ""
	w := o.w
	w.mu.Lock()
	switch {
	case o.ended, w.closed:
	case o.number != w.number:
		o.number = w.number
		o.timer.Reset(o.after)
		again = true
	case w.told != o.number:
		w.told = o.number
		text = w.text(o.after, allStacks())
		w.warns.Add(1)
		defer w.warns.Done()
	}
	w.mu.Unlock()
	if text != "" { // without the lock, which all writers take: a logger may be slow, or write to this database
		w.Warn("%s", text)
	}
	return again
}

// End ends the wait.
func (o *Wait) End() {
	o.w.mu.Lock()
	defer o.w.mu.Unlock()
	o.ended = true
	o.timer.Stop()
}

// Close is called when the database is closed, and without a lock of it: nothing is told once Close has returned.
func (w *Waits) Close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.warns.Wait()
}

// text says what a writer has waited for so long. stacks are those of all goroutines.
func (w *Waits) text(after time.Duration, stacks string) string {
	text := fmt.Sprintf("%s: a writer has waited %s for the writer lock", w.Path, after)
	stack := stackWith(stacks, fmt.Sprintf("%#x", w.holder))
	switch {
	case stack != "" && strings.Contains(stack, fmt.Sprintf("waitForTurn(%p", w.Lock)):
		text += ", which its own goroutine has: it waits for itself, for ever. An Update was begun within " +
			"the function of an Update; use the outer transaction there"
	case stack != "":
		text += ", which another goroutine has had all the while"
	case w.n > 0:
		return text + ". The transaction that has it was begun with Begin(true), and has not ended yet; by:\n" + framesText(w.pcs[:w.n])
	default:
		return text + "; which goroutine has it is not known"
	}
	if len(stack) > maxTold {
		stack = stack[:maxTold] + "\n..."
	}
	return text + "; its stack:\n" + stack
}

// stackWith is the stack, of those of all goroutines, that has an argument with that address.
func stackWith(stacks, address string) string {
	for stack := range strings.SplitSeq(stacks, "\n\n") {
		for rest := stack; ; {
			_, after, found := strings.Cut(rest, address)
			if !found {
				break
			}
			// A longer number is another address, and after ? it may be one that is not used any more.
			if after != "" && strings.ContainsRune(",)}", rune(after[0])) {
				return strings.TrimSpace(stack)
			}
			rest = after
		}
	}
	return ""
}

// allStacks are the stacks of all goroutines, as much of them as is looked at.
func allStacks() string {
	for n := 64 << 10; ; n *= 2 {
		buf := make([]byte, n)
		if got := runtime.Stack(buf, true); got < n || n >= maxStacks {
			return string(buf[:got])
		}
	}
}

// framesText writes callers as a stack does.
func framesText(pcs []uintptr) string {
	var b strings.Builder
	frames := runtime.CallersFrames(pcs)
	for {
		f, more := frames.Next()
		fmt.Fprintf(&b, "%s(...)\n\t%s:%d\n", f.Function, f.File, f.Line)
		if !more {
			return strings.TrimSpace(b.String())
		}
	}
}
