// Package zfsfuse lets the daemon zfs-fuse 0.7, which Debian has for machines without ZFS in the kernel, stand in for
// OpenZFS in tests. It is used by tests only.
//
// A test calls Own, which runs it again in namespaces of its own with a daemon of its own. There the test
// program is found in PATH under the names zfs and zpool (RunAsProgram): it shows the driver what OpenZFS
// would show, and tells the daemon what it understands. A Mounter mounts the type "zfs", which this kernel
// does not know.
//
// The daemon cannot do two things at once:
//
//   - Two commands that begin at the same time can become the same one, and the other is never answered (so its source).
//   - When a file system has gone, it closes that one's descriptor twice. What it has opened in between, the connection
//     of a command or the device of a new mount, is closed with it.
//   - It unmounts what has gone when all files in it are closed, and answers no request until then. Closing is
//     asynchronous, and the kernel drops what it has not delivered when the file system goes: then the daemon waits
//     for ever.
//   - It never unmounts a file system that goes before its first answer.
//
// So there are sessions (Begin), one at a time on the machine. A command is run, or a file system unmounted, in a
// session; none begins while the daemon is unmounting, and nothing is unmounted before the daemon has answered all
// requests for it.
package zfsfuse
