// Package remotecache shares the results of steps between workers, by repositories of OCI registries: what one has run,
// the others fetch.
//
// # What is in a repository
//
// A result is an artifact. Its tag is the ID of the step with a hash of the content of its base, and of the platform. Its config
// is a Statement, which says what the result is, and its one layer what the step has changed of its base. The same
// ID is not enough to fetch one: two workers that have run a step can have got different files, and what another step has changed
// of the one result is no change of the other.
//
// # Trust
//
// Who writes to a repository can have steps of others succeed with any files. A result is fetched only if its
// statement is signed (Ed25519) by a key that is trusted for the repository, unless the repository is said to need no
// signatures. The statement has the digest of the layer, and of the layer's archive: what differs is refused.
//
// # Failure
//
// A registry that is slow, gone or wrong costs a result that is run in place of being fetched, with a reason in the log.
// It is not asked for a minute then. What cannot be exported is tried again, also after a restart.
package remotecache

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/worker/image"
	"holdfast/worker/internal/keylock"
	"holdfast/worker/mount"
	"holdfast/worker/registry"
	"holdfast/worker/snapshot"
	"holdfast/worker/step"
)

// Errors of this package, besides those of packages image and registry. They come wrapped: compare with errors.Is.
var (
	// ErrRefused: a result is not signed as it has to be, or is not what was asked for.
	ErrRefused = errors.New("the result is refused")

	// ErrKey: a file has no key of the kind that is needed.
	ErrKey = errors.New("not a key")
)

// Bounds of a Cache.
const (
	DefaultFindTime = 10 * time.Second // of a registry, for one result
	DefaultPause    = time.Minute      // of a registry that has failed
	DefaultExports  = 2                // results that are exported at once
	DefaultPushTime = time.Minute      // of a registry, to take one, and more for each byte of its layer

	DefaultFillTime = 30 * time.Second // of a registry to begin with a layer

	pushRate    = 64 << 10 // bytes a second: a slower registry gets none
	fillRate    = 1 << 20  // bytes a second: a slower registry is given up
	slowShare   = 4        // of Options.FindTime: a registry that takes longer to say that it has no result is left alone
	maxDocument = 8 << 20  // bytes of a statement
	maxOutput   = 4 << 20  // bytes of output in it
	maxQueue    = 100_000  // results that wait to be exported
	attempts    = 5        // to export a result, until those that wait are looked up again
	resumeEvery = time.Hour
)

// Repository is one by which results are shared.
type Repository struct {
	Name    string              // as registry.Client.Repository takes it
	Import  bool                // results are fetched from it
	Export  bool                // results are pushed to it
	Key     ed25519.PrivateKey  // signs what is pushed; nil: nothing does
	Trusted []ed25519.PublicKey // one of them has signed what is fetched
	// Unsigned has results fetched that need no signature. Trusted is empty then.
	Unsigned bool
}

// Options say how to make a Cache.
type Options struct {
	// Namespace has the results, as that of the step.Runner.
	Namespace *snapshot.Namespace

	// Mounts mounts what results are extracted into.
	Mounts *mount.Manager

	// Show shows the content of a committed snapshot at a path, until release, for export.
	Show func(ctx context.Context, info snapshot.Info) (path string, release func() error, err error)

	// Client has the directory of downloads, and the credentials. Its mirrors are not used, and its Stall is not for exports.
	Client registry.Client

	Repositories []Repository // are asked in this order

	Limits   image.Limits  // of what is fetched
	FindTime time.Duration // how long a registry has to say whether there is a result; 0: DefaultFindTime
	FillTime time.Duration // how long it may bring less of a layer than a MiB a second; 0: DefaultFillTime
	Pause    time.Duration // how long one is left alone that has failed; 0: DefaultPause
	PushTime time.Duration // how long one has to take a result, besides a second for each 64 KiB; 0: DefaultPushTime
	Exports  int           // how many results are exported at once; 0: DefaultExports

	Logger *slog.Logger // nil: slog.Default()
}

// Cache is a step.RemoteCache. Its methods can be called by several goroutines at once.
type Cache struct {
	o       Options
	log     *slog.Logger
	rate    int64 // pushRate
	imports []*repository
	exports []*repository

	recorded func(snapshot.Info) (*step.Result, error)

	listed chan struct{}   // closed when what an earlier Cache has left is offered
	ctx    context.Context // ends when the Cache is closed
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	queue  queue
	paused atomic.Int64          // until then nothing is exported, in nanoseconds
	making keylock.Locks[string] // names of results that are being exported
	ends   sync.Map              // name -> context.CancelCauseFunc of the export of a result
}

// New makes a Cache, which the caller closes before what its Options have.
func New(o Options) (*Cache, error) {
	o.FillTime = cmp.Or(o.FillTime, DefaultFillTime)
	o.FindTime, o.Pause, o.Exports = cmp.Or(o.FindTime, DefaultFindTime), cmp.Or(o.Pause, DefaultPause), cmp.Or(o.Exports, DefaultExports)
	o.PushTime = cmp.Or(o.PushTime, DefaultPushTime)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	o.Client.Mirrors = nil
	c := &Cache{o: o, log: o.Logger, rate: pushRate, listed: make(chan struct{})}
	c.queue.init()
	for _, r := range o.Repositories {
		if r.Import && (len(r.Trusted) > 0) == r.Unsigned {
			return nil, fmt.Errorf("the repository %s: its results are trusted by keys, or unsigned: one of both has to be said", r.Name)
		}
		client := o.Client
		of, err := client.Repository(r.Name)
		if err != nil {
			return nil, err
		}
		client.Stall = 0 // nothing waits for what is exported
		to, _ := client.Repository(r.Name)
		one := &repository{Repository: of, to: to, o: r, pause: o.Pause, figures: Figures{Repository: of.String()}}
		if r.Import {
			c.imports = append(c.imports, one)
		}
		if r.Export {
			c.exports = append(c.exports, one)
		}
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c, nil
}

// Start begins to export: what is offered, and what an earlier Cache of the store has left. recorded is RecordedOf of the
// Runner that has the Cache. Start is called once, before Close.
func (c *Cache) Start(recorded func(snapshot.Info) (*step.Result, error)) {
	c.tasks.Go(c.clean)
	if !c.Exports() {
		close(c.listed)
		return
	}
	c.recorded = recorded
	for range c.o.Exports {
		c.tasks.Go(c.exportQueued)
	}
	c.tasks.Go(c.resume)
}

// Close ends what is being exported, and waits for it. What was not exported is when there is another Cache of the store.
func (c *Cache) Close() {
	c.cancel()
	c.queue.close()
	c.tasks.Wait()
	for _, r := range c.repositories() {
		r.Close()
		r.to.Close()
	}
}

// repositories are all of them.
func (c *Cache) repositories() (all []*repository) {
	seen := map[*repository]bool{}
	for _, list := range [][]*repository{c.imports, c.exports} {
		for _, r := range list {
			if !seen[r] {
				seen[r] = true
				all = append(all, r)
			}
		}
	}
	return all
}

// Figures are what there is to say of a repository since the Cache was made.
type Figures struct {
	Repository string
	Paused     bool // it has failed, and no results are looked for now

	Fetched      uint64 // results
	FetchedBytes uint64 // of layers, compressed
	Missed       uint64 // the repository does not have them
	Refused      uint64 // not signed, or not what they are said to be
	Failed       uint64 // could not be fetched

	Exported      uint64
	ExportedBytes uint64
	ExportFailed  uint64 // attempts
}

// Figures lists the figures of all repositories.
func (c *Cache) Figures() []Figures {
	var list []Figures
	for _, r := range c.repositories() {
		r.mu.Lock()
		f := r.figures
		f.Paused = time.Now().Before(r.until)
		r.mu.Unlock()
		list = append(list, f)
	}
	return list
}

// Waiting is how many results wait to be exported, or are being.
func (c *Cache) Waiting() int { return c.queue.waiting() }

// repository is one with what is known of it.
type repository struct {
	*registry.Repository
	to    *registry.Repository // the same, for exports
	o     Repository
	pause time.Duration

	mu      sync.Mutex
	figures Figures
	until   time.Time // no results are looked for
}

// paused is how long it is left alone.
func (r *repository) paused() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Until(r.until)
}

// count changes the figures.
func (r *repository) count(fn func(*Figures)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fn(&r.figures)
}

// blame has no results looked for in the repository for a while if an error is its own, and not one of what it has.
func (r *repository) blame(err error) error {
	for _, of := range []error{ErrRefused, image.ErrDigest, image.ErrFormat, image.ErrLimit, image.ErrUnsafe} {
		if errors.Is(err, of) {
			return err
		}
	}
	return r.pauseFor(err)
}

// pauseFor has no results looked for in the repository for a while.
func (r *repository) pauseFor(err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.until = time.Now().Add(r.pause)
	return fmt.Errorf("%w; it is asked again in %v", err, r.pause)
}
