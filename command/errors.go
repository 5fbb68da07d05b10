package command

import (
	"holdfast"
	"holdfast/command/cli"
)

// Exit codes of the commands.
const (
	ExitOK          = cli.ExitOK
	ExitFailed      = cli.ExitFailed
	ExitUsage       = cli.ExitUsage
	ExitDamaged     = cli.ExitDamaged
	ExitDifferent   = cli.ExitDifferent
	ExitTrouble     = cli.ExitTrouble
	ExitInterrupted = cli.ExitInterrupted
)

// Errors that commands return as they are.
var (
	ErrDamaged                     = cli.ErrDamaged
	ErrDifferent                   = cli.ErrDifferent
	ErrInvalidPageArgs             = cli.ErrInvalidPageArgs
	ErrPageIDRequired              = cli.ErrPageIDRequired
	ErrBatchInvalidWriteMode       = cli.ErrBatchInvalidWriteMode
	ErrBatchNonDivisibleBatchSize  = cli.ErrBatchNonDivisibleBatchSize
	ErrSurgeryFreelistAlreadyExist = cli.ErrSurgeryFreelistAlreadyExist
)

// ExitCode is the exit code that tells err.
func ExitCode(err error) int { return cli.ExitCode(err) }

// KVStringer writes keys and values as text if they can be printed, and in hexadecimal otherwise.
func KVStringer() holdfast.KVStringer { return cli.KVStringer() }
