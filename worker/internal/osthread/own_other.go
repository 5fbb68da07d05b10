//go:build !linux

// Package osthread is for Linux.
package osthread
