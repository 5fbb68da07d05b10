// Command demo makes a database file that has been emptied, as the files of
// build workers are after some time, with bbolt, with bbolt and the options that
// are recommended for such files, and with Holdfast. It does the same work on
// each and prints what was measured in this run.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"holdfast/bench/suite"
	"holdfast/internal/vfs"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// byteSize is a flag such as 128MiB.
type byteSize int64

func (b *byteSize) String() string { return suite.FormatBytes(float64(*b)) }

func (b *byteSize) Set(s string) error {
	units := []struct {
		suffix string
		factor float64
	}{{"GIB", 1 << 30}, {"MIB", 1 << 20}, {"GB", 1e9}, {"MB", 1e6}, {"G", 1 << 30}, {"M", 1 << 20}, {"", 1}}
	for _, u := range units {
		number, ok := strings.CutSuffix(strings.ToUpper(strings.ReplaceAll(s, " ", "")), u.suffix)
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(number, 64)
		if err != nil {
			break
		}
		if v *= u.factor; v < 1<<20 || v > 1<<40 {
			return errors.New("it must be between 1MiB and 1024GiB")
		}
		*b = byteSize(v)
		return nil
	}
	return errors.New("it must be a number of bytes such as 128MiB or 1GiB")
}

func run() error {
	size := byteSize(128 << 20)
	flag.Var(&size, "size", "bytes to write and delete, such as 128MiB or 1GiB")
	dir := flag.String("dir", "", "where to make the files; default: the directory for temporary files, or /var/tmp if that one is in memory")
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), "usage: make demo [DEMOFLAGS='-size SIZE -dir DIR']\n\n"+
			"The same work on an emptied database with bbolt and with Holdfast.\n\n")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	if *dir == "" {
		*dir = vfs.TempDir()
	}
	work, err := os.MkdirTemp(*dir, "holdfast-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-interrupted
		_ = os.RemoveAll(work)
		os.Exit(130)
	}()
	d := demo{dir: work, size: int64(size), began: time.Now()}
	if err := d.measure(); err != nil {
		return err
	}
	d.print(os.Stdout)
	return nil
}
