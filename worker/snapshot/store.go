package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"holdfast"
)

// SyncMode is when the content of a committed snapshot is flushed.
type SyncMode int

const (
	// SyncCommit: before Commit returns. Commits that are under way at the same time
	// share a flush.
	SyncCommit SyncMode = iota

	// SyncDeferred: within about a second after Commit has returned. A snapshot that was
	// committed less than that before the machine went down is ErrDistrusted afterwards.
	// For a caller of Commit where it must not take long. Linux only.
	SyncDeferred
)

// Options say how to open a Store.
type Options struct {
	// Driver keeps the content. It must be set.
	Driver Driver

	// Sync is when content is flushed.
	Sync SyncMode

	// Durability is when an operation on the metadata returns: with Full, the default, when it is
	// on the disk.
	Durability holdfast.Durability

	// Share is where other processes can read the metadata, as holdfast.Options.Share.
	Share string

	// Digests has every Commit be one with WithDigest.
	Digests bool

	// Full is called when the metadata could not be written since the disk is full. If it
	// has made room, and returns true, the transaction is tried once more. It must not measure or prune, which can
	// wait for its caller. nil: it is not called.
	Full func() bool

	// Observe is called after each transaction on the metadata with what it was for and how many keys it has
	// touched, concurrently; for figures and tests. nil: it is not.
	Observe func(op string, keys int)

	// Logger hears of what the background does; nil: nothing does.
	Logger *slog.Logger
}

// Store is an open store of snapshots. Its methods, and those of its namespaces, may be called
// concurrently.
type Store struct {
	root    string
	driver  Driver
	opts    Options
	log     *slog.Logger
	lock    *os.File
	db      *holdfast.DB
	ids     ids
	busy    busy
	flush   *flusher
	reaper  *reaper
	digests chore
	measure chore

	mu       sync.RWMutex
	clients  map[string]bool // namespaces of which nothing is pruned
	distrust []commitRange   // commits whose content may not be on the disk
	suspect  ID              // a flush failed after this one was begun
	holds    map[ID]int      // see Namespace.Hold: how many there are
	deep     map[ID]struct{} // ends of chains of which was said that they are long

	quarantine quarantine

	lastUse    atomic.Uint64
	ctx        context.Context // ends when the store closes
	stop       context.CancelFunc
	background sync.WaitGroup
	reconciled chan struct{} // closed when Reconcile has ended
	report     Report
	reportErr  error
	closed     atomic.Bool
	closing    sync.Mutex
	closeErr   error

	observe func(op string, keys int) // nil: nothing
}

// commitRange are the numbers of some commits, both ends included.
type commitRange struct{ first, last uint64 }

const (
	metadataName = "metadata.db"
	lockName     = "lock"
	snapshotsDir = "snapshots"
	newDir       = "new"
	trashDir     = "trash"

	quarantineName = "quarantine" // made when it is needed
)

// vacuumBytes is how much of metadata.db must be free for it to be made shorter: what some ten thousand
// snapshots take, if that is a quarter of it.
const vacuumBytes = 2 << 20

// storeVersion is the version of the layout that this package reads and writes.
const storeVersion = 1

// Open opens the store in the directory root, and makes one if there is none. Directories that
// a crash left are looked for in the background, see Reconciled. Errors: ErrLocked, whose
// text names the process; ErrOtherDriver, ErrNoMetadata, ErrCorrupt; ErrNotStore, with which nothing was
// changed; what holdfast.Open returns.
func Open(root string, options Options) (*Store, error) {
	s, err := open(root, options)
	if err != nil {
		return nil, fmt.Errorf("open snapshot store %s: %w", root, err)
	}
	return s, nil
}

func open(root string, options Options) (_ *Store, err error) {
	if options.Driver == nil {
		return nil, fmt.Errorf("%w: no driver", ErrInvalid)
	}
	if _, ok := options.Driver.(Digester); options.Digests && !ok {
		return nil, fmt.Errorf("digests of content: %w by driver %s", ErrUnsupported, options.Driver.Name())
	}
	if root, err = filepath.Abs(root); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, err
	}
	s := &Store{root: root, driver: options.Driver, opts: options, log: options.Logger, observe: options.Observe,
		clients: map[string]bool{}, digests: newChore(), measure: newChore(), reconciled: make(chan struct{})}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			_ = s.release()
		}
	}()
	if err := s.enter(); err != nil {
		return nil, err
	}
	if p, ok := s.driver.(Prober); ok {
		if err := p.Probe(root); err != nil {
			return nil, fmt.Errorf("driver %s: %w", s.driver.Name(), err)
		}
	}
	for _, dir := range []string{snapshotsDir, newDir, trashDir} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o700); err != nil {
			return nil, err
		}
	}
	if p, ok := s.driver.(Starter); ok {
		if err := p.Start(s.ctx, root); err != nil {
			return nil, fmt.Errorf("driver %s: %w", s.driver.Name(), err)
		}
	}
	if s.flush, err = newFlusher(filepath.Join(root, snapshotsDir)); err != nil {
		return nil, err
	}
	s.db, err = holdfast.Open(filepath.Join(root, metadataName), 0o600, &holdfast.Options{
		Durability: options.Durability, Share: options.Share, AutoVacuum: &holdfast.AutoVacuum{MinBytes: vacuumBytes}, Timeout: time.Second})
	if err != nil {
		return nil, unreadable(filepath.Join(root, metadataName), err)
	}
	if err := s.load(); err != nil {
		return nil, err
	}
	if err := s.openQuarantine(); err != nil {
		return nil, err
	}
	s.start()
	return s, nil
}

// enter takes the lock. A directory that is not the store's stays as it is.
func (s *Store) enter() (err error) {
	path := filepath.Join(s.root, lockName)
	for {
		s.lock, err = takeLock(path, false)
		made := errors.Is(err, fs.ErrNotExist)
		if errors.Is(err, syscall.EISDIR) {
			return fmt.Errorf("%w: %w", ErrNotStore, err)
		}
		if err != nil && !made {
			return err
		}
		if err = checkPlace(s.root, s.driver); err != nil {
			if _, there := os.Lstat(path); made && there == nil { // another process is making a store meanwhile
				continue
			}
			return err
		}
		if made {
			s.lock, err = takeLock(path, true)
		}
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return err
		}
		return sign(s.lock)
	}
}

// start begins what goes on in the background.
func (s *Store) start() {
	s.reaper = newReaper(s)
	s.background.Go(s.reaper.run)
	s.background.Go(s.reconcile)
	if s.opts.Sync == SyncDeferred {
		s.background.Go(s.flushLater)
	}
	if !s.alwaysDurable() {
		s.background.Go(s.runEntered)
	}
	if _, ok := s.driver.(Digester); ok {
		s.background.Go(func() { s.runChore(&s.digests, "computing digests of snapshots", s.Digested) })
	}
	if s.reaper.finisher != nil {
		s.background.Go(s.reaper.runFinish)
	}
	s.background.Go(func() { s.runChore(&s.measure, "measuring snapshots", s.Measured) })
}

// Database is the file of the metadata, for its figures. It must not be written through it, nor closed.
func (s *Store) Database() *holdfast.DB { return s.db }

// Root is the directory of the store.
func (s *Store) Root() string { return s.root }

// Driver is the driver of the store.
func (s *Store) Driver() Driver { return s.driver }

// Close ends what goes on in the background and closes the store. Snapshots that are to
// be removed are removed after the next Open. Further calls return what the first did.
func (s *Store) Close() error {
	s.closing.Lock()
	defer s.closing.Unlock()
	if s.closed.Load() {
		return s.closeErr
	}
	s.stop()
	s.background.Wait()
	if s.opts.Sync == SyncDeferred {
		s.closeErr = s.flushDeferred()
	}
	for _, end := range []func() error{s.unmarkEntered, func() error { return s.ids.giveBack(s) }} {
		if err := end(); err != nil && s.closeErr == nil {
			s.closeErr = err
		}
	}
	s.closed.Store(true)
	if err := s.release(); err != nil && s.closeErr == nil {
		s.closeErr = err
	}
	return s.closeErr
}

// release gives up what is open.
func (s *Store) release() error {
	s.stop()
	var errs []error
	if s.db != nil {
		errs = append(errs, s.db.Close())
	}
	if s.flush != nil {
		errs = append(errs, s.flush.close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close()) // and with it the lock
	}
	return errors.Join(errs...)
}

// dir is the directory of a snapshot.
func (s *Store) dir(id ID) string { return filepath.Join(s.root, snapshotsDir, id.String()) }

// layer is a snapshot at its place.
func (s *Store) layer(id ID) Layer { return Layer{ID: id, Dir: s.dir(id)} }

func (s *Store) layers(ids []ID) []Layer {
	layers := make([]Layer, len(ids))
	for i, id := range ids {
		layers[i] = s.layer(id)
	}
	return layers
}

// now is the time; it does not go backwards while the store is open, so that the order of
// use is right when the clock is set.
func (s *Store) now() uint64 {
	for {
		last := s.lastUse.Load()
		now := max(uint64(max(time.Now().UnixNano(), 1)), last)
		if s.lastUse.CompareAndSwap(last, now) {
			return now
		}
	}
}

// trusts is ErrDistrusted if the content of a committed snapshot may not be on the disk.
func (s *Store) trusts(r *record) error {
	if r.commit == 0 {
		return nil
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, d := range s.distrust {
		if d.first <= r.commit && r.commit <= d.last {
			return ErrDistrusted
		}
	}
	return nil
}

// DeepChain is how many snapshots may stand on each other before that is worth a warning: mounting
// them takes longer with each.
const DeepChain = 128

// deepEnds is how many ends of chains are remembered.
const deepEnds = 1024

// warnDeep logs, once for each end, that a chain of parents is long.
func (s *Store) warnDeep(namespace, end string, parents []ID) {
	if len(parents) <= DeepChain {
		return
	}
	s.mu.Lock()
	_, known := s.deep[parents[0]]
	if !known {
		if s.deep == nil || len(s.deep) >= deepEnds {
			s.deep = map[ID]struct{}{}
		}
		s.deep[parents[0]] = struct{}{}
	}
	s.mu.Unlock()
	if !known {
		s.log.Warn("a snapshot stands on many others; mounting it takes longer with each",
			"namespace", namespace, "snapshot", end, "layers", len(parents), "warned above", DeepChain)
	}
}

// isClient tells whether the snapshot with this key belongs to a client.
func (s *Store) isClient(key []byte) bool {
	namespace, _, err := splitKey(key)
	s.mu.RLock()
	defer s.mu.RUnlock()
	return err == nil && s.clients[namespace]
}

// alwaysDurable tells whether a transaction is on the disk when it returns.
func (s *Store) alwaysDurable() bool { return s.opts.Durability == holdfast.Full }

// durable returns when all that was committed is on the disk.
func (s *Store) durable() error {
	if s.alwaysDurable() {
		return nil
	}
	return s.db.Sync()
}
