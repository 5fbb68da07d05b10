package bbolt

import (
	"os"

	"holdfast"
)

// Limits and defaults, as in package holdfast.
const (
	MaxKeySize         = holdfast.MaxKeySize
	MaxValueSize       = holdfast.MaxValueSize
	DefaultFillPercent = holdfast.DefaultFillPercent
)

// Freelist types, accepted and otherwise without effect; see holdfast.FreelistType.
const (
	FreelistArrayType = holdfast.FreelistArrayType
	FreelistMapType   = holdfast.FreelistMapType
)

// The types of package holdfast.
type (
	Bucket          = holdfast.Bucket
	BucketStats     = holdfast.BucketStats
	BucketStructure = holdfast.BucketStructure
	CheckOption     = holdfast.CheckOption
	Cursor          = holdfast.Cursor
	DB              = holdfast.DB
	DefaultLogger   = holdfast.DefaultLogger
	FreelistType    = holdfast.FreelistType
	Info            = holdfast.Info
	KVStringer      = holdfast.KVStringer
	Logger          = holdfast.Logger
	Options         = holdfast.Options
	Stats           = holdfast.Stats
	Tx              = holdfast.Tx
	TxStats         = holdfast.TxStats
)

// DefaultOptions are the options of Open where none are given. It may be
// changed, or set to another value, before the first Open.
var DefaultOptions = holdfast.DefaultOptions

// Open opens the database file at path, making it if it is not there.
// See holdfast.Open.
func Open(path string, mode os.FileMode, options *Options) (*DB, error) {
	if options == nil {
		options = DefaultOptions // which the program may have set
	}
	return holdfast.Open(path, mode, options)
}

// Compact copies src to dst without the free space. See holdfast.Compact.
func Compact(dst, src *DB, txMaxSize int64) error {
	return holdfast.Compact(dst, src, txMaxSize)
}

// HexKVStringer prints keys and values in hexadecimal. See holdfast.HexKVStringer.
func HexKVStringer() KVStringer {
	return holdfast.HexKVStringer()
}

// WithKVStringer sets how Tx.Check prints keys and values. See holdfast.WithKVStringer.
func WithKVStringer(kvStringer KVStringer) CheckOption {
	return holdfast.WithKVStringer(kvStringer)
}

// WithPageId makes Tx.Check begin at a page. See holdfast.WithPageId.
func WithPageId(pageId uint64) CheckOption {
	return holdfast.WithPageId(pageId)
}
