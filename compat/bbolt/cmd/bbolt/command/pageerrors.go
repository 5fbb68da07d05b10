package command

import "holdfast/command"

// Errors of the commands that look at pages. They are returned bare.
var (
	// ErrInvalidPageArgs is returned when page gets both page numbers and --all.
	ErrInvalidPageArgs = command.ErrInvalidPageArgs
	// ErrPageIDRequired is returned when there is no page number.
	ErrPageIDRequired = command.ErrPageIDRequired
)
