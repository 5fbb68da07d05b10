//go:build !unix

package zfs

import (
	"context"
	"os"
)

func shareLock(string) (*os.File, error)          { return nil, errOther }
func awaitCommands(context.Context, string) error { return errOther }
