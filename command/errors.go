package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"holdfast"
	"holdfast/command/cli"
	"holdfast/internal/salvage"
)

// ErrDamaged is returned by check when it has found damage.
var ErrDamaged = errors.New("invalid value")

// ErrSurgeryFreelistAlreadyExist is returned, as it is, by surgery freelist rebuild when
// the file has a freelist page.
var ErrSurgeryFreelistAlreadyExist = errors.New("the file has a freelist page already; surgery freelist abandon makes a copy without it, which can be given to rebuild")

// usageError is an error of the command line.
type usageError = cli.UsageError

func usagef(format string, args ...any) error { return cli.Usagef(format, args...) }

func isUsage(err error) bool {
	return cli.IsUsage(err) || errors.Is(err, ErrInvalidPageArgs) || errors.Is(err, ErrPageIDRequired) ||
		errors.Is(err, ErrBatchInvalidWriteMode) || errors.Is(err, ErrBatchNonDivisibleBatchSize)
}

// ExitCode is the exit code that tells err.
func ExitCode(err error) int {
	var trouble *troubleError
	var interrupted *cli.Interrupted
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &interrupted):
		return interrupted.Code()
	case errors.Is(err, context.Canceled):
		return ExitInterrupted
	case errors.Is(err, ErrDifferent):
		return ExitDifferent
	case errors.As(err, &trouble):
		return ExitTrouble
	case isUsage(err):
		return ExitUsage
	case errors.Is(err, ErrDamaged):
		return ExitDamaged
	}
	return ExitFailed
}

// errSilent ends a command that has nothing to say of its error.
var errSilent = errors.New("ended")

// failureOf is err as it is printed.
func failureOf(err error) cli.Failure {
	f := cli.Failure{Message: err.Error(), ExitCode: ExitCode(err), Kind: cli.KindFailed}
	var file *fileError
	var failed *checkFailure
	var interrupted *cli.Interrupted
	switch {
	case errors.As(err, &interrupted), errors.Is(err, context.Canceled):
		f.Kind = cli.KindInterrupted
	case isUsage(err):
		f.Kind = cli.KindUsage
	case isDamage(err), errors.Is(err, ErrDamaged):
		f.Kind = cli.KindDamaged
	}
	if errors.As(err, &file) {
		f.File, f.Next = file.file, file.next
	} else if errors.As(err, &failed) {
		f.File = failed.file
	}
	return f
}

// outputError is an error of writing to standard output.
type outputError = cli.OutputError

// withMade adds to an error of writing to standard output that what the command was to do is done.
func (c *call) withMade(err error) error {
	var output *outputError
	if c.made == "" || !errors.As(err, &output) {
		return err
	}
	return &madeError{file: c.made, err: err}
}

// madeError is an error of a command that has done to the file what it was to do.
type madeError struct {
	file string
	err  error
}

func (e *madeError) Error() string {
	return fmt.Sprintf("%s; %s is written all the same", e.err, e.file)
}
func (e *madeError) Unwrap() error { return e.err }

// fileError is what went wrong with a file, and what to do about it.
type fileError struct {
	file string
	what string
	next string // the next step; "" if there is none to give
	err  error
}

func (e *fileError) Error() string {
	s := cli.OneLine(e.file) + ": " + e.what
	if e.next != "" {
		s += "; " + e.next
	}
	return s
}

func (e *fileError) Unwrap() error { return e.err }

// checkFailure is the error of a check that found damage.
type checkFailure struct {
	file    string
	faults  int
	command string // its name
}

func (e *checkFailure) Error() string {
	return fmt.Sprintf("%s: damaged (%s); keep a copy of the file as it is before anything writes to it again; what it still holds saves: %s salvage -o OUT %s (docs/recovering.md)",
		e.file, plural(e.faults, "fault"), e.command, shellQuote(e.file))
}

func (e *checkFailure) Unwrap() error { return ErrDamaged }

// isClosedPipe tells whether err is that the output has no reader any more.
func isClosedPipe(err error) bool { return cli.IsClosedPipe(err) }

// errDamage is wrapped by errors of damage that only the command sees.
var errDamage = errors.New("not what a database can hold")

// isDamage tells whether err says that a database is damaged, as opposed to
// the file not being one.
func isDamage(err error) bool {
	var corrupt *holdfast.CorruptError
	return errors.As(err, &corrupt) || errors.Is(err, holdfast.ErrChecksum) || errors.Is(err, errDamage)
}

// explain names the file in an error of opening or using it, and says the next
// step where it is known. Errors that name it already pass.
func (a *app) explain(file string, err error) error {
	if err == nil || isClosedPipe(err) {
		return err
	}
	var known *fileError
	var usage *usageError
	var output *outputError
	if errors.As(err, &known) || errors.As(err, &usage) || errors.As(err, &output) || errors.Is(err, ErrDamaged) {
		return err
	}
	e := &fileError{file: file, what: a.plain(err), err: err}
	switch {
	case errors.Is(err, holdfast.ErrTimeout):
		e.what = fmt.Sprintf("locked by another process for longer than %s%s", a.timeout, holders(file))
		e.next = "stop that program, or wait longer with --timeout (a copy of a file in use is whole only if the program itself makes it, or a snapshot of the disk)"
	case errors.Is(err, holdfast.ErrVersionMismatch):
		e.what = "a bbolt database of another format version than 2"
		if err.Error() != holdfast.ErrVersionMismatch.Error() { // of Holdfast's part of it
			e.what = a.plain(err)
		}
		e.next = "use the version of the program that wrote it"
	case errors.Is(err, holdfast.ErrInvalid) && err.Error() == holdfast.ErrInvalid.Error() && !a.stock && a.holdsPages(file):
		e.err = fmt.Errorf("%w: %w", errMetasGone, err)
		e.what = "damaged: " + errMetasGone.Reason
		e.next = "restore a copy of it, or save what it still holds: " + a.salvageLine(file)
	case errors.Is(err, holdfast.ErrInvalid):
		e.what = "not a bbolt database"
		if err.Error() != holdfast.ErrInvalid.Error() {
			e.what = fmt.Sprintf("not a bbolt database (%s)", err)
		}
		e.next = "if it held one, restore a copy of it, or save what is left of it: " + a.salvageLine(file)
	case errors.Is(err, holdfast.ErrChecksum):
		e.what = "damaged: neither of its two meta pages is whole"
		e.next = "restore a copy of it, or save what it still holds: " + a.salvageLine(file)
	case isDamage(err):
		e.what = "damaged: " + a.plain(err)
		e.next = fmt.Sprintf("run: %s check %s", a.name(), shellQuote(file))
	case errors.Is(err, syscall.EROFS):
		e.what = "on a file system that is mounted read-only"
		e.next = "work on a copy of the file elsewhere"
	case errors.Is(err, fs.ErrPermission):
		e.what = "no permission to open it" + owner(file)
		if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) {
			dir := filepath.Dir(file)
			e.what = "no permission to make it in the directory " + cli.OneLine(dir) + owner(dir)
		}
		e.next = "run the command as a user who may, for example with sudo"
	case errors.Is(err, syscall.ENOSPC):
		e.what = "no space left on its disk"
		e.next = "free some space on that disk and try again"
	}
	return e
}

// errMetasGone is the damage of a file that no program takes for a database any more.
var errMetasGone = &holdfast.CorruptError{Page: 0, Reason: "neither of its two meta pages is one any more, but pages of a database are in it"}

// holdsPages tells whether pages of a database are in a file that is none for an opening.
func (a *app) holdsPages(file string) bool {
	if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() {
		return false // which may wait for a writer
	}
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	info, err := f.Stat()
	return err == nil && salvage.Holds(context.Background(), f, info.Size())
}

// salvageLine is what saves what a file still holds, for messages.
func (a *app) salvageLine(file string) string {
	return fmt.Sprintf("%s salvage -o OUT %s (docs/recovering.md)", a.name(), shellQuote(file))
}

// plain is the text of err without the file's name.
func (a *app) plain(err error) string {
	var corrupt *holdfast.CorruptError
	if errors.As(err, &corrupt) {
		return corrupt.Error()
	}
	var path *os.PathError
	if errors.As(err, &path) {
		return fmt.Sprintf("%s: %s", path.Op, path.Err)
	}
	return err.Error()
}

// name is the name of the command, for messages.
func (a *app) name() string {
	if a.stock {
		return "bbolt"
	}
	return "holdfast"
}
