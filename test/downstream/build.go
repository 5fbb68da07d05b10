package downstream

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// Build builds a program of a module: the package pkg of it, into the file out, on bbolt or on Holdfast.
func (r *Runner) Build(ctx context.Context, module, pkg, out string, holdfast bool) error {
	source, err := r.fetch(ctx, module)
	if err != nil {
		return fmt.Errorf("fetch %s: %w", module, err)
	}
	dir, err := os.MkdirTemp(r.Dir, "build")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	dir = filepath.Join(dir, "module")
	if err := r.prepare(ctx, source, dir); err != nil {
		return fmt.Errorf("%s: %w", module, err)
	}
	if holdfast {
		if err := r.do(ctx, r.Repo, filepath.Join(r.Repo, "scripts", "adopt"), dir); err != nil {
			return fmt.Errorf("%s: adopt: %w", module, err)
		}
	}
	if err := r.do(ctx, dir, "go", "build", "-o", out, pkg); err != nil {
		return err
	}
	list, err := r.command(ctx, dir, "go", "list", "-deps", pkg).Output()
	if err != nil {
		return err
	}
	if found := regexp.MustCompile(`(?m)^holdfast$`).Match(list); found != holdfast {
		return fmt.Errorf("%s: built on Holdfast: %t", out, found)
	}
	return nil
}
