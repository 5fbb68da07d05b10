package command

import "holdfast/command"

// Errors of page, dump and bench. They are returned bare.
var (
	// ErrInvalidPageArgs is returned when page gets both page numbers and --all.
	ErrInvalidPageArgs = command.ErrInvalidPageArgs
	// ErrPageIDRequired is returned when there is no page number.
	ErrPageIDRequired = command.ErrPageIDRequired
	// ErrBatchInvalidWriteMode is returned when bench has no such write mode.
	ErrBatchInvalidWriteMode = command.ErrBatchInvalidWriteMode
	// ErrBatchNonDivisibleBatchSize is returned when the keys of bench cannot be divided by
	// the batch size.
	ErrBatchNonDivisibleBatchSize = command.ErrBatchNonDivisibleBatchSize
)
