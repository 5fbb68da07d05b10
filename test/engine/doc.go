// Package engine tests the engine through its public API: transactions, damage and its
// errors, page checksums, copies, vacuum, free pages, and what readers and writers see of
// each other. Package append, below, tests what is written before its transaction commits:
// Append and Spill. What needs the inside of an open database asks package hook for it.
package engine
