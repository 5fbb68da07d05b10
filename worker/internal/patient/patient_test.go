package patient_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

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
	go func() {
		_, _ = to.Write([]byte("begun"))
		cancel()
	}()
	got, err := io.ReadAll(patient.NewReader(ctx, from))
	if string(got) != "begun" || !errors.Is(err, context.Canceled) {
		t.Errorf("%q %v", got, err)
	}
}
