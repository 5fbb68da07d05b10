// Command bbolt is the holdfast command in bbolt's shape, for modules that list
// go.etcd.io/bbolt/cmd/bbolt among their tools.
package main

import (
	"context"
	"os"

	hcommand "holdfast/command"

	"go.etcd.io/bbolt/cmd/bbolt/command"
)

func main() {
	os.Exit(hcommand.Execute(context.Background(), command.NewRootCommand()))
}
