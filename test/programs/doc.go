// Package programs runs programs that embed bbolt, built on bbolt and on Holdfast, and measures both side by side: etcd, containerd,
// BuildKit. They come from the Go module proxy; package downstream builds them. It is run by cmd/programs (make programs).
//
// Measurements alternate between the engines. They run on a file system of their own, whose block device counts the bytes
// written. A Table has the medians.
package programs
