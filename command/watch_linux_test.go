package command_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"holdfast"
	"holdfast/command"
	"holdfast/internal/share"
)

// watched is a watch that runs beside a test. Its output is a line at a time, and blocks until the test takes it.
type watched struct {
	t     *testing.T
	lines chan string
	ended chan int

	begun atomic.Int64 // lines, also the one that is not taken yet

	mu  sync.Mutex
	err strings.Builder
}

func (w *watched) Write(p []byte) (int, error) {
	w.begun.Add(1)
	w.lines <- string(p)
	return len(p), nil
}

// said is what it has written to standard error.
func (w *watched) said() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err.String()
}

type saying struct{ *watched }

func (s saying) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err.Write(p)
}

// startWatch begins to watch a.db.
func startWatch(t *testing.T, args ...string) *watched {
	t.Helper()
	w := &watched{t: t, lines: make(chan string), ended: make(chan int, 1)}
	root := command.NewRootCommand()
	root.SetOut(w)
	root.SetErr(saying{w})
	root.SetArgs(append([]string{"watch", "a.db", "--interval", "1ms"}, args...))
	go func() { w.ended <- command.Execute(t.Context(), root) }()
	return w
}

// watchdog is how long something may take that must not hang.
const watchdog = time.Minute

// line is what is printed next.
func (w *watched) line() string {
	w.t.Helper()
	select {
	case l := <-w.lines:
		return l
	case code := <-w.ended:
		w.t.Fatalf("it has ended with %d: %s", code, w.said())
	case <-time.After(watchdog):
		w.t.Fatalf("no line: %s", w.said())
	}
	return ""
}

// until waits until it has said something.
func (w *watched) until(what string) {
	w.t.Helper()
	for deadline := time.Now().Add(watchdog); !strings.Contains(w.said(), what); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("it has not said %q: %s", what, w.said())
		}
	}
}

// untilPrinting waits until line n is to be taken.
func (w *watched) untilPrinting(n int64) {
	w.t.Helper()
	for deadline := time.Now().Add(watchdog); w.begun.Load() < n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("line %d does not come: %s", n, w.said())
		}
	}
}

// end waits for its end, with an exit code.
func (w *watched) end(code int) {
	w.t.Helper()
	select {
	case got := <-w.ended:
		if got != code {
			w.t.Fatalf("exit code %d, want %d: %s", got, code, w.said())
		}
	case l := <-w.lines:
		w.t.Fatalf("a line: %s", l)
	case <-time.After(watchdog):
		w.t.Fatalf("it does not end: %s", w.said())
	}
}

// shareHere has databases of this test, and of processes that it begins, shared in a directory of its own.
func shareHere(t *testing.T) {
	t.Helper()
	workdir(t)
	dir, err := filepath.Abs("share")
	check(t, err)
	t.Setenv("HOLDFAST_SHARE", dir)
}

func ownedDB(t *testing.T, options holdfast.Options) *holdfast.DB {
	t.Helper()
	db, err := holdfast.Open("a.db", 0o600, &options)
	check(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

func updateIn(t *testing.T, db *holdfast.DB, fn func(tx *holdfast.Tx) error) {
	t.Helper()
	check(t, db.Update(fn))
}

// putIn puts a key into a bucket, which is made if need be.
func putIn(bucket, key, value string) func(tx *holdfast.Tx) error {
	return func(tx *holdfast.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte(bucket))
		if err != nil {
			return err
		}
		return b.Put([]byte(key), []byte(value))
	}
}

// TestWatch: each commit is a line with its keys. Several of them while a line is not taken are one, and no state but the
// one of that line is held meanwhile.
func TestWatch(t *testing.T) {
	shareHere(t)
	db := ownedDB(t, holdfast.Options{})
	updateIn(t, db, putIn("b", "old", "1"))
	w := startWatch(t, "--keys", "--values", "--count", "4")
	w.until("watching from transaction")
	updateIn(t, db, putIn("b", "k/ey", "2"))
	wantLine(t, w.line(), " +1  new ", "keys +1 ~0 -0", "\n  + b/k/ey: 2\n")
	updateIn(t, db, putIn("b", "old", "three"))
	w.untilPrinting(2)
	if held := readersIn(t); len(held) != 1 {
		t.Errorf("%d states are held while a line is not taken: %+v", len(held), held)
	}
	updateIn(t, db, func(tx *holdfast.Tx) error { return tx.DeleteBucket([]byte("b")) })
	updateIn(t, db, putIn("c/d", "k", "\x00"))
	wantLine(t, w.line(), " +1  new ", "keys +0 ~1 -0", "\n  ~ b/old: 1 -> three\n")
	wantLine(t, w.line(), " +2  new ", "keys +2 ~0 -3", "\n  - b/: a bucket\n  - b/k/ey: 2\n  - b/old: three\n", `
  + c\/d/: a bucket
  + c\/d/k: 00
`)
	updateIn(t, db, func(tx *holdfast.Tx) error { return tx.Bucket([]byte("c/d")).SetSequence(7) })
	wantLine(t, w.line(), `  ~ c\/d/: sequence 0 -> 7`)
	w.end(0)
}

type watchedPages struct {
	Bytes    int64 `json:"bytes"`
	Leaf     int   `json:"leaf_pages"`
	Branch   int   `json:"branch_pages"`
	Overflow int   `json:"overflow_pages"`
}

// TestWatchPages: without --keys a line has the pages only, and they are those that the commit wrote.
func TestWatchPages(t *testing.T) {
	shareHere(t)
	db := ownedDB(t, holdfast.Options{PageSize: 4096})
	updateIn(t, db, putIn("b", "k", "v"))
	w := startWatch(t, "--json", "--count", "1")
	w.until("watching from transaction")
	updateIn(t, db, putIn("b", "long", strings.Repeat("v", 3*4096)))
	var r struct {
		Transactions  int
		New           watchedPages
		GivenUp       watchedPages `json:"given_up"`
		Keys, Changes any
	}
	check(t, json.Unmarshal([]byte(w.line()), &r))
	// The top level is a leaf, and the bucket is not inline any more: it has a leaf for each key, one with three pages after it.
	if r.Transactions != 1 || r.New != (watchedPages{7 * 4096, 3, 1, 3}) || r.GivenUp != (watchedPages{4096, 1, 0, 0}) || r.Keys != nil || r.Changes != nil {
		t.Errorf("%+v", r)
	}
	w.end(0)
}

// TestWatchJSON: each line is one object, and keys and values in it are whole or said to be cut.
func TestWatchJSON(t *testing.T) {
	shareHere(t)
	db := ownedDB(t, holdfast.Options{})
	w := startWatch(t, "--json", "--keys", "--values", "--max-keys", "3", "--count", "2")
	w.until("watching from transaction")
	updateIn(t, db, func(tx *holdfast.Tx) error {
		for _, k := range []string{"1", "\xff", "line\nbreak"} {
			if err := putIn("b", k, strings.Repeat("v", 5000))(tx); err != nil {
				return err
			}
		}
		return nil
	})
	type value struct {
		Bytes           int
		Value, Encoding string
		Cut             bool
	}
	var r struct {
		Transaction int
		Time        time.Time
		Keys        struct {
			Added, Changed, Removed int
			NotListed               int `json:"not_listed"`
		}
		Changes []struct {
			Change, Kind, Key string
			KeyEncoding       string `json:"key_encoding"`
			Bucket            []string
			Old, New          *value
		}
	}
	line := w.line()
	if strings.Count(line, "\n") != 1 {
		t.Errorf("%q is not one line", line)
	}
	check(t, json.Unmarshal([]byte(line), &r))
	if r.Keys.Added != 4 || r.Keys.NotListed != 1 || len(r.Changes) != 3 || r.Changes[0].Kind != "bucket" || r.Time.IsZero() || r.Transaction == 0 {
		t.Fatalf("%s", line)
	}
	if c := r.Changes[1]; c.Change != "added" || c.Kind != "key" || c.Key != "1" || c.Bucket[0] != "b" || c.Old != nil ||
		*c.New != (value{5000, strings.Repeat("v", 1024), "text", true}) {
		t.Errorf("%s", line)
	}
	updateIn(t, db, func(tx *holdfast.Tx) error { return tx.Bucket([]byte("b")).Delete([]byte("\xff")) })
	check(t, json.Unmarshal([]byte(w.line()), &r))
	if c := r.Changes[0]; c.Change != "removed" || c.Key != "ff" || c.KeyEncoding != "hex" || c.Old == nil {
		t.Errorf("%+v", r)
	}
	w.end(0)
}

// TestWatchPeriodic: what is not durable yet is not shown, and is once it is, also if there is no moment at which the newest
// transaction is durable.
func TestWatchPeriodic(t *testing.T) {
	shareHere(t)
	db := ownedDB(t, holdfast.Options{Durability: holdfast.Periodic, PeriodicDelay: time.Hour})
	check(t, db.Sync())
	w := startWatch(t, "--keys")
	w.until("watching from transaction")
	updateIn(t, db, putIn("b", "1", ""))
	w.until("is not durable yet") // it has looked often
	updateIn(t, db, putIn("b", "2", ""))
	select {
	case l := <-w.lines:
		t.Fatalf("a line of what is not durable: %s", l)
	default:
	}
	check(t, db.Sync())
	updateIn(t, db, putIn("b", "3", "")) // the newest is not durable
	wantLine(t, w.line(), "+1", "  + b/1: 0 bytes")
	check(t, db.Sync())
	rest := w.line()
	if !strings.Contains(rest, "b/3") { // it has begun the next state before the last commit
		rest += w.line()
	}
	wantLine(t, rest, "  + b/2: 0 bytes", "  + b/3: 0 bytes")
	check(t, db.Close())
	w.end(0)
}

// TestWatchClosed: it ends when its owner closes the database.
func TestWatchClosed(t *testing.T) {
	shareHere(t)
	db := ownedDB(t, holdfast.Options{})
	w := startWatch(t)
	w.until("watching from transaction")
	check(t, db.Close())
	w.end(0)
	wantLine(t, w.said(), fmt.Sprintf("a.db: process %d", os.Getpid()), "has closed it, or has ended; transaction")
}

// asOwner in the environment has TestOwnerProcess open a.db, and keep it open.
const asOwner = "HOLDFAST_TEST_AS_OWNER"

// TestOwnerProcess is the owner of TestWatchFollow, as a process of its own that is killed.
func TestOwnerProcess(t *testing.T) {
	if os.Getenv(asOwner) == "" {
		t.Skip("it is for a process that another test begins")
	}
	_, err := holdfast.Open("a.db", 0o600, nil)
	check(t, err)
	time.Sleep(2 * watchdog)
}

// TestWatchFollow: with --follow it waits for the first owner, and after one was killed for the next.
func TestWatchFollow(t *testing.T) {
	shareHere(t)
	w := startWatch(t, "--follow", "--count", "1", "--keys")
	w.until("a.db: waiting for a program that opens it")
	owner := exec.Command("/proc/self/exe", "-test.run", "^TestOwnerProcess$")
	owner.Env = append(os.Environ(), asOwner+"=1")
	check(t, owner.Start())
	defer owner.Process.Kill()
	w.until(fmt.Sprintf("read through process %d", owner.Process.Pid))
	w.until("watching from transaction")
	check(t, owner.Process.Kill())
	_ = owner.Wait()
	w.until("has closed it, or has ended")
	db := ownedDB(t, holdfast.Options{})
	w.until(fmt.Sprintf("read through process %d", os.Getpid()))
	for strings.Count(w.said(), "watching from transaction") < 2 {
		time.Sleep(time.Millisecond)
	}
	updateIn(t, db, putIn("b", "k", "v"))
	wantLine(t, w.line(), "  + b/k: 1 byte\n")
	w.end(0)
	if n := strings.Count(w.said(), "waiting for a program"); n != 2 {
		t.Errorf("it has said %d times that it waits: %s", n, w.said())
	}
}

// TestWatchEndedReader: a reader that was ended from outside is begun anew, and that is said.
func TestWatchEndedReader(t *testing.T) {
	shareHere(t)
	db := ownedDB(t, holdfast.Options{})
	w := startWatch(t, "--keys", "--count", "1")
	w.until("watching from transaction")
	v, err := share.Attach(os.Getenv("HOLDFAST_SHARE"), identityOf(t))
	check(t, err)
	defer v.Close()
	for _, r := range readersIn(t) {
		if did, err := v.EndReader(share.ReaderInfo{Slot: r.Slot, PID: r.PID, Opened: r.Opened}); err != nil || !did {
			t.Errorf("ended: %t, %v", did, err)
		}
	}
	w.until("the reader was ended from outside; nothing was committed meanwhile")
	updateIn(t, db, putIn("b", "k", "v"))
	wantLine(t, w.line(), "+1", "  + b/k: 1 byte\n")
	w.end(0)
}

// TestWatchClosedPipe: that no one reads the lines any more is no error.
func TestWatchClosedPipe(t *testing.T) {
	shareHere(t)
	db := ownedDB(t, holdfast.Options{})
	w := &watched{t: t, lines: make(chan string), ended: make(chan int, 1)}
	root := command.NewRootCommand()
	root.SetOut(&closedPipe{})
	root.SetErr(saying{w})
	root.SetArgs([]string{"watch", "a.db", "--interval", "1ms"})
	go func() { w.ended <- command.Execute(t.Context(), root) }()
	w.until("watching from transaction")
	updateIn(t, db, putIn("b", "k", "v"))
	w.end(0)
	if strings.Contains(w.said(), "pipe") {
		t.Errorf("it says %s", w.said())
	}
}

func TestWatchRefuses(t *testing.T) {
	shareHere(t)
	db := ownedDB(t, holdfast.Options{})
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"watch a.db --values", 2, "--values is for the keys that are printed: give --keys"},
		{"watch a.db --max-keys -1", 2, "--max-keys is -1"},
		{"watch a.db --interval 0", 2, "--interval is 0"},
		{"watch a.db --count -1", 2, "--count is -1"},
		{"watch b.db", 1, "b.db: no such file; there is a.db"},
	} {
		wantIn(t, run(t, strings.Fields(c.args)...), c.code, "", c.want)
	}
	check(t, db.Close())
	wantIn(t, run(t, "watch", "a.db"), 1, "", "a.db: no program has it open and shares it; start the program with HOLDFAST_SHARE=on")
}

func wantLine(t *testing.T, line string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(line, part) {
			t.Fatalf("line %q has not %q", line, part)
		}
	}
}

func identityOf(t *testing.T) share.Identity {
	t.Helper()
	info, err := os.Stat("a.db")
	check(t, err)
	s := info.Sys().(*syscall.Stat_t)
	return share.Identity{Dev: s.Dev, Ino: s.Ino}
}

// readersIn are those of a.db that hold a state.
func readersIn(t *testing.T) (holding []share.ReaderInfo) {
	t.Helper()
	v, err := share.Attach(os.Getenv("HOLDFAST_SHARE"), identityOf(t))
	check(t, err)
	defer v.Close()
	all, err := v.Readers()
	check(t, err)
	for _, r := range all {
		if r.Holds {
			holding = append(holding, r)
		}
	}
	return holding
}
