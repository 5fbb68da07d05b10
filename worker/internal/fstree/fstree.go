// Package fstree removes, measures, copies and digests directory trees. Their content is somebody
// else's: symbolic links are not followed, and what is mounted in them is not entered by
// Remove.
package fstree

import "errors"

// ErrMounted: something is mounted in a tree that is to be removed.
var ErrMounted = errors.New("something is mounted there")

// Usage is what a tree takes.
type Usage struct {
	Size   int64 // bytes of its blocks
	Inodes int64
}
