// Command holdfastd keeps the storage of a machine that runs builds: bases, snapshots, steps and mounts.
package main

import (
	"context"
	"os"

	"holdfast/worker/command"
	"holdfast/worker/step"
)

func main() {
	step.Init()
	os.Exit(command.Execute(context.Background(), command.NewRootCommand()))
}
