package downstream

import (
	"context"
	"encoding/json"
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
	return r.build(ctx, module, holdfast, programs, func(dir string) error {
		if !holdfast {
			return nil
		}
		if err := r.do(ctx, r.Repo, filepath.Join(r.Repo, "scripts", "adopt"), dir); err != nil {
			return fmt.Errorf("adopt: %w", err)
		}
		return nil
	})
}

// BuildChanged builds programs of a module on a copy of the bbolt that the module requires; change is called with its directory before.
func (r *Runner) BuildChanged(ctx context.Context, module string, programs map[string]string, change func(bbolt string) error) error {
	return r.build(ctx, module, false, programs, func(dir string) error {
		out, err := r.command(ctx, dir, "go", "list", "-m", "-json", "go.etcd.io/bbolt").Output()
		if err != nil {
			return fmt.Errorf("find bbolt: %w", err)
		}
		var found struct{ Path, Version string }
		if err := json.Unmarshal(out, &found); err != nil {
			return fmt.Errorf("find bbolt: %w", err)
		}
		source, err := r.fetch(ctx, found.Path+"@"+found.Version)
		if err != nil {
			return fmt.Errorf("fetch %s@%s: %w", found.Path, found.Version, err)
		}
		bbolt := filepath.Join(filepath.Dir(dir), "bbolt")
		if err := r.copy(ctx, source, bbolt); err != nil {
			return err
		}
		if err := change(bbolt); err != nil {
			return err
		}
		return r.do(ctx, dir, "go", "mod", "edit", "-replace="+found.Path+"="+bbolt)
	})
}

// build builds programs of a copy of a module that change has changed.
func (r *Runner) build(ctx context.Context, module string, holdfast bool, programs map[string]string, change func(dir string) error) error {
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
	if err := change(dir); err != nil {
		return fmt.Errorf("%s: %w", module, err)
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
