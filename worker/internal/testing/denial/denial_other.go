//go:build !linux

// Package denial is for Linux.
package denial
