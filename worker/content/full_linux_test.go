package content_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/worker/content"
)

// TestFullDisk: on a disk that is full an error is told to who writes, what was acknowledged before is there still, and when there
// is room again writing goes on.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts")
	}
	ctx := context.Background()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=32m"); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	s := open(t, filepath.Join(dir, "content.db"))
	r := rand.New(rand.NewPCG(3, 4))
	kept := random(r, 6<<20)
	d := put(ctx, t, s, kept)
	for _, how := range []string{"close", "abort", "truncate", "commit"} {
		w, err := s.Writer(ctx, how, content.Expected{})
		if err != nil {
			t.Fatal(err)
		}
		piece := random(r, 3<<20)
		for n := 0; n < 20 && err == nil; n++ {
			_, err = w.Write(piece)
			piece = random(r, 3<<20)
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%s: writing: %v", how, err)
		}
		switch how {
		case "close":
			err = w.Close()
			if !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("%s: %v", how, err)
			}
			err = nil
		case "abort":
			err = s.Abort(ctx, how)
		case "truncate":
			err = w.Truncate(ctx, 0)
		case "commit":
			if _, err = w.Commit(ctx, 0, "", nil); !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("%s: %v", how, err)
			}
			err = nil
		}
		t.Log(how, err)
		_ = w.Close()
		if got, err := read(ctx, s, d); err != nil || !bytes.Equal(got, kept) {
			t.Errorf("%s: what was there before: %v", how, err)
		}
		if err := s.Abort(ctx, how); err != nil && !errors.Is(err, content.ErrNotFound) {
			t.Errorf("%s: giving up: %v", how, err)
		}
		if err := s.Freed(ctx); err != nil {
			t.Errorf("%s: freeing: %v", how, err)
		}
	}
	put(ctx, t, s, random(r, 3<<20))
}
