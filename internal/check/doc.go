// Package check walks a file's pages and reports every broken invariant that it finds as a
// value. It reads pages by itself, not through a tree, so that one fault does not hide the
// next, and it ends on any bytes whatever. It changes nothing.
//
// Run checks an Input, which is an image of the file with what the pager knows of its free
// pages: types and bounds of pages, the order of keys in pages and against the branches
// above, equal depth of leaves, headers of buckets, page checksums and their sum, and that
// each page is used once, free, or recorded, and only one of these (invariant I2 of
// docs/design.md). Layout tells for each page what it is, for maps and listings, and
// believes a page's own header.
package check
