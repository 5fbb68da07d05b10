package real

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"
)

// lockTimeout is far more than any process here holds a lock after its death.
const lockTimeout = 30 * time.Second

// roleVariable is set in processes that are not the test: to an order.
const roleVariable = "HOLDFAST_REAL_ORDER"

// order says what a child process does.
type order struct {
	Role    string // a key of roles
	Path    string // of the database
	Engine  string // "holdfast" or "bbolt"
	Seed    uint64 // of the child's own choices
	History uint64 // seed of the history
	Large   int    // length of its longest values
	Fill    int    // as in history
	Options openOptions
	// KillAt is the number of the file call in which the process kills itself:
	// before it if the number is odd, after it if even. 0: never.
	KillAt int
	// Commits is the number of commits that the file has; Busy says that it is
	// used while it is changed, and not only before and after.
	Commits uint64
	Busy    bool
	// Prefix begins each line that the process writes.
	Prefix string
	// Of a process in a machine whose power is cut: Mode is how it commits. Done and Floor
	// are the commits that Holdfast and bbolt must find at least; Anything says
	// that nothing is promised. Stop: it verifies the file and commits nothing.
	Mode        string
	Done, Floor uint64
	Anything    bool
	Stop        bool
	// Sessions is how many sessions a committer makes; 0: until it is killed.
	Sessions int
	// Recorder is the name of a device of log-writes that keeps what is said as marks.
	Recorder string
}

var roles = map[string]func(order) error{
	"commit": runCommitter,
	"victim": runVictim,
	"look":   runLook,
}

func TestMain(m *testing.M) {
	text := os.Getenv(roleVariable)
	if text == "" {
		os.Exit(runTests(m))
	}
	var o order
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		prefix, recorder = o.Prefix, o.Recorder
		go exitWithParent()
		err = roles[o.Role](o)
	}
	if err != nil {
		fmt.Printf("%sfault %q\n", prefix, err.Error())
		os.Exit(1)
	}
	os.Exit(0)
}

// told has a value for each line that the parent writes to a child.
var told = make(chan struct{}, 1)

// exitWithParent ends a child whose parent is gone: its standard input ends.
func exitWithParent() {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		told <- struct{}{}
	}
	os.Exit(3)
}

// child is a process that carries out an order.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser // open for the life of the child
	out io.ReadCloser
}

func start(o order) (*child, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.Command(os.Args[0])}
	c.cmd.Env = append(os.Environ(), roleVariable+"="+string(text))
	c.cmd.Stderr = os.Stderr
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if c.out, err = c.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	return c, c.cmd.Start()
}

// wait waits for the child's end. What it wrote must have been read before.
func (c *child) wait() error {
	err := c.cmd.Wait()
	_ = c.in.Close()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil // how it ended is in c.cmd.ProcessState
	}
	return err
}

// seeds gives the seeds of a random test's rounds: rounds of them, and more as
// long as HOLDFAST_SOAK says, or the one of HOLDFAST_SEED.
func seeds(t *testing.T, rounds int) func(yield func(seed uint64) bool) {
	t.Helper()
	if s := os.Getenv("HOLDFAST_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return func(yield func(uint64) bool) { yield(seed) }
	}
	soak, _ := time.ParseDuration(os.Getenv("HOLDFAST_SOAK"))
	end := time.Now().Add(soak)
	first := rand.Uint64()
	return func(yield func(uint64) bool) {
		for i := 0; i < rounds || time.Now().Before(end); i++ {
			if !yield(first + uint64(i)) {
				return
			}
		}
	}
}

// againWith logs, if the test fails, how to run it again with the same choices.
func againWith(t *testing.T, seed uint64) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("again with HOLDFAST_SEED=%d", seed)
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
