// Package traces has recorded traces of programs. `go run ./cmd/programs record` in the module test records them.
package traces

import (
	"embed"
	"fmt"

	"holdfast/bench/age/trace"
)

//go:embed *.gz
var files embed.FS

// All reads all traces, in the order of their files' names. The first cycle that is done to a store deletes, with etcd, a key that only a cycle
// before it would have left.
func All() ([]*trace.Trace, error) {
	entries, err := files.ReadDir(".")
	if err != nil {
		return nil, err
	}
	var all []*trace.Trace
	for _, entry := range entries {
		t, err := read(entry.Name())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", entry.Name(), err)
		}
		all = append(all, t)
	}
	return all, nil
}

func read(name string) (*trace.Trace, error) {
	f, err := files.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return trace.Read(f)
}
