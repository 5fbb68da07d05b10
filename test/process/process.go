//go:build unix

// Package process starts programs that tests talk to, waits until they serve, and ends them as a crash or an operator does.
package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// A Process is a program and what it needs to be started, again and again. Its methods are for one goroutine; it ends when the program
// that started it does, where the system can do that.
type Process struct {
	Binary string
	Args   []string
	Env    []string // besides that of this program
	Log    string   // the file to which is added what it prints

	Prepare func(*exec.Cmd) // changes how it starts, unless it is nil

	cmd    *exec.Cmd
	from   int64         // where the log of this start begins
	exited chan struct{} // closed when it has ended
}

// Start starts the program, which need not serve when Start returns.
func (p *Process) Start() error {
	log, err := os.OpenFile(p.Log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	if p.from, err = log.Seek(0, io.SeekEnd); err != nil {
		return err
	}
	cmd := exec.Command(p.Binary, p.Args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), p.Env...)
	cmd.SysProcAttr = dieWithParent()
	if p.Prepare != nil {
		p.Prepare(cmd)
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	p.cmd, p.exited = cmd, exited
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	return nil
}

// ErrEnded is wrapped by Await's error when the program has ended.
var ErrEnded = errors.New("has ended")

// Await waits until ready returns nil, the program ends, or ctx does.
func (p *Process) Await(ctx context.Context, ready func() error) error {
	for {
		err := ready()
		switch {
		case err == nil:
			return nil
		case !p.Running():
			return fmt.Errorf("%s %w: %s; its log is %s", p.name(), ErrEnded, p.LastWords(), p.Log)
		case ctx.Err() != nil:
			return fmt.Errorf("%s does not serve: %w: %w; its log is %s", p.name(), ctx.Err(), err, p.Log)
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (p *Process) name() string { return filepath.Base(p.Binary) }

// Running tells whether it was started and has not ended.
func (p *Process) Running() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// LastWords is what it said in its log of its end since it was started: the line of an error or a panic, or else the last line.
func (p *Process) LastWords() string {
	b, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	last := ""
	for line := range strings.Lines(string(b[min(p.from, int64(len(b))):])) {
		if strings.HasPrefix(line, p.name()+": ") || strings.HasPrefix(line, "panic: ") {
			return strings.TrimSpace(line)
		}
		if strings.TrimSpace(line) != "" {
			last = line
		}
	}
	return strings.TrimSpace(last)
}

// Kill ends it as a crash does.
func (p *Process) Kill() { p.end(syscall.SIGKILL) }

// Stop ends it as an operator does.
func (p *Process) Stop() { p.end(syscall.SIGTERM) }

// Pause stops it for a while, as a machine that hangs does.
func (p *Process) Pause(d time.Duration) {
	_ = p.cmd.Process.Signal(syscall.SIGSTOP)
	time.Sleep(d)
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
}

// end waits until it has ended. One that ignores the signal is killed.
func (p *Process) end(signal syscall.Signal) {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Signal(signal)
	select {
	case <-p.exited:
	case <-time.After(30 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
	p.cmd = nil
}
