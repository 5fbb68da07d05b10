//go:build !linux

package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"holdfast/worker/mount"
)

var errOther = fmt.Errorf("extracting archives: not supported on %s: %w", runtime.GOOS, errors.ErrUnsupported)

// tree stands for what is not there: openTree gives none.
type tree struct{}

func openTree(context.Context, []mount.Mount, bool, *mount.Manager, *LeftOut, *budget) (*tree, string, error) {
	return nil, "", errOther
}

func (t *tree) directory(string, attributes) error                    { return errOther }
func (t *tree) file(string, attributes, int64, io.Reader) error       { return errOther }
func (t *tree) symlink(string, string, attributes) error              { return errOther }
func (t *tree) link(context.Context, string, string, time.Time) error { return errOther }
func (t *tree) node(string, attributes, byte, uint32, uint32) error   { return errOther }
func (t *tree) hide(context.Context, string) error                    { return errOther }
func (t *tree) opaque(context.Context, string) error                  { return errOther }
func (t *tree) finish() error                                         { return errOther }
func (t *tree) close()                                                {}
func empty(string) error                                              { return errOther }
