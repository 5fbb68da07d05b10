//go:build linux

package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"holdfast/test/programs"
)

// drivers are those with which holdfastd serves clients. An older containerd cannot mount what erofs gives: layers that are to be mounted first.
func drivers(debian bool) []string {
	if debian {
		return []string{"overlay"}
	}
	return []string{"overlay", "erofs"}
}

// kills of a part with a service.
const serviceKills = 9

func killed(x *programs.Service, ctx context.Context, image string) error {
	return x.Kill(ctx, image, serviceKills)
}

// service is a part in which a containerd of the module proxy, or Debian's, has its snapshots and content with holdfastd.
func service(debian bool, run func(*programs.Service, context.Context, string) error) func(context.Context, *workshop) error {
	return func(ctx context.Context, w *workshop) error {
		bin, err := w.containerdBin(ctx, debian)
		if err != nil {
			return err
		}
		daemon, err := w.holdfastd(ctx)
		if err != nil {
			return err
		}
		image := filepath.Join(w.dir, "layers.tar")
		if err := programs.WriteImage(image, 5, 20); err != nil {
			return err
		}
		for _, driver := range drivers(debian) {
			x := &programs.Service{Holdfastd: daemon, Containerd: bin, Driver: driver, Disk: w.disk, Log: os.Stderr}
			began := time.Now()
			if err := run(x, ctx, image); err != nil {
				return fmt.Errorf("%v: %w", x, err)
			}
			fmt.Printf("\n%v: all as it should be, in %v\n", x, time.Since(began).Round(time.Second))
		}
		return nil
	}
}

// unpack measures imports with both snapshotters.
func (w *workshop) unpack(ctx context.Context) error {
	bin, err := w.containerdBin(ctx, false)
	if err != nil {
		return err
	}
	daemon, err := w.holdfastd(ctx)
	if err != nil {
		return err
	}
	image := filepath.Join(w.dir, "layers.tar")
	if err := programs.WriteImage(image, programs.UnpackLayers, 100); err != nil {
		return err
	}
	many := w.many
	if many == 0 {
		many = 33_787
	}
	for _, driver := range drivers(false) {
		x := &programs.Service{Holdfastd: daemon, Containerd: bin, Driver: driver, Disk: w.disk, Log: os.Stderr}
		count := many
		if driver != "overlay" {
			count = 1000 // each layer is an image, and making so many of them takes minutes
		}
		t, err := x.Unpack(ctx, image, w.rounds, count)
		if err == nil {
			err = w.print(t)
		}
		if err != nil {
			return fmt.Errorf("%v: %w", x, err)
		}
	}
	return nil
}

// buildService has BuildKit and holdfastd.
func (w *workshop) buildService(ctx context.Context) (*programs.Service, error) {
	bin, err := w.stock(ctx, buildkit, buildkitPackages)
	if err != nil {
		return nil, err
	}
	daemon, err := w.holdfastd(ctx)
	if err != nil {
		return nil, err
	}
	return &programs.Service{Holdfastd: daemon, BuildKit: bin, Driver: "overlay", Disk: w.disk, Log: os.Stderr}, nil
}

// builds measures builds with both snapshotters.
func (w *workshop) builds(ctx context.Context) error {
	x, err := w.buildService(ctx)
	if err != nil {
		return err
	}
	t, err := x.Builds(ctx, 2*w.rounds)
	if err != nil {
		return err
	}
	return w.print(t)
}

// print prints a table, and keeps it for the report.
func (w *workshop) print(t *programs.Table) error {
	w.report.Tables = append(w.report.Tables, t)
	fmt.Println()
	_, err := t.WriteTo(os.Stdout)
	return err
}

// serviceBuild is the part in which BuildKit has its snapshots with holdfastd.
func (w *workshop) serviceBuild(ctx context.Context) error {
	x, err := w.buildService(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := x.Build(ctx, serviceKills); err != nil {
		return fmt.Errorf("BuildKit on %v: %w", x, err)
	}
	fmt.Printf("\nBuildKit on %v: builds are right, in %v\n", x, time.Since(began).Round(time.Second))
	return nil
}

// containerdBin is the directory of a containerd: one that is built, or Debian's.
func (w *workshop) containerdBin(ctx context.Context, debian bool) (string, error) {
	if !debian {
		return w.stock(ctx, containerd, containerdPackages)
	}
	if _, err := os.Stat(filepath.Join(w.debian, "containerd")); err != nil {
		return "", fmt.Errorf("%w: make e2e gets it, and gives its directory as -debian", err)
	}
	return w.debian, nil
}

// holdfastd builds it, once.
func (w *workshop) holdfastd(ctx context.Context) (string, error) {
	path := filepath.Join(w.dir, "bin", "holdfastd")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, "./cmd/holdfastd")
	cmd.Dir = filepath.Join(w.builder.Repo, "worker")
	cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build holdfastd: %w: %s", err, out)
	}
	return path, nil
}

// stock builds packages of a module on its own engine, once, and returns the directory.
func (w *workshop) stock(ctx context.Context, module string, packages map[string]string) (string, error) {
	began := time.Now()
	dir := filepath.Join(w.dir, "bin", "own")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	files := maps.Clone(packages)
	for pkg, name := range files {
		files[pkg] = filepath.Join(dir, name)
		if _, err := os.Stat(files[pkg]); err == nil {
			delete(files, pkg)
		}
	}
	if len(files) == 0 {
		return dir, nil
	}
	fmt.Fprintf(os.Stderr, "building %s\n", module)
	err := w.builder.Build(ctx, module, false, files)
	w.building += time.Since(began)
	return dir, err
}
