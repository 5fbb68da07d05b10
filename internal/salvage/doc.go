// Package salvage reads all that a damaged database file still holds. It reads pages by
// itself and believes none of them: what it meets is checked against what names it, and
// where a page cannot be used, it looks for pages that no sound tree names and that can
// have been below it. It writes nothing: a Sink takes what is saved.
//
//	metas ──▸ state ──walk──▸ Sink            what sound pages hold, in its place
//	  │ none is whole  └─ holes ──orphans──▸  what lost pages had, by its keys, or in lost+found
//	  └─search──▸ candidates ──rank──▸ root
//
// A page without its number and type, a right checksum (if it has one), and keys in the
// range that the page above gives is a hole. A leaf with nothing wrong but its checksum
// goes to lost+found. Of a damaged element in a page without a checksum only that element
// is lost. Pages in use that no sound page names belong below a damaged branch if their
// keys lie in its range, at the right depth, and no other page can have named them. What
// fits several places, contradicts others, or comes from a lost leaf of buckets goes to
// lost+found; so does everything if the free pages are not known.
//
// It ends on any bytes. A page is walked twice at most, and as an orphan once. As a part
// of a longer run a page is read 32 times at most to be looked at, and 4 times to be
// saved, on average: runs that overlap are not all followed. The search for a root reads
// 16 times the pages of the file at most. Holes for which orphans are looked for are
// bounded, and so are the lists of the report.
//
// In memory are a byte and some bits for each page of the file, the pages that lead to the
// one that is being read, 16 MiB of the file's keys (queue.go), and one run at a time;
// while a root is looked for, seven more bytes for each page and some tens of MiB.
//
// # The root without metas
//
// A root that a damaged meta names is believed if all that it reaches is sound and no page
// is reached twice. Else candidates are pages that hold only buckets, or branches above
// such pages, and reach only sound pages that fit, each once. The first of these
// differences decides: its pages and some freelist page are together all the pages of the
// file; no other candidate reaches it; it holds at least half as many keys as any other;
// its buckets have the highest sequences; least of it is named by older pages too.
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
