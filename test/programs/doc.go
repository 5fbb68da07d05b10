// Package programs runs programs that embed bbolt, built on bbolt and on Holdfast, and measures both side by side: etcd, containerd,
// BuildKit. They come from the Go module proxy; package downstream builds them. It is run by cmd/programs (make programs).
//
// Every measurement is made on both engines by turns, on a file system of its own whose block device tells how many bytes the
// programs write. A Table has the medians.
package programs
