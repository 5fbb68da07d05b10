package service

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"

	"holdfast"
	"holdfast/worker/mount"
	"holdfast/worker/prune"
	"holdfast/worker/registry"
	"holdfast/worker/remotecache"
	"holdfast/worker/snapshot"
	"holdfast/worker/step"
)

// Database is a database file of a store.
type Database struct {
	Name string // its path in the directory of the store
	DB   *holdfast.DB
}

// Policies are by what a daemon prunes.
type Policies struct {
	Config   prune.Config
	Interval time.Duration // 0: only when it is told to
}

// Options say what a Service serves. All but Logger and Cache must be given.
type Options struct {
	Version string

	// Namespace is where steps and bases are.
	Namespace *snapshot.Namespace
	Runner    *step.Runner
	Mounts    *mount.Manager

	// Databases are the files of which figures are shown.
	Databases []Database

	// Show shows the content of a committed snapshot at a path, until release.
	Show func(ctx context.Context, info snapshot.Info) (path string, release func() error, err error)

	// Client has the directory of what is being made for exports.
	Client registry.Client

	// Policies returns what is configured now.
	Policies func() Policies

	// Reserve promises a step on a base so many bytes of the disk, until release.
	Reserve func(ctx context.Context, base string, bytes int64) (release func(), err error)

	// Cache is the remote cache of steps; nil: there is none.
	Cache *remotecache.Cache

	// Concurrency is how many steps run at once.
	Concurrency int

	// Logger hears of calls that fail for the daemon's fault; nil: slog.Default().
	Logger *slog.Logger
}

// A Service has the state that calls share. Close ends it.
type Service struct {
	Options
	store   *snapshot.Store
	log     *slog.Logger
	started time.Time
	index   index
	history history
	pages   sync.Mutex // one map of pages is made at a time

	transfers chan struct{} // imports, exports and comparisons
	working   chan struct{} // those that do not wait for their clients

	calls calls

	ctx  context.Context // ends when those who only watch are to go
	end  context.CancelFunc
	stop context.CancelFunc
	done sync.WaitGroup
}

// New makes a Service, which samples figures until Close.
func New(o Options) *Service {
	ctx, stop := context.WithCancel(context.Background())
	s := &Service{Options: o, store: o.Namespace.Store(), log: o.Logger, started: time.Now(), transfers: make(chan struct{}, maxTransfers),
		working: make(chan struct{}, maxWorking), stop: stop}
	if s.log == nil {
		s.log = slog.Default()
	}
	s.index.store = s.store
	s.ctx, s.end = context.WithCancel(context.Background())
	s.done.Go(func() { s.sample(ctx) })
	return s
}

// Running returns the number of steps that are queued or run, of all callers.
func (s *Service) Running() int {
	counts := s.Runner.Counts()
	return counts.Queued + counts.Running
}

// End ends the calls that only watch, which would go on for ever. Others go on.
func (s *Service) End() { s.end() }

// errEnding is the error of calls that End has ended.
var errEnding = connect.NewError(connect.CodeUnavailable, errors.New("the daemon ends"))

// watching is the context of a call that only watches.
func (s *Service) watching(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.ctx, func() { cancel(errEnding) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// Close ends what goes on in the background, and calls, and waits for them: what the Options have is in use until it returns. The
// servers must have been closed, or calls could wait for their clients.
func (s *Service) Close() {
	s.end()
	s.stop()
	s.calls.close()
	s.done.Wait()
}

// calls are those that run.
type calls struct {
	mu      sync.Mutex
	next    uint64
	cancels map[uint64]context.CancelFunc
	closed  bool
	running sync.WaitGroup
}

// begin begins a call, unless they were closed: then end is nil.
func (c *calls) begin(ctx context.Context) (_ context.Context, end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, nil
	}
	if c.cancels == nil {
		c.cancels = map[uint64]context.CancelFunc{}
	}
	n := c.next
	c.next++
	ctx, c.cancels[n] = context.WithCancel(ctx)
	c.running.Add(1)
	return ctx, func() {
		defer c.running.Done()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.cancels[n]()
		delete(c.cancels, n)
	}
}

// close ends all calls, and returns when they have.
func (c *calls) close() {
	c.mu.Lock()
	c.closed = true
	for _, cancel := range c.cancels {
		cancel()
	}
	c.mu.Unlock()
	c.running.Wait()
}

// counted has Close wait for requests.
func (s *Service) counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, end := s.calls.begin(r.Context())
		if end == nil {
			refuse(w, r, errEnding)
			return
		}
		defer end()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}
