package blobcmd

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"holdfast"
	"holdfast/blob"
	"holdfast/blob/exchange"
	"holdfast/command/cli"
)

// peer is the store with which blobs are exchanged: in a file, or of a command that serves one.
type peer struct {
	flags *exchangeFlags
	file  string
	path  [][]byte
	db    *cli.Database // nil: it is a command's
}

// storeOf is a function that opens the store in the bucket at path.
func storeOf(c *cli.Call, file string, path [][]byte) exchange.Open {
	return func(tx *holdfast.Tx) (*blob.Store, error) { return store(c.App, file, tx, path) }
}

// failedDelay is for how long a command is waited for with which the exchange has failed.
const failedDelay = 3 * time.Second

// connect begins what serves the peer's store. end ends it, with its error; nothing may use the connection then.
func (p *peer) connect(ctx context.Context, c *cli.Call) (conn io.ReadWriteCloser, end func(failed bool) error, err error) {
	if p.db != nil {
		here, there := net.Pipe()
		served := make(chan error, 1)
		go func() {
			served <- exchange.Serve(ctx, there, p.db.DB, storeOf(c, p.file, p.path), exchange.Options{Verify: p.flags.verify})
			_ = there.Close() // a pipe in memory
		}()
		return here, func(bool) error { _ = here.Close(); return <-served }, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		if err != nil {
			cancel()
		}
	}()
	cmd := shell(ctx, p.flags.exec)
	cmd.Stderr = c.Cmd.ErrOrStderr()
	cmd.WaitDelay = 5 * time.Second // for what it has begun, and has its output
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, nil, &cli.FileError{File: p.flags.exec, What: "cannot be run: " + err.Error(), Err: err}
	}
	pipes := &pipes{out, in}
	return pipes, func(failed bool) error {
		defer cancel()
		_ = pipes.Close() // it has been closed if there was an error
		if failed {
			defer time.AfterFunc(failedDelay, cancel).Stop()
		}
		return cmd.Wait()
	}, nil
}

// shell runs a command line.
func shell(ctx context.Context, line string) *exec.Cmd {
	if runtime.GOOS == "windows" {
		return exec.CommandContext(ctx, "cmd", "/C", line)
	}
	return exec.CommandContext(ctx, "sh", "-c", line)
}

// pipes are the output and the input of a process.
type pipes struct {
	io.ReadCloser
	in io.WriteCloser
}

func (p *pipes) Write(b []byte) (int, error) { return p.in.Write(b) }

// Close closes both. It ends what reads and writes.
func (p *pipes) Close() error { return errors.Join(p.in.Close(), p.ReadCloser.Close()) }

// errEnded is of a command that has ended too soon.
var errEnded = errors.New("the command that serves the other store has ended")

// explain says what went wrong in an exchange, and what to do.
func (x *exchanger) explain(ctx context.Context, err, peerErr error) error {
	if err == nil {
		return nil
	}
	var known *cli.FileError
	again := "what has arrived is kept; the same command goes on from there"
	switch {
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return &cli.FileError{File: x.file, What: "interrupted", Next: again, Err: err}
	case errors.Is(err, exchange.ErrDifferentStores):
		return &cli.FileError{File: x.file, What: exchange.ErrDifferentStores.Error() + ": " + cli.BriefPath(x.path) + " and the other one", Err: err,
			Next: "see them with blob stat; put what blob cat writes into the other store, or receive into a new store (--create)"}
	case errors.Is(err, exchange.ErrDifferentKeys):
		return &cli.FileError{File: x.file, What: exchange.ErrDifferentKeys.Error() + ": " + cli.BriefPath(x.path) + " and the other one", Err: err,
			Next: "put what blob cat writes into the other store, or receive into a new one that has the same key"}
	case errors.As(err, &known) && !isBrokenPipe(err):
		return err
	case x.peer.db != nil && peerErr != nil && !errors.Is(peerErr, exchange.ErrPeer) && !errors.Is(peerErr, io.EOF) && !errors.Is(peerErr, io.ErrClosedPipe):
		return explainBlob(x.Call, x.peer.file, peerErr)
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, os.ErrClosed) || isBrokenPipe(err):
		what := errEnded.Error()
		if peerErr != nil {
			what += ": " + peerErr.Error()
		}
		// A broken pipe is not in it: that would be one of standard output, which is no error.
		return &cli.FileError{File: x.file, What: what, Next: again, Err: errEnded}
	case errors.Is(err, exchange.ErrProtocol):
		return &cli.FileError{File: x.file, What: err.Error(), Err: err,
			Next: "give to --exec what runs \"blob serve\" of the same version, and writes nothing else to its output"}
	}
	if err = explainBlob(x.Call, x.file, err); errors.As(err, &known) { // of several blobs
		known.What = strings.ReplaceAll(known.What, "\n", "; ")
	}
	return err
}
