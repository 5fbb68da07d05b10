package stores

import (
	"fmt"

	"holdfast/bench/age"
	"holdfast/bench/age/trace"
)

// The methods of engines with bbolt's API that are used.
type (
	cursorAPI interface {
		First() ([]byte, []byte)
		Next() ([]byte, []byte)
	}
	bucketsAPI[B any, C cursorAPI] interface {
		Bucket([]byte) B
		CreateBucketIfNotExists([]byte) (B, error)
		DeleteBucket([]byte) error
		Cursor() C
	}
	bucketAPI[B any, C cursorAPI] interface {
		comparable
		bucketsAPI[B, C]
		Get([]byte) []byte
		Put(key, value []byte) error
		Delete([]byte) error
	}
	dbAPI[T any] interface {
		View(func(T) error) error
		Update(func(T) error) error
		Sync() error
		Close() error
	}
)

// nested is an open database of an engine with bbolt's API.
type nested[D dbAPI[T], T bucketsAPI[B, C], B bucketAPI[B, C], C cursorAPI] struct{ db D }

func (s *nested[D, T, B, C]) Apply(tx []age.Op) error {
	return s.db.Update(func(t T) error {
		for i := range tx {
			if err := s.apply(t, &tx[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *nested[D, T, B, C]) apply(t T, op *age.Op) error {
	switch op.Do {
	case trace.Put, trace.Create:
		b, err := t.CreateBucketIfNotExists(op.Bucket[0])
		for _, name := range op.Bucket[1:] {
			if err != nil {
				return err
			}
			b, err = b.CreateBucketIfNotExists(name)
		}
		if err != nil || op.Do == trace.Create {
			return err
		}
		return b.Put(op.Key, op.Value)
	case trace.Delete:
		var none B
		if b := s.bucket(t, op.Bucket); b != none {
			return b.Delete(op.Key)
		}
		return nil
	case trace.Drop:
		return s.drop(t, op.Bucket)
	}
	return fmt.Errorf("there is no operation %q", op.Do)
}

// bucket is the one at the path, or nil.
func (s *nested[D, T, B, C]) bucket(t T, path [][]byte) B {
	var none B
	b := t.Bucket(path[0])
	for _, name := range path[1:] {
		if b == none {
			break
		}
		b = b.Bucket(name)
	}
	return b
}

// drop removes the bucket at the path, if it is there.
func (s *nested[D, T, B, C]) drop(t T, path [][]byte) error {
	var none B
	if s.bucket(t, path) == none {
		return nil
	}
	last := len(path) - 1
	if last == 0 {
		return t.DeleteBucket(path[0])
	}
	return s.bucket(t, path[:last]).DeleteBucket(path[last])
}

func (s *nested[D, T, B, C]) Get(name *age.Op) (n int, err error) {
	err = s.db.View(func(t T) error {
		var none B
		b := s.bucket(t, name.Bucket)
		if b == none {
			return age.ErrNoKey
		}
		value := b.Get(name.Key)
		if value == nil {
			return age.ErrNoKey
		}
		n = len(value)
		return nil
	})
	return n, err
}

func (s *nested[D, T, B, C]) Scan() (n int, err error) {
	err = s.db.View(func(t T) error {
		n = scan[B](t)
		return nil
	})
	return n, err
}

// scan counts the keys in b and in the buckets in it.
func scan[B bucketAPI[B, C], C cursorAPI](b bucketsAPI[B, C]) (n int) {
	c := b.Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		if v == nil {
			n += scan[B](b.Bucket(k))
		} else {
			n++
		}
	}
	return n
}

func (s *nested[D, T, B, C]) Walk(fn func(flat, value []byte) error) error {
	return s.db.View(func(t T) error { return walk[B](t, nil, fn) })
}

func walk[B bucketAPI[B, C], C cursorAPI](b bucketsAPI[B, C], path []byte, fn func(flat, value []byte) error) error {
	c := b.Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		var err error
		if v == nil {
			err = walk[B](b.Bucket(k), age.AppendBucket(path[:len(path):len(path)], k), fn)
		} else {
			err = fn(age.AppendKey(path[:len(path):len(path)], k), v)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *nested[D, T, B, C]) Sync() error { return s.db.Sync() }

func (s *nested[D, T, B, C]) Close() error { return s.db.Close() }
