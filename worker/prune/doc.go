// Package prune removes snapshots that are not worth their room, by policies that an operator writes
// in TOML.
//
// # Policies and runs
//
// Load reads a file with policies, Parse a text. DefaultText explains every field, and Default is
// what it says:
//
//	config, err := prune.Parse(`
//		[[policy]]             # results of nightly builds: a week
//		filters = ["name~=^step-"]
//		keepDuration = "7d"
//
//		[[policy]]             # and then as much as there is room for
//		minFreeSpace = "20%"
//	`)
//
// New makes a Pruner of a store. Run removes, children before parents, longest unused first, and
// lets others write every few milliseconds. It never removes what is in use, leased, pinned, or the
// parent of what stays:
//
//	pruner, err := prune.New(store, prune.Options{Config: config})
//	result, err := pruner.Run(ctx)
//
// DryRun returns what Run would remove and why, and Why what keeps a snapshot; neither changes
// anything. MakeRoom removes until so many bytes are free, and the inodes that go with them. Df counts
// every byte of a store.
//
// docs/worker/pruning.md has the rules (P1 to P7).
package prune
