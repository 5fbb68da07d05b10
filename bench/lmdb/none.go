//go:build !lmdb || !cgo

// Package lmdb lets LMDB take part in loading and reading, if the program
// is built with the tag lmdb.
package lmdb
