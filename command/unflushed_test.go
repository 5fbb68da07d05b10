package command

import (
	"os"
	"syscall"
	"testing"

	"holdfast"
	"holdfast/command/internal/hook"
	"holdfast/internal/bridge"
	"holdfast/internal/vfs"
)

// CannotFlush has the databases that commands read be on a file that cannot be flushed.
func CannotFlush(t *testing.T) {
	before := hook.OpenDatabase
	hook.OpenDatabase = func(path string, _ os.FileMode, options *holdfast.Options) (*holdfast.DB, error) {
		file, err := vfs.OpenOS(path, os.O_RDONLY, 0, options.OpenFile)
		if err != nil {
			return nil, err
		}
		return bridge.Open(unflushable{file}, options)
	}
	t.Cleanup(func() { hook.OpenDatabase = before })
}

// unflushable is a file as on a read-only file system.
type unflushable struct{ vfs.File }

func (unflushable) Sync() error { return syscall.EROFS }
