//go:build !linux

package snapshot_test

const deferredWorks = false
