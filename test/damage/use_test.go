package damage

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"runtime"
	"strings"
)

// database, transaction, bucket and cursor are what both engines have in common.
type database[T any] interface {
	View(fn func(T) error) error
	Update(fn func(T) error) error
	Close() error
}

type transaction[B any] interface {
	ForEach(fn func(name []byte, b B) error) error
	Bucket(name []byte) B
	CreateBucketIfNotExists(name []byte) (B, error)
	DeleteBucket(name []byte) error
}

type bucket[B any, C cursor] interface {
	comparable
	Bucket(name []byte) B
	CreateBucket(name []byte) (B, error)
	Cursor() C
	Delete(key []byte) error
	Get(key []byte) []byte
	Put(key, value []byte) error
	Sequence() uint64
	SetSequence(uint64) error
}

type cursor interface {
	First() (k, v []byte)
	Last() (k, v []byte)
	Next() (k, v []byte)
	Prev() (k, v []byte)
}

// engine says how to use files with one of them. open opens a file of size bytes.
type engine[D database[T], T transaction[B], B bucket[B, C], C cursor] struct {
	open  func() (D, error)
	check func(T) <-chan error
	size  int64 // of the file, in bytes
	// expects tells whether an error can come from damage; nil: any can.
	expects func(error) bool
}

// result is what became of one file.
type result struct {
	Open    string // the error; "" if there was none
	Walk    string
	Faults  int    // that check reported
	Fault   string // the first of them
	Content string // hash of all content, "" if the walk failed
	Write   string // error of a commit or of Close
	Worse   string // what writing made worse, although nothing had been found
	Alloc   uint64 // bytes allocated in all of this
	strange error  // one that the engine's expects refused
}

// detected tells whether the engine noticed anything before the file was written.
func (r *result) detected() bool { return r.Open != "" || r.Walk != "" || r.Faults > 0 }

// use does everything with one file.
func (e *engine[D, T, B, C]) use() (r result) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	defer func() {
		runtime.ReadMemStats(&after)
		r.Alloc = after.TotalAlloc - before.TotalAlloc
	}()
	db, err := e.open()
	if err != nil {
		r.Open, r.strange = text(err), e.strange(err)
		return r
	}
	first := e.look(db)
	r.Walk, r.Faults, r.Fault, r.Content = text(first.walk), first.faults, text(first.fault), first.content
	err = e.write(db, first.paths)
	again := e.look(db)
	err = errors.Join(err, db.Close())
	r.Write = text(err)
	for _, err := range []error{first.walk, first.fault, again.walk, again.fault, err} {
		if r.strange == nil {
			r.strange = e.strange(err)
		}
	}
	if r.detected() {
		return r
	}
	switch {
	case r.Write != "" && !strings.Contains(r.Write, usedUp):
		r.Worse = "write: " + r.Write
	case again.worse(first) != "":
		r.Worse = "then " + again.worse(first)
	default:
		r.Worse = e.reopened(first)
	}
	return r
}

// reopened looks at the file again after it was closed.
func (e *engine[D, T, B, C]) reopened(first looked) string {
	db, err := e.open()
	if err != nil {
		return "open again: " + err.Error()
	}
	defer db.Close()
	if worse := e.look(db).worse(first); worse != "" {
		return "opened again: " + worse
	}
	return ""
}

// usedUp is what Holdfast says to a write where a meta gives the last transaction
// id that there is. Nothing is wrong with such a file until somebody writes.
const usedUp = "transaction ids are used up"

// strange is an error in err that damage does not explain.
func (e *engine[D, T, B, C]) strange(err error) error {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range all.Unwrap() {
			if err := e.strange(err); err != nil {
				return err
			}
		}
		return nil
	}
	if err == nil || e.expects == nil || e.expects(err) {
		return nil
	}
	return err
}

func text(err error) string {
	if err == nil {
		return ""
	}
	s := err.Error()
	return s[:min(len(s), 300)]
}

// looked is what walk and check found.
type looked struct {
	walk    error  // of the engine
	content string // "" if the walk did not come to its end
	faults  int
	fault   error
	paths   [][][]byte // of buckets
}

// worse tells what is worse than it was at first, when nothing was found.
func (l looked) worse(first looked) string {
	switch {
	case l.walk != nil:
		return "walk: " + l.walk.Error()
	case l.faults > 0:
		return fmt.Sprintf("%d faults: %v", l.faults, l.fault)
	case l.content != first.content:
		return "the content is another"
	}
	return ""
}

func (e *engine[D, T, B, C]) look(db D) (l looked) {
	w := walker[B, C]{hash: sha256.New(), bytesLeft: 4*e.size + 1<<20, keysLeft: e.size}
	var incomplete error
	l.walk = db.View(func(tx T) error {
		err := tx.ForEach(func(name []byte, b B) error { return w.bucket([][]byte{clone(name)}, b) })
		if incomplete = err; errors.Is(err, errIncomplete) {
			return nil // which is not the engine's error; it may have one of its own
		}
		return err
	})
	if l.walk == nil && incomplete == nil {
		l.content = fmt.Sprintf("%x", w.hash.Sum(nil)[:12])
	}
	l.paths = w.paths
	// What was met here is not an error of the view: check found it too, or did not.
	_ = db.View(func(tx T) error {
		for fault := range e.check(tx) {
			if l.faults++; l.fault == nil {
				l.fault = fault
			}
		}
		return nil
	})
	return l
}

// Bounds of a walk, which a damaged file can make endless for who walks as a
// user does.
const (
	maxWalkDepth = 10
	maxWalkPaths = 60
)

// errIncomplete is of a walk that meets more than the file can hold, a bucket that
// cannot be opened, or fewer keys in one direction than in the other.
var errIncomplete = errors.New("the walk is not complete")

// walker hashes all content. It goes forward and backward.
type walker[B bucket[B, C], C cursor] struct {
	hash      hash.Hash
	bytesLeft int64
	keysLeft  int64
	paths     [][][]byte
}

func (w *walker[B, C]) add(kind byte, b []byte) {
	var head [9]byte
	head[0] = kind
	binary.LittleEndian.PutUint64(head[1:], uint64(len(b)))
	w.hash.Write(head[:])
	w.hash.Write(b)
	w.bytesLeft -= int64(len(b)) + 1
}

func (w *walker[B, C]) bucket(path [][]byte, b B) error {
	var none B
	if b == none {
		return errIncomplete
	}
	if len(path) > maxWalkDepth {
		return errIncomplete
	}
	if len(w.paths) < maxWalkPaths {
		w.paths = append(w.paths, path)
	}
	w.add('b', path[len(path)-1])
	w.add('s', binary.LittleEndian.AppendUint64(nil, b.Sequence()))
	n, c := 0, b.Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		if n++; int64(n) > w.keysLeft || w.bytesLeft < 0 {
			return errIncomplete
		}
		w.add('k', k)
		if v != nil {
			w.add('v', v)
			continue
		}
		child := append(path[:len(path):len(path)], clone(k))
		if err := w.bucket(child, b.Bucket(k)); err != nil {
			return err
		}
	}
	w.add('e', nil)
	w.keysLeft -= int64(n)
	back := 0
	for k, _ := c.Last(); k != nil; k, _ = c.Prev() {
		if back++; back > n {
			break
		}
	}
	if back != n {
		return errIncomplete
	}
	return nil
}

func clone(b []byte) []byte { return append([]byte{}, b...) }

// own are keys and a bucket that no file has, one before all others, one among
// them, one behind.
var (
	ownKeys   = [][]byte{{0, 0, 1}, []byte("key001500x"), {0xFF, 0xFF, 0xFF}}
	ownBucket = []byte("own bucket")
)

// write commits changes all over the file that leave its content as it was.
func (e *engine[D, T, B, C]) write(db D, paths [][][]byte) error {
	each := func(do func(b B) error) error {
		return db.Update(func(tx T) error {
			for _, path := range paths {
				if b, ok := open[T, B, C](tx, path); ok {
					if err := do(b); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	err := each(func(b B) error {
		for _, k := range ownKeys {
			if err := b.Put(k, make([]byte, 300)); err != nil {
				return err
			}
		}
		return nil
	})
	errOwn := db.Update(func(tx T) error {
		b, err := tx.CreateBucketIfNotExists(ownBucket)
		for i := 0; i < 100 && err == nil; i++ {
			err = b.Put(fmt.Appendf(nil, "%d", i), make([]byte, 50*i))
		}
		return err
	})
	errSame := each(rewrite[B, C])
	errDelete := each(func(b B) error {
		for _, k := range ownKeys {
			if err := b.Delete(k); err != nil {
				return err
			}
		}
		return nil
	})
	return errors.Join(err, errOwn, errSame, errDelete, db.Update(func(tx T) error { return tx.DeleteBucket(ownBucket) }))
}

// rewrite puts some of a bucket's values again as they are, and deletes and puts
// some others.
func rewrite[B bucket[B, C], C cursor](b B) error {
	type pair struct{ k, v []byte }
	var pairs []pair
	c, i := b.Cursor(), 0
	for k, v := c.First(); k != nil && len(pairs) < 200; k, v = c.Next() {
		if i++; v != nil && i%7 == 0 && len(v) < 1<<17 {
			pairs = append(pairs, pair{clone(k), clone(v)})
		}
	}
	for i, p := range pairs {
		if i%2 == 0 {
			if err := b.Delete(p.k); err != nil {
				return err
			}
		}
		if err := b.Put(p.k, p.v); err != nil {
			return err
		}
	}
	return nil
}

// open opens the bucket of a path.
func open[T transaction[B], B bucket[B, C], C cursor](tx T, path [][]byte) (B, bool) {
	var none B
	b := tx.Bucket(path[0])
	for _, name := range path[1:] {
		if b == none {
			return none, false
		}
		b = b.Bucket(name)
	}
	return b, b != none
}
