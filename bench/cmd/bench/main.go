// Command bench compares Holdfast with bbolt and prints a table for each group
// of workloads: the median of several rounds in which the engines are interleaved,
// with the lowest and the highest.
//
//	go run ./cmd/bench            # small sizes, less than three minutes
//	go run ./cmd/bench -full      # the sizes in bench/results
//	go run ./cmd/bench read grow  # some groups
//
// With the build tag lmdb, which needs LMDB's header and library, LMDB takes
// part in reading.
package main

import (
	_ "holdfast/bench/lmdb"
	"holdfast/bench/program"
	"holdfast/bench/suite"
)

func main() {
	p := program.Program{Name: "bench", Groups: suite.Groups, Quick: suite.Quick, Full: suite.Full}
	p.Main()
}
