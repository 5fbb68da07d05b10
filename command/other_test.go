//go:build !unix

package command_test

import "io"

var epipe = io.ErrClosedPipe
