// Command bbolt is the holdfast command in bbolt's shape, for modules that list
// go.etcd.io/bbolt/cmd/bbolt among their tools.
package main

import (
	"context"
	"os"

	"holdfast/command"
)

func main() {
	os.Exit(command.Execute(context.Background(), command.NewBboltCommand()))
}
