// Command bench-vacuum measures making the file of a database shorter: during reads and
// writes, and compared with compacting it into a new file. It says which targets were met.
//
//	go run ./cmd/bench-vacuum                # small sizes
//	go run ./cmd/bench-vacuum -full          # the sizes in bench/results
//	go run ./cmd/bench-vacuum vacuum-emptied # some groups
//	go run ./cmd/bench-vacuum -json
package main

import (
	"holdfast/bench/program"
	"holdfast/bench/suite"
)

func main() {
	p := program.Program{
		Name: "bench-vacuum", Groups: suite.VacuumGroups,
		Quick: suite.VacuumQuick, Full: suite.VacuumFull, TargetList: "vacuum-targets",
	}
	p.Main()
}
