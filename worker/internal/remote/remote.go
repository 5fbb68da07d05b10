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

// MaxRequest is how many bytes a Request may have as it is sent: Linux allows arguments of 2 MiB unless it is told more.
const MaxRequest = 4 << 20

// Request is what is to be run.
type Request struct {
	Version string // of the caller's program
	Args    []string
	Dir     string // working directory, to which paths are relative
}

// wireRequest is a Request as it is sent: JSON has no strings but of Unicode, and arguments and paths can be of any bytes.
type wireRequest struct {
	Version string   `json:"version"`
	Args    [][]byte `json:"args"`
	Dir     []byte   `json:"dir"`
}

// MarshalJSON has all bytes of arguments and paths.
func (r Request) MarshalJSON() ([]byte, error) {
	w := wireRequest{Version: r.Version, Args: make([][]byte, len(r.Args)), Dir: []byte(r.Dir)}
	for i, arg := range r.Args {
		w.Args[i] = []byte(arg)
	}
	return json.Marshal(w)
}

// UnmarshalJSON reads what MarshalJSON has written.
func (r *Request) UnmarshalJSON(b []byte) error {
	var w wireRequest
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	*r = Request{Version: w.Version, Args: make([]string, len(w.Args)), Dir: string(w.Dir)}
	for i, arg := range w.Args {
		r.Args[i] = string(arg)
	}
	return nil
}

// answer ends a command.
type answer struct {
	Code  int    `json:"code"`
	Error string `json:"error,omitempty"` // the command was not run
}

// ErrEnded is of a command whose other process has ended before it had.
var ErrEnded = errors.New("the daemon that ran the command has ended")

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
