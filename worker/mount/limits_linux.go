package mount

import "golang.org/x/sys/unix"

// defaultMaxMounts is what half of the process's descriptors and 64 MiB allow.
func defaultMaxMounts() int {
	most := 64 << 20 / KernelBytesPerMount
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err == nil && limit.Cur/2 < uint64(most) {
		most = int(limit.Cur / 2)
	}
	return most
}
