// Package prune removes snapshots that are not worth their room any more, by policies that an operator
// writes down in TOML.
//
// Parse and Load read policies, DefaultText is a file with all that can be set. New makes a Pruner of a store: Run
// removes, DryRun tells what Run would remove and why, Why tells what keeps a snapshot. Df tells
// where the room is. See docs/worker.md, Pruning, for the rules.
package prune
