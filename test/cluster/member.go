//go:build unix

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// An Engine is what a member stores its keys in.
type Engine int

// The engines.
const (
	Stock Engine = iota
	Holdfast
)

func (e Engine) String() string { return [...]string{"bbolt", "Holdfast"}[e] }

// A Member is an etcd process and its directory. Its methods are for one goroutine.
type Member struct {
	Name    string
	Engine  Engine
	Dir     string
	client  string // its URL for clients
	peer    string // and for members
	cluster *Cluster
	cmd     *exec.Cmd
	log     *os.File
	exited  chan struct{}
	initial string // --initial-cluster of its first start
	state   string // --initial-cluster-state
	small   bool   // its directory is a file system of its own, in memory, that can be filled
}

// A Cluster is some members.
type Cluster struct {
	Binaries map[Engine]string
	Dir      string
	Members  []*Member
	Env      []string // of members on Holdfast
	Flags    []string // of members, besides those for the cluster
	// SmallDisks gives every other member a small file system in memory, which can be filled.
	SmallDisks bool
	started    int // members so far, for names
}

// Form makes a member for each of the engines, and starts none of them.
func (c *Cluster) Form(engines ...Engine) error {
	for _, e := range engines {
		if _, err := c.add(e); err != nil {
			return err
		}
	}
	for _, m := range c.Members {
		m.initial, m.state = c.initial(), "new"
	}
	return nil
}

// add makes a member that is in no cluster yet.
func (c *Cluster) add(e Engine) (*Member, error) {
	c.started++
	m := &Member{Name: fmt.Sprintf("m%d", c.started), Engine: e, cluster: c}
	m.Dir = filepath.Join(c.Dir, m.Name)
	if err := os.MkdirAll(m.Dir, 0o700); err != nil {
		return nil, err
	}
	if m.small = c.SmallDisks && c.started%2 == 1; m.small {
		if err := mountSmall(m.Dir); err != nil {
			m.small = false // it takes root, on Linux
		}
	}
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	m.client, m.peer = "http://"+ports[0], "http://"+ports[1]
	c.Members = append(c.Members, m)
	return m, nil
}

func (c *Cluster) initial() string {
	var list []string
	for _, m := range c.Members {
		list = append(list, m.Name+"="+m.peer)
	}
	return strings.Join(list, ",")
}

// freePorts are addresses on which nothing listens at the moment.
func freePorts(n int) (addresses []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		addresses = append(addresses, l.Addr().String())
	}
	return addresses, nil
}

// Start starts the process, which need not be ready when it returns.
func (m *Member) Start() error {
	log, err := os.OpenFile(filepath.Join(m.cluster.Dir, m.Name+".log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	cmd := exec.Command(m.cluster.Binaries[m.Engine], "--name", m.Name, "--data-dir", filepath.Join(m.Dir, "data"),
		"--listen-client-urls", m.client, "--advertise-client-urls", m.client,
		"--listen-peer-urls", m.peer, "--initial-advertise-peer-urls", m.peer,
		"--initial-cluster", m.initial, "--initial-cluster-state", m.state, "--initial-cluster-token", "test",
		"--log-level", "warn")
	cmd.Args = append(cmd.Args, m.cluster.Flags...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = os.Environ()
	if m.Engine == Holdfast {
		cmd.Env = append(cmd.Env, m.cluster.Env...)
	}
	cmd.SysProcAttr = dieWithParent()
	if err := cmd.Start(); err != nil {
		_ = log.Close()
		return err
	}
	m.cmd, m.log, m.exited = cmd, log, make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(m.exited)
	}()
	return nil
}

// Running tells whether the process is there.
func (m *Member) Running() bool {
	if m.cmd == nil {
		return false
	}
	select {
	case <-m.exited:
		return false
	default:
		return true
	}
}

// Kill ends the process as a crash of it does.
func (m *Member) Kill() { m.end(syscall.SIGKILL) }

// Stop ends it as an operator does.
func (m *Member) Stop() { m.end(syscall.SIGTERM) }

func (m *Member) end(signal syscall.Signal) {
	if m.cmd == nil {
		return
	}
	_ = m.cmd.Process.Signal(signal)
	select {
	case <-m.exited:
	case <-time.After(20 * time.Second):
		_ = m.cmd.Process.Kill()
		<-m.exited
	}
	m.cmd = nil
	_ = m.log.Close()
}

// Pause stops the process for a while, as a machine that hangs does.
func (m *Member) Pause(d time.Duration) {
	_ = m.cmd.Process.Signal(syscall.SIGSTOP)
	time.Sleep(d)
	_ = m.cmd.Process.Signal(syscall.SIGCONT)
}

// Close kills all members.
func (c *Cluster) Close() {
	for _, m := range c.Members {
		m.lose()
	}
}

// lose kills a member whose directory is not needed any more.
func (m *Member) lose() {
	m.Kill()
	if m.small {
		unmountSmall(m.Dir)
		m.small = false
	}
}

// Await waits until all members serve, and have a leader.
func (c *Cluster) Await(ctx context.Context) error {
	for _, m := range c.Members {
		for {
			if !m.Running() {
				return fmt.Errorf("%s on %v has ended; its log is %s.log in %s", m.Name, m.Engine, m.Name, c.Dir)
			}
			s, err := m.Status(ctx)
			if err == nil && s.Leader != "" && s.Leader != "0" {
				break
			}
			if ctx.Err() != nil {
				return errors.Join(fmt.Errorf("%s on %v does not serve: %w", m.Name, m.Engine, ctx.Err()), err)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	return nil
}
