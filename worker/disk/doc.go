// Package disk keeps account of the room on a file system: who begins a step reserves what it may need,
// or is refused before it has begun; and a file is held in reserve, to be given up when the disk is
// full all the same, so that metadata can still be written.
//
// Open gives a Space, Space.Reserve a Reservation. Measure tells of a file system.
package disk
