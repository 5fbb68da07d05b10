package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"holdfast/bench/age"
	"holdfast/bench/age/report"
	"holdfast/bench/age/traces"
	"holdfast/bench/program"
	"holdfast/bench/suite"
)

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	for _, name := range []string{o.json, o.html} { // before hours of work, not after
		if err := writable(name); err != nil {
			return err
		}
	}
	all, err := traces.All()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(o.dir, "holdfast-bench-age-")
	if err != nil {
		return err
	}
	defer program.RemoveAll(dir)
	r := &age.Result{
		Command: o.command, Date: time.Now().UTC().Format(time.DateOnly),
		Machine: program.Machine(dir), Load: program.Load(), Versions: versions(),
	}
	files := func(r *age.Result) error { // after each stretch, so that what hours have measured is not lost
		return errors.Join(write(o.json, r, report.JSON), write(o.html, r, report.HTML))
	}
	if err := age.Run(ctx, dir, o.config, o.peers, all, r, age.Watcher{Say: progress(stderr), Measured: files}); err != nil {
		return err
	}
	report.Print(stdout, r)
	if o.check {
		suite.PrintTargets(stdout, report.Check(r))
	}
	return nil
}

// writable says why a file cannot be written. It is made if it is not there.
func writable(name string) error {
	if name == "" {
		return nil
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

func write(name string, r *age.Result, to func(io.Writer, *age.Result) error) error {
	if name == "" {
		return nil
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(to(f, r), f.Close())
}

// progress says what is being done, with the time, if stderr is a terminal.
func progress(stderr io.Writer) func(string) {
	f, ok := stderr.(*os.File)
	if !ok {
		return func(string) {}
	}
	if info, err := f.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return func(string) {}
	}
	began := time.Now()
	return func(what string) { fmt.Fprintf(f, "%8v  %s\n", time.Since(began).Round(time.Second), what) }
}

// versions are those of the stores in this program.
func versions() (all []age.Version) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	modules := []string{"holdfast", "go.etcd.io/bbolt", "github.com/cockroachdb/pebble/v2", "github.com/mattn/go-sqlite3"}
	for _, m := range info.Deps {
		if slices.Contains(modules, m.Path) {
			all = append(all, age.Version{Module: m.Path, Version: m.Version})
		}
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			all = append(all, age.Version{Module: "this repository", Version: s.Value})
		}
	}
	return append(all, age.Version{Module: "go", Version: info.GoVersion})
}
