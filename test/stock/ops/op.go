// Package ops describes operations on a bbolt database as values, and runs them
// on any engine that has bbolt's methods. An operation can be sent to another
// process, so that versions of bbolt that cannot be linked into one program
// take part in one history.
package ops

// Kind says what an operation does.
type Kind uint8

// The operations. Those that name no other object work on the bucket at
// Op.Path in the transaction Op.Tx.
const (
	Open     Kind = iota // the database Op.File with Op.Options
	Close                // the database
	Begin                // transaction Op.Tx, writing if Op.Writable
	Commit               // transaction Op.Tx
	Rollback             // transaction Op.Tx
	Check                // the whole database; faults in Result.Lines
	Dump                 // digest of all content in Result.Value
	List                 // all content in Result.Lines
	WriteTo              // a copy of the database to Op.File + CopySuffix
	Compact              // a compacted copy to Op.File + CompactSuffix

	CreateBucket
	CreateBucketIfNotExists
	DeleteBucket
	MoveBucket // from Op.Path to Op.Dst
	ForEach    // digest of the bucket's elements in Result.Value
	ForEachBucket

	Put
	Delete
	Get

	Sequence
	SetSequence
	NextSequence

	Inspect     // digest of the tree of buckets in Result.Value
	BucketStats // keys in Result.N, buckets in Result.Value; of what is committed

	NewCursor // Op.Cursor, over Op.Path; the kinds below move it
	First
	Last
	Next
	Prev
	Seek
	CursorDelete
)

var kindNames = [...]string{
	"Open", "Close", "Begin", "Commit", "Rollback", "Check", "Dump", "List", "WriteTo", "Compact",
	"CreateBucket", "CreateBucketIfNotExists", "DeleteBucket", "MoveBucket", "ForEach", "ForEachBucket",
	"Put", "Delete", "Get", "Sequence", "SetSequence", "NextSequence", "Inspect", "BucketStats",
	"NewCursor", "First", "Last", "Next", "Prev", "Seek", "CursorDelete",
}

// String is the kind's name.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// ForwardOnly as Op.N of Dump and List leaves out going through each bucket
// backward as well.
const ForwardOnly = 1

// What the copies of a file are called.
const (
	CopySuffix    = ".copy"
	CompactSuffix = ".compact"
)

// Options are those of the database's options that a history varies.
type Options struct {
	NoFreelistSync  bool
	MapFreelist     bool
	NoSync          bool
	NoGrowSync      bool
	ReadOnly        bool
	PreLoadFreelist bool
	PageSize        int
	InitialMmapSize int
	AllocSize       int // in bytes; 0: the engine's own
	Strict          bool
	Mlock           bool
}

// Op is one operation.
type Op struct {
	Kind     Kind
	Tx       int // number of the transaction
	Writable bool
	Path     []string // bucket, from the top level
	Dst      []string
	Key      []byte
	Value    []byte
	NilValue bool    // Put a nil value
	Fill     float64 // FillPercent of the bucket for Put, if not 0
	Cursor   int     // number of the cursor in its transaction
	N        uint64
	File     string
	Options  Options
}

// Result is what an operation gave.
type Result struct {
	Err      string // text of the error, or of a panic
	Key      []byte
	Value    []byte
	HasKey   bool // Key is not nil
	HasValue bool
	N        uint64
	Lines    []string
}

// Errors of the runner itself.
const (
	NoBucket    = "there is no such bucket"
	Unsupported = "this version cannot do that"
)
