package holdfast

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"holdfast/internal/autovacuum"
	"holdfast/internal/bucket"
	"holdfast/internal/longwait"
	"holdfast/internal/page"
	"holdfast/internal/pager"
	"holdfast/internal/statsfile"
	"holdfast/internal/tree"
	"holdfast/internal/vfs"
)

// DB is an open database: a file of buckets. Its methods may be called
// concurrently. The fields are as in bbolt; those that a running transaction
// reads must not be changed meanwhile.
type DB struct {
	// StrictMode checks the whole database after each commit and panics if it
	// is damaged. For debugging: it costs in proportion to the file.
	StrictMode bool

	// NoSync leaves out the flushes of commits. After a power failure the file
	// may be damaged beyond use; so it may after a failed flush, if the process
	// is killed before it has closed the database. See also Sync.
	NoSync bool

	// NoFreelistSync, FreelistType, NoGrowSync, PreLoadFreelist, MmapFlags and
	// Mlock are as in Options.
	NoFreelistSync  bool
	FreelistType    FreelistType
	NoGrowSync      bool
	PreLoadFreelist bool
	MmapFlags       int

	// MaxBatchSize is the number of calls that Batch joins in one transaction
	// at most; 0 or less: Batch does not join any.
	MaxBatchSize int

	// MaxBatchDelay is how long Batch waits for more calls; 0 or less: not at
	// all.
	MaxBatchDelay time.Duration

	// AllocSize is the step in bytes by which a file larger than it grows.
	AllocSize int

	// MaxSize is as in Options.
	MaxSize int

	Mlock bool

	pager       *pager.Pager
	path        string
	readOnly    bool
	noStats     bool
	durability  Durability
	noSeals     bool
	onDamage    OnDamage
	logger      Logger
	closed      atomic.Bool
	edit        *tree.Edit // of the writing transaction; the one that has the writer lock owns it
	stats       txTotals
	batch       batcher
	onCommits   commitOrder
	durableBase bool // write transactions begin on durable states only
	closing     sync.Mutex
	vacuuming   chan struct{}    // holds one token, of the vacuum that runs
	auto        *autovacuum.Auto // nil: it is off
	shown       *statsfile.Shown // nil: figures are not shown
	foreign     bool             // another process has it open, see OpenShared
	waits       longwait.Waits
}

// Open opens the database at path, and creates it with the given mode if there
// is none, unless options.ReadOnly is set. nil options are DefaultOptions.
// Only one process can have a database open for writing: Open waits for its
// lock as long as Options.Timeout says and then returns ErrTimeout. The environment
// variables HOLDFAST_* (docs/adopting.md) add to the options. The errors
// of a file that is not a database are ErrInvalid, ErrVersionMismatch and
// ErrChecksum; those of a damaged one wrap a *CorruptError.
func Open(path string, mode os.FileMode, options *Options) (*DB, error) {
	options, err := withEnvironment(options, path)
	if err != nil {
		return nil, err
	}
	if err := options.validate(); err != nil { // before there is a file
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	flag := os.O_RDWR | os.O_CREATE
	if options.ReadOnly {
		flag = os.O_RDONLY
	}
	file, err := vfs.OpenOS(path, flag, mode, options.OpenFile)
	if err != nil {
		return nil, err
	}
	return openFile(file, options, true)
}

// openExisting opens the database at path for writing, and makes none where there
// is none: an empty file is ErrInvalid. Nothing is committed to it. What the environment says does not count.
func openExisting(path string, options *Options) (*DB, error) {
	file, err := vfs.OpenOS(path, os.O_RDWR, 0, options.OpenFile)
	if err != nil {
		return nil, err
	}
	return openFile(file, options, false)
}

// openFile opens the database in file, which it takes over. Unless create is set it
// makes none of a file that is empty, or whose creation was interrupted.
func openFile(file vfs.File, options *Options, create bool) (*DB, error) {
	db := newDB(file.Name(), options)
	db.logger.Infof("Opening db file (%s) with options: %s", db.path, options)
	p, err := pager.Open(file, db.pagerOptions(options, create))
	if err != nil {
		db.logger.Errorf("Opening db file (%s) failed: %v", db.path, err)
		return nil, db.corrupt(err)
	}
	db.pager, db.waits.Lock = p, p
	if options.AutoVacuum != nil && !options.ReadOnly {
		db.auto = newAuto(db, *options.AutoVacuum)
		db.auto.Arm()
	}
	if !options.ReadOnly {
		db.share(options)
	}
	db.logger.Infof("Opening db file (%s) successfully", db.path)
	return db, nil
}

// topPages is how many pages Open reads at most to see that a program will get anywhere: most have fewer buckets, and
// those that are not in the page cache cost a read each.
const topPages = 32

// newDB returns a DB without its file.
func newDB(path string, options *Options) *DB {
	db := &DB{
		NoSync:          options.NoSync,
		NoFreelistSync:  options.NoFreelistSync,
		FreelistType:    options.FreelistType,
		NoGrowSync:      options.NoGrowSync,
		PreLoadFreelist: options.PreLoadFreelist || !options.ReadOnly,
		MmapFlags:       options.MmapFlags,
		MaxBatchSize:    DefaultMaxBatchSize,
		MaxBatchDelay:   DefaultMaxBatchDelay,
		AllocSize:       DefaultAllocSize,
		MaxSize:         options.MaxSize,
		Mlock:           options.Mlock,
		path:            path,
		readOnly:        options.ReadOnly,
		noStats:         options.NoStatistics,
		durability:      options.Durability,
		noSeals:         options.NoSeals,
		onDamage:        options.OnDamage,
		durableBase:     options.DurableBase || options.StrictCompat,
		logger:          options.Logger,
		edit:            &tree.Edit{Unsealed: options.NoSeals},
		vacuuming:       make(chan struct{}, 1),
	}
	if db.logger == nil {
		db.logger = discardLogger
	}
	return db
}

// pagerOptions are what the pager is told of the options of a DB.
func (db *DB) pagerOptions(options *Options, create bool) pager.Options {
	var waits func() func() // nil without a logger, which it is for
	if db.logger != discardLogger {
		db.waits.Path, db.waits.Warn = db.path, db.logger.Warningf
		waits = db.waits.Wait
	}
	// Not for programs that may read what damage has left, nor where the file is only settled or resealed.
	var top func(*pager.State) error
	if create && options.OnDamage != DamageIsError {
		top = func(s *pager.State) error {
			// Where there is no freelist page, bbolt scans the file when it wants to know its free pages, and stops at any damage.
			scans := s.Meta.Freelist == page.NoFreelist && db.PreLoadFreelist
			return bucket.Top(s, s.Meta.Root, scans, topPages)
		}
	}
	return pager.Options{
		ReadOnly:     options.ReadOnly,
		NoCreate:     !create,
		SettleOnly:   !create, // see openExisting
		Timeout:      options.Timeout,
		PageSize:     options.PageSize,
		InitialMap:   int64(options.InitialMmapSize),
		MapFlags:     options.MmapFlags,
		ReadAhead:    options.ReadAhead,
		Lock:         options.Mlock,
		LoadFreeList: options.PreLoadFreelist,
		StrictCompat: options.StrictCompat,
		PlainDelay:   options.SettleDelay,

		PeriodicDelay: options.PeriodicDelay,
		PeriodicBytes: options.PeriodicBytes,
		NoSeals:       options.NoSeals,
		TimeWriters:   options.AutoVacuum != nil,
		Waits:         waits,
		Log:           db.logger.Infof,
		Scan: func(s *pager.State, used func(page.Extent) error) error {
			return bucket.EachRun(s, s.Meta.Root, used)
		},
		Top:      top,
		Whole:    db.whole,
		KeysOnly: func(s *pager.State) (uint64, bool) { return bucket.KeysOnly(s, s.Meta.Root, uint64(s.Meta.HighWater)) },
	}
}

// corrupt puts the file's name before an error that reports damage. Others it
// returns as they are.
func (db *DB) corrupt(err error) error {
	if isDamage(err) {
		return fmt.Errorf("%s is damaged: %w", db.path, err)
	}
	return err
}

func isDamage(err error) bool {
	var damage *CorruptError
	return errors.As(err, &damage)
}

// Close waits for all transactions and closes the file. Stock bbolt finds the newest
// state in it, and a freelist page, so that it need not scan the file, unless
// NoFreelistSync is set or nothing was committed. It returns ErrStopped if its own
// flush fails or it finds the file shortened; not again what a commit or Sync has
// reported. Calls on a closed DB return ErrDatabaseNotOpen.
func (db *DB) Close() error {
	if db.pager == nil {
		return nil
	}
	db.closing.Lock()
	defer db.closing.Unlock()
	if db.closed.Load() {
		return nil
	}
	db.auto.Stop()
	db.shown.Stop()
	commit := db.commitOptions()
	commit.AllocSize = 0 // the freelist page is the last: no room after it
	err := db.pager.Close(pager.CloseOptions{NoFreelist: db.NoFreelistSync, Commit: commit})
	db.closed.Store(true)
	db.waits.Close()
	if err != nil {
		db.logger.Errorf("Closing db file (%s) failed: %v", db.path, err)
	}
	return err
}

// ignoreNoSync is true where a mapping does not show what was written until it
// is flushed.
const ignoreNoSync = runtime.GOOS == "openbsd"

func (db *DB) commitOptions() pager.CommitOptions {
	mode := db.durability
	if db.NoSync && !ignoreNoSync {
		mode = None
	}
	return pager.CommitOptions{
		Mode:      mode,
		AllocSize: int64(db.AllocSize),
		MaxSize:   int64(db.MaxSize),
	}
}

// Path is the path of the file, "" after Close.
func (db *DB) Path() string {
	if db.closed.Load() {
		return ""
	}
	return db.path
}

// IsReadOnly tells whether the database was opened for reading only.
func (db *DB) IsReadOnly() bool { return db.readOnly }

// Logger is the logger that was given to Open, or one that drops everything.
func (db *DB) Logger() Logger {
	if db == nil || db.logger == nil {
		return discardLogger
	}
	return db.logger
}

// GoString gives the DB in Go syntax.
func (db *DB) GoString() string { return fmt.Sprintf("holdfast.DB{path:%q}", db.Path()) }

// String names the DB.
func (db *DB) String() string { return fmt.Sprintf("DB<%q>", db.Path()) }

// Sync returns when all commits that have returned are durable, and found by stock
// bbolt too (see Options.StrictCompat). With NoSync set it is what makes earlier
// commits durable.
func (db *DB) Sync() error {
	if db.pager == nil {
		return ErrDatabaseNotOpen
	}
	return db.pager.Sync()
}

// Info is the mapping as raw memory.
type Info struct {
	Data     uintptr
	PageSize int
}

// Info gives the address of the newest mapping and the page size. The address
// is good until the database is closed or has outgrown the mapping. It panics
// if the database is not open.
func (db *DB) Info() *Info {
	if db.pager == nil {
		panic(ErrDatabaseNotOpen)
	}
	data := db.pager.Data()
	if len(data) == 0 {
		panic(ErrDatabaseNotOpen)
	}
	return &Info{Data: uintptr(unsafe.Pointer(&data[0])), PageSize: db.pager.PageSize()}
}

// Begin starts a transaction. Any number may read, one may write; a second
// writer waits for the first. Each transaction must be ended, a reading one by
// Rollback, or the pages that it sees are never used again.
//
// A reading transaction sees the database as it was at Begin. It holds no
// lock: it waits for nothing and nothing waits for it, also while the file
// grows.
//
// Damage that a reading transaction from Begin meets in a call that has no error to return
// is a panic, unless Options.OnDamage says otherwise; View has an error to return.
func (db *DB) Begin(writable bool) (*Tx, error) {
	if db.pager == nil {
		return nil, ErrDatabaseNotOpen
	}
	if writable {
		return db.beginWrite(true)
	}
	tx, err := db.beginRead()
	if err == nil {
		tx.panics = db.onDamage == DamagePanics
	}
	return tx, err
}

func (db *DB) beginRead() (*Tx, error) {
	if db.pager == nil {
		return nil, ErrDatabaseNotOpen
	}
	snap, err := db.pager.Begin()
	if err != nil {
		return nil, err
	}
	state := snap.Value()
	tx := &Tx{db: db, snap: snap, state: state}
	if tx.foreign = snap.Foreign(); tx.foreign != nil {
		tx.buckets.Source = tx.foreign
	} else {
		tx.buckets.Source = state.Image()
	}
	return tx, nil
}

// beginWrite begins a writing transaction. byHand says that the program did so with Begin.
func (db *DB) beginWrite(byHand bool) (*Tx, error) {
	var w *pager.WriteTx
	var err error
	if db.durableBase {
		w, err = db.pager.BeginDurable(db.commitOptions().Mode)
	} else {
		w, err = db.pager.BeginWrite()
	}
	if err != nil {
		return nil, err
	}
	db.edit.Reset(w)
	both := new(struct { // one allocation
		tx Tx
		w  writeTx
	})
	tx := &both.tx
	tx.db, tx.state, tx.w = db, w.Base(), &both.w
	tx.w.w = w
	tx.buckets = bucket.Tx{Source: w, Writer: w, Edit: db.edit, Size: tx.Size()}
	tx.w.root.tx = tx
	tx.w.root.FillPercent = DefaultFillPercent
	tx.w.root.core.OpenRoot(&tx.buckets, tx.state.Meta.Root, tx.state.Meta.Sequence)
	tx.w.root.core.SetOuter(&tx.w.root, &tx.w.root.FillPercent)
	if db.logger != discardLogger {
		db.waits.Begun(tx, byHand)
	}
	return tx, nil
}

// Update runs fn in a writing transaction and commits it if fn returns nil;
// otherwise, and if fn panics, nothing of it happened. fn must not end the
// transaction itself. If the transaction has met damage Update returns that, joined to the
// error of fn if there is one.
func (db *DB) Update(fn func(*Tx) error) error {
	if db.pager == nil {
		return ErrDatabaseNotOpen
	}
	tx, err := db.beginWrite(false)
	if err != nil {
		return err
	}
	defer tx.rollback() // for a panic; ended transactions do not mind
	if err := tx.manage(fn); err != nil {
		return tx.rollbackWith(err)
	}
	return tx.Commit()
}

// View runs fn in a reading transaction. fn must not end the transaction
// itself. If the transaction has met damage View returns that, joined to the error of fn if
// there is one.
func (db *DB) View(fn func(*Tx) error) error {
	tx, err := db.beginRead()
	if err != nil {
		return err
	}
	return tx.rollbackWith(tx.manage(fn))
}
