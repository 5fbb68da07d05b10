// Package treediff compares two trees of files, such as two mounted snapshots, by what is in them: not by how a driver
// keeps them.
package treediff

// Kind is what became of a path.
type Kind uint8

// Kinds.
const (
	Added Kind = iota + 1
	Changed
	Deleted
)

// String is the kind as a word.
func (k Kind) String() string { return [...]string{"none", "added", "changed", "deleted"}[k] }
