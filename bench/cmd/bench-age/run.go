package main

import (
	"context"
	"errors"
	"io"
	"os"
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
	if err := program.Writable(o.json, o.html); err != nil { // before hours of work, not after
		return err
	}
	var more []*age.Result
	if o.snapshots != "" {
		r, err := report.Read(o.snapshots)
		if err != nil {
			return err
		}
		more = append(more, r)
	}
	if o.dry {
		return nil
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
		Machine: program.Machine(dir), Load: program.Load(),
		Versions: age.Versions("holdfast", "go.etcd.io/bbolt", "github.com/cockroachdb/pebble/v2", "github.com/mattn/go-sqlite3"),
	}
	files := func(r *age.Result) error { // after each stretch, so that what hours have measured is not lost
		return errors.Join(
			program.Write(o.json, func(w io.Writer) error { return report.JSON(w, r) }),
			program.Write(o.html, func(w io.Writer) error { return report.HTML(w, append([]*age.Result{r}, more...)...) }))
	}
	if err := age.Run(ctx, dir, o.config, o.peers, all, r, age.Watcher{Say: program.Progress(stderr), Measured: files}); err != nil {
		return err
	}
	report.Print(stdout, r)
	if o.check {
		suite.PrintTargets(stdout, report.Check(r))
	}
	return nil
}
