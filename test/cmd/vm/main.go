// Command vm runs a shell command in a virtual machine with a kernel of its own,
// see package vm:
//
//	go run ./cmd/vm -modules xfs,btrfs -file ./program -disk image 'uname -a; program'
//
// Files are in /programs, disks are /dev/vda and so on, and keep what is written.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"holdfast/test/vm"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "vm:", err)
		os.Exit(1)
	}
}

func run() error {
	c := vm.Config{Files: map[string]string{}}
	var modules, programs string
	flag.StringVar(&modules, "modules", "", "modules of the kernel, separated by commas")
	flag.StringVar(&programs, "programs", "", "programs of this system, separated by commas")
	flag.Func("file", "a file to put into /programs; can be repeated", func(file string) error {
		c.Files["programs/"+filepath.Base(file)] = file
		return nil
	})
	flag.Func("disk", "a file that is a disk; can be repeated", func(file string) error {
		c.Disks = append(c.Disks, file)
		return nil
	})
	flag.IntVar(&c.MemoryMiB, "memory", 384, "memory in MiB")
	flag.DurationVar(&c.Limit, "limit", 10*time.Minute, "how long it may run")
	top := flag.String("repository", "..", "the directory with bin/vm/kernel")
	flag.Parse()
	split := func(list string) []string {
		return strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
	}
	c.Modules, c.Programs, c.Command = split(modules), split(programs), strings.Join(flag.Args(), " ")
	var err error
	if c.Kernel, err = vm.Find(*top); err != nil {
		return err
	}
	if c.Dir, err = os.MkdirTemp("", "holdfast-vm-"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(c.Dir) }()
	return vm.Run(context.Background(), c, func(line string) { fmt.Println(line) })
}
