// Command bench-blob measures blobs: written, read and removed, in rows and alone, compared with
// bbolt, bare files, Dolt's builder and what the hash and the writes take alone. It says
// which targets were met.
//
//	go run ./cmd/bench-blob            # small sizes
//	go run ./cmd/bench-blob -full      # the sizes in bench/results
//	go run ./cmd/bench-blob blob-write # some groups
//	go run ./cmd/bench-blob -json
//
// With HOLDFAST_DOLT, the path of the program made of bench/dolt, Dolt takes part.
package main

import (
	"os"

	"holdfast/bench/program"
	"holdfast/bench/suite"
)

func main() {
	quick, full := suite.BlobQuick, suite.BlobFull
	quick.Blobs.Dolt = os.Getenv("HOLDFAST_DOLT")
	full.Blobs.Dolt = quick.Blobs.Dolt
	p := program.Program{
		Name: "bench-blob", Groups: suite.BlobGroups,
		Quick: quick, Full: full, TargetList: "blob-targets",
	}
	p.Main()
}
