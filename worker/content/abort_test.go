package content_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"holdfast/worker/content"
)

// TestAbortWhileSaved: what is aborted while a part of it is saved stays away when that has ended.
func TestAbortWhileSaved(t *testing.T) {
	s, ctx := open(t, filepath.Join(t.TempDir(), "content.db")), t.Context()
	idle := 0
	for ; idle < 2100; idle++ { // with so many writers each saves early
		w, err := s.Writer(ctx, fmt.Sprintf("idle %d", idle), content.Expected{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = w.Close() }()
	}
	part := make([]byte, 256<<10)
	for i := range 100 {
		ref := fmt.Sprintf("ref %d", i)
		w, err := s.Writer(ctx, ref, content.Expected{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(part); err != nil {
			t.Fatal(err)
		}
		if err := s.Abort(ctx, ref); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Status(ctx, ref); !errors.Is(err, content.ErrNotFound) {
			t.Fatalf("%s: %v", ref, err)
		}
	}
	last, err := s.Writer(ctx, "last", content.Expected{}) // of which the save comes after all others
	if err != nil {
		t.Fatal(err)
	}
	if err := last.Close(); err != nil {
		t.Fatal(err)
	}
	if list, err := s.Statuses(ctx); err != nil || len(list) != idle+1 {
		t.Errorf("%d ingests, want %d: %v", len(list), idle+1, err)
	}
}
