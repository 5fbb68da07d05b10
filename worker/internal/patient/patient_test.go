package patient_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"holdfast/worker/internal/patient"
)

func TestReader(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 20_000)
	if err := iotest.TestReader(patient.NewReader(t.Context(), bytes.NewReader(content)), content); err != nil {
		t.Error(err)
	}
	broken := errors.New("broken")
	got, err := io.ReadAll(patient.NewReader(t.Context(), io.MultiReader(strings.NewReader("abc"), iotest.ErrReader(broken))))
	if string(got) != "abc" || !errors.Is(err, broken) {
		t.Errorf("%q %v", got, err)
	}
}

// TestReaderEnds: what came before the context ended is given out, and nothing after it.
func TestReaderEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	from, to := io.Pipe()
	defer to.Close()
	go func() { _, _ = to.Write([]byte("begun")) }()
	r := patient.NewReader(ctx, from)
	got := make([]byte, len("begun"))
	if _, err := io.ReadFull(r, got); string(got) != "begun" || err != nil {
		t.Errorf("%q %v", got, err)
	}
	time.AfterFunc(time.Millisecond, cancel) // of a Read that waits, or of the next
	if got, err := io.ReadAll(r); len(got) > 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("%q %v", got, err)
	}
}
