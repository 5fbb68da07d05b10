package blob

import "fmt"

// ProblemKind is a kind of what Check finds.
type ProblemKind uint8

// What Check finds.
const (
	// MissingChunk: a chunk that a node, a lease, an ingest or a root of the caller
	// names is not in the index.
	MissingChunk ProblemKind = iota + 1
	// MissingBytes: the index names bytes that are not there.
	MissingBytes
	// WrongLength: a chunk has not as many bytes as the index, or the node above it, says.
	WrongLength
	// WrongContent: the bytes of a chunk are not those of its address, or no node.
	WrongContent
	// WrongParents: the count of occurrences in nodes is wrong.
	WrongParents
	// WrongUsers: the count of references from outside is wrong.
	WrongUsers
	// WrongMark: a chunk is marked as dead and is not, or the reverse.
	WrongMark
	// LeakedBytes: the index does not name these bytes.
	LeakedBytes
	// SharedBytes: two chunks of the index name the same bytes.
	SharedBytes
	// Malformed: a key or a value that has no meaning.
	Malformed
	// WrongDigest: a digest names a blob that is not there, or that has another digest.
	WrongDigest
	// Unreadable: the file itself is damaged where this stands. What the store has there is not known.
	Unreadable
)

var problemNames = [...]string{
	MissingChunk: "chunk missing", MissingBytes: "bytes missing", WrongLength: "wrong length", WrongContent: "wrong content",
	WrongParents: "wrong count of parents", WrongUsers: "wrong count of users", WrongMark: "wrong mark of a dead chunk",
	LeakedBytes: "bytes that no chunk has", SharedBytes: "bytes of two chunks", Malformed: "malformed", WrongDigest: "wrong digest",
	Unreadable: "unreadable",
}

// String is what the kind is called.
func (k ProblemKind) String() string {
	if int(k) < len(problemNames) && problemNames[k] != "" {
		return problemNames[k]
	}
	return fmt.Sprintf("problem %d", uint8(k))
}

// Problem is something that is not as it should be in a store.
type Problem struct {
	Kind     ProblemKind
	Chunk    Address // concerned, if one is known
	Level    uint8   // of that chunk: 0 for a leaf
	Detail   string
	Repaired bool
	// Discarded: the bytes of the chunk, whose content is wrong, have been deleted (CheckOptions.Discard):
	// it is whole when a caller puts the same content again.
	Discarded bool
}

// String is the problem in words.
func (p Problem) String() string {
	text := fmt.Sprintf("%v: ", p.Kind)
	if p.Chunk != (Address{}) {
		text += "chunk " + chunkKey{p.Chunk, p.Level}.String() + ": "
	}
	text += p.Detail
	switch {
	case p.Repaired:
		text += " (repaired)"
	case p.Discarded:
		text += " (deleted)"
	}
	return text
}
