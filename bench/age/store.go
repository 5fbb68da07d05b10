package age

import (
	"encoding/binary"
	"errors"

	"holdfast/bench/age/trace"
)

// Op is an operation of a transaction, with the names and the value of a cycle.
// What it refers to stays as it is until the next call of Life that makes ops.
type Op struct {
	Do     trace.Op
	Bucket [][]byte // from the outermost to the innermost
	Key    []byte   // of Put and Delete
	Value  []byte   // of Put

	// Flat is Bucket and Key as one key, for stores without buckets. Of Drop and
	// Create it is what the keys of all that is in the bucket begin with.
	Flat []byte
}

// Store is an open store. One goroutine uses it at a time.
type Store interface {
	// Apply commits the operations as one transaction, durably unless the
	// store was opened without flushes. A key or bucket that is to be removed
	// need not be there.
	Apply(tx []Op) error
	// Get reads a key in a transaction of its own, and returns the length of the
	// value. Of the op it uses Bucket and Key, or Flat.
	Get(name *Op) (int, error)
	// Scan reads all keys and values in one transaction, and returns how many keys there are.
	Scan() (int, error)
	// Walk calls fn with each key, as Op.Flat has it, and its value.
	Walk(fn func(flat, value []byte) error) error
	// Sync flushes what was committed without flushes.
	Sync() error
	Close() error
}

// Nightly is a Store for which something is done once a day, when no
// program uses it.
type Nightly interface {
	Night() error
}

// Peer opens stores of one kind, with one set of options.
type Peer struct {
	Name string
	Note string // how it is opened, in a line
	// Open opens or makes the store in the directory. noSync leaves out the
	// flushes of commits.
	Open func(dir string, noSync bool) (Store, error)
}

// ErrNoKey is what Get returns for a key that is not there.
var ErrNoKey = errors.New("a key of the life is not in the store")

// AppendBucket appends the name of a bucket to the path of the bucket it is in.
// A name follows its length; no path is the beginning of a path other than those
// of what is in the bucket.
func AppendBucket(path, name []byte) []byte {
	return append(binary.AppendUvarint(path, uint64(len(name))), name...)
}

// AppendKey appends a key to the path of its bucket. No bucket has a name of
// length 0, which the key follows.
func AppendKey(path, key []byte) []byte { return append(append(path, 0), key...) }

var errFlat = errors.New("not a key of the life")

// Split is the op that has this Flat, for Get.
func Split(flat []byte) (Op, error) {
	op := Op{Do: trace.Put, Flat: flat}
	for rest := flat; ; {
		n, size := binary.Uvarint(rest)
		if size <= 0 || n > uint64(len(rest)-size) {
			return op, errFlat
		}
		rest = rest[size:]
		if n == 0 {
			op.Key = rest
			return op, nil
		}
		op.Bucket = append(op.Bucket, rest[:n])
		rest = rest[n:]
	}
}
