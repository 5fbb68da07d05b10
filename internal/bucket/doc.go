// Package bucket puts buckets on trees: nested and inline buckets, sequences, creating,
// deleting, moving. It knows nothing of files.
//
// A bucket's keys are one tree. A nested bucket is an element of its parent whose value is
// a bucket header with the root page of its tree; a small one keeps its only leaf in that
// value (inline):
//
//	root bucket ── "fruit" → header{root: 7}          page 7: a tree of its own
//	            └─ "new"   → header{root: 0} + leaf   inline, no page
//
// Within a writing transaction each opened bucket exists once, in its parent's children.
// At commit they are written children first: each tree gets its new root, and the header
// in the parent is brought up to date, which changes the parent's tree.
package bucket
