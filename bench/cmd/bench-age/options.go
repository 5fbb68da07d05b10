package main

import (
	"flag"
	"fmt"
	"io"

	"holdfast/bench/age"
	"holdfast/bench/age/stores"
	"holdfast/bench/program"
	"holdfast/internal/vfs"
)

// options are what the command line says.
type options struct {
	config     age.Config
	peers      []age.Peer
	dir        string
	json, html string // files
	snapshots  string // a file with the result of snapshots
	check      bool
	dry        bool   // nothing is to be done
	command    string // what it is called with, but for places
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("bench-age", flag.ContinueOnError)
	f.SetOutput(stderr)
	full := f.Bool("full", false, "a thousand days, with more rounds: an hour or more, and 2 GiB of disk")
	setGiven := age.DefineFlags(f, (&age.Config{}).Flags())
	peers := f.String("peers", "", "names of stores, with commas between; default: all")
	f.StringVar(&o.dir, "dir", vfs.TempDir(), "where to put the stores, in a directory that is removed in the end")
	f.StringVar(&o.json, "json", "", "a file for the result as JSON, written after each stretch")
	f.StringVar(&o.html, "html", "", "a file for a page with plots and tables, written after each stretch")
	f.StringVar(&o.snapshots, "snapshots", "", "a file that bench-age-snapshots has written with -json: the page has its plots and tables, too")
	f.BoolVar(&o.check, "check", false, "print which measures of Holdfast are on the last day what they were on the first")
	f.BoolVar(&o.dry, "n", false, "say what is wrong with the flags, and do nothing")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("there is no argument %q; name stores with -peers", f.Arg(0))
	}
	if o.config = age.Quick; *full {
		o.config = age.Full
	}
	setGiven(o.config.Flags())
	o.command = program.Command(f, "dir", "json", "html", "snapshots", "check", "n")
	var err error
	if o.peers, err = age.Select(stores.All(), func(p age.Peer) string { return p.Name }, *peers); err != nil {
		return nil, err
	}
	return o, o.config.Check()
}
