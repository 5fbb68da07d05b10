//go:build !unix

package zfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
)

var errOther = fmt.Errorf("zfs on %s: %w", runtime.GOOS, errors.ErrUnsupported)

func shareLock(string) (*os.File, error)          { return nil, errOther }
func awaitCommands(context.Context, string) error { return errOther }
