// Package delta compares two states of a database, both of which are held meanwhile: what pages one has and the other has
// not, and what keys.
//
// Pages are copied on write: a page that both states reach has the same content in both, and so has all that is below it.
// The comparison descends from both roots at once, and expands a page that was found in one state only; one found
// in both it leaves alone. For that to be known in time, pages are expanded in the order of the nesting of their buckets,
// and within a tree from the highest level to the leaves: where a page lies in the same place of both states,
// all that leads to it was expanded before it is looked at. So the cost is in proportion to what differs, and a path
// to the first leaf of each tree that differs, by which its height is known.
//
// A page may still turn up in the second state after it was expanded in the first: a bucket was moved to another depth. Then
// it is expanded there too, so that the same becomes known of all that is below it. In the end a page is
// in one state only if, and only if, it was found in that one only.
//
// Damage ends a comparison with an error. A page is expanded once for a state, and no more pages for a state than it has:
// pages which form a cycle, overlap, or are used twice are an error.
package delta
