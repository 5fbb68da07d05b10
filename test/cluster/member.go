//go:build unix

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"holdfast/test/process"
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
	process.Process
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

// clusterToken is that of all clusters: no two of them meet.
const clusterToken = "test"

func (m *Member) data() string { return filepath.Join(m.Dir, "data") }

// Start starts it on its engine. It need not be ready when Start returns.
func (m *Member) Start() error {
	m.Binary, m.Env = m.cluster.Binaries[m.Engine], nil
	if m.Engine == Holdfast {
		m.Env = m.cluster.Env
	}
	m.Log = filepath.Join(m.cluster.Dir, m.Name+".log")
	m.Args = append([]string{
		"--name", m.Name, "--data-dir", m.data(),
		"--listen-client-urls", m.client, "--advertise-client-urls", m.client,
		"--listen-peer-urls", m.peer, "--initial-advertise-peer-urls", m.peer,
		"--initial-cluster", m.initial, "--initial-cluster-state", m.state, "--initial-cluster-token", clusterToken,
		"--log-level", "warn",
	}, m.cluster.Flags...)
	return m.Process.Start()
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
		ready := func() error {
			s, err := m.Status(ctx)
			if err == nil && (s.Leader == "" || s.Leader == "0") {
				err = errors.New("there is no leader")
			}
			return err
		}
		if err := m.Process.Await(ctx, ready); err != nil {
			return fmt.Errorf("%s on %v: %w", m.Name, m.Engine, err)
		}
	}
	return nil
}
