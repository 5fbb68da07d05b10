package ops

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os/exec"
)

// Serve runs operations read from in with do and writes their results to out,
// until in ends.
func Serve(in io.Reader, out io.Writer, do func(Op) Result) error {
	dec, enc := gob.NewDecoder(in), gob.NewEncoder(out)
	for {
		var op Op
		if err := dec.Decode(&op); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read operation: %w", err)
		}
		if err := enc.Encode(do(op)); err != nil {
			return fmt.Errorf("write result: %w", err)
		}
	}
}

// Remote runs operations in a process that serves them.
type Remote struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	enc *gob.Encoder
	dec *gob.Decoder
}

// Start starts the program at path, which has to call Serve on its standard
// input and output.
func Start(path string, stderr io.Writer) (*Remote, error) {
	cmd := exec.Command(path)
	cmd.Stderr = stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &Remote{cmd: cmd, in: in, enc: gob.NewEncoder(in), dec: gob.NewDecoder(out)}, nil
}

// Do runs op in the process. An error of the connection becomes the result's.
func (r *Remote) Do(op Op) (res Result) {
	if err := r.enc.Encode(op); err != nil {
		return Result{Err: fmt.Sprintf("panic: send operation: %v", err)}
	}
	if err := r.dec.Decode(&res); err != nil {
		return Result{Err: fmt.Sprintf("panic: receive result: %v", err)}
	}
	return res
}

// Stop ends the process.
func (r *Remote) Stop() error {
	if err := r.in.Close(); err != nil {
		return err
	}
	return r.cmd.Wait()
}
