//go:build !lmdb || !cgo

// Package lmdb lets LMDB take part in the workloads that read, if the program
// is built with the tag lmdb.
package lmdb
