package damage

import "syscall"

// limitMemory bounds the address space of this process.
func limitMemory(n uint64) {
	_ = syscall.Setrlimit(syscall.RLIMIT_AS, &syscall.Rlimit{Cur: n, Max: n})
}
