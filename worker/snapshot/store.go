package snapshot

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
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
	// For those who call Commit where it must not take long. Linux only.
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

	// Digests has every Commit be one with WithDigest.
	Digests bool

	// Full is called when the metadata could not be written since the disk is full. If it
	// has made room, and returns true, the transaction is tried once more. nil: it is not.
	Full func() bool

	// Observe is called after each transaction on the metadata with what it was for and how many keys it has
	// touched, concurrently; for figures and tests. nil: it is not.
	Observe func(op string, keys int)

	// Logger hears of what the background does; nil: nobody does.
	Logger *slog.Logger
}

// Store is an open store of snapshots. Its methods, and those of its tenants, may be called
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
	digests digests

	mu       sync.RWMutex
	clients  map[string]bool // tenants of which nothing is pruned
	distrust []commitRange   // commits whose content may not be on the disk
	suspect  ID              // a flush failed after this one was begun
	deep     map[ID]struct{} // ends of chains of which was said that they are long

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

	observe func(op string, keys int) // nil: nobody
}

// commitRange are the numbers of some commits, both ends included.
type commitRange struct{ first, last uint64 }

const (
	metadataName = "metadata.db"
	lockName     = "lock"
	snapshotsDir = "snapshots"
	newDir       = "new"
	trashDir     = "trash"
)

// vacuumBytes is how much of metadata.db must be free for it to be made shorter: what some ten thousand
// snapshots take, if that is a quarter of it.
const vacuumBytes = 2 << 20

// storeVersion is the version of the layout that this package reads and writes.
const storeVersion = 1

// Open opens the store in the directory root, and makes one if there is none. Directories that
// a crash left are looked for in the background, see Reconciled. Errors: ErrLocked, whose
// text names the process; ErrOtherDriver, ErrNoMetadata; what holdfast.Open returns.
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
	for _, dir := range []string{"", snapshotsDir, newDir, trashDir} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o700); err != nil {
			return nil, err
		}
	}
	s := &Store{root: root, driver: options.Driver, opts: options, log: options.Logger, observe: options.Observe,
		clients: map[string]bool{}, digests: newDigests(), reconciled: make(chan struct{})}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			_ = s.release()
		}
	}()
	if s.lock, err = takeLock(filepath.Join(root, lockName)); err != nil {
		return nil, err
	}
	if err := s.guardMetadata(); err != nil {
		return nil, err
	}
	if p, ok := s.driver.(Prober); ok {
		if err := p.Probe(root); err != nil {
			return nil, fmt.Errorf("driver %s: %w", s.driver.Name(), err)
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
		Durability: options.Durability, AutoVacuum: &holdfast.AutoVacuum{MinBytes: vacuumBytes}, Timeout: time.Second})
	if err != nil {
		return nil, err
	}
	if err := s.load(); err != nil {
		return nil, err
	}
	s.start()
	return s, nil
}

// guardMetadata refuses a root with snapshots and no metadata: all of them would be
// orphans.
func (s *Store) guardMetadata() error {
	if _, err := os.Stat(filepath.Join(s.root, metadataName)); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return s.guardNew()
}

// guardNew is guardMetadata for metadata that are new.
func (s *Store) guardNew() error {
	dir, err := os.Open(filepath.Join(s.root, snapshotsDir))
	if err != nil {
		return err
	}
	defer dir.Close()
	if names, _ := dir.Readdirnames(1); len(names) > 0 {
		return fmt.Errorf("%w: restore it from a backup, or move the directory %s away to begin anew", ErrNoMetadata, dir.Name())
	}
	return nil
}

// load makes or reads what the metadata say of the whole store.
func (s *Store) load() error {
	boot, err := bootID()
	if err != nil && s.opts.Sync == SyncDeferred {
		return fmt.Errorf("SyncDeferred: %w", err)
	}
	if t := testBootID.Load(); t != nil {
		boot = *t
	}
	return s.update("open", func(t *txn) error {
		if t.tx.Bucket([]byte(bucketNames[inMeta])) == nil {
			if err := s.guardNew(); err != nil { // the file may have been emptied
				return err
			}
			if err := t.create(); err != nil {
				return err
			}
		}
		if err := t.checkStore(); err != nil {
			return err
		}
		if err := t.addVerified(); err != nil {
			return err
		}
		if err := t.loadLists(); err != nil {
			return err
		}
		return t.loadSync(boot)
	})
}

// create makes the buckets of a new store.
func (t *txn) create() error {
	for _, name := range bucketNames {
		if _, err := t.tx.CreateBucket([]byte(name)); err != nil {
			return err
		}
	}
	return t.put(inMeta, keyStore, appendString([]byte{storeVersion}, t.store.driver.Name()))
}

// checkStore verifies version and driver.
func (t *txn) checkStore() error {
	v, err := t.get(inMeta, keyStore)
	if err != nil {
		return err
	}
	d := decoder{rest: v}
	version, driver := d.byte(), d.string()
	if version != storeVersion && len(v) > 0 {
		return fmt.Errorf("%w: a snapshot store of version %d; this program knows version %d", ErrUnsupported, version, storeVersion)
	}
	if err := d.end(); err != nil {
		return corruptf("description of the store: %v", err)
	}
	if want := t.store.driver.Name(); driver != want {
		return fmt.Errorf("%w: it was made with driver %s, and is opened with %s", ErrOtherDriver, driver, want)
	}
	return nil
}

// loadLists reads what is kept in memory: next ID, clients, distrusted commits.
func (t *txn) loadLists() error {
	s := t.store
	s.distrust = nil // it may be the second attempt
	v, err := t.get(inMeta, keyIDs)
	if err != nil {
		return err
	}
	s.ids.next, s.ids.limit = 1, 1
	if v != nil {
		n, _, err := fixed("next ID", v, 1)
		if err == nil && n > maxID {
			err = corruptf("next ID: %d", n)
		}
		if err != nil {
			return err
		}
		s.ids.next, s.ids.limit = max(ID(n), 1), max(ID(n), 1)
	}
	if v, err = t.get(inMeta, keySuspect); err != nil {
		return err
	}
	if v != nil {
		n, _, err := fixed("suspect ID", v, 1)
		if err != nil {
			return err
		}
		s.suspect = ID(n)
	}
	err = t.scan(inTenants, nil, nil, func(k, v []byte) (bool, error) {
		client, err := parseTenant(v)
		s.clients[string(k)] = client
		return true, err
	})
	if err != nil {
		return err
	}
	return t.scan(inDistrusted, nil, nil, func(k, v []byte) (bool, error) {
		last, _, err := fixed("distrusted commits", k, 1)
		if err != nil {
			return false, err
		}
		first, _, err := fixed("distrusted commits", v, 1)
		s.distrust = append(s.distrust, commitRange{first, last})
		return true, err
	})
}

// loadSync finds out whether the machine went down before all was flushed.
func (t *txn) loadSync(boot string) error {
	v, err := t.get(inMeta, keySync)
	if err != nil {
		return err
	}
	st, err := parseSyncState(v)
	if err != nil {
		return err
	}
	if st.boot == boot && boot != "" {
		return nil
	}
	if st.commit > st.synced {
		lost := commitRange{st.synced + 1, st.commit}
		t.store.distrust = append(t.store.distrust, lost)
		t.store.log.Warn("the machine went down before the content of these commits was on the disk",
			"first", lost.first, "last", lost.last)
		if err := t.put(inDistrusted, number(lost.last), number(lost.first)); err != nil {
			return err
		}
		st.synced = st.commit
	}
	st.boot = boot
	return t.put(inMeta, keySync, st.append(nil))
}

// start begins what goes on in the background.
func (s *Store) start() {
	s.reaper = newReaper(s)
	s.background.Go(s.reaper.run)
	s.background.Go(s.reconcile)
	if s.opts.Sync == SyncDeferred {
		s.background.Go(s.flushLater)
	}
	if _, ok := s.driver.(Digester); ok {
		s.background.Go(s.runDigests)
	}
	if s.reaper.finisher != nil {
		s.background.Go(s.reaper.runFinish)
	}
}

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
	if err := s.ids.giveBack(s); err != nil && s.closeErr == nil {
		s.closeErr = err
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
func (s *Store) warnDeep(tenant, end string, parents []ID) {
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
			"tenant", tenant, "snapshot", end, "layers", len(parents), "warned above", DeepChain)
	}
}

// isClient tells whether the snapshot with this key belongs to a client.
func (s *Store) isClient(key []byte) bool {
	tenant, _, err := splitKey(key)
	s.mu.RLock()
	defer s.mu.RUnlock()
	return err == nil && s.clients[tenant]
}

// ids gives out IDs. They are reserved in blocks, so that a directory can have its ID before
// there is a transaction.
type ids struct {
	mu          sync.Mutex
	next, limit ID
	making      map[ID]struct{} // no transaction names them: they were given out, or are an orphan's that is being deleted
}

// idBlock is how many IDs are reserved at a time. A crash wastes what is left of a block.
const idBlock = 1024

// take gives an ID whose snapshot is going to be made; done or giveBack ends that.
func (n *ids) take(s *Store) (ID, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		if n.next == n.limit {
			limit := n.limit + idBlock
			if err := s.reserve(limit); err != nil {
				return 0, fmt.Errorf("reserve IDs: %w", err)
			}
			n.limit = limit
		}
		id := n.next
		n.next++
		if n.claim(id) {
			return id, nil
		}
	}
}

// claim notes that an ID is somebody's; false if it is already.
func (n *ids) claim(id ID) bool {
	if _, taken := n.making[id]; taken {
		return false
	}
	if n.making == nil {
		n.making = map[ID]struct{}{}
	}
	n.making[id] = struct{}{}
	return true
}

// claimOrphan claims the ID of a directory that was found; false if somebody makes its snapshot. Until done, nobody
// gets it.
func (n *ids) claimOrphan(id ID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.claim(id)
}

// done says that the directory of an ID has a record, or is gone.
func (n *ids) done(id ID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.making, id)
}

// giveBack returns the rest of a block when the store closes. Who still takes one has to reserve it anew.
func (n *ids) giveBack(s *Store) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next == n.limit {
		return nil
	}
	err := s.reserve(n.next)
	if err == nil {
		n.limit = n.next
	}
	return err
}

// reserve stores, durably, that IDs below limit may be in use.
func (s *Store) reserve(limit ID) error {
	err := s.update("reserve", func(t *txn) error {
		return t.put(inMeta, keyIDs, binary.BigEndian.AppendUint64(nil, uint64(limit)))
	})
	if err != nil {
		return err
	}
	return s.durable()
}

// durable returns when all that was committed is on the disk.
func (s *Store) durable() error {
	if s.opts.Durability == holdfast.Full {
		return nil
	}
	return s.db.Sync()
}
