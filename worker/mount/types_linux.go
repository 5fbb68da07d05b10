package mount

import "golang.org/x/sys/unix"

// deviceOf is the number of the file system that a file is on.
func deviceOf(st *unix.Stat_t) uint64 {
	return uint64(st.Dev) //nolint:unconvert // on mips it is an uint32
}

// typeOf is the number of the type of a file system.
func typeOf(st *unix.Statfs_t) int64 {
	return int64(st.Type) //nolint:unconvert // on 32-bit systems it is an int32
}
