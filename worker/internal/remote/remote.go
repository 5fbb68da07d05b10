// Package remote has a command run by another process on the same machine, with the standard input, output and error of this one: the
// descriptors are handed over, so that a terminal stays a terminal and a slow reader is slow only for its own command.
//
// A connection is one command. The caller sends a line of JSON, the Request, with the three descriptors attached to it; then a byte for
// each signal that it got. The answer is a line of JSON, the exit code. Either side ends the command by closing the connection.
package remote

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
)

// MaxRequest is how many bytes a Request may have.
const MaxRequest = 1 << 20

// Request is what is to be run.
type Request struct {
	Version string            `json:"version"` // of the caller's program
	Args    []string          `json:"args"`
	Dir     string            `json:"dir"` // working directory, to which paths are relative
	Env     map[string]string `json:"env"` // what output depends on: NO_COLOR, TERM, LANG ...
}

// answer ends a command.
type answer struct {
	Code  int    `json:"code"`
	Error string `json:"error,omitempty"` // the command was not run
}

// ErrRefused is of a command that the other process did not run. It says why.
var ErrRefused = errors.New("refused")

// errBusy is what one more than MaxCommands is told.
var errBusy = errors.New("too many commands at once; try again")

func encode(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err == nil && len(b) >= MaxRequest {
		err = fmt.Errorf("a command line of %d bytes, %d are possible", len(b), MaxRequest)
	}
	return append(b, '\n'), err
}

// closeAll closes what was handed over.
func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}
