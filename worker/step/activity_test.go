package step

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestReasonOf: an error with a name of a megabyte was kept for each of 200 steps.
func TestReasonOf(t *testing.T) {
	if err := reasonOf(nil); err != nil {
		t.Error(err)
	}
	if err := reasonOf(fmt.Errorf("a step: %w", ErrNotFound)); !errors.Is(err, ErrNotFound) {
		t.Errorf("a short one: %v", err)
	}
	got := reasonOf(&Failure{Reason: errors.New("é" + strings.Repeat("ü", 1<<20)), Output: []byte("x")}).Error()
	if len(got) > maxReason || !utf8.ValidString(got) || !strings.HasSuffix(got, "ü...") {
		t.Errorf("a long one: %d bytes, %q", len(got), got[max(0, len(got)-8):])
	}
	var failure *Failure
	if !errors.As(reasonOf(fmt.Errorf("again: %w", &Failure{Reason: ErrExit, Output: []byte("x")})), &failure) || failure.Output != nil {
		t.Errorf("the output is kept: %v", failure)
	}
}
