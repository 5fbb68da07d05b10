// Package salvage reads all that a damaged database file still holds. It reads pages by
// itself and believes none of them: what it meets is checked against what names it, and
// where a page cannot be used, it looks for pages that no sound tree names and that can
// have been below it. It writes nothing: a Sink takes what is saved. docs/recovering.md
// has the method.
//
//	metas ──▸ state ──walk──▸ Sink            what sound pages hold, in its place
//	  │ none is whole  └─ holes ──orphans──▸  what lost pages had, by its keys, or in lost+found
//	  └─search──▸ candidates ──rank──▸ root
//
// It ends on any bytes. A page is walked twice at most, and as an orphan once. As a part
// of a longer run a page is read 32 times at most to be looked at, and 4 times to be
// saved, on average: runs that overlap are not all followed. The search for a root reads
// 16 times the pages of the file at most. Holes for which orphans are looked for are
// bounded, and so are the lists of the report.
//
// In memory are a byte and some bits for each page of the file, the pages that lead to the
// one that is being read, 16 MiB of the file's keys (see keep), and one run at a time;
// while a root is looked for, seven more bytes for each page and some tens of MiB.
//
// # The root without metas
//
// If only metas are damaged, what is saved is one committed state and not a mixture, as
// long as there is a freelist page of it, and the newest wherever a checksum or a field
// tells it. Page numbers are not a clock, and pages have no transaction number. So the tree
// below each readable page is looked at once and summed up: pages, keys, sequences,
// faults, and a sum of hashes of its page numbers. With the same sum of the numbers in a
// freelist, one addition tells whether both are all pages below the high-water mark, each
// once.
//
// A fault is damage, a page that is none, or reuse, a sound page that is not what was
// named: only reuse speaks against a state being the newest. A state whose bucket's page
// became the root of a later one has that root as a bucket: it is passed over if it alone
// has such a bucket. A damaged field of a meta is found by trying all page numbers until
// the meta's checksum holds (named.go).
package salvage
