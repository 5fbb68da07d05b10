// Package vacuum makes the file of an open database shorter while others read and write
// it. It knows pages by the tree that holds them, and nothing of what keys and values
// mean.
//
// It moves pages by writing them anew, in transactions of its own. What the pages say does
// not change, so it can stop after any step, and a crash leaves what a crash after any
// commit leaves.
//
//	survey   reading transactions of at most 4,096 pages walk all buckets. They find damage,
//	         before anything is changed, and how many pages there will be: the cut
//	walks    each walk gathers targets: half-empty neighbours of one parent to be joined, and
//	         runs after the cut. 64 pages of them are one step
//	step     a transaction writes its targets anew, in the first free pages; it ends early
//	         after 5 ms, which is how long writers wait for it. One that has waited long for
//	         the writer lock may write up to 512 pages in that time
//	end      a transaction lowers the high-water mark to the last page in use; the file is
//	         cut off in pieces of 8 MiB
//
// A target is known by its key and its depth, so it does not matter what others have done
// since it was chosen. A run is only moved toward the front. The targets of a step get
// their pages together, at its end; so each has its hole reserved when it is chosen, or
// several would be promised the same one.
//
// Long runs for which no hole is long enough are counted (clear.go). Another walk notes
// where runs of the length of the longest lie, and chooses windows of that length without
// any, as near the end as can be, such that all that lies in them fits into holes in
// front. The next walk moves that there, and the one after it the long runs into the
// windows.
//
// While others commit, 128 of their commits come between two steps, and 256 between two
// pieces that are cut off, or as many as they make in 50 ms: the 99th percentile of
// commits stays what it was.
//
// # What it does not reach
//
// Runs of the same few pages, in no order, leave holes that are each too short for
// another: such a file stays up to a quarter longer than a copy. If less is free than the
// longest value has, the file stays longer by as much. A walk ends when it has met as many
// pages as there were when it began.
//
// A reader of an old state pins what it sees: moved pages become pending, and the file
// grows, by four steps at most, before it is seen that nothing is gained; then joining
// stops, and Result names the reader. On a full disk, the first step for which the file
// cannot grow settles what the last ones have freed and is tried once more; then nothing
// is joined for which there are not enough free pages.
package vacuum
