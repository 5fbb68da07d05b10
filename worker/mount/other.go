//go:build !linux

package mount

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"sync/atomic"
)

var errOther = fmt.Errorf("mount: not supported on %s: %w", runtime.GOOS, errors.ErrUnsupported)

// Namespace is a mount namespace of a manager. There is none on this system.
type Namespace struct{}

// Start fails.
func (n *Namespace) Start(*exec.Cmd) error { return errOther }

// Do fails.
func (n *Namespace) Do(func() error) error { return errOther }

// Mounts fails.
func (n *Namespace) Mounts() (int, error) { return 0, errOther }

type master struct {
	fd  int
	dev uint64
	dir bool

	left <-chan struct{}
}

type kernelFeatures struct{}

func (c *kernelFeatures) list() []FeatureState { return nil }

// kernel stands for what is not there: newKernel makes none.
type kernel struct {
	dir, prefix string
	host        *Namespace
	features    *kernelFeatures
	searches    atomic.Uint64
}

func newKernel(*Options) (*kernel, error) { return nil, errOther }

func (k *kernel) make(*plan, string, []int, func([]dirID) error) (*master, error) {
	return nil, errOther
}
func (k *kernel) unmake(*master) error                                 { return errOther }
func (k *kernel) leaves(*master) bool                                  { return false }
func (k *kernel) release(*master)                                      {}
func (k *kernel) clone(*master, bool) (int, error)                     { return -1, errOther }
func (k *kernel) attach(*master, bool, *Namespace, string) error       { return errOther }
func (k *kernel) detach(*Namespace, string, bool) error                { return errOther }
func (k *kernel) gone(uint64) bool                                     { return false }
func (k *kernel) left(*master) (gone, known bool)                      { return false, false }
func (k *kernel) quick() bool                                          { return false }
func (k *kernel) stays(uint64, string, string) (bool, error)           { return false, errOther }
func (k *kernel) inUseBy(string, bool) string                          { return "" }
func (k *kernel) stepNamespace() (*Namespace, error)                   { return nil, errOther }
func (k *kernel) close()                                               {}
func (k *kernel) removeTmpfs() error                                   { return nil }
func (m *Manager) recover(context.Context, bool) error                 { return errOther }
func makePoint(parent, name string, dir bool) (path string, err error) { return "", errOther }
func fdPath(int) string                                                { return "" }
func defaultMaxMounts() int                                            { return 0 }
