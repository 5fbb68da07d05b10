package main

import (
	"flag"
	"fmt"
	"io"
	"strings"

	"holdfast/bench/age"
	"holdfast/bench/age/stores"
	"holdfast/internal/vfs"
)

// options are what the command line says.
type options struct {
	config     age.Config
	peers      []age.Peer
	dir        string
	json, html string // files
	check      bool
	command    string // what it is called with, but for places
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("bench-age", flag.ContinueOnError)
	f.SetOutput(stderr)
	full := f.Bool("full", false, "a thousand days, with more rounds: an hour or more, and 2 GiB of disk")
	asked := age.Config{}
	numbers := []struct {
		name, usage   string
		field, preset *int
	}{
		{"days", "days of the life", &asked.Days, &o.config.Days},
		{"stretches", "of days, after each of which is measured", &asked.Stretches, &o.config.Stretches},
		{"cycles", "of all traces in a day", &asked.Cycles, &o.config.Cycles},
		{"retention", "cycles that are live at most", &asked.Retention, &o.config.Retention},
		{"prune", "every so many days all but a tenth of the retention is removed", &asked.Prune, &o.config.Prune},
		{"opens", "processes that open the store and commit once, in a stretch", &asked.Opens, &o.config.Opens},
		{"rounds", "of each other measure, in a stretch", &asked.Rounds, &o.config.Rounds},
		{"commits", "durable commits in a round", &asked.Commits, &o.config.Commits},
		{"gets", "reads in a round", &asked.Gets, &o.config.Gets},
	}
	for _, n := range numbers {
		f.IntVar(n.field, n.name, 0, n.usage)
	}
	peers := f.String("peers", "", "names of stores, with commas between; default: all")
	f.StringVar(&o.dir, "dir", vfs.TempDir(), "where to put the stores, in a directory that is removed in the end")
	f.StringVar(&o.json, "json", "", "a file for the result as JSON, written after each stretch")
	f.StringVar(&o.html, "html", "", "a file for a page with plots and tables, written after each stretch")
	f.BoolVar(&o.check, "check", false, "print which measures of Holdfast are on the last day what they were on the first")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("there is no argument %q; name stores with -peers", f.Arg(0))
	}
	if o.config = age.Quick; *full {
		o.config = age.Full
	}
	o.command = "bench-age"
	f.Visit(func(given *flag.Flag) {
		switch given.Name {
		case "dir", "json", "html", "check":
		default:
			o.command += fmt.Sprintf(" -%s=%s", given.Name, given.Value)
		}
		for _, n := range numbers {
			if n.name == given.Name {
				*n.preset = *n.field
			}
		}
	})
	var names []string
	if *peers != "" {
		names = strings.Split(*peers, ",")
	}
	var err error
	if o.peers, err = age.Select(stores.All(), names); err != nil {
		return nil, err
	}
	return o, o.config.Check()
}
