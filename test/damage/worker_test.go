package damage

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"testing"
	"time"
)

// childEnv names the engine with which this test binary, run as a worker, uses
// the files that its input names.
const childEnv = "HOLDFAST_DAMAGE_WORKER"

func TestMain(m *testing.M) {
	if name := os.Getenv(childEnv); name != "" {
		work(name)
		return
	}
	os.Exit(m.Run())
}

// Bounds of a worker, in bytes. An endless recursion ends at the first, an
// absurd allocation at the second.
const (
	workerStack  = 64 << 20
	workerMemory = 3 << 30
)

// work answers each path with a line of JSON. What an engine does to the process
// happens: nothing is recovered.
func work(name string) {
	debug.SetMaxStack(workerStack)
	limitMemory(workerMemory)
	in, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	for in.Scan() {
		info, err := os.Stat(in.Text())
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return
		}
		var r result
		if name == "bbolt" {
			r = stockEngine(in.Text(), info.Size()).use()
		} else {
			r = holdfastEngine(in.Text(), info.Size()).use()
		}
		if out.Encode(r) != nil {
			return
		}
	}
}

// death is how a worker ended that did not answer.
type death string

const (
	alive   death = ""
	panics  death = "panic"
	faults  death = "fault" // of memory: SIGSEGV, SIGBUS
	hangs   death = "hang"
	tooMuch death = "memory" // endless recursion, or no memory
)

// worker is a process that uses files. It is started anew when it has died.
type worker struct {
	name    string
	timeout time.Duration // after which it hangs
	cmd     *exec.Cmd
	in      io.WriteCloser
	lines   chan []byte
	stderr  *bytes.Buffer
}

func newWorker(t testing.TB, name string, timeout time.Duration) *worker {
	w := &worker{name: name, timeout: timeout}
	t.Cleanup(w.stop)
	return w
}

func (w *worker) start() error {
	w.cmd, w.stderr = exec.Command(os.Args[0]), &bytes.Buffer{}
	w.cmd.Env = append(os.Environ(), childEnv+"="+w.name, "GOTRACEBACK=single")
	w.cmd.Stderr = w.stderr
	var err error
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	lines := make(chan []byte, 1)
	w.lines = lines
	if err := w.cmd.Start(); err != nil {
		return err
	}
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- bytes.Clone(s.Bytes())
		}
	}()
	return nil
}

// stop ends the process, whatever it is doing, and waits for it.
func (w *worker) stop() {
	if w.cmd == nil {
		return
	}
	_ = w.in.Close()
	_ = w.cmd.Process.Kill()
	for range w.lines {
	}
	_ = w.cmd.Wait()
	w.cmd = nil
}

// use has the worker use the file at path. A death comes with its last words.
func (w *worker) use(path string) (r result, died death, words string, err error) {
	if w.cmd == nil {
		if err := w.start(); err != nil {
			return r, alive, "", err
		}
	}
	if _, err := fmt.Fprintln(w.in, path); err != nil {
		return r, alive, "", err
	}
	timer := time.NewTimer(w.timeout)
	defer timer.Stop()
	select {
	case line, ok := <-w.lines:
		if ok {
			return r, alive, "", json.Unmarshal(line, &r)
		}
		_ = w.cmd.Wait() // so that stderr is complete
		words, w.cmd = w.stderr.String(), nil
		return r, cause(words), words, nil
	case <-timer.C:
		w.stop()
		return r, hangs, "no answer within " + w.timeout.String(), nil
	}
}

// cause tells from a process' last words what it died of.
func cause(words string) death {
	for _, c := range []struct {
		text string
		of   death
	}{
		{"stack overflow", tooMuch}, {"stack exceeds", tooMuch}, {"out of memory", tooMuch}, {"cannot allocate memory", tooMuch},
		{"unexpected fault address", faults}, {"SIGSEGV", faults}, {"SIGBUS", faults},
	} {
		if strings.Contains(words, c.text) {
			return c.of
		}
	}
	return panics
}
