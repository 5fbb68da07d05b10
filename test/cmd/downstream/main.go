// Command downstream runs the tests of programs that embed bbolt on bbolt and on Holdfast, and fails where they differ.
//
//	go run ./cmd/downstream [-quick] [-v] [SUITE...]
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"time"

	"holdfast/test/downstream"
)

func main() {
	quick := flag.Bool("quick", false, fmt.Sprintf("only those that take at most %d minutes", downstream.Quick))
	verbose := flag.Bool("v", false, "print what the tests print")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: downstream [-quick] [-v] [SUITE...]")
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	same, err := run(ctx, *quick, *verbose, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "downstream:", err)
	}
	if err != nil || !same {
		stop()
		os.Exit(1)
	}
}

// run runs the suites that are named, or all. It tells whether none has a difference.
func run(ctx context.Context, quick, verbose bool, names []string) (same bool, err error) {
	suites, err := chosen(quick, names)
	if err != nil {
		return false, err
	}
	explained, err := downstream.Explained()
	if err != nil {
		return false, err
	}
	repo, err := filepath.Abs("..")
	if err != nil {
		return false, err
	}
	dir, err := os.MkdirTemp(cmp.Or(os.Getenv("TMPDIR"), "/var/tmp"), "holdfast-downstream")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	log := io.Writer(os.Stderr)
	if !verbose {
		name := filepath.Join(repo, "bin", "downstream.log")
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return false, err
		}
		file, err := os.Create(name)
		if err != nil {
			return false, err
		}
		defer file.Close()
		log = file
		defer fmt.Printf("What the tests printed is in %s.\n", name)
	}
	r := downstream.Runner{Repo: repo, Dir: dir, Log: log}
	same = true
	began, minutes := time.Now(), 0
	for _, s := range suites {
		minutes += s.Minutes
	}
	fmt.Printf("At most %d minutes on two cores.\n", minutes)
	defer func() { fmt.Printf("All took %v.\n", time.Since(began).Round(time.Second)) }()
	fmt.Println("passed/failed/skipped          bbolt                   Holdfast")
	for _, s := range suites {
		o, err := r.Run(ctx, s, explained)
		if err != nil {
			return false, err
		}
		same = show(o, explained) && same
		if err := count(o); err != nil {
			return false, err
		}
	}
	return same, nil
}

// chosen are the suites with these names, or all; with quick, of all only the quick ones.
func chosen(quick bool, names []string) ([]downstream.Suite, error) {
	all, err := downstream.Suites()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if !slices.ContainsFunc(all, func(s downstream.Suite) bool { return s.Name == name }) {
			return nil, fmt.Errorf("there is no suite %s", name)
		}
	}
	return slices.DeleteFunc(all, func(s downstream.Suite) bool {
		return len(names) > 0 && !slices.Contains(names, s.Name) || len(names) == 0 && quick && s.Minutes > downstream.Quick
	}), nil
}

// count adds a line to the file COUNTS of the environment, where scripts/test sums up what passed: a difference is a failure.
func count(o *downstream.Outcome) error {
	name := os.Getenv("COUNTS")
	if name == "" {
		return nil
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "downstream-%s %d %d %d\n", o.Suite.Name, o.Holdfast.Passed, len(o.Differences), o.Holdfast.Skipped)
	return errors.Join(err, f.Close())
}

// show prints a line for the suite, and one for each difference.
func show(o *downstream.Outcome, explained map[string]string) (same bool) {
	text := func(c downstream.Count, took time.Duration) string {
		return fmt.Sprintf("%d/%d/%d in %v", c.Passed, c.Failed, c.Skipped, took.Round(time.Second))
	}
	fmt.Printf("%-30s %-23s %s\n", o.Suite.Name, text(o.Stock, o.Took[0]), text(o.Holdfast, o.Took[1]))
	for _, part := range []struct {
		what string
		list []downstream.Difference
	}{{"DIFFERS", o.Differences}, {"explained", o.Explained}, {"once only", o.Flaky}} {
		for _, d := range part.list {
			fmt.Printf("  %s: %s: bbolt %s, Holdfast %s", part.what, d.Test, cmp.Or(d.Stock, "none"), cmp.Or(d.Holdfast, "none"))
			if reason := explained[o.Suite.Name+" "+d.Test.String()]; reason != "" {
				fmt.Printf(" (%s)", reason)
			}
			fmt.Println()
		}
	}
	return len(o.Differences) == 0
}
