// Command holdfast looks into bbolt database files, checks them, changes single
// keys, explains what they cost, and makes them small again.
package main

import (
	"context"
	"os"

	"holdfast/command"
	"holdfast/command/exporter"
)

func main() {
	os.Exit(command.Execute(context.Background(), command.NewRootCommand(exporter.NewCommand)))
}
