// Package age replays the life of a build worker's database, day after day, on
// embedded stores, and measures each of them on its first day and after each
// stretch of days.
//
// A day is some cycles: the transactions that programs were recorded to commit
// (package trace), each cycle with names of its own. A cycle is removed when
// Config.Retention newer ones are there. Every so many days an operator prunes:
// all but the newest tenth of what may be live is removed, and the file is left
// with free space until it has filled again. Everything is deterministic, so
// each store holds the same keys and values at the end of each day.
//
// Days are replayed without flushes, with one at the end, as they would take
// weeks otherwise. What is measured runs with the store opened as a program
// opens it, in processes of its own that have done nothing else. The files were
// just written: they are in the page cache as far as it has room.
//
// The peers are measured one after the other on each of the days, so that all
// of them meet a machine that changes its pace. Durable commits have a floor
// beside them, measured between their rounds: a write of the bytes of the same
// keys and values, and one flush.
//
// After each stretch the keys and values in the store are compared with a model
// (Model). A store that lost a key, or kept one, fails the run.
package age
