package command_test

import (
	"os"
	"runtime"
	"testing"
)

// This file has what tests need of the system and not all systems have.

// symlink makes a symbolic link, and leaves the test out where there are none: on Windows they need a privilege, and
// wine 8 makes something that it does not know as one.
func symlink(t *testing.T, target, name string) {
	t.Helper()
	err := os.Symlink(target, name)
	if runtime.GOOS == "windows" {
		if err == nil {
			_, err = os.Readlink(name)
		}
		if err != nil {
			t.Skip("left out: there are no symbolic links: ", err)
		}
	}
	check(t, err)
}

// wantMode fails unless a file has the mode. Windows knows only whether it can be written.
func wantMode(t *testing.T, name string, want os.FileMode) {
	t.Helper()
	info, err := os.Stat(name)
	check(t, err)
	if runtime.GOOS == "windows" {
		want = want&0o200>>7*0o222 | 0o444
	}
	if info.Mode().Perm() != want {
		t.Errorf("%s has the mode %s, want %s", name, info.Mode(), want)
	}
}
