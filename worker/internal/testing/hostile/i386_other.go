//go:build linux && !amd64

package main

import "golang.org/x/sys/unix"

const sysKexecFileLoad = 294 // of most machines

func iopl() error { return unix.ENOSYS }

func i386Attempts() []attempt { return nil }
