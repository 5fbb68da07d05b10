package program

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"time"
)

// Writable says why one of the files cannot be written. One that is not there is made; "" is none.
func Writable(files ...string) error {
	for _, name := range files {
		if name == "" {
			continue
		}
		f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}

// Write writes a file anew with what fn writes. It does nothing without a name.
func Write(name string, fn func(io.Writer) error) error {
	if name == "" {
		return nil
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(fn(f), f.Close())
}

// Progress returns a function that says what is being done, with the time, if stderr is a terminal.
func Progress(stderr io.Writer) func(string) {
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

// ExitCode says what is wrong, and returns the code with which the program of this name ends.
func ExitCode(name string, err error, stderr io.Writer) int {
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(stderr, name+": interrupted; its files are removed")
		return 130
	}
	fmt.Fprintln(stderr, name+":", err)
	return 1
}

// Command is what a program was called with, but for the flags of these names.
func Command(f *flag.FlagSet, without ...string) string {
	command := f.Name()
	f.Visit(func(given *flag.Flag) {
		if !slices.Contains(without, given.Name) {
			command += fmt.Sprintf(" -%s=%s", given.Name, given.Value)
		}
	})
	return command
}
