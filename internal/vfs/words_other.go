//go:build !linux || arm || mips || mipsle

package vfs

import "os"

func inode(uintptr) (device, number uint64, err error) { return 0, 0, errNoBytes }

func access(uintptr) (mode os.FileMode, user, group int, err error) { return 0, 0, 0, errNoBytes }

func mapWords(uintptr, int) ([]byte, error) { return nil, errNoBytes }

func tryLockByte(uintptr, int64) (bool, error) { return false, errNoBytes }

func unlockByte(uintptr, int64) error { return errNoBytes }

func byteLocked(uintptr, int64) (bool, error) { return false, errNoBytes }
