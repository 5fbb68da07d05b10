// Command holdfastd keeps the storage of a machine that runs builds: bases, snapshots and mounts.
package main

import (
	"context"
	"os"

	"holdfast/worker/command"
)

func main() {
	os.Exit(command.Execute(context.Background(), command.NewRootCommand()))
}
