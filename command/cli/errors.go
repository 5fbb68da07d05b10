package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"holdfast"
	"holdfast/internal/salvage"
)

// ErrDamaged is returned by check when it has found damage.
var ErrDamaged = errors.New("invalid value")

// ErrSurgeryFreelistAlreadyExist is returned, as it is, by surgery freelist rebuild when
// the file has a freelist page.
var ErrSurgeryFreelistAlreadyExist = errors.New("the file has a freelist page already; surgery freelist abandon makes a copy without it, which can be given to rebuild")

// ExitCode is the exit code that tells err.
func ExitCode(err error) int {
	var trouble *troubleError
	var interrupted *Interrupted
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
	case IsUsage(err):
		return ExitUsage
	case errors.Is(err, ErrDamaged):
		return ExitDamaged
	}
	return ExitFailed
}

// ErrSilent ends a command that has nothing to say of its error.
var ErrSilent = errors.New("ended")

// FailureOf is err as it is printed.
func FailureOf(err error) Failure {
	f := Failure{Message: err.Error(), ExitCode: ExitCode(err), Kind: KindFailed}
	var file *FileError
	var failed *CheckFailure
	var interrupted *Interrupted
	switch {
	case errors.As(err, &interrupted), errors.Is(err, context.Canceled):
		f.Kind = KindInterrupted
	case IsUsage(err):
		f.Kind = KindUsage
	case IsDamage(err), errors.Is(err, ErrDamaged):
		f.Kind = KindDamaged
	}
	if errors.As(err, &file) {
		f.File, f.Next = file.File, file.Next
	} else if errors.As(err, &failed) {
		f.File = failed.File
	}
	return f
}

// outputError is an error of writing to standard output.
type outputError = OutputError

// withMade adds to an error of writing to standard output that what the command was to do is done.
func (c *Call) withMade(err error) error {
	var output *outputError
	if c.Made == "" || !errors.As(err, &output) {
		return err
	}
	return &madeError{file: c.Made, err: err}
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

// FileError is what went wrong with a file, and what to do about it.
type FileError struct {
	File string
	What string
	Next string // the next step; "" if there is none to give
	Err  error
}

func (e *FileError) Error() string {
	s := OneLine(e.File) + ": " + e.What
	if e.Next != "" {
		s += "; " + e.Next
	}
	return s
}

func (e *FileError) Unwrap() error { return e.Err }

// CheckFailure is the error of a check that found damage.
type CheckFailure struct {
	File    string
	Faults  int
	Command string // its name
}

func (e *CheckFailure) Error() string {
	return fmt.Sprintf("%s: damaged (%s); keep a copy of the file as it is before anything writes to it again; what it still holds saves: %s salvage -o OUT %s (docs/recovering.md)",
		e.File, Plural(e.Faults, "fault"), e.Command, ShellWord(e.File))
}

func (e *CheckFailure) Unwrap() error { return ErrDamaged }

// ErrDamage is wrapped by errors of damage that only the command sees.
var ErrDamage = errors.New("not what a database can hold")

// IsDamage tells whether err says that a database is damaged, as opposed to
// the file not being one.
func IsDamage(err error) bool {
	var corrupt *holdfast.CorruptError
	return errors.As(err, &corrupt) || errors.Is(err, holdfast.ErrChecksum) || errors.Is(err, ErrDamage)
}

// lostNext is the next step after the loss of the process or the slot through which a file was read.
const lostNext = "run the command again; nothing that it printed of this file is to be trusted"

// Explain names the file in an error of opening or using it, and says the next
// step where it is known. Errors that name it already pass.
func (a *App) Explain(file string, err error) error {
	if err == nil || IsClosedPipe(err) {
		return err
	}
	var known *FileError
	var usage *UsageError
	var output *outputError
	if errors.As(err, &known) || errors.As(err, &usage) || errors.As(err, &output) || errors.Is(err, ErrDamaged) {
		return err
	}
	e := &FileError{File: file, What: a.Plain(err), Err: err}
	switch {
	case errors.Is(err, holdfast.ErrTimeout):
		e.What = fmt.Sprintf("locked by another process for longer than %s%s", a.Timeout, holders(file))
		e.Next = "stop that program, or wait longer with --timeout (a copy of a file in use is whole only if the program itself makes it, or a snapshot of the disk)"
	case errors.Is(err, holdfast.ErrTooManyReaders):
		e.Next = fmt.Sprintf("see who they are: %s readers %s", a.Name(), ShellWord(file))
	case errors.Is(err, holdfast.ErrNotShared):
		e.What = "the program that had it open, and through which it was to be read, has closed it, or has ended"
		e.Next = "run the command again"
	case errors.Is(err, holdfast.ErrReaderEnded):
		e.What = "the reader was ended from outside, as by holdfast readers --end"
		e.Next = lostNext
	case IsOwnerLost(err):
		e.Next = lostNext
	case errors.Is(err, holdfast.ErrVersionMismatch):
		e.What = "a bbolt database of another format version than 2"
		if err.Error() != holdfast.ErrVersionMismatch.Error() { // of Holdfast's part of it
			e.What = a.Plain(err)
		}
		e.Next = "use the version of the program that wrote it"
	case errors.Is(err, holdfast.ErrInvalid) && err.Error() == holdfast.ErrInvalid.Error() && !a.Stock && a.HoldsPages(file):
		e.Err = fmt.Errorf("%w: %w", errMetasGone, err)
		e.What = "damaged: " + errMetasGone.Reason
		e.Next = "restore a copy of it, or save what it still holds: " + a.salvageLine(file)
	case errors.Is(err, holdfast.ErrInvalid):
		e.What = "not a bbolt database"
		if err.Error() != holdfast.ErrInvalid.Error() {
			e.What = fmt.Sprintf("not a bbolt database (%s)", err)
		}
		e.Next = "if it held one, restore a copy of it, or save what is left of it: " + a.salvageLine(file)
	case errors.Is(err, holdfast.ErrChecksum):
		e.What = "damaged: neither of its two meta pages is whole"
		e.Next = "restore a copy of it, or save what it still holds: " + a.salvageLine(file)
	case IsDamage(err):
		e.What = "damaged: " + a.Plain(err)
		e.Next = fmt.Sprintf("run: %s check %s", a.Name(), ShellWord(file))
	case errors.Is(err, syscall.EROFS):
		e.What = "on a file system that is mounted read-only"
		e.Next = "work on a copy of the file elsewhere"
	case errors.Is(err, fs.ErrPermission):
		e.What = "no permission to open it" + owner(file)
		if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) {
			dir := filepath.Dir(file)
			e.What = "no permission to make it in the directory " + OneLine(dir) + owner(dir)
		}
		e.Next = "run the command as a user who may, for example with sudo"
	case errors.Is(err, syscall.ENOSPC):
		e.What = "no space left on its disk"
		e.Next = "free some space on that disk and try again"
	}
	return e
}

// IsOwnerLost tells whether err says that a database can be read no more, or not yet, through the program that has it open.
func IsOwnerLost(err error) bool {
	for _, e := range []error{holdfast.ErrNotShared, holdfast.ErrOwnerGone, holdfast.ErrReaderEnded, holdfast.ErrStopped, holdfast.ErrTooManyReaders} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// errMetasGone is the damage of a file that no program takes for a database any more.
var errMetasGone = &holdfast.CorruptError{Page: 0, Reason: "neither of its two meta pages is one any more, but pages of a database are in it"}

// HoldsPages tells whether pages of a database are in a file that is none for an opening.
func (a *App) HoldsPages(file string) bool {
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
func (a *App) salvageLine(file string) string {
	return fmt.Sprintf("%s salvage -o OUT %s (docs/recovering.md)", a.Name(), ShellWord(file))
}

// Plain is the text of err without the file's name.
func (a *App) Plain(err error) string {
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

// Name is the name of the command, for messages.
func (a *App) Name() string {
	if a.Stock {
		return "bbolt"
	}
	return "holdfast"
}

// Errors of naming pages. They are returned as they are.
var (
	// ErrInvalidPageArgs is returned when page gets both page numbers and --all.
	ErrInvalidPageArgs = Usagef("page numbers and --all exclude each other")
	// ErrPageIDRequired is returned when there is no page number.
	ErrPageIDRequired = Usagef("page id required")
)

// Errors of the flags of bench. They are returned as they are.
var (
	// ErrBatchInvalidWriteMode is returned when there is no such write mode.
	ErrBatchInvalidWriteMode = Usagef("there is no such write mode; there are seq, rnd, seq-nest and rnd-nest")
	// ErrBatchNonDivisibleBatchSize is returned when the last transaction would be smaller
	// than the others.
	ErrBatchNonDivisibleBatchSize = Usagef("the number of keys is not a multiple of --batch-size")
)
