package downstream

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
)

// Build builds programs of a module on bbolt or on Holdfast; programs has the file to write for each package. On Holdfast at least one
// of them must embed the engine.
func (r *Runner) Build(ctx context.Context, module string, holdfast bool, programs map[string]string) error {
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
	packages := slices.Sorted(maps.Keys(programs))
	for _, pkg := range packages {
		// Without the path of the directory in them, packages are found in the build cache the next time.
		if err := r.do(ctx, dir, "go", "build", "-trimpath", "-o", programs[pkg], pkg); err != nil {
			return err
		}
	}
	list, err := r.command(ctx, dir, "go", append([]string{"list", "-deps"}, packages...)...).Output()
	if err != nil {
		return err
	}
	if found := regexp.MustCompile(`(?m)^holdfast$`).Match(list); found != holdfast {
		return fmt.Errorf("%s: built on Holdfast: %t", module, found)
	}
	return nil
}
