// Command mutants prepares the sources with all mutants of package mutants and
// prints the path of the overlay, for runs by hand, in the directory test:
//
//	HOLDFAST_MUTANT=wrong-slot go test -overlay "$(go run ./cmd/mutants)" -run '^TestPowerCut$' ./crash
//
// With -refresh it writes the patches anew whose context has changed.
package main

import (
	"flag"
	"fmt"
	"os"

	"holdfast/test/mutants"
)

func main() {
	top := flag.String("top", "..", "the top `directory` of the repository")
	refresh := flag.Bool("refresh", false, "write anew the patches whose context has changed")
	flag.Parse()
	if err := run(*top, *refresh); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(top string, refresh bool) error {
	dir, err := os.MkdirTemp("", "holdfast-mutants-")
	if err != nil {
		return err
	}
	if refresh {
		defer func() { _ = os.RemoveAll(dir) }()
		return mutants.Refresh(top, dir)
	}
	path, err := mutants.Overlay(top, dir)
	if err == nil {
		fmt.Println(path)
	}
	return err
}
