//go:build !linux

package command

import (
	"errors"
	"os"
)

func memoryFile(string) (*os.File, error) { return nil, errors.ErrUnsupported }
