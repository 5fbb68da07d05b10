package step

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"holdfast/worker/internal/fstree"
)

// inputOf is a file with a content.
func (s *stand) inputOf(text string) *os.File {
	s.Helper()
	f, err := os.CreateTemp(s.dir, "input")
	must(s, err)
	s.Cleanup(func() { f.Close() })
	_, err = f.WriteString(text)
	must(s, err)
	return f
}

// TestStdin: a command reads all of its input, and nothing else; the content is part of the step.
func TestStdin(t *testing.T) {
	everyWay(t, func(s *stand) {
		step := sh("base", "cat; test ! -t 0")
		step.Stdin = s.inputOf("one\x00\n")
		first := s.ok(step)
		if string(first.Output) != "one\x00\n" {
			s.Errorf("%q", first.Output)
		}
		same := step
		same.Stdin = s.inputOf("one\x00\n")
		if res := s.ok(same); !res.Hit || res.ID != first.ID {
			s.Errorf("the same content: %+v", res)
		}
		other, empty, none := step, step, step
		other.Stdin, empty.Stdin, none.Stdin = s.inputOf("two"), s.inputOf(""), nil
		seen := map[ID]bool{first.ID: true}
		for what, step := range map[string]Step{"two": other, "": empty, "\n": none} {
			res := s.ok(step)
			if seen[res.ID] || string(res.Output) != strings.TrimSpace(what) {
				s.Errorf("%q: %+v", what, res)
			}
			seen[res.ID] = true
		}
		long := strings.Repeat("0123456789abcde\n", 1<<20) // more than a pipe takes
		whole := sh("base", "wc -c; cat")
		whole.Stdin = s.inputOf(long)
		if got := s.text(whole); got != fmt.Sprint(len(long)) {
			s.Errorf("%q of %d", got, len(long))
		}
		for _, script := range []string{"true", "head -c 5", "exec <&-; sleep 0.1"} {
			part := sh("base", script)
			part.Stdin = whole.Stdin
			s.ok(part)
		}
		user := sh("base", "cat /dev/stdin; cat </proc/self/fd/0")
		user.Stdin, user.User = s.inputOf("of the user"), User{UID: 1000, GID: 1000}
		if got := s.text(user); got != "of the user" {
			s.Errorf("%q", got)
		}
		s.clean()
	})
}

// TestStdinHostile: a command gets hold of a pipe, and never of the file that its input came from.
func TestStdinHostile(t *testing.T) {
	everyWay(t, func(s *stand) {
		in := s.inputOf("content")
		step := sh("base", "readlink /proc/self/fd/0 | grep -v '^pipe:'; echo changed >/proc/self/fd/0; chmod 777 /proc/self/fd/0; true")
		step.Stdin = in
		if got := s.text(step); strings.Contains(got, in.Name()) || strings.HasPrefix(got, "/") {
			s.Errorf("%q", got)
		}
		b, err := os.ReadFile(in.Name())
		if info, e := in.Stat(); err != nil || e != nil || string(b) != "content" || info.Mode() != 0o600 {
			s.Errorf("%q, %v, %v", b, info.Mode(), err)
		}
		s.clean()
	})
}

// TestStdinLeft: who has given the input can leave and close it while others wait for the same step.
func TestStdinLeft(t *testing.T) {
	s := newStand(t, Options{})
	gate := filepath.Join(s.dir, "gate")
	must(t, os.Mkdir(gate, 0o777))
	step := sh("base", "cat | wc -c")
	step.NoCache = false
	step.Stdin = s.inputOf(strings.Repeat("x", 1<<20))
	ctx, cancel := context.WithCancel(s.ctx)
	var second sync.WaitGroup
	s.hook = func(p point, _ ID) {
		if p != atPrepared {
			return
		}
		joined := make(chan struct{})
		second.Go(func() {
			again := step
			again.Stdin = s.inputOf(strings.Repeat("x", 1<<20))
			close(joined)
			res, err := s.Run(s.ctx, again, nil)
			if err != nil || !bytes.Equal(bytes.TrimSpace(res.Output), []byte("1048576")) {
				t.Errorf("%+v, %v", res, err)
			}
		})
		<-joined
		for n := 0; n < 2; {
			s.Runner.mu.Lock()
			for _, f := range s.flights {
				n = f.waiters
			}
			s.Runner.mu.Unlock()
		}
		cancel()
		for n := 2; n > 1; {
			s.Runner.mu.Lock()
			for _, f := range s.flights {
				n = f.waiters
			}
			s.Runner.mu.Unlock()
		}
		must(t, step.Stdin.Close())
	}
	if _, err := s.Run(ctx, step, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	second.Wait()
	s.clean()
}

// TestStdinInvalid: what is no file, is too long, or changes.
func TestStdinInvalid(t *testing.T) {
	s := newStand(t, Options{})
	step := sh("base", "cat >/dev/null")
	r, w, err := os.Pipe()
	must(t, err)
	defer r.Close()
	defer w.Close()
	long := s.inputOf("")
	must(t, long.Truncate(MaxStdin+1))
	closed := s.inputOf("")
	must(t, closed.Close())
	dir, err := os.Open(s.dir)
	must(t, err)
	defer dir.Close()
	for what, f := range map[string]*os.File{"a pipe": r, "too long": long, "closed": closed, "a directory": dir} {
		step.Stdin = f
		if _, err := s.Run(s.ctx, step, nil); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, change := range map[string]func(*os.File) error{
		"shorter": func(f *os.File) error { return f.Truncate(1) },
		"other":   func(f *os.File) error { _, err := f.WriteAt([]byte("x"), 0); return err },
	} {
		step.Stdin = s.inputOf("content " + what)
		s.hook = func(p point, _ ID) {
			if p == atPrepared {
				must(t, change(step.Stdin))
			}
		}
		if _, err := s.Run(s.ctx, step, nil); !errors.Is(err, fstree.ErrChanged) {
			t.Errorf("%s: %v", what, err)
		}
		s.hook = nil
	}
	s.clean()
}
