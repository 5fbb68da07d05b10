// Command bench-commit measures commits, opening, and what both need, compared with
// bbolt and others, and says which targets were met. It is a program of its own
// because the others take minutes to compile, once.
//
//	go run ./cmd/bench-commit              # small sizes
//	go run ./cmd/bench-commit -full        # the sizes in bench/results
//	go run ./cmd/bench-commit writers free # some groups
//	go run ./cmd/bench-commit -json
package main

import (
	"holdfast/bench/peers"
	"holdfast/bench/program"
	"holdfast/bench/suite"
)

func main() {
	p := program.Program{
		Name: "bench-commit", Groups: suite.CommitGroups,
		Quick: suite.CommitQuick, Full: suite.CommitFull, CommitPeers: peers.All, TargetList: "targets",
	}
	p.Main()
}
