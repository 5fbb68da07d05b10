// Package real holds tests against the real operating system: processes that
// are killed, disks that are full, flushes that fail, files that are changed
// by others.
//
//   - TestKill, TestKillAtCall: a process that commits is killed, again and again,
//     on one file. Everything it acknowledged must be there for Holdfast, and for
//     bbolt all but what the last flush has brought, or all where it was asked for.
//   - TestFull*: a file system of some MiB runs full.
//   - TestHoleIsReal, TestFlushThatLies: a device fails for one flush; from
//     then on the page cache shows what the device does not have.
//   - TestBadSectors: a part of the device cannot be read.
//   - TestChangedUnderneath: the file is truncated, overwritten or replaced
//     while a process has it open.
//   - TestMachine*: the same committers in virtual machines (package vm) whose power
//     is cut, on several file systems. scripts/vm-kernel gets what they need.
//     TestMachineSteps runs tests of worker/step there.
//
// Those that mount a file system need root (CAP_SYS_ADMIN), loop devices and
// mkfs.ext4, and say so when they are skipped. The test program runs itself in
// a mount namespace of its own, so that no mount and no loop device outlives
// it, however it ends.
//
//	HOLDFAST_SEED=n    the random choices of this run only
//	HOLDFAST_SOAK=10m  each random test for that long
package real
