package mount

import (
	"container/list"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"
)

// Errors, to be found with errors.Is. What the system lacks is errors.ErrUnsupported.
var (
	// ErrBusy: another holder has what is asked for. The error says which, if that is known.
	ErrBusy = errors.New("busy")

	// ErrFull: there are MaxMounts mounts, and all of them are held.
	ErrFull = errors.New("too many mounts are held")

	// ErrClosed: the manager is closed.
	ErrClosed = errors.New("the manager of mounts is closed")
)

// Defaults of Options.
const (
	DefaultDirectory = "/run/holdfast"
	DefaultIdleAge   = 5 * time.Minute
	DefaultIdleMax   = 256
	DefaultParkAfter = 2 * time.Second
)

// KernelBytesPerMount is about what a mount takes of the kernel's memory.
const KernelBytesPerMount = 13 << 10

// Options say how to open a manager.
type Options struct {
	// Directory is the manager's own, made if it is not there; "" is DefaultDirectory. If it
	// is not on a tmpfs, one is mounted at it. Two managers cannot have the same.
	Directory string

	// Keep are the directories that programs in the step namespace need in addition to the system's: the
	// root directory of the snapshots. They must exist.
	Keep []string

	// Cgroups are directories of cgroups, v1 or v2, below which all steps run and nothing
	// else. Open ends every process in them.
	Cgroups []string

	// IdleAge is how long a mount that is not held stays; 0 is DefaultIdleAge, and if it
	// is negative none stays.
	IdleAge time.Duration

	// IdleMax is how many such mounts stay; 0 is DefaultIdleMax.
	IdleMax int

	// MaxMounts is how many mounts there are at most, those that are held included. 0 is
	// as many as half of the process's descriptors and 64 MiB of the kernel's memory allow.
	MaxMounts int

	// ParkAfter is how long an unmount may be refused before it is parked: reported, and Wait
	// returns. 0 is DefaultParkAfter. What starts in a copy of the step namespace, as a container does,
	// holds for some milliseconds what was attached there meanwhile.
	ParkAfter time.Duration

	// Mounters mount the types that are their keys. Such a mount is shared as any other, but
	// never idle: the last release gives it back. Where mounts cannot be cloned while they
	// are detached (Linux before 6.15) Acquire of one is errors.ErrUnsupported.
	Mounters map[string]Mounter

	// Without are features that are not to be used though the kernel has them.
	Without []Feature

	// Logger receives what an operator should know; nil: slog.Default().
	Logger *slog.Logger
}

// state of an entry.
type state int

const (
	making state = iota
	mounted
	leaving
)

// entry is a mount of the manager, from when it is first asked for until it is gone.
// Its fields are guarded by the manager's mutex, but for those that are set before made
// is closed.
type entry struct {
	key    string // "" if it is not shared
	name   string // of this run, and of nothing else
	plan   *plan
	state  state
	refs   int
	err    error         // why it could not be made
	made   chan struct{} // closed when it has been made, or not
	gone   chan struct{} // closed when it has left the kernel
	parked chan struct{} // closed when it was found not to leave soon

	master *master
	dirs   []dirID
	lowers []*Handle
	idle   *list.Element
	since  time.Time // idle since

	entrusted bool // the manager's own mount is closed
}

// Manager mounts, and shares and counts what is mounted. All methods can be called by several
// goroutines at once.
type Manager struct {
	opt     Options
	run     string // the name of this run
	log     *slog.Logger
	kernel  *kernel
	records *records
	found   Recovery

	mu       sync.Mutex
	closed   bool
	serial   uint64
	shared   map[string]*entry
	all      map[*entry]struct{}
	idle     *list.List // of entries, that which is idle longest first
	timer    *time.Timer
	claims   map[inode]*claim
	byPath   map[string]map[*entry]struct{}
	pending  map[*pending]struct{}
	stop     chan struct{} // closed when nothing is tried again
	counters counters
}

// prefix is what the names of all things of a run begin with.
func prefix(run string) string { return "holdfast-" + run + "-" }

// What follows it in the sources of the marks of namespaces.
const (
	stepMark    = "steps"
	stagingMark = "staging"
)

// Open makes a manager. It first looks for what an earlier one has left in the same
// directory when its process was killed: it ends the processes, takes the mounts
// away, and refuses what others still hold. See Recovered. It needs CAP_SYS_ADMIN.
func Open(ctx context.Context, o Options) (*Manager, error) {
	if o.Directory == "" {
		o.Directory = DefaultDirectory
	}
	if o.IdleAge == 0 {
		o.IdleAge = DefaultIdleAge
	}
	if o.IdleMax == 0 {
		o.IdleMax = DefaultIdleMax
	}
	if o.ParkAfter == 0 {
		o.ParkAfter = DefaultParkAfter
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	dir, err := filepath.Abs(o.Directory)
	if err != nil {
		return nil, fmt.Errorf("mount: %w", err)
	}
	o.Directory = dir
	if o.MaxMounts == 0 {
		o.MaxMounts = defaultMaxMounts()
	}
	name := make([]byte, 8)
	if _, err := rand.Read(name); err != nil {
		return nil, fmt.Errorf("mount: %w", err)
	}
	m := &Manager{
		opt: o, run: hex.EncodeToString(name), log: o.Logger,
		shared: map[string]*entry{}, all: map[*entry]struct{}{}, idle: list.New(),
		claims: map[inode]*claim{}, byPath: map[string]map[*entry]struct{}{}, pending: map[*pending]struct{}{},
		stop: make(chan struct{}),
	}
	if m.kernel, err = newKernel(&o); err != nil {
		return nil, err
	}
	m.kernel.prefix = prefix(m.run)
	var damaged error
	if m.records, damaged, err = openRecords(m.kernel.dir); err != nil {
		if !errors.Is(err, ErrBusy) {
			err = errors.Join(err, m.kernel.removeTmpfs())
		}
		return nil, err
	}
	if damaged != nil {
		m.log.Error("the records of mounts are damaged and were set aside", "reason", damaged)
	}
	if err := m.recover(ctx, damaged != nil); err != nil {
		return nil, errors.Join(err, m.abandon())
	}
	return m, nil
}

// abandon closes what Open has opened.
func (m *Manager) abandon() error {
	close(m.stop)
	m.kernel.close()
	return m.records.db.Close()
}

// Acquire mounts what a spec says, or shares the mount that is there. A spec that cannot
// be mounted gives an error with what the kernel has said; one whose upper or work directory is
// used otherwise, or whose layers are written through another mount, one that is ErrBusy; one mount
// more than there may be, ErrFull. If ctx ends first, its error is returned, and nothing is held.
func (m *Manager) Acquire(ctx context.Context, s Spec) (*Handle, error) {
	p, err := parse(&s)
	if err != nil {
		return nil, err
	}
	s.Source = p.source // it may have been relative
	p.served = m.opt.Mounters[p.kind] != nil
	key := ""
	if !p.private() && !s.Own {
		key = s.key()
	}
	for {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("mount: %s: %w", p, err)
		}
		e, wait, err := m.enter(key, p)
		if err != nil {
			return nil, fmt.Errorf("mount: %s: %w", p, err)
		}
		if e == nil {
			select {
			case <-wait:
			case <-ctx.Done():
			}
			continue
		}
		select {
		case <-e.made:
		case <-ctx.Done():
			m.leaveEntry(e)
			return nil, fmt.Errorf("mount: %s: %w", p, ctx.Err())
		}
		if e.err != nil {
			m.leaveEntry(e)
			return nil, fmt.Errorf("mount: %w", e.err)
		}
		return newHandle(m, e), nil
	}
}

// enter takes a reference to the entry of a key, a new one if there is none. If there is
// no entry to be had yet, it returns what to wait for.
func (m *Manager) enter(key string, p *plan) (*entry, <-chan struct{}, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, nil, ErrClosed
	}
	if e := m.shared[key]; key != "" && e != nil {
		if e.state == leaving {
			if closed(e.parked) {
				return nil, nil, fmt.Errorf("it is still being unmounted: %w", ErrBusy)
			}
			return nil, either(e.gone, e.parked), nil
		}
		e.refs++
		m.unidle(e)
		m.counters.shared++
		return e, nil, nil
	}
	if len(m.all) >= m.opt.MaxMounts {
		wait, err := m.makeRoom()
		return nil, wait, err
	}
	m.serial++
	e := &entry{
		key: key, name: fmt.Sprintf("%s%d", prefix(m.run), m.serial), plan: p, refs: 1,
		made: make(chan struct{}), gone: make(chan struct{}), parked: make(chan struct{}),
	}
	m.all[e] = struct{}{}
	if key != "" {
		m.shared[key] = e
	}
	m.index(e)
	go m.build(e)
	return e, nil, nil
}

// makeRoom has the mount leave that is idle longest, if none leaves already, and returns
// what to wait for.
func (m *Manager) makeRoom() (<-chan struct{}, error) {
	for e := range m.all {
		if e.state == leaving && !closed(e.parked) {
			return either(e.gone, e.parked), nil
		}
	}
	if first := m.idle.Front(); first != nil {
		e := first.Value.(*entry)
		m.counters.evicted++
		m.depart(e)
		return either(e.gone, e.parked), nil
	}
	return nil, fmt.Errorf("%d of %d: %w", len(m.all), m.opt.MaxMounts, ErrFull)
}

// build mounts what an entry says, in a goroutine of its own: a mount can hang, and its
// callers can have gone meanwhile.
func (m *Manager) build(e *entry) {
	master, err := m.mountLowersAnd(e)
	if err != nil {
		m.giveUp(e)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	e.err = err
	defer close(e.made)
	if err != nil {
		m.unlist(e)
		close(e.gone)
		return
	}
	e.master, e.state = master, mounted
	m.counters.made++
	if e.refs == 0 {
		m.retire(e)
	}
}

func (m *Manager) mountLowersAnd(e *entry) (*master, error) {
	var fds []int
	for _, s := range e.plan.mounted {
		h, err := m.Acquire(context.Background(), s)
		if err != nil {
			return nil, fmt.Errorf("%s: a lower layer: %w", e.plan, err)
		}
		e.lowers = append(e.lowers, h)
		fds = append(fds, h.FD())
	}
	if e.plan.upper != "" {
		if err := m.records.putUpper(e.name, upperRecord{upper: e.plan.upper, work: e.plan.work}); err != nil {
			return nil, err
		}
	}
	master, err := m.makeClaimed(e, fds)
	if err != nil || e.plan.upper == "" {
		return master, err
	}
	err = m.records.putUpper(e.name, upperRecord{e.plan.upper, e.plan.work, master.dev})
	if err != nil {
		return nil, errors.Join(err, m.kernel.unmake(master))
	}
	return master, nil
}

// makeClaimed mounts when the directories are free.
func (m *Manager) makeClaimed(e *entry, lowers []int) (*master, error) {
	for {
		master, err := m.kernel.make(e.plan, e.name, lowers, func(dirs []dirID) error { return m.claim(e, dirs) })
		var taken *takenError
		if !errors.As(err, &taken) || taken.wait == nil {
			return master, err
		}
		<-taken.wait // an idle mount that has the directory is leaving
	}
}

// giveUp takes back what an entry has that could not be mounted.
func (m *Manager) giveUp(e *entry) {
	if e.plan.upper != "" {
		if err := m.records.dropUpper(e.name); err != nil {
			m.log.Error("a record of a mount stays", "mount", e.plan.String(), "reason", err)
		}
	}
	m.mu.Lock()
	m.unclaim(e)
	m.mu.Unlock()
	for _, h := range e.lowers {
		h.Release()
	}
}

// leaveEntry gives back one reference.
func (m *Manager) leaveEntry(e *entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e.refs--
	if e.refs == 0 && e.state == mounted {
		m.retire(e)
	}
}

// unlist takes an entry off the lists.
func (m *Manager) unlist(e *entry) {
	delete(m.all, e)
	if e.key != "" && m.shared[e.key] == e {
		delete(m.shared, e.key)
	}
	m.unindex(e)
}

// Host is the mount namespace that the process is in.
func (m *Manager) Host() *Namespace { return m.kernel.host }

// StepNamespace is the small namespace in which programs are started. It is made with the first
// call. A file system that is mounted in the host's namespace later does not show in it.
func (m *Manager) StepNamespace() (*Namespace, error) {
	m.mu.Lock()
	closed := m.closed
	m.mu.Unlock()
	if closed {
		return nil, fmt.Errorf("mount: %w", ErrClosed)
	}
	return m.kernel.stepNamespace()
}

// StepMark is the source of a tmpfs in the step namespace, by which Open, after a crash, knows the processes in a copy
// of it. A process that leaves the root of that namespace mounts one with this source, or has an overlay of the
// manager's as its root: otherwise it would not be found.
func (m *Manager) StepMark() string { return prefix(m.run) + stepMark }

// next gives a number that this run gives once.
func (m *Manager) next() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.serial++
	return m.serial
}

// Close refuses further use, unmounts what is idle, and waits until all is released and
// unmounted. If ctx ends first it returns an error that says what is left, and closes nevertheless; the next Open
// finds what is left then as after a crash. Further calls do nothing.
func (m *Manager) Close(ctx context.Context) error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil
	}
	m.closed = true
	m.dropIdle()
	if m.timer != nil {
		m.timer.Stop()
	}
	m.mu.Unlock()
	left := m.drain(ctx)
	close(m.stop)
	m.kernel.close()
	err := left
	if left == nil {
		err = m.records.dropRun(m.run)
	}
	err = errors.Join(err, m.records.db.Close())
	if err == nil {
		err = m.kernel.removeTmpfs()
	}
	if err != nil {
		return fmt.Errorf("mount: closing: %w", err)
	}
	return nil
}

// drain waits until nothing is mounted or pending.
func (m *Manager) drain(ctx context.Context) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		s := m.Stats()
		if s.Mounts == 0 && s.Pending == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%d mounts are held and %d are being unmounted: %w", s.Held, s.Going, ctx.Err())
		}
	}
}
