//go:build !linux

// Command bench-step measures the own time of a step. It needs Linux.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "bench-step: steps run on Linux only")
	os.Exit(1)
}
