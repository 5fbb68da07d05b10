package downstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// repeats is how often a test that differs runs again on both engines. Tests of these modules that depend on time fail now and then:
// a difference is one that stays.
const repeats = 2

// An Outcome is what a suite gave.
type Outcome struct {
	Suite           Suite
	Stock, Holdfast Count
	Took            [2]time.Duration // of the tests, first on bbolt
	Differences     []Difference     // that stayed and are not explained
	Explained       []Difference
	Flaky           []Difference // that were not there when the tests ran again
}

// A Runner runs suites. Repo is this repository, Dir an empty directory on a disk for copies of modules, Log gets what is done and what
// tests print.
type Runner struct {
	Repo, Dir string
	Log       io.Writer
}

// Run fetches the module, runs its tests on both engines and compares them. An error is one of running them.
func (r *Runner) Run(ctx context.Context, s Suite, explained map[string]string) (*Outcome, error) {
	source, err := r.fetch(ctx, s.Module)
	if err != nil {
		return nil, fmt.Errorf("fetch %s: %w", s.Module, err)
	}
	var copies [2]string
	for i, engine := range []string{"stock", "holdfast"} {
		copies[i] = filepath.Join(r.Dir, s.Name, engine)
		defer os.RemoveAll(copies[i])
		if err := r.prepare(ctx, source, copies[i]); err != nil {
			return nil, fmt.Errorf("%s: %w", s.Module, err)
		}
	}
	if err := r.do(ctx, r.Repo, filepath.Join(r.Repo, "scripts", "adopt"), copies[1]); err != nil {
		return nil, fmt.Errorf("%s: adopt: %w", s.Module, err)
	}
	if err := r.onHoldfast(ctx, copies, s); err != nil {
		return nil, fmt.Errorf("%s: %w", s.Module, err)
	}
	o := &Outcome{Suite: s}
	var results [2]Results
	for i, dir := range copies {
		began := time.Now()
		results[i], err = r.test(ctx, dir, s.Skip, "", s.Packages)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Module, err)
		}
		o.Took[i] = time.Since(began)
	}
	o.Stock, o.Holdfast = results[0].Count(), results[1].Count()
	for _, d := range compare(results[0], results[1]) {
		stays, err := r.stays(ctx, copies, s, d)
		switch _, known := explained[s.Name+" "+d.Test.String()]; {
		case err != nil:
			return nil, fmt.Errorf("%s: %w", s.Module, err)
		case !stays:
			o.Flaky = append(o.Flaky, d)
		case known:
			o.Explained = append(o.Explained, d)
		default:
			o.Differences = append(o.Differences, d)
		}
	}
	return o, nil
}

// fetch returns the directory in which the go command keeps the module.
func (r *Runner) fetch(ctx context.Context, module string) (string, error) {
	cmd := r.command(ctx, r.Dir, "go", "mod", "download", "-json", module)
	out, err := cmd.Output()
	var found struct{ Dir, Error string }
	if jsonErr := json.Unmarshal(out, &found); jsonErr == nil && found.Error != "" {
		return "", errors.New(found.Error)
	}
	if err != nil {
		return "", err
	}
	if found.Dir == "" {
		return "", fmt.Errorf("go mod download: %s", out)
	}
	return found.Dir, nil
}

// prepare copies a module. Its replace lines that lead to directories beside it are dropped: these modules come from the proxy, too.
func (r *Runner) prepare(ctx context.Context, source, dir string) error {
	if err := r.copy(ctx, source, dir); err != nil {
		return err
	}
	out, err := r.command(ctx, dir, "go", "mod", "edit", "-json").Output()
	if err != nil {
		return err
	}
	var file struct {
		Replace []struct {
			Old, New struct{ Path, Version string }
		}
	}
	if err := json.Unmarshal(out, &file); err != nil {
		return err
	}
	for _, line := range file.Replace {
		if strings.HasPrefix(line.New.Path, ".") {
			if err := r.do(ctx, dir, "go", "mod", "edit", "-dropreplace="+line.Old.Path); err != nil {
				return err
			}
		}
	}
	return r.do(ctx, dir, "go", "mod", "tidy")
}

// copy copies a directory of the module cache, to be changed.
func (r *Runner) copy(ctx context.Context, source, dir string) error {
	if err := os.CopyFS(dir, os.DirFS(source)); err != nil {
		return err
	}
	return r.do(ctx, dir, "chmod", "-R", "u+w", ".")
}

// onHoldfast fails unless the packages of the second copy are built on Holdfast, and those of the first are not.
func (r *Runner) onHoldfast(ctx context.Context, copies [2]string, s Suite) error {
	for i, dir := range copies {
		out, err := r.command(ctx, dir, "go", append([]string{"list", "-deps", "-test"}, s.Packages...)...).Output()
		if err != nil {
			return fmt.Errorf("go list: %w", err)
		}
		if found := regexp.MustCompile(`(?m)^holdfast$`).Match(out); found != (i == 1) {
			return fmt.Errorf("%s: built on Holdfast: %t", dir, found)
		}
	}
	return nil
}

// test runs the tests of packages: all, or those of a pattern.
func (r *Runner) test(ctx context.Context, dir, skip, run string, packages []string) (Results, error) {
	// adopt raises the module's version of Go, with which go vet, which is part of go test, finds more.
	args := []string{"test", "-json", "-count=1", "-timeout=30m", "-vet=off"}
	if skip != "" {
		args = append(args, "-skip", skip)
	}
	if run != "" {
		args = append(args, "-run", run)
	}
	cmd := r.command(ctx, dir, "go", append(args, packages...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	results, err := readResults(out, r.Log)
	if waitErr := cmd.Wait(); err == nil && waitErr != nil {
		var exit *exec.ExitError // tests that fail are in the results
		if !errors.As(waitErr, &exit) || len(results) == 0 {
			err = waitErr
		}
	}
	if err == nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	return results, err
}

// stays tells whether a difference is there each time when the test runs again.
func (r *Runner) stays(ctx context.Context, copies [2]string, s Suite, d Difference) (bool, error) {
	run := ""
	if d.Test.Name != "" {
		run = "^" + regexp.QuoteMeta(d.Test.top().Name) + "$"
	}
	for range repeats {
		var again [2]Results
		for i, dir := range copies {
			var err error
			if again[i], err = r.test(ctx, dir, s.Skip, run, []string{d.Test.Package}); err != nil {
				return false, err
			}
		}
		if again[0][d.Test] == again[1][d.Test] {
			return false, nil
		}
	}
	return true, nil
}

// do runs a command that prints what it does to the log.
func (r *Runner) do(ctx context.Context, dir, name string, args ...string) error {
	cmd := r.command(ctx, dir, name, args...)
	cmd.Stdout = r.Log
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", filepath.Base(name), strings.Join(args, " "), err)
	}
	return nil
}

func (r *Runner) command(ctx context.Context, dir, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stderr = dir, r.Log
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "PWD="+dir)
	return cmd
}
