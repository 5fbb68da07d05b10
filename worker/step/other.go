//go:build !linux

package step

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

	"holdfast/worker/internal/idmap"
	"holdfast/worker/mount"
)

var errOther = fmt.Errorf("not supported on %s: %w", runtime.GOOS, errors.ErrUnsupported)

type unsupported string

func (u unsupported) Name() string                    { return string(u) }
func (unsupported) open(*environment) (opened, error) { return nil, errOther }

// Native is a runtime that this system does not have.
func Native() Runtime { return unsupported(nativeName) }

// Runc is a runtime that this system does not have.
func Runc() Runtime { return unsupported("runc") }

// Isolations is empty: there are no runtimes.
func Isolations(context.Context, string, string) []Isolation { return nil }

// Init does nothing on this system.
func Init() {}

type cgroups struct{}

func findCgroups(string) (*cgroups, error) { return &cgroups{}, nil }
func (*cgroups) dirs() []string            { return nil }
func (*cgroups) clean() error              { return nil }
func (*cgroups) removeAll()                {}

func lookupUser(int, User) (User, error) { return User{}, errOther }

func lookupHome(int, uint32) string { return "/" }

func writeFiles(string) error { return nil }

func (r *Runner) show(context.Context, *job) (func() error, error) { return nil, errOther }

func findMark(*mount.Namespace) (string, error) { return "", nil }

func (w *way) runtimeKey(idmap.Map) string { return w.name }

func (*Runner) canShow(string, idmap.Map) error { return nil }

func (*Runner) copyIn(*flight, *mount.Handle, idmap.Map) error { return nil }

func (*Runner) acquireCache(context.Context, *Mount, idmap.Map) (*mount.Handle, func(), error) {
	return nil, nil, errOther
}

func duplicate(*os.File) (*os.File, error) { return nil, errOther }

func isReadOnly(int) bool { return false }

// CachePrefix begins the names of the active snapshots that are caches.
const CachePrefix = "!cache/"

func (*Runner) outsideStore(string) error { return errOther }

// Export is for Linux.
func (*Runner) Export(context.Context, string, string, string) error { return errOther }

// ExportTar is for Linux.
func (*Runner) ExportTar(context.Context, string, string, io.Writer) error { return errOther }

// Diff is for Linux.
func (*Runner) Diff(context.Context, string, string, func(Change) error) error { return errOther }

// CheckOutput is for Linux.
func (*Runner) CheckOutput(string, string) error { return errOther }
