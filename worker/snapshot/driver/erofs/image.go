package erofs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"holdfast/worker/internal/confine"
	"holdfast/worker/internal/fstree"
)

// refusedError says why there is no image of a tree: mkfs.erofs has failed on it, and would again.
type refusedError struct{ err error }

func (e *refusedError) Error() string { return e.err.Error() }
func (e *refusedError) Unwrap() error { return e.err }

// makeImage makes the image under another name, flushes it, and renames it: an image that is there is whole. The error
// is a refusedError if the tree is what the program could not do with.
func makeImage(ctx context.Context, dir string) error {
	program, err := exec.LookPath(helper)
	if err == nil {
		program, err = filepath.EvalSymlinks(program)
	}
	if err != nil {
		return missing(err)
	}
	if err := os.Mkdir(rootOf(dir), 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := fstree.CopyAttributes(changes(dir), rootOf(dir), "trusted.overlay.", "user.overlay."); err != nil {
		return err
	}
	under := image(dir) + ".new"
	if err := os.Remove(under); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.WriteFile(under, nil, 0o600); err != nil {
		return err
	}
	if err := runHelper(ctx, program, dir, under); err != nil {
		return errors.Join(err, os.Remove(under))
	}
	if err := os.Chmod(under, 0o644); err != nil {
		return err
	}
	if err := fstree.Flush(under); err != nil {
		return err
	}
	if err := os.Rename(under, image(dir)); err != nil {
		return err
	}
	return fstree.Flush(dir)
}

// passing is what the program says if it is not for the tree that it fails.
var passing = []string{"No space left on device", "Disk quota exceeded"}

// runHelper has the program write the image into a file.
func runHelper(ctx context.Context, program, dir, into string) error {
	out, err := confine.Run(ctx, confine.Command{
		Program: program, Args: []string{"--quiet", "--preserve-mtime", confine.File, confine.Tree},
		Tree: changes(dir), File: into, Point: rootOf(dir),
	})
	if err == nil {
		if err = isImage(into); err != nil {
			return &refusedError{fmt.Errorf("%s: %w", helper, err)}
		}
		return nil
	}
	var exit *exec.ExitError
	ended := errors.As(err, &exit)
	err = fmt.Errorf("%s: %w", helper, confine.Explain(err, out))
	for _, says := range passing {
		if bytes.Contains(out, []byte(says)) {
			return err
		}
	}
	if !ended || ctx.Err() != nil {
		return err
	}
	return &refusedError{err}
}

// magic is what an image has at its byte 1024.
const magic = "\xe2\xe1\xf5\xe0"

// isImage is an error if a file does not begin as an image does.
func isImage(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	head := make([]byte, len(magic))
	if _, err := f.ReadAt(head, 1024); err != nil || string(head) != magic {
		return errors.New("what it has written is not an image")
	}
	return nil
}

// stayTree notes that a layer stays a directory, and why. It is on the disk before anything stands on it.
func stayTree(ctx context.Context, dir string, why error) error {
	if err := fstree.Remove(ctx, scratch(dir)); err != nil {
		return err
	}
	under := noImage(dir) + ".new"
	if err := os.WriteFile(under, []byte(why.Error()+"\n"), 0o600); err != nil {
		return err
	}
	if err := fstree.Flush(under); err != nil {
		return err
	}
	if err := os.Rename(under, noImage(dir)); err != nil {
		return err
	}
	return fstree.Flush(dir)
}
