//go:build unix

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/anishathalye/porcupine"

	"holdfast"
)

// Options say what Run does.
type Options struct {
	Binaries  map[Engine]string // etcd
	Utilities map[Engine]string // etcdutl
	Dir       string
	Engines   []Engine // of the members in the beginning
	Mixed     bool     // members change their engine
	For       time.Duration
	Clients   int
	Seed      uint64
	Log       io.Writer
}

// A Result is what was done and found.
type Result struct {
	Puts    int64 // acknowledged
	Slowest time.Duration
	Did     map[string]int // what went wrong, by name
	Checked int            // operations in histories that were found linearizable
}

// A runner is one run.
type runner struct {
	o       *Options
	rng     *rand.Rand
	cluster *Cluster
	load    *load
	did     map[string]int

	mu      sync.Mutex
	members []*Member // those that clients call
}

// recovery is how long members may take until all serve again, and answer a question, on a machine that has much else to do.
const recovery = 3 * time.Minute

// patient repeats a question that a member does not answer.
func patient(ctx context.Context, ask func() error) error {
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		err := ask()
		if err == nil || ctx.Err() != nil || time.Since(began) > recovery {
			return err
		}
	}
}

// status is what a member says of itself.
func status(ctx context.Context, m *Member) (s Status, err error) {
	err = patient(ctx, func() (err error) {
		s, err = m.Status(ctx)
		return err
	})
	return s, err
}

// An event is something that goes wrong, and is mended when it returns.
type event struct {
	name string
	do   func(*runner, context.Context) error
	need func(*Options) bool
}

var events = []event{
	{"killed the leader", (*runner).killLeader, nil},
	{"killed a member", (*runner).killOne, nil},
	{"killed all", (*runner).killAll, nil},
	{"stopped a member", (*runner).stopOne, nil},
	{"paused a member", (*runner).pauseOne, nil},
	{"filled the disk of a member", (*runner).fill, func(*Options) bool { return canMount() }},
	{"compacted and defragmented", (*runner).defrag, nil},
	{"replaced a member", (*runner).replace, nil},
	{"changed an engine", (*runner).change, func(o *Options) bool { return o.Mixed }},
	{"changed an engine after a kill", (*runner).changeKilled, func(o *Options) bool { return o.Mixed }},
}

// Run runs a cluster. The error says what was lost, or could not be done.
func Run(ctx context.Context, o Options) (*Result, error) {
	c := &Cluster{
		Binaries: o.Binaries, Dir: o.Dir, SmallDisks: true,
		Env: []string{"HOLDFAST_AUTO_VACUUM=on"}, Flags: []string{"--snapshot-count", "5000"},
	}
	if err := c.Form(o.Engines...); err != nil {
		return nil, err
	}
	defer c.Close()
	r := &runner{o: &o, rng: rand.New(rand.NewPCG(o.Seed, 1)), cluster: c, did: map[string]int{}, members: slices.Clone(c.Members)}
	for _, m := range c.Members {
		if err := m.Start(); err != nil {
			return nil, err
		}
	}
	if err := r.await(ctx); err != nil {
		return nil, err
	}
	r.load = &load{members: r.called, began: time.Now(), acked: map[string]bool{}}
	if err := r.trouble(ctx); err != nil {
		return nil, err
	}
	res := &Result{Puts: r.load.puts.Load(), Slowest: time.Duration(r.load.slowest.Load()), Did: r.did}
	var err error
	if res.Checked, err = r.judge(ctx); err != nil {
		return res, err
	}
	if err := r.restored(ctx); err != nil {
		return res, fmt.Errorf("a cluster restored from a snapshot: %w", err)
	}
	return res, nil
}

func (r *runner) called() []*Member {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.members
}

func (r *runner) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, recovery)
	defer cancel()
	return r.cluster.Await(ctx)
}

// trouble has clients at work while one event follows the other.
func (r *runner) trouble(ctx context.Context) error {
	clients, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.load.run(clients, r.o.Clients, r.o.Seed)
	}()
	defer func() {
		stop()
		<-done
	}()
	possible := slices.DeleteFunc(slices.Clone(events), func(e event) bool { return e.need != nil && !e.need(r.o) })
	order := r.rng.Perm(len(possible))
	for n := 0; time.Since(r.load.began) < r.o.For || n < len(possible); n++ {
		e := possible[order[n%len(order)]]
		before := r.load.puts.Load()
		fmt.Fprintf(r.o.Log, "%6.1fs %s\n", time.Since(r.load.began).Seconds(), e.name)
		if err := e.do(r, ctx); err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
		if err := r.await(ctx); err != nil {
			return fmt.Errorf("after it %s: %w", e.name, err)
		}
		time.Sleep(time.Duration(500+r.rng.IntN(1500)) * time.Millisecond)
		if r.load.puts.Load() == before {
			return fmt.Errorf("after it %s: no put was acknowledged any more", e.name)
		}
		r.did[e.name]++
		r.load.round.Add(1)
	}
	return nil
}

func (r *runner) one() *Member { return r.cluster.Members[r.rng.IntN(len(r.cluster.Members))] }

func (r *runner) leader(ctx context.Context) (*Member, error) {
	s, err := status(ctx, r.one())
	if err != nil {
		return nil, err
	}
	for _, m := range r.cluster.Members {
		if its, err := m.Status(ctx); err == nil && its.Header.MemberID == s.Leader {
			return m, nil
		}
	}
	return nil, errors.New("the leader is none of the members")
}

func (r *runner) killLeader(ctx context.Context) error {
	m, err := r.leader(ctx)
	if err != nil {
		return err
	}
	m.Kill()
	time.Sleep(time.Duration(r.rng.IntN(3000)) * time.Millisecond)
	return m.Start()
}

func (r *runner) killOne(context.Context) error {
	m := r.one()
	m.Kill()
	time.Sleep(time.Duration(r.rng.IntN(3000)) * time.Millisecond)
	return m.Start()
}

func (r *runner) killAll(context.Context) error {
	for _, m := range r.cluster.Members {
		m.Kill()
	}
	for _, m := range r.cluster.Members {
		if err := m.Start(); err != nil {
			return err
		}
	}
	return nil
}

func (r *runner) stopOne(context.Context) error {
	m := r.one()
	m.Stop()
	return m.Start()
}

func (r *runner) pauseOne(context.Context) error {
	r.one().Pause(time.Duration(1000+r.rng.IntN(3000)) * time.Millisecond)
	return nil
}

func (r *runner) defrag(ctx context.Context) error {
	m := r.one()
	s, err := status(ctx, m)
	if err != nil {
		return err
	}
	// Some revisions stay, of which there are few if this comes first.
	kept := r.rng.Int64N(min(100, s.Header.Revision))
	if err := m.Compact(ctx, s.Header.Revision-kept); err != nil {
		return err
	}
	return m.Defrag(ctx)
}

// fill takes all the room that a member has, until it has ended or noticed nothing for a while.
func (r *runner) fill(context.Context) error {
	for _, m := range r.cluster.Members {
		if !m.small {
			continue
		}
		name := filepath.Join(m.Dir, "full")
		if err := fill(name); err != nil {
			return err
		}
		for range 30 {
			if !m.Running() {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		if err := os.Remove(name); err != nil {
			return err
		}
		m.Kill() // one that lives may have stopped to write
		return m.Start()
	}
	return errors.New("no member can be filled")
}

// fill writes a file until there is no room.
func fill(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	for block := make([]byte, 1<<20); err == nil; {
		_, err = f.Write(block)
		if errors.Is(err, syscall.ENOSPC) && len(block) > 1 {
			block, err = block[:len(block)/2], nil
		}
	}
	if errors.Is(err, syscall.ENOSPC) {
		err = nil
	}
	return errors.Join(err, f.Close())
}

// replace takes a member out and puts a new one in its place, as after the loss of a machine.
func (r *runner) replace(ctx context.Context) error {
	old := r.one()
	s, err := status(ctx, old)
	if err != nil {
		return err
	}
	old.lose()
	r.cluster.Members = slices.DeleteFunc(r.cluster.Members, func(m *Member) bool { return m == old })
	r.set()
	if err := r.retried(ctx, func(m *Member) error { return m.remove(ctx, s.Header.MemberID) }); err != nil {
		return err
	}
	m, err := r.cluster.add(old.Engine)
	if err != nil {
		return err
	}
	rest := r.cluster.Members[:len(r.cluster.Members)-1]
	// A cluster of two takes no third before it has seen both for a while.
	var joined error
	for range 40 {
		if joined = rest[0].join(ctx, m.peer); joined == nil {
			break
		}
		time.Sleep(500 * time.Millisecond)
	}
	if joined != nil {
		return joined
	}
	m.initial, m.state = r.cluster.initial(), "existing"
	if err := m.Start(); err != nil {
		return err
	}
	if err := r.await(ctx); err != nil {
		return err
	}
	r.set()
	return nil
}

// retried does something by any member, until one has done it.
func (r *runner) retried(ctx context.Context, do func(*Member) error) (err error) {
	for range 40 {
		if err = do(r.one()); err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(500 * time.Millisecond)
	}
	return err
}

// set has clients call the members that there are now.
func (r *runner) set() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.members = slices.Clone(r.cluster.Members)
}

func (r *runner) change(context.Context) error {
	m := r.one()
	m.Stop()
	m.Engine = 1 - m.Engine
	return m.Start()
}

// changeKilled is change of a member that was killed. Its file is settled before: bbolt would open the state before the last flush, which
// may be older than a snapshot of Raft that etcd has saved since, and with such a database etcd does not start.
func (r *runner) changeKilled(context.Context) error {
	m := r.one()
	m.Kill()
	if m.Engine == Holdfast {
		if _, err := holdfast.Settle(filepath.Join(m.data(), "member", "snap", "db"), holdfast.SettleOptions{}); err != nil {
			return err
		}
	}
	m.Engine = 1 - m.Engine
	return m.Start()
}

// judge compares what clients were told with what there is.
func (r *runner) judge(ctx context.Context) (checked int, err error) {
	if err := r.sameEverywhere(ctx); err != nil {
		return 0, err
	}
	if err := r.nothingLost(ctx); err != nil {
		return 0, err
	}
	switch verdict := porcupine.CheckOperationsTimeout(register, r.load.history, 10*time.Minute); verdict {
	case porcupine.Illegal:
		return 0, errors.New("the history of reads and writes is not linearizable")
	case porcupine.Unknown:
		return 0, errors.New("whether the history is linearizable was not found out in ten minutes")
	}
	return len(r.load.history), nil
}

// sameEverywhere asks all members for the sum of their keys.
func (r *runner) sameEverywhere(ctx context.Context) error {
	s, err := status(ctx, r.cluster.Members[0])
	if err != nil {
		return err
	}
	sums := map[string]string{}
	for _, m := range r.cluster.Members {
		var sum, compacted string
		err := patient(ctx, func() (err error) {
			if _, err := m.Get(ctx, "k/"); err != nil { // a linearizable read: then it has all that was acknowledged
				return err
			}
			sum, compacted, err = m.Hash(ctx, s.Header.Revision)
			return err
		})
		if err != nil {
			return fmt.Errorf("%s on %v: %w", m.Name, m.Engine, err)
		}
		sums[sum+", compacted at "+compacted] += fmt.Sprintf(" %s on %v", m.Name, m.Engine)
	}
	if len(sums) != 1 {
		return fmt.Errorf("the members differ at revision %d: %v", s.Header.Revision, sums)
	}
	return nil
}

// nothingLost reads all keys that were put once, of each member.
func (r *runner) nothingLost(ctx context.Context) error {
	for _, m := range r.cluster.Members {
		there := map[string]bool{}
		for from := "k/"; ; {
			var keys []string
			err := patient(ctx, func() (err error) {
				keys, err = m.Keys(ctx, from, "k0", 5000)
				return err
			})
			if err != nil {
				return err
			}
			if len(keys) == 0 {
				break
			}
			for _, key := range keys {
				if _, ours := r.load.acked[key]; !ours {
					return fmt.Errorf("%s on %v has %s, which no client put", m.Name, m.Engine, key)
				}
				there[key] = true
			}
			from = keys[len(keys)-1] + "\x00"
		}
		for _, key := range slices.Sorted(maps.Keys(r.load.acked)) {
			if r.load.acked[key] && !there[key] {
				return fmt.Errorf("%s on %v has lost %s, whose put was acknowledged", m.Name, m.Engine, key)
			}
		}
	}
	return nil
}
