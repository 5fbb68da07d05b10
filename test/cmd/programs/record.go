//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"holdfast/test/cluster"
	"holdfast/test/programs"
	"holdfast/test/record"
	"holdfast/test/record/hook"
)

// records are parts that record what a program does to its databases; record are all of them.
var records = []part{
	{"record-etcd", 2, func(ctx context.Context, w *workshop) error {
		bin, err := w.hooked(ctx, etcd, map[string]string{".": "etcd"})
		if err != nil {
			return err
		}
		x := &programs.Etcd{Binaries: map[cluster.Engine]string{cluster.Stock: filepath.Join(bin, "etcd")}, Disk: w.disk, Puts: 300}
		return w.record(ctx, "etcd", etcd, x.Record)
	}},
	{"record-buildkit", 2, func(ctx context.Context, w *workshop) error {
		bin, err := w.hooked(ctx, buildkit, buildkitPackages)
		if err != nil {
			return err
		}
		x := &programs.BuildKit{Bin: programs.Bin{cluster.Stock: bin}, Disk: w.disk}
		return w.record(ctx, "buildkit", buildkit, x.Record)
	}},
	{"record-containerd", 2, func(ctx context.Context, w *workshop) error {
		bin, err := w.hooked(ctx, containerd, containerdPackages)
		if err != nil {
			return err
		}
		x := &programs.Containerd{Bin: programs.Bin{cluster.Stock: bin}, Disk: w.disk, Containers: 3}
		return w.record(ctx, "containerd", containerd, x.Record)
	}},
}

// hooked builds packages of a module on bbolt with hooks, and returns their directory.
func (w *workshop) hooked(ctx context.Context, module string, packages map[string]string) (string, error) {
	fmt.Fprintf(os.Stderr, "building %s on bbolt with hooks\n", module)
	dir := filepath.Join(w.dir, "bin", "hooked")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	files := map[string]string{}
	for pkg, name := range packages {
		files[pkg] = filepath.Join(dir, name)
	}
	began := time.Now()
	err := w.builder.BuildChanged(ctx, module, files, record.Insert)
	w.building += time.Since(began)
	return dir, err
}

// record writes what is recorded to a file of the directory for traces.
func (w *workshop) record(ctx context.Context, name, module string, do func(context.Context, *programs.Recorder) error) error {
	dir := filepath.Join(w.dir, "record-"+name)
	if err := errors.Join(os.Mkdir(dir, 0o755), os.Setenv(hook.Env, dir)); err != nil {
		return err
	}
	defer os.Unsetenv(hook.Env)
	r := &programs.Recorder{Dir: dir}
	if err := do(ctx, r); err != nil {
		return err
	}
	t, err := r.Trace(module)
	if err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(w.traces, name+".trace.gz"))
	if err != nil {
		return err
	}
	return errors.Join(t.Write(f), f.Close())
}
