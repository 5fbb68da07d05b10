package ops

import (
	"fmt"
	"runtime/debug"
)

// Cursor are the methods of a cursor.
type Cursor interface {
	First() ([]byte, []byte)
	Last() ([]byte, []byte)
	Next() ([]byte, []byte)
	Prev() ([]byte, []byte)
	Seek([]byte) ([]byte, []byte)
	Delete() error
}

// Bucket are the methods of a bucket.
type Bucket[B any, C Cursor] interface {
	comparable
	Bucket([]byte) B
	CreateBucket([]byte) (B, error)
	CreateBucketIfNotExists([]byte) (B, error)
	DeleteBucket([]byte) error
	ForEach(func(k, v []byte) error) error
	ForEachBucket(func(k []byte) error) error
	Put(key, value []byte) error
	Delete([]byte) error
	Get([]byte) []byte
	Sequence() uint64
	SetSequence(uint64) error
	NextSequence() (uint64, error)
	Cursor() C
}

// Tx are the methods of a transaction.
type Tx[B any, C Cursor] interface {
	Bucket([]byte) B
	CreateBucket([]byte) (B, error)
	CreateBucketIfNotExists([]byte) (B, error)
	DeleteBucket([]byte) error
	ForEach(func(name []byte, b B) error) error
	Cursor() C
	Commit() error
	Rollback() error
}

// DB are the methods of a database.
type DB[T any] interface {
	Begin(writable bool) (T, error)
	Close() error
}

// Engine holds what of an engine is not a method with the same type everywhere.
type Engine[D DB[T], T Tx[B, C], B Bucket[B, C], C Cursor] struct {
	Open    func(path string, o Options) (D, error)
	Check   func(T) <-chan error
	SetFill func(b B, percent float64)
	// Put puts key; nil: the bucket's Put.
	Put func(b B, key, value []byte) error
	// Compact copies db to a new file in transactions of max bytes.
	Compact func(db D, path string, max int64) error
}

// Runner runs operations on one engine. It holds one database at a time.
type Runner[D DB[T], T Tx[B, C], B Bucket[B, C], C Cursor] struct {
	engine Engine[D, T, B, C]
	db     D
	txs    map[int]*openTx[T, C]
}

type openTx[T any, C any] struct {
	tx      T
	cursors map[int]C
}

// NewRunner returns a runner on engine.
func NewRunner[D DB[T], T Tx[B, C], B Bucket[B, C], C Cursor](engine Engine[D, T, B, C]) *Runner[D, T, B, C] {
	return &Runner[D, T, B, C]{engine: engine, txs: map[int]*openTx[T, C]{}}
}

// Do runs op. A panic of the engine becomes the result's error.
func (r *Runner[D, T, B, C]) Do(op Op) (res Result) {
	defer func() {
		if p := recover(); p != nil {
			res.Err = fmt.Sprintf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	if err := r.do(op, &res); err != nil {
		res.Err = err.Error()
	}
	return res
}

func (r *Runner[D, T, B, C]) do(op Op, res *Result) (err error) {
	switch op.Kind {
	case Open:
		r.db, err = r.engine.Open(op.File, op.Options)
		return err
	case Close:
		return r.db.Close()
	case Compact:
		return r.engine.Compact(r.db, op.File+CompactSuffix, int64(op.N))
	case Begin:
		tx, err := r.db.Begin(op.Writable)
		if err == nil {
			r.txs[op.Tx] = &openTx[T, C]{tx: tx, cursors: map[int]C{}}
		}
		return err
	}
	t := r.txs[op.Tx]
	switch op.Kind {
	case Commit:
		return t.tx.Commit()
	case Rollback:
		return t.tx.Rollback()
	case Check:
		for err := range r.engine.Check(t.tx) {
			res.Lines = append(res.Lines, err.Error())
		}
		return nil
	case Dump:
		return r.dump(t.tx, newDigest(), op, res)
	case List:
		return r.dump(t.tx, &lister{}, op, res)
	case WriteTo:
		return writeTo(t.tx, op.File+CopySuffix)
	}
	if op.Kind >= First {
		return moveCursor(t.cursors[op.Cursor], op, res)
	}
	if len(op.Path) == 0 {
		return r.atTop(t, op, res)
	}
	b := r.bucket(t.tx, op.Path)
	var none B
	if b == none {
		res.Err = NoBucket
		return nil
	}
	return r.inBucket(t, b, op, res)
}

func (r *Runner[D, T, B, C]) bucket(tx T, path []string) (b B) {
	var none B
	for i, name := range path {
		if i == 0 {
			b = tx.Bucket([]byte(name))
		} else {
			b = b.Bucket([]byte(name))
		}
		if b == none {
			return none
		}
	}
	return b
}

// atTop runs an operation on the top level, where the transaction stands for
// the bucket.
func (r *Runner[D, T, B, C]) atTop(t *openTx[T, C], op Op, res *Result) (err error) {
	switch op.Kind {
	case CreateBucket:
		_, err = t.tx.CreateBucket(op.Key)
	case CreateBucketIfNotExists:
		_, err = t.tx.CreateBucketIfNotExists(op.Key)
	case DeleteBucket:
		err = t.tx.DeleteBucket(op.Key)
	case MoveBucket:
		var none B
		return r.move(t.tx, none, op, res)
	case ForEach, ForEachBucket:
		d := newDigest()
		err = t.tx.ForEach(func(name []byte, _ B) error {
			d.element(name, nil)
			return nil
		})
		res.Value, res.N = d.sum(), d.n
	case NewCursor:
		t.cursors[op.Cursor] = t.tx.Cursor()
	case Inspect:
		inspect(t.tx, res)
	default:
		res.Err = Unsupported
	}
	return err
}

func (r *Runner[D, T, B, C]) inBucket(t *openTx[T, C], b B, op Op, res *Result) (err error) {
	switch op.Kind {
	case CreateBucket:
		_, err = b.CreateBucket(op.Key)
	case CreateBucketIfNotExists:
		_, err = b.CreateBucketIfNotExists(op.Key)
	case DeleteBucket:
		err = b.DeleteBucket(op.Key)
	case MoveBucket:
		return r.move(t.tx, b, op, res)
	case ForEach:
		d := newDigest()
		err = b.ForEach(func(k, v []byte) error {
			d.element(k, v)
			return nil
		})
		res.Value, res.N = d.sum(), d.n
	case ForEachBucket:
		d := newDigest()
		err = b.ForEachBucket(func(k []byte) error {
			d.element(k, nil)
			return nil
		})
		res.Value, res.N = d.sum(), d.n
	case Put:
		if op.Fill != 0 {
			r.engine.SetFill(b, op.Fill)
		}
		value := op.Value
		if value == nil && !op.NilValue {
			value = []byte{}
		}
		if r.engine.Put != nil {
			err = r.engine.Put(b, op.Key, value)
		} else {
			err = b.Put(op.Key, value)
		}
	case Delete:
		err = b.Delete(op.Key)
	case Get:
		v := b.Get(op.Key)
		res.Value, res.HasValue = clone(v), v != nil
	case Sequence:
		res.N = b.Sequence()
	case SetSequence:
		err = b.SetSequence(op.N)
	case NextSequence:
		res.N, err = b.NextSequence()
	case NewCursor:
		t.cursors[op.Cursor] = b.Cursor()
	case Inspect:
		inspect(b, res)
	case BucketStats:
		bucketStats(b, res)
	}
	return err
}

// move moves bucket op.Key from src, or from the top level if src is nil.
// Versions of bbolt before 1.4 cannot.
func (r *Runner[D, T, B, C]) move(tx T, src B, op Op, res *Result) error {
	var dst, none B
	if len(op.Dst) > 0 {
		if dst = r.bucket(tx, op.Dst); dst == none {
			res.Err = NoBucket
			return nil
		}
	}
	m, ok := any(tx).(interface {
		MoveBucket(child []byte, src, dst B) error
	})
	if !ok {
		res.Err = Unsupported
		return nil
	}
	return m.MoveBucket(op.Key, src, dst)
}

func moveCursor(c Cursor, op Op, res *Result) error {
	var k, v []byte
	switch op.Kind {
	case First:
		k, v = c.First()
	case Last:
		k, v = c.Last()
	case Next:
		k, v = c.Next()
	case Prev:
		k, v = c.Prev()
	case Seek:
		k, v = c.Seek(op.Key)
	case CursorDelete:
		return c.Delete()
	}
	res.Key, res.HasKey = clone(k), k != nil
	res.Value, res.HasValue = clone(v), v != nil
	return nil
}

func clone(b []byte) []byte { return append([]byte(nil), b...) }
