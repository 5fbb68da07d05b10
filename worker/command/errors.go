package command

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"holdfast/command/cli"
	"holdfast/worker/disk"
	"holdfast/worker/image"
	"holdfast/worker/mount"
	"holdfast/worker/registry"
	"holdfast/worker/snapshot"
	"holdfast/worker/step"
)

// rootError is what is wrong with a store, and what to do about it.
type rootError struct {
	root, what, next string
	err              error
}

func (e *rootError) Error() string { return e.root + ": " + e.what + "; " + e.next }
func (e *rootError) Unwrap() error { return e.err }

// nextError is an error with the next step.
type nextError struct {
	err  error
	next string
}

func (e *nextError) Error() string { return e.err.Error() + "; " + e.next }
func (e *nextError) Unwrap() error { return e.err }

// errInterrupted is what is said of a command that was interrupted, if it has nothing better to say.
var errInterrupted = fmt.Errorf("interrupted; nothing is left%w", silently{context.Canceled})

// silently is an error that is known and not told.
type silently struct{ err error }

func (silently) Error() string   { return "" }
func (e silently) Unwrap() error { return e.err }

// interruptedAfter is an error of what was interrupted when some of its work was done, which stays.
func (c *call) interruptedAfter(err error, done string) error {
	if err == nil || !errors.Is(err, context.Canceled) || c.ctx.Err() == nil {
		return err
	}
	return &nextError{fmt.Errorf("interrupted%w", silently{err}), done}
}

// explain adds the next step to an error, where it is known.
func (c *call) explain(err error) error {
	var known *rootError
	var told *nextError
	var exit *exitError
	if err == nil || errors.As(err, &exit) || errors.As(err, &known) || errors.As(err, &told) || errors.Is(err, errSaid) || cli.IsUsage(err) {
		return err
	}
	if errors.Is(err, context.Canceled) && c.ctx.Err() != nil {
		return errInterrupted
	}
	next := c.next(err)
	if next == "" {
		return err
	}
	return &nextError{err, next}
}

// ofStore is the path of a file of the store, for a command line.
func (c *call) ofStore(name string) string {
	root, err := c.absRoot()
	if err != nil {
		root = c.root
	}
	return cli.ShellWord(filepath.Join(root, name))
}

// aboutRoot tells whether an error may be about the directory of the store: it is not if it names another path, such as
// one in a step.
func (c *call) aboutRoot(err error) bool {
	var at *fs.PathError
	root, failed := c.absRoot()
	if failed != nil || !errors.As(err, &at) {
		return true
	}
	path, failed := filepath.Abs(at.Path)
	return failed != nil || strings.HasPrefix(path+"/", root+"/") || strings.HasPrefix(root+"/", path+"/")
}

// fewInodes are too few to go on with.
const fewInodes = 8

// nextOfFull is what to do about a full disk.
func (c *call) nextOfFull() string {
	what := "free some space"
	if fs, err := disk.Measure(c.root); err == nil && fs.Inodes > 0 && fs.FreeInodes < fewInodes {
		what = fmt.Sprintf("there are no inodes left (files and directories: %s are possible): remove some", cli.Count(fs.Inodes))
	}
	return fmt.Sprintf("%s on the disk of %s: holdfastd df says what the store takes, and prune removes of it", what, c.root)
}

func (c *call) next(err error) string {
	var output *cli.OutputError
	var certificate *tls.CertificateVerificationError
	var connection *net.OpError
	switch {
	case errors.As(err, &output): // its disk need not be the store's
		return ""
	case errors.Is(err, snapshot.ErrLocked):
		return "wait until that process has ended, longer with --wait, or give another directory with --root"
	case errors.Is(err, snapshot.ErrNotStore):
		return "give the directory of a store with --root, or for import one that is empty or not there yet; nothing was changed"
	case errors.Is(err, snapshot.ErrCorrupt):
		return fmt.Sprintf("holdfast doctor %s says what is lost; put it back from a backup, or save what can be read with holdfast salvage", c.ofStore("metadata.db"))
	case errors.Is(err, step.ErrResults):
		return fmt.Sprintf("move it away (mv %s %s): results stay and are hits, and only what their commands wrote is lost", c.ofStore("results.db"), c.ofStore("results.db.damaged"))
	case errors.Is(err, snapshot.ErrOtherDriver):
		return "leave --driver out: the store knows its own"
	case errors.Is(err, snapshot.ErrDistrusted), errors.Is(err, snapshot.ErrDamaged):
		return "remove the snapshot with holdfastd snapshot rm, and make it again"
	case errors.Is(err, snapshot.ErrMissing):
		return "put the right metadata.db back, or remove the snapshot with holdfastd snapshot rm, with what stands on it, and make it again"
	case errors.Is(err, snapshot.ErrNotFound):
		return "holdfastd snapshot ls lists all names"
	case errors.Is(err, registry.ErrDenied):
		return "log in (docker login HOST), or give a file with credentials with --authfile; some registries say the same of what is not there"
	case errors.Is(err, registry.ErrNotFound):
		return "look at the name and the tag"
	case errors.As(err, &certificate):
		return "this machine does not trust the certificate of the registry: the environment variable SSL_CERT_FILE can name a file with the one that has signed it"
	case errors.Is(err, registry.ErrPlainHTTP):
		return "the registry has no TLS; --plain-http allows that"
	case errors.Is(err, registry.ErrStalled):
		return "try again: what was transferred is not transferred again"
	case errors.As(err, &connection) && connection.Op == "dial":
		return "look at the name and the port of the registry, and whether this machine reaches it"
	case errors.Is(err, image.ErrLimit):
		return "if the source can be trusted, allow more with --max-bytes, --max-entries or --max-ratio"
	case errors.Is(err, image.ErrDigest):
		return "fetch the source again: it is damaged, or not what it claims to be"
	case errors.Is(err, mount.ErrBusy):
		return "holdfastd mount ls shows what is mounted"
	case isFull(err):
		return c.nextOfFull()
	case errors.Is(err, syscall.EROFS) && c.aboutRoot(err):
		return "the file system is mounted read-only: mount it writable, or give another directory with --root"
	case errors.Is(err, snapshot.ErrUnsupported), errors.Is(err, errors.ErrUnsupported):
		return "holdfastd doctor says what this system can do"
	case errors.Is(err, syscall.ENOTDIR) && c.aboutRoot(err):
		return "a directory is needed there: give one with --root"
	case errors.Is(err, fs.ErrPermission):
		switch {
		case os.Geteuid() != 0 && c.cmd != nil && c.cmd.Name() == "mount":
			return "run the command as root, for example with sudo"
		case os.Geteuid() != 0:
			return "run the command as root, for example with sudo, or with --root in a directory of your own"
		}
	}
	return ""
}
