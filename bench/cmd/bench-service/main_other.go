//go:build !linux

// Command bench-service runs steps, which needs Linux.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "bench-service: steps need Linux")
	os.Exit(1)
}
