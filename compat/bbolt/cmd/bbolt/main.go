// Command bbolt is the holdfast command under bbolt's name, for modules that
// list go.etcd.io/bbolt/cmd/bbolt among their tools.
package main

import (
	"os"

	"go.etcd.io/bbolt/cmd/bbolt/command"
)

func main() {
	if command.NewRootCommand().Execute() != nil {
		os.Exit(1)
	}
}
