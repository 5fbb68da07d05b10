// Package step runs commands on top of snapshots and keeps what they have made: a step is a
// base, a command and what it sees, and its result is a snapshot named by a hash of these.
// The same step again runs nothing.
//
// [New] makes a [Runner], [Runner.Run] runs a step. Two runtimes do the running: [Native],
// which is fast, and [Runc]. Both stop commands that are hostile, and none stops one that exploits an error
// of the kernel; [Isolations] says what they have on this machine.
//
// A program that uses this package calls [Init] first in its main function.
//
// docs/worker.md, section Steps, says what always holds and what a crash leaves.
package step
