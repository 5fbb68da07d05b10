//go:build unix

package process

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestLastWords: a program that could not open a database printed why, and then a stack; only the last line of that was shown.
func TestLastWords(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	p := &Process{Binary: "/bin/buildkitd", Log: log}
	const before = "buildkitd: an earlier start\n"
	p.from = int64(len(before))
	for text, want := range map[string]string{
		"level=info\nbuildkitd: meta.db is damaged\n  runtime/asm.s:1\n\n": "buildkitd: meta.db is damaged",
		"panic: a page\n\ngoroutine 1\n":                                   "panic: a page",
		"one\ntwo\n\n":                                                     "two",
		"":                                                                 "",
	} {
		if err := os.WriteFile(log, []byte(before+text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := p.LastWords(); got != want {
			t.Errorf("of %q: %q, want %q", text, got, want)
		}
	}
}

// TestAwait: a program that has ended is not waited for, and Start after Kill starts it again.
func TestAwait(t *testing.T) {
	p := &Process{Binary: "/bin/sh", Args: []string{"-c", "echo no room; exit 3"}, Log: filepath.Join(t.TempDir(), "log")}
	never := func() error { return errors.New("not ready") }
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	if err := p.Await(ctx, never); !errors.Is(err, ErrEnded) || p.LastWords() != "no room" {
		t.Errorf("of one that ended: %v; its last words: %q", err, p.LastWords())
	}
	p.Args = []string{"-c", "echo again; exec sleep 60"}
	for range 2 {
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		said := func() error {
			if p.LastWords() != "again" {
				return errors.New("it has not spoken")
			}
			return nil
		}
		if err := p.Await(ctx, said); err != nil {
			t.Fatal(err)
		}
		if p.Kill(); p.Running() {
			t.Error("it runs after Kill")
		}
	}
	p.Args = []string{"-c", "exec sleep 60"}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	soon, stop := context.WithTimeout(ctx, time.Millisecond)
	defer stop()
	if err := p.Await(soon, never); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("of one that does not serve: %v", err)
	}
}
