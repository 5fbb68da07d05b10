// Package space knows which pages of a file are free. It is a pure data structure: it does
// no I/O, starts no goroutine, and knows nothing of files and trees.
//
// A page below the high-water mark is in use, free or pending. A free page can be
// allocated. A pending page was freed by a transaction, but a state of the database that
// is pinned can reach it: it becomes free when the last such state is unpinned.
//
// A state is named by the transaction that made it. A page that transaction a allocated
// and transaction f freed belongs to the states r with a <= r < f and to no others; it may
// be used again when none of them is pinned. So a long reader keeps what it can see, and
// not everything that was freed after it began. For example, with page 7 allocated by
// transaction 3 and a reader of state 4:
//
//	transaction 5 frees page 7      3 <= 4 < 5: page 7 is pending
//	transaction 6 allocates and
//	transaction 8 frees page 9      6 <= 4 is wrong: page 9 is free at once
//	the reader ends                 page 7 is free
//
// Pending extents hang on a witness, the newest pinned state that can reach them; when it
// is unpinned they go to the next older one that can, or become free. So the cost of a
// commit depends neither on the number of readers nor on that of pending pages. Free pages
// are bits under a tree of summaries (pageset.go), so finding a run does not depend on how
// many there are.
//
// A Space and its transactions belong to one writer and are not safe for concurrent use.
//
// Calls that no state of a file can provoke, such as unpinning what is not pinned, are
// faults of the caller and panic. What can come from a damaged file is an error.
package space
