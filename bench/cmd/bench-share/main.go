// Command bench-share measures what it costs that other processes read a database that a program has open, and what it takes
// them. It says which targets were met. The command that HOLDFAST_COMMAND names, a holdfast, is measured too.
//
//	go run ./cmd/bench-share              # small sizes
//	go run ./cmd/bench-share -full        # the sizes in bench/results
//	go run ./cmd/bench-share shared-copy  # some groups
//	go run ./cmd/bench-share -json
package main

import (
	"holdfast/bench/program"
	"holdfast/bench/suite"
)

func main() {
	p := program.Program{
		Name: "bench-share", Groups: suite.SharedGroups,
		Quick: suite.SharedQuick, Full: suite.SharedFull, TargetList: "shared-targets",
	}
	p.Main()
}
