package image_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"holdfast/worker/image"
	"holdfast/worker/snapshot"
	copydriver "holdfast/worker/snapshot/driver/copy"
)

// A base could have any name: ../x, one with a line break in it, that of a step's result, or one that the next command
// removed as a view that a killed one had left.
func TestCheckName(t *testing.T) {
	for _, name := range []string{"debian", "debian:stable-slim", "registry.example:5000/team/image@v1", "größe", "a..b", ".hidden", "Step-1", "x!"} {
		if err := image.CheckName(name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"", "../x", "..", ".", "a/../b", "a//b", "/a", "a/", "a b", "a\nb", "a\tb", "a\x1b[31mb", "a\xff", "a\u202eb", "-x",
		"step-abc", "sha256:x", "sha512:x", "importing x", "!mount/x", "!run/x", strings.Repeat("x", snapshot.MaxNameSize+1)} {
		if err := image.CheckName(name); !errors.Is(err, snapshot.ErrInvalid) || strings.ContainsAny(err.Error(), "\n\x1b") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// zeros have an end if ctx has.
type zeros struct{ ctx context.Context }

func (z zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), z.ctx.Err()
}

// An import of /dev/zero went on for ever, since zeros are the end of an archive, and so many of them as
// there were became a base.
func TestZeros(t *testing.T) {
	namespace := store(t, t.TempDir(), copydriver.New())
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if _, err := image.ImportArchive(ctx, namespace, zeros{ctx}, image.Options{Name: "x"}); !errors.Is(err, image.ErrFormat) {
		t.Errorf("without an end: %v", err)
	}
	if _, err := image.ImportArchive(ctx, namespace, io.MultiReader(bytes.NewReader(archive(t, file("f", "x"))), io.LimitReader(zeros{ctx}, 1<<20)), image.Options{Name: "x"}); err != nil {
		t.Errorf("a last record of a MiB: %v", err)
	}
}
