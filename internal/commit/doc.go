// Package commit is the protocol by which transactions become durable: who waits in
// the queue, who leads, what is written as a group, in which order it is written and
// flushed, and what is aborted when that fails; and what a commit's meta says besides its
// state: the pages that a flush writes, and those that are free. It knows no keys and no file: what
// it needs of the file is Env, so that scripts in testdata test it without one.
//
// A transaction that is complete joins the queue, and the next one begins on top of it. Its
// caller then calls Finish: if there is no leader, it leads. The leader takes all
// that is queued, the group, has its pages and one meta written and flushed, has the
// newest state of the group published and wakes the others. What joins meanwhile is the
// next group, which one of its callers leads; so nothing of a group is written before
// the flush of the one before has ended.
//
//	queue ──lead──▸ in flight ──▸ published
//	   │                │
//	   └────────────────┴──▸ failed: aborted, with all that stand on it
//
// entry.go has what is queued and the interface Env, pipeline.go the queue and the
// leader, group.go the order of writes and flushes, dirty.go what a trailing meta lists,
// record.go how a commit records the free pages, and record_read.go how an opening reads that.
package commit
