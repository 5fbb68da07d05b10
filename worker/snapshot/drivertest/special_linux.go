package drivertest

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// special makes what only root can: files of other owners, devices, extended attributes.
func (b *bench) special(dir string) {
	b.must(unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	if os.Geteuid() != 0 {
		return
	}
	b.must(unix.Mknod(filepath.Join(dir, "null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
	b.write(dir, "theirs", "x", 0o600)
	b.must(os.Chown(filepath.Join(dir, "theirs"), 1000, 1001))
	b.must(os.Lchown(filepath.Join(dir, "a", "link"), 5, 6))
	b.must(unix.Setxattr(filepath.Join(dir, "theirs"), "trusted.thing", []byte("value"), 0))
	b.must(unix.Setxattr(filepath.Join(dir, "a"), "user.thing", []byte("other"), 0))
}
