//go:build linux

// Command bench-age-snapshots replays the life of a build worker's snapshots on Holdfast and on
// containerd's snapshotters, and measures each on the first day and after each stretch of days (package snaplife).
// It needs root.
//
//	go run ./cmd/bench-age-snapshots                     # forty days, two or three minutes
//	go run ./cmd/bench-age-snapshots -full               # a thousand days, half an hour or more
//	go run ./cmd/bench-age-snapshots -json snaps.json    # for bench-age -html FILE -snapshots snaps.json
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/containerd/log"

	"holdfast/bench/age"
	"holdfast/bench/age/report"
	"holdfast/bench/program"
	"holdfast/bench/snaplife"
	"holdfast/bench/suite"
	"holdfast/internal/vfs"
)

const name = "bench-age-snapshots"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(program.ExitCode(name, err, os.Stderr))
}

// options are what the command line says.
type options struct {
	config     snaplife.Config
	peers      []snaplife.Peer
	dir        string
	json, html string // files
	check      bool
	command    string // what it is called with, but for places
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{config: snaplife.Quick}
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	f.SetOutput(stderr)
	full := f.Bool("full", false, "a thousand days, with more rounds: half an hour or more")
	setGiven := age.DefineFlags(f, (&snaplife.Config{}).Flags())
	peers := f.String("peers", "", "names of snapshotters, with commas between; default: all")
	f.StringVar(&o.dir, "dir", vfs.TempDir(), "where to put the stores, in a directory that is removed in the end")
	f.StringVar(&o.json, "json", "", "a file for the result as JSON, written after each stretch")
	f.StringVar(&o.html, "html", "", "a file for a page with plots and tables, written after each stretch")
	f.BoolVar(&o.check, "check", false, "print which measures of Holdfast are on the last day what they were on the first")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("there is no argument %q; name snapshotters with -peers", f.Arg(0))
	}
	if *full {
		o.config = snaplife.Full
	}
	setGiven(o.config.Flags())
	o.command = program.Command(f, "dir", "json", "html", "check")
	var err error
	if o.peers, err = age.Select(snaplife.All(), snaplife.NameOf, *peers); err != nil {
		return nil, err
	}
	return o, o.config.Check()
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("it mounts snapshots, which root may: run it as root")
	}
	if err := program.Writable(o.json, o.html); err != nil { // before the work, not after
		return err
	}
	if err := log.SetLevel("warn"); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(o.dir, "holdfast-"+name+"-")
	if err != nil {
		return err
	}
	defer program.RemoveAll(dir)
	r := &age.Result{
		Command: o.command, Date: time.Now().UTC().Format(time.DateOnly), Machine: program.Machine(dir), Load: program.Load(),
		Versions: age.Versions("holdfast", "github.com/containerd/containerd/v2", "go.etcd.io/bbolt"),
	}
	files := func(r *age.Result) error {
		return errors.Join(
			program.Write(o.json, func(w io.Writer) error { return report.JSON(w, r) }),
			program.Write(o.html, func(w io.Writer) error { return report.HTML(w, r) }))
	}
	if err := snaplife.Run(ctx, dir, o.config, o.peers, r, age.Watcher{Say: program.Progress(stderr), Measured: files}); err != nil {
		return err
	}
	report.Print(stdout, r)
	if o.check {
		suite.PrintTargets(stdout, report.Check(r))
	}
	return nil
}
