//go:build linux && (arm64 || riscv64 || loong64)

package zfsfuse

import "golang.org/x/sys/unix"

const sysPoll = unix.SYS_PPOLL // there is no other
