// Package damage holds tests with damaged files. Files that Holdfast and bbolt
// made, of several page sizes and kinds, are mutated: bits, bytes, pages, fields
// of headers, elements, freelists and metas, ends cut off. Both engines then open
// each, walk through it, check it, write to it, check and walk again, close and
// open once more. They do so in other processes, whose deaths and hangs count.
//
// Holdfast must not panic, fault, hang or take memory out of proportion. It must
// notice the damage that the format lets anybody notice (see must), and where it
// found nothing, writing must not make the file worse. What bbolt does is counted
// for comparison and not verified.
//
//	HOLDFAST_SEED=n    the file made from this seed only
//	HOLDFAST_SOAK=10m  files for that long
package damage
