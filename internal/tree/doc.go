// Package tree is a copy-on-write B+tree over pages. It searches pages and nodes, edits
// nodes, and at commit merges, splits and writes them. It knows nothing of files or
// buckets: pages come from a Reader and go to a Writer.
//
// # The life of an edit
//
// A node is a page that is being edited, in memory. A search turns nothing into nodes; an
// edit turns into nodes the pages from the root to the leaf. Keys and values stay where
// they are, in the mapping or in the caller's memory, and nodes have no page number until
// they are written:
//
//	Put(k, v)     root, branch and leaf become nodes; k and v are noted in the leaf
//	Merge()       a node below a quarter page, and a branch of one child, joins a neighbour
//	Write(fill)   nodes are split into parts; each part gets a run of pages from the Writer
//	              and is encoded; the pages that the nodes replace are freed; the new
//	              root is returned
//
// A node begins thin: it keeps its page and notes what differs in it, of a leaf up to 16
// new values and elements, or 256 if they come in the order of their keys. They are merged
// with the page once, in Write. More than that, or a delete, makes items of all elements.
// A leaf that loses its last element leaves its branch at once: else deleting the first
// key again and again would pass all empty leaves each time. A node that became long by
// appending is split while it is in memory (long.go).
//
// Where FillPercent is set, splits fall where bbolt's do. Otherwise a node to which keys
// were only appended fills its pages, and others are split in halves, or at 70% if they
// become more than two pages. Values longer than a page are grouped, up to four to a run,
// where that wastes least (split.go).
//
// A finger remembers where the last search ended, so that keys in order are not sought
// from the root, and a key that was looked up is not sought again when it is set
// (finger.go). The memory of nodes comes in blocks, which the next transaction uses again
// (arena.go).
//
// # Pages that are written early
//
// Append adds keys after all others and writes pages as soon as nothing that comes
// later can change them (append.go); Spill writes all that was changed, in
// the middle of a transaction (spill.go).
//
// # An invariant shared with bbolt
//
// A branch element's key equals the first key of the child that it names. bbolt finds a
// child in its parent by that key, so a file in which it does not hold is one that bbolt
// would damage.
package tree
