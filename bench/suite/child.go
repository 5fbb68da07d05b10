package suite

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// childVariable names, in the environment of a child, the engine and the path
// of the database that it commits to, with a line break between.
const childVariable = "HOLDFAST_BENCH_CHILD"

// childCommits is how many keys a child commits before it says so.
const childCommits = 10

// RunChild does not return in a process that this package started. A program, or a
// test binary, that runs the groups "opening", "blob-memory" or of SharedGroups calls it before anything else.
func RunChild() {
	if job := os.Getenv(memoryVariable); job != "" {
		exit(memoryChild(job))
	}
	if job := os.Getenv(foreignVariable); job != "" {
		exit(foreignChild(job))
	}
	engine, path, ok := strings.Cut(os.Getenv(childVariable), "\n")
	if !ok {
		return
	}
	exit(child(engine, path))
}

// exit ends a child.
func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// child commits, says so, and keeps the database open until it is killed, or
// its parent is gone.
func child(engine, path string) error {
	i := slices.IndexFunc(Engines, func(e Engine) bool { return e.Name == engine })
	if i < 0 {
		return fmt.Errorf("there is no engine %q", engine)
	}
	s, err := Engines[i].Open(path, false)
	if err != nil {
		return err
	}
	keys, values := hundred()
	for n := range childCommits {
		if err := s.Put(keys[n:n+1], values[n:n+1]); err != nil {
			return err
		}
	}
	fmt.Println("committed")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// killed lets a process of its own open the database, commit some keys, and be
// killed with the database open.
func killed(e Engine, path string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), childVariable+"="+e.Name+"\n"+path)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	_ = cmd.Process.Kill()
	waited := cmd.Wait()
	if err != nil || line != "committed\n" {
		return fmt.Errorf("a child with %s said %q and ended: %w", e.Name, line, errors.Join(err, waited))
	}
	return nil
}
