//go:build unix

package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"holdfast/command/cli"
	"holdfast/worker/internal/remote"
)

// forward has the command run by the daemon that has the store. It does nothing, and returns false, if there is none.
func (c *call) forward() (done bool, err error) {
	root, err := c.absRoot()
	if err != nil {
		return false, nil // the command itself says it better
	}
	daemon, err := remote.Dial(filepath.Join(root, socketName))
	if err != nil {
		return false, nil // there is none, or one that was killed, or the store is not this user's: the command itself finds out
	}
	defer daemon.Close()
	var files handed
	defer func() { err = errors.Join(err, files.close()) }()
	stdin, err := files.input(c.cmd.InOrStdin())
	if err != nil {
		return true, err
	}
	stdout, err := files.output(c.cmd.OutOrStdout())
	if err != nil {
		return true, err
	}
	stderr, err := files.output(c.cmd.ErrOrStderr())
	if err != nil {
		return true, err
	}
	dir, err := os.Getwd()
	if err != nil {
		dir = "/proc/self/cwd" // it has no name any more
	}
	signals := make(chan os.Signal, 4)
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) || s == os.Interrupt && c.cmd.Name() == "mount" { // see heedInterrupt
			signal.Notify(signals, s)
		}
	}
	defer signal.Stop(signals)
	defer context.AfterFunc(c.ctx, func() {
		var by *cli.Interrupted
		if !errors.As(context.Cause(c.ctx), &by) { // a program that has the command in it; signals are told
			_ = daemon.Close()
		}
	})()
	code, err := daemon.Run(remote.Request{Version: version(), Args: c.commandLine(), Dir: dir}, stdin, stdout, stderr, signals)
	if errors.Is(err, remote.ErrEnded) {
		err = &nextError{err, "its log may say why; run the command again"}
	}
	if err != nil {
		return true, err
	}
	if code != ExitOK {
		return true, &exitError{code: code}
	}
	return true, nil
}

// isServed tells whether a daemon listens for commands for the store.
func (c *call) isServed() bool {
	root, err := c.absRoot()
	if err != nil {
		return false
	}
	daemon, err := remote.Dial(filepath.Join(root, socketName))
	if err != nil {
		return false
	}
	_ = daemon.Close()
	return true
}

// ask has the daemon run a command that prints JSON, and decodes that.
func (c *call) ask(v any, args ...string) (err error) {
	root, err := c.absRoot()
	if err != nil {
		return err
	}
	daemon, err := remote.Dial(filepath.Join(root, socketName))
	if err != nil {
		return err
	}
	defer daemon.Close()
	var out bytes.Buffer
	var files handed
	stdin, err := files.input(strings.NewReader(""))
	if err != nil {
		return err
	}
	stdout, err := files.output(&out)
	if err != nil {
		return errors.Join(err, files.close())
	}
	stderr, err := files.output(io.Discard)
	if err == nil {
		_, err = daemon.Run(remote.Request{Version: version(), Args: args}, stdin, stdout, stderr, nil)
	}
	if err = errors.Join(err, files.close()); err != nil {
		return err
	}
	return json.Unmarshal(out.Bytes(), v)
}

// handed are descriptors for another process, of readers and writers that need not be files.
type handed struct {
	ends   []*os.File // of pipes, which the other process has too
	copies []chan error
}

func (h *handed) input(r io.Reader) (*os.File, error) {
	if f, ok := r.(*os.File); ok {
		return f, nil
	}
	in, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	h.ends = append(h.ends, in)
	go func() { // until r or the command ends: a command that reads no input does not wait for r
		_, _ = io.Copy(out, r)
		_ = out.Close()
	}()
	return in, nil
}

func (h *handed) output(w io.Writer) (*os.File, error) {
	if f, ok := w.(*os.File); ok {
		return f, nil
	}
	in, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	copied := make(chan error, 1)
	h.ends, h.copies = append(h.ends, out), append(h.copies, copied)
	go func() {
		_, err := io.Copy(struct{ io.Writer }{w}, in) // by Write, as without a daemon
		copied <- errors.Join(err, in.Close())
	}()
	return out, nil
}

// close returns when all that was written has been handed on.
func (h *handed) close() (err error) {
	for _, f := range h.ends {
		err = errors.Join(err, f.Close())
	}
	for _, copied := range h.copies {
		err = errors.Join(err, <-copied)
	}
	return err
}

// ofStoreFlags are the flags of which the daemon has its own.
var ofStoreFlags = map[string]bool{"root": true, "run": true, "wait": true}

// commandLine is the command as it was given, without what only says which store it is for.
func (c *call) commandLine() (args []string) {
	for cmd := c.cmd; cmd.HasParent(); cmd = cmd.Parent() {
		args = append([]string{cmd.Name()}, args...)
	}
	c.cmd.Flags().Visit(func(f *pflag.Flag) {
		if ofStoreFlags[f.Name] && c.cmd.LocalNonPersistentFlags().Lookup(f.Name) == nil {
			return
		}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			for _, v := range list.GetSlice() {
				args = append(args, "--"+f.Name+"="+v)
			}
			return
		}
		args = append(args, "--"+f.Name+"="+f.Value.String())
	})
	return append(append(args, "--"), c.args...)
}
