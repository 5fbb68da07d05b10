package vm

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Config says what a machine is made of and what it does.
type Config struct {
	Kernel *Kernel
	// Modules are inserted, in this order, after those that they need. (Those of
	// virtual disks always are.)
	Modules []string
	// Programs are those of the host, found in its PATH, that the machine has too.
	Programs []string
	// Files are put into the machine, by their names there; values are names of files here.
	Files map[string]string
	// Disks are files that the machine sees as /dev/vda, /dev/vdb and so on.
	Disks []string
	// Command is the shell script that it runs.
	Command string
	// MemoryMiB is 384 unless it is set.
	MemoryMiB int
	// Limit is how long the machine may run at most; 0: two minutes.
	Limit time.Duration
	// Dir is a directory for the machine's own files. It must be there.
	Dir string
}

// What a machine says besides what its command says.
const (
	saysReady = "machine: ready"
	saysExit  = "machine: exit "
)

// Machine is a virtual machine that runs.
type Machine struct {
	cmd     *exec.Cmd
	out     io.ReadCloser
	lines   *bufio.Scanner
	console string // file of the kernel's messages
	limit   time.Duration
	cancel  context.CancelFunc
	ctx     context.Context
	begun   time.Time
	ready   time.Duration // how long it took to boot
	cut     atomic.Bool
	exit    int // of the command; -1 before that is known
	read    chan struct{}
	ended   chan error
}

// Start starts a machine. Its command's lines are then to be read with Line, until
// there are no more, and Wait to be called.
func Start(ctx context.Context, c Config) (*Machine, error) {
	if c.Limit == 0 {
		c.Limit = 2 * time.Minute
	}
	if c.MemoryMiB == 0 {
		c.MemoryMiB = 384
	}
	initramfs := filepath.Join(c.Dir, "initramfs")
	if err := c.writeInitramfs(initramfs); err != nil {
		return nil, err
	}
	m := &Machine{console: filepath.Join(c.Dir, "console"), limit: c.Limit, exit: -1,
		read: make(chan struct{}), ended: make(chan error, 1)}
	m.ctx, m.cancel = context.WithTimeout(ctx, c.Limit)
	args := []string{
		"-accel", "tcg", "-cpu", "max", "-smp", "1", "-m", strconv.Itoa(c.MemoryMiB),
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-kernel", c.Kernel.image, "-initrd", initramfs,
		// A panic ends the machine. no_timer_check: the timer may be late on a busy host.
		"-append", "console=ttyS0 loglevel=5 panic=-1 mitigations=off random.trust_cpu=on tsc=reliable no_timer_check",
		"-serial", "file:" + m.console, "-serial", "stdio",
	}
	for _, disk := range c.Disks {
		// unsafe: QEMU writes to the host's page cache before it answers the guest, and
		// does not have the host flush it. The host lives on when QEMU is killed.
		args = append(args, "-drive", "if=virtio,format=raw,cache=unsafe,discard=unmap,file="+disk)
	}
	m.cmd = exec.CommandContext(m.ctx, qemu, args...)
	m.cmd.WaitDelay = 10 * time.Second
	m.cmd.Stderr = os.Stderr
	m.cmd.SysProcAttr = endsWithParent()
	var err error
	if m.out, err = m.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	in, err := m.cmd.StdinPipe() // which stays open: the command may read from it
	if err != nil {
		return nil, err
	}
	if err := m.start(); err != nil {
		return nil, errors.Join(err, in.Close())
	}
	m.lines = bufio.NewScanner(m.out)
	m.lines.Buffer(nil, 1<<20)
	m.lines.Split(wholeLines)
	return m, nil
}

// start starts QEMU on a thread of its own, which lives as long: the system kills
// QEMU when the thread ends that has started it, and so when this process does.
func (m *Machine) start() error {
	m.begun = time.Now()
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := m.cmd.Start()
		started <- err
		if err == nil {
			<-m.read
			m.ended <- m.cmd.Wait()
		}
	}()
	return <-started
}

// wholeLines splits off lines that have an end. What was said when the power went is dropped.
func wholeLines(data []byte, _ bool) (advance int, token []byte, err error) {
	line, _, ok := bytes.Cut(data, []byte("\n"))
	if !ok {
		return 0, nil, nil
	}
	return len(line) + 1, bytes.TrimSuffix(line, []byte("\r")), nil
}

// Line is the next whole line of the command; ok is false when there are no more:
// the machine has ended, was cut or has run too long.
func (m *Machine) Line() (line string, ok bool) {
	for m.lines.Scan() {
		line := m.lines.Text()
		switch rest, isExit := strings.CutPrefix(line, saysExit); {
		case line == saysReady:
			m.ready = time.Since(m.begun)
		case isExit:
			if n, err := strconv.Atoi(rest); err == nil {
				m.exit = n
			}
		default:
			return line, true
		}
	}
	return "", false
}

// Cut takes the power away.
func (m *Machine) Cut() {
	m.cut.Store(true)
	_ = m.cmd.Process.Kill()
}

// Ready is how long the machine took until it ran its command.
func (m *Machine) Ready() time.Duration { return m.ready }

// Wait waits for the machine's end, after its last line, and says what was wrong
// with it: nothing, if its command has succeeded, or if it was cut before that ended.
func (m *Machine) Wait() error {
	if err := m.lines.Err(); err != nil {
		_ = m.cmd.Process.Kill() // it may go on to write
	}
	close(m.read)
	err := errors.Join(<-m.ended, m.lines.Err())
	timeout := m.ctx.Err()
	m.cancel()
	switch {
	case m.cut.Load() && m.exit == -1, m.exit == 0:
		return nil
	case m.exit > 0:
		return fmt.Errorf("the command ended with exit code %d%s", m.exit, m.kernelSays())
	case timeout != nil:
		return fmt.Errorf("the machine ran for %v: %w%s", m.limit, timeout, m.kernelSays())
	}
	return errors.Join(errors.New("the machine ended before its command"+m.kernelSays()), err)
}

// kernelSays is the end of the kernel's messages.
func (m *Machine) kernelSays() string {
	b, err := os.ReadFile(m.console)
	if err != nil || len(b) == 0 {
		return "; its kernel said nothing"
	}
	return "; its kernel said last:\n" + string(b[max(0, len(b)-3000):])
}

// Run runs a machine to its end and gives each line of its command to each.
func Run(ctx context.Context, c Config, each func(line string)) error {
	m, err := Start(ctx, c)
	if err != nil {
		return err
	}
	for line, ok := m.Line(); ok; line, ok = m.Line() {
		each(line)
	}
	return m.Wait()
}
