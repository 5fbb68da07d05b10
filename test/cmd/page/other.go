//go:build !linux

// Command page looks at the page of holdfastd, whose steps need Linux.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "page: holdfastd serve runs steps on Linux")
	os.Exit(1)
}
