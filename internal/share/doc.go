// Package share lets other processes read a database that one process, its owner, has open for
// writing. It knows nothing of pages: it carries the owner's newest state to the readers, and the
// transactions whose states the readers hold to the owner.
//
// Both map one file (see layout.go), in a directory for such files. Each database has one file there,
// named by device and inode, for as long as its owner lives. Its words are changed by atomic
// operations that are sequentially consistent, so all of them have one order.
//
//	owner                                     reader
//	Publish: state = t                        Begin:   s = state
//	Pins:    then read the slots                       then slot = s
//	         then reuse what t freed,                  then read state again; repeat if it is not s
//	         unless a slot holds less         ...      read pages
//	                                          Confirm: is all of it worth anything?
//	                                          End:     slot = none
//
// # Why what a reader confirms is right
//
// Either the reader's second look at the state shows what the owner has published, and it repeats
// before it reads a page; or its slot was written before the owner published, and so before the owner
// looked. For the owner's look to cost little, two words have a bit for each slot in use: a reader
// sets it before it writes the slot, and it is cleared only by one who has the lock of the slot: its
// reader, which holds nothing then, or the owner.
//
// A slot belongs to the one who has the lock of its first byte (an open file description lock, which
// ends with the process). The owner takes that lock to clear a slot. To test the lock, and clear the
// slot if it still has the value that was read, would not do: the next reader may have taken the slot
// meanwhile, and hold the same state.
//
// To end a reader is to write a mark to its slot. From this moment the slot pins nothing; a reader
// writes to its slot only over what it wrote itself, so it finds the mark at its next Confirm or
// Begin.
//
// The owner's tenure is a lock on a byte of the database itself, far beyond its end, at a place drawn
// anew for each tenure (the nonce). The byte is locked through the open file that has the exclusive
// lock of the database. When the process dies, the kernel gives back what an open file has locked in
// one go, the bytes first: as long as the byte of a tenure is locked, no other process, Holdfast or
// bbolt, can have begun to write. A lock on the share file would not do: a kernel closes the files of
// a dead process in any order. And none but a process that may write the database can take it.
//
// Confirm makes sure, after the last read of a page, that the reader's slot still has what it wrote,
// that the tenure lasts, and that the state has not been given up (Stop).
//
// # Whom it trusts
//
// A process that may only read the database can keep a later owner from sharing it, by locking for
// reading what a tenure locks for writing. A process that may write the share file can make other
// readers return wrong answers, by writing any state, and can keep a later owner from sharing, by
// locking what an owner locks. It cannot harm the owner, which reads nothing from the file but the
// slots. What they hold keeps pages from being reused, no more, and not once the lock of the slot
// is free. (A process that writes to its slot again after it was ended has to be killed.) To
// shorten the file makes the owner's access fault: the owner then ends its tenure, stops counting
// slots, and goes on without readers in other processes. Readers check magic, version, size and the
// machine's boot before they use anything else, and a fault of theirs is ErrOwnerGone. The mode of
// the file, given by the owner, says who may write it.
package share
