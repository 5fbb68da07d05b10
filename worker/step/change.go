package step

// Change is one of what a snapshot has changed of another.
type Change struct {
	Path string // absolute

	// Kind is "added", "changed" or "deleted". Of a directory that is deleted what was in it is not told; one in
	// which something is changed is itself changed.
	Kind string
}
