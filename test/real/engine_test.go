package real

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"holdfast"
)

// engineRoot is what the transactions of both engines have.
type engineRoot[B any] interface {
	CreateBucketIfNotExists(name []byte) (B, error)
	DeleteBucket(name []byte) error
}

// engineBucket is what the buckets of both engines have.
type engineBucket[B any] interface {
	engineRoot[B]
	comparable
	Bucket(name []byte) B
	Put(key, value []byte) error
	Delete(key []byte) error
	NextSequence() (uint64, error)
	Sequence() uint64
	ForEach(fn func(k, v []byte) error) error
}

// rootOf is a transaction as a container.
type rootOf[B engineBucket[B]] struct{ in engineRoot[B] }

func (r rootOf[B]) child(name string) (bucket, error) {
	b, err := r.in.CreateBucketIfNotExists([]byte(name))
	if err != nil {
		return nil, err
	}
	return bucketOf[B]{rootOf[B]{b}, b}, nil
}

func (r rootOf[B]) drop(name string) error {
	err := r.in.DeleteBucket([]byte(name))
	if errors.Is(err, holdfast.ErrBucketNotFound) || errors.Is(err, berrors.ErrBucketNotFound) {
		return nil
	}
	return err
}

// bucketOf is a bucket of an engine.
type bucketOf[B engineBucket[B]] struct {
	rootOf[B]
	b B
}

func (b bucketOf[B]) put(key string, value []byte) error { return b.b.Put([]byte(key), value) }
func (b bucketOf[B]) remove(key string) error            { return b.b.Delete([]byte(key)) }

func (b bucketOf[B]) next() error {
	_, err := b.b.NextSequence()
	return err
}

// engineTx is what the transactions of both engines have for reading.
type engineTx[B any] interface {
	engineRoot[B]
	Bucket(name []byte) B
	ForEach(fn func(name []byte, b B) error) error
}

// transaction is a transaction of either engine.
type transaction struct {
	root container
	// lines is the content, as model.lines has it.
	lines func() ([]string, error)
	// number is that of the newest commit, 0 in a new file.
	number func() uint64
	// check is what the engine's own check finds.
	check func() error
}

func newTransaction[B engineBucket[B]](tx engineTx[B], check func() <-chan error) transaction {
	return transaction{
		root:  rootOf[B]{tx},
		lines: func() ([]string, error) { return linesOf(tx) },
		number: func() uint64 {
			var none B
			b := tx.Bucket([]byte(numberBucket))
			if b == none {
				return 0
			}
			var n uint64
			_ = b.ForEach(func(_, v []byte) error {
				n = binary.BigEndian.Uint64(v)
				return nil
			})
			return n
		},
		check: func() error {
			var faults []error
			for fault := range check() {
				faults = append(faults, fault)
			}
			return errors.Join(faults...)
		},
	}
}

func linesOf[B engineBucket[B]](tx engineTx[B]) (lines []string, err error) {
	var none B
	var walk func(path string, b B) error
	walk = func(path string, b B) error {
		if b == none {
			return fmt.Errorf("bucket %s cannot be opened", path)
		}
		return b.ForEach(func(k, v []byte) error {
			if v != nil {
				lines = append(lines, valueLine(path, k, v))
				return nil
			}
			child := b.Bucket(k)
			if child == none {
				return fmt.Errorf("bucket %s%s cannot be opened", path, k)
			}
			lines = append(lines, bucketLine(path, k, child.Sequence()))
			return walk(path+string(k)+"/", child)
		})
	}
	err = tx.ForEach(func(name []byte, b B) error {
		if b == none {
			return fmt.Errorf("bucket %s cannot be opened", name)
		}
		lines = append(lines, bucketLine("", name, b.Sequence()))
		return walk(string(name)+"/", b)
	})
	return lines, err
}

// engine is an open database of either kind.
type engine interface {
	update(fn func(tx transaction) error) error
	view(fn func(tx transaction) error) error
	// compactTo writes a compacted copy to path.
	compactTo(path string) error
	// sync returns when what was committed is durable, for both engines.
	sync() error
	// groupSize is the number of transactions that were written with the last.
	groupSize() int
	close() error
}

// openOptions are the options that the tests vary.
type openOptions struct {
	PageSize       int
	AllocSize      int
	NoFreelistSync bool
	NoSync         bool
	ReadOnly       bool
	StrictCompat   bool          // Holdfast only
	SettleDelay    time.Duration // Holdfast only
	Durability     holdfast.Durability
}

// holdfast are these options as Holdfast takes them.
func (o openOptions) holdfast() *holdfast.Options {
	return &holdfast.Options{
		OnDamage: holdfast.DamageIsError, // the tests ask Tx.Err
		PageSize: o.PageSize, NoFreelistSync: o.NoFreelistSync, NoSync: o.NoSync, ReadOnly: o.ReadOnly, PreLoadFreelist: o.ReadOnly,
		StrictCompat: o.StrictCompat, SettleDelay: o.SettleDelay, Durability: o.Durability, Timeout: lockTimeout,
	}
}

type holdfastDB struct{ *holdfast.DB }

func openHoldfast(path string, o openOptions) (holdfastDB, error) {
	db, err := holdfast.Open(path, 0o600, o.holdfast())
	if err != nil {
		return holdfastDB{}, err
	}
	if o.AllocSize != 0 {
		db.AllocSize = o.AllocSize
	}
	return holdfastDB{db}, nil
}

func (db holdfastDB) update(fn func(tx transaction) error) error {
	return db.Update(func(tx *holdfast.Tx) error { return fn(newHoldfastTx(tx)) })
}

func (db holdfastDB) view(fn func(tx transaction) error) error {
	return db.View(func(tx *holdfast.Tx) error { return fn(newHoldfastTx(tx)) })
}

func newHoldfastTx(tx *holdfast.Tx) transaction {
	return newTransaction(tx, func() <-chan error { return tx.Check() })
}

func (db holdfastDB) compactTo(path string) error {
	dst, err := openHoldfast(path, openOptions{NoSync: true})
	if err != nil {
		return err
	}
	return errors.Join(holdfast.Compact(dst.DB, db.DB, 64<<10), dst.close())
}

func (db holdfastDB) sync() error    { return db.Sync() }
func (db holdfastDB) groupSize() int { return db.Stats().GroupSize }
func (db holdfastDB) close() error   { return db.Close() }

type stockDB struct{ *bbolt.DB }

// openStock opens a file with bbolt, always without a synced freelist, whose
// pages bbolt v1.5.0 may leak.
func openStock(path string, o openOptions) (stockDB, error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{
		PageSize: o.PageSize, NoFreelistSync: true, NoSync: o.NoSync, Timeout: lockTimeout,
		FreelistType: bbolt.FreelistMapType,
	})
	if err != nil {
		return stockDB{}, err
	}
	if o.AllocSize != 0 {
		db.AllocSize = o.AllocSize
	}
	return stockDB{db}, nil
}

func (db stockDB) update(fn func(tx transaction) error) error {
	return db.Update(func(tx *bbolt.Tx) error { return fn(newStockTx(tx)) })
}

func (db stockDB) view(fn func(tx transaction) error) error {
	return db.View(func(tx *bbolt.Tx) error { return fn(newStockTx(tx)) })
}

func newStockTx(tx *bbolt.Tx) transaction {
	return newTransaction(tx, func() <-chan error { return tx.Check() })
}

func (db stockDB) compactTo(path string) error {
	dst, err := openStock(path, openOptions{NoSync: true})
	if err != nil {
		return err
	}
	return errors.Join(bbolt.Compact(dst.DB, db.DB, 64<<10), dst.close())
}

func (db stockDB) sync() error    { return db.Sync() }
func (db stockDB) groupSize() int { return 1 }
func (db stockDB) close() error   { return db.Close() }

// open opens a file with the engine of that name, bbolt or Holdfast.
func open(name, path string, o openOptions) (engine, error) {
	if name == "bbolt" {
		return openStock(path, o)
	}
	return openHoldfast(path, o)
}

// copyFile copies a file, in pieces of that many bytes.
func copyFile(to, from string, piece int) error {
	if err := os.Remove(to); err != nil && !os.IsNotExist(err) {
		return err
	}
	return copyInto(to, from, piece)
}

// copyInto does so in the place of a file that may be there, and is no longer.
func copyInto(to, from string, piece int) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	for len(content) > 0 && err == nil {
		n := min(piece, len(content))
		_, err = f.Write(content[:n])
		content = content[n:]
	}
	return errors.Join(err, f.Close())
}
