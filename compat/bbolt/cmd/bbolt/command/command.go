// Package command is the bbolt command for programs that offer it under a command of
// their own: holdfast/command with bbolt's names.
package command

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/command"
)

// Errors of commands, which return those that are package holdfast/command's as they are.
// The others are here because bbolt has them, and nothing returns them.
var (
	ErrBatchInvalidWriteMode       = command.ErrBatchInvalidWriteMode
	ErrBatchNonDivisibleBatchSize  = command.ErrBatchNonDivisibleBatchSize
	ErrInvalidPageArgs             = command.ErrInvalidPageArgs
	ErrPageIDRequired              = command.ErrPageIDRequired
	ErrSurgeryFreelistAlreadyExist = command.ErrSurgeryFreelistAlreadyExist

	ErrBucketRequired = errors.New("bucket required")
	ErrInvalidValue   = errors.New("invalid value")
	ErrKeyNotFound    = errors.New("key not found")
	ErrPathRequired   = errors.New("path required")
)

// FORMAT_MODES are the formats in which keys and values can be printed.
const FORMAT_MODES = "auto|ascii-encoded|hex|bytes|redacted"

// PageError is an error with the page at which it was met.
type PageError struct {
	ID  int
	Err error
}

func (e *PageError) Error() string { return fmt.Sprintf("page %d: %s", e.ID, e.Err) }
func (e *PageError) Unwrap() error { return e.Err }

// NewRootCommand makes the bbolt command with all that is below it.
func NewRootCommand() *cobra.Command { return command.NewBboltCommand() }

// CmdKvStringer writes keys and values as text where they can be printed, and in
// hexadecimal elsewhere.
func CmdKvStringer() holdfast.KVStringer { return command.KVStringer() }
