//go:build unix

package command_test

import "syscall"

const epipe = syscall.EPIPE
