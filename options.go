package holdfast

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"time"

	"holdfast/internal/page"
	"holdfast/internal/pager"
)

// Limits of keys and values, in bytes.
const (
	MaxKeySize   = page.MaxKeySize
	MaxValueSize = page.MaxValueSize
)

// Defaults of the fields of DB.
const (
	DefaultMaxBatchSize  = 1000
	DefaultMaxBatchDelay = 10 * time.Millisecond
	DefaultAllocSize     = 16 << 20
)

// DefaultFillPercent is the value of Bucket.FillPercent in a bucket that was
// just opened. It lets Holdfast choose: pages to which keys were appended are
// filled, others are split in halves.
const DefaultFillPercent = 0.5

// Durability is how a commit is made durable.
type Durability = pager.Durability

// Modes of durability. In all of them a commit that has returned is there after the
// process was killed.
const (
	// Full: a commit returns when it is on the disk. Those that are under way at the
	// same time share a flush.
	Full = pager.Full

	// Periodic: a commit returns when it is visible. It is flushed a little later, with
	// all that were made meanwhile, see Options.PeriodicDelay. After a power failure
	// the database is what some commit left, the last that was flushed or a later one,
	// whole.
	Periodic = pager.Periodic

	// None is bbolt's NoSync: nothing is flushed but by DB.Sync. After a power failure
	// the file may be damaged.
	None = pager.None
)

// FreelistType is accepted for compatibility with bbolt. Holdfast has one
// structure for free pages, whose cost does not depend on how many there are.
type FreelistType string

// The values that bbolt knows.
const (
	FreelistArrayType = FreelistType("array")
	FreelistMapType   = FreelistType("hashmap")
)

// Options say how to open a database. None has to be set: the zero value, and nil, are right for
// most programs.
//
//	for                                              set
//	an error, and not a wait, if the file is in use  Timeout
//	looking only, with other readers               ReadOnly
//	a file that shrinks by itself                    AutoVacuum
//	a file that does not outgrow its disk            MaxSize
//	commits many times as fast, of which a power     Durability: Periodic
//	failure may take the last 100 ms
//	scratch data that a power failure may take       Durability: None
//	bbolt to find every commit, also after a crash   StrictCompat
//	a program that mostly reads from end to end      ReadAhead
//	messages: damage, what fails, writers that wait  Logger
//	reading it from other processes; holdfast top    Share
//
// Several can also be set from outside, in the environment: see Environment.
type Options struct {
	// How a file is opened.

	// Timeout is how long to wait for the file's lock; 0 waits for ever.
	Timeout time.Duration

	// ReadOnly opens for reading only, with a lock that is shared with other
	// readers.
	ReadOnly bool

	// PreLoadFreelist finds the free pages on opening, also of a read-only
	// database. A writable one does so always.
	PreLoadFreelist bool

	// OpenFile opens the file in place of os.OpenFile.
	OpenFile func(string, int, os.FileMode) (*os.File, error)

	// How long a file is.

	// PageSize is the page size of a new file in bytes; 0 takes the system's. It is
	// rounded up to a power of two, and to 1,024: with others bbolt does not find
	// the second meta if the first is torn.
	PageSize int

	// MaxSize is the size in bytes beyond which the file does not grow; 0 or less: no
	// limit. The file grows in steps (powers of two up to AllocSize, then AllocSize
	// more than is needed), and a step counts as a whole, as in bbolt, so that
	// ErrMaxSizeReached may come while less than MaxSize is used.
	MaxSize int

	// AutoVacuum has the file made shorter by itself when much of it is free, while it is
	// in use. nil: it is not. The environment variable HOLDFAST_AUTO_VACUUM=on
	// switches it on with its defaults.
	AutoVacuum *AutoVacuum

	// What is on the disk when a commit returns, and what bbolt finds.

	// OnDamage is what becomes of damage that a call without an error to return, such as
	// Get, meets in a reading transaction from Begin: DamagePanics, the default, or
	// DamageIsError, for programs that look at Tx.Err or the error of Rollback. View, Update
	// and Batch return damage in either case, and so do Commit and Rollback of a writing
	// transaction from Begin, which cannot be committed. Open reads a few of the pages that
	// every program meets first, those on the way to the names of the buckets, and in a file
	// without a freelist page, which bbolt scans, the root pages of these. It fails if one of
	// them is damaged; not with DamageIsError, so that what is left can be read. The environment variable HOLDFAST_DAMAGE=error sets DamageIsError.
	OnDamage OnDamage

	// Durability is when a commit returns, and what is left of it after a power
	// failure. With DB.NoSync it is None.
	Durability Durability

	// PeriodicDelay is how long after its return a commit with Periodic may be lost
	// with the power, 0: 100 milliseconds, and PeriodicBytes how many bytes of pages
	// may be, 0: 16 MiB. Beyond, the commit waits for a flush.
	PeriodicDelay time.Duration
	PeriodicBytes int64

	// StrictCompat makes each commit with two flushes, as bbolt does, in place of
	// one. After a crash, that is without a Close, stock bbolt then finds the last
	// commit. Otherwise it finds the state before the last flush, whole, and the
	// last commit is found by Holdfast, which makes it visible to bbolt when it
	// opens the file. It implies DurableBase.
	StrictCompat bool

	// DurableBase has a writing transaction begin on a durable state only: Begin(true), Update
	// and Batch wait until what was committed before is on the disk. Otherwise the function of Update
	// may run on top of a commit that is being flushed; if that flush fails Update fails too, and
	// nothing of either is in the database, but what the function did elsewhere, such as
	// renaming or deleting files, stays. Set it for functions that do such things. Commits
	// of several goroutines do not share a flush then. StrictCompat implies it; it does not go with
	// Durability Periodic. With NoSync, and Durability None, it waits for what is being written.
	DurableBase bool

	// SettleDelay is how long after the last commit the newest state is written so
	// that stock bbolt finds it too (see StrictCompat), with one more flush. 0: twice as long
	// as commits are apart, but at least 50 milliseconds and at most a second, so that a program
	// that commits ten times a second pays for it when it pauses only. With Durability Periodic it
	// begins when PeriodicDelay has passed. If it is negative only Sync and Close do that.
	SettleDelay time.Duration

	// NoSync sets DB.NoSync.
	NoSync bool

	// How damage is found.

	// NoSeals leaves seals out: pages are written without, and those that are
	// there are not verified. A seal is a checksum in the last 8 bytes of a page,
	// verified when the page is first read; see docs/design.md. The environment
	// variable HOLDFAST_SEALS=off does the same.
	NoSeals bool

	// Memory.

	// ReadAhead lets the system read ahead of the page that is looked at, which makes going
	// through a large file that is not in memory many times as fast; who looks for
	// single keys reads more than is needed. Otherwise it is told that pages are looked at in no order, as by bbolt.
	ReadAhead bool

	// InitialMmapSize is the number of bytes to map at least. Holdfast maps
	// more than the file has anyway; no reader or writer waits for a new
	// mapping.
	InitialMmapSize int

	// MmapFlags are further flags for mmap, such as syscall.MAP_POPULATE.
	MmapFlags int

	// Mlock locks the mapped file in memory, where the system can.
	Mlock bool

	// What an operator sees.

	// Logger receives messages; nil: none. A writer that has waited for another transaction for
	// some seconds says so, with the stack of who has the writer lock: an Update within an Update
	// waits for ever. It may use the database, but not close it, and is not called once Close has
	// returned.
	Logger Logger

	// StatsDir is another name for Share, which goes before it, from before there was that. On systems where databases cannot be shared
	// a file with the figures of the database is replaced there every second, for "holdfast top" (see Snapshot).
	// The environment variable HOLDFAST_STATS does the same.
	StatsDir string

	// Share lets other processes read the database while it is open for writing: with OpenShared, and with the commands of
	// holdfast, which also show its figures and readers. It is a directory (an absolute path), made if it is not there, in which the database gets a
	// small file; "on" stands for DefaultShareDir. "off", and "" without StatsDir: it is not shared. Those who may read the
	// database, by its user or group, can then keep its pages from being used again, as its own readers can. A database that cannot be shared is opened all
	// the same, and the Logger told. The environment variable HOLDFAST_SHARE does the same. Linux.
	Share string

	// NoStatistics makes DB.Stats return zeroes. Counting costs next to
	// nothing here; the field is for compatibility. What a shared database shows is not affected.
	NoStatistics bool

	// What bbolt has and Holdfast does not need.

	// NoFreelistSync has Close write no freelist page, so that stock bbolt has to scan the file when it opens it. (While a
	// database is open Holdfast never writes one; it needs none. Nor does Close leave
	// one of more than 64 KiB that is longer than what was written since Open.)
	NoFreelistSync bool

	// NoGrowSync is accepted for compatibility. Holdfast always reserves the
	// space by which it grows the file.
	NoGrowSync bool

	// FreelistType is accepted for compatibility.
	FreelistType FreelistType
}

// validate tells whether the options go together.
func (o *Options) validate() error {
	if d := o.Durability; d < Full || d > None {
		return fmt.Errorf("a Durability of %d; it can be Full, Periodic or None", d)
	}
	if d := o.OnDamage; d < DamagePanics || d > DamageIsError {
		return fmt.Errorf("an OnDamage of %d; it can be DamagePanics or DamageIsError", int(d))
	}
	if o.StrictCompat && o.Durability == Periodic {
		return errors.New("StrictCompat does not go with Durability Periodic: bbolt would find a state from before the last flush")
	}
	if o.DurableBase && o.Durability == Periodic {
		return errors.New("DurableBase does not go with Durability Periodic: each transaction would wait for the flush of the one before")
	}
	if _, err := o.shareDir(); err != nil {
		return err
	}
	if o.AutoVacuum != nil {
		return o.AutoVacuum.validate()
	}
	return nil
}

// DefaultOptions are the options that Open uses if it is given none.
var DefaultOptions = &Options{FreelistType: FreelistArrayType}

// String names the options that differ from their zero values, for a log.
func (o *Options) String() string {
	if o == nil {
		return "{}"
	}
	var set []string
	v := reflect.ValueOf(*o)
	for i := range v.NumField() {
		f := v.Field(i)
		switch name := v.Type().Field(i).Name; {
		case f.IsZero():
		case f.Kind() == reflect.Func || f.Kind() == reflect.Interface:
			set = append(set, name)
		default:
			set = append(set, fmt.Sprintf("%s: %v", name, f.Interface()))
		}
	}
	return "{" + strings.Join(set, ", ") + "}"
}
