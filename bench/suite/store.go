package suite

import (
	"encoding/binary"
	"fmt"
	"sync"
	"time"
)

// Bucket is the bucket in which the workloads keep their keys.
var bucketName = []byte("keys")

// The methods that the workloads use of each engine with bbolt's API.
type (
	cursorAPI interface {
		First() ([]byte, []byte)
		Last() ([]byte, []byte)
		Next() ([]byte, []byte)
		Prev() ([]byte, []byte)
	}
	bucketAPI[C cursorAPI] interface {
		Get([]byte) []byte
		Put(key, value []byte) error
		Cursor() C
	}
	txAPI[B any] interface {
		Bucket([]byte) B
		CreateBucketIfNotExists([]byte) (B, error)
		DeleteBucket([]byte) error
		Rollback() error
	}
	dbAPI[T any] interface {
		Begin(bool) (T, error)
		View(func(T) error) error
		Update(func(T) error) error
		Sync() error
		Close() error
	}
)

// Store is an open database of any engine, with the inner loops of the
// workloads.
type Store interface {
	// EmptyViews runs n reading transactions that do nothing.
	EmptyViews(n int) error
	// ViewGets reads the keys, each in a transaction of its own.
	ViewGets(keys [][]byte) error
	// Gets reads the keys in one transaction.
	Gets(keys [][]byte) error
	// Scan walks all keys and returns how many there are.
	Scan() (int, error)
	ScanBack() (int, error)
	// Sleepers is the benchmark of bbolt #967: workers goroutines run ten
	// transactions each that read one key and sleep. It returns the time of
	// each transaction.
	Sleepers(workers int) ([]time.Duration, error)
	// Put puts the keys with their values in one transaction.
	Put(keys, values [][]byte) error
	// Fill puts n values under sequential numbers into the bucket name.
	Fill(name []byte, from, n int, value []byte) error
	// DeleteBucket removes a bucket.
	DeleteBucket(name []byte) error
	// Hold begins a reading transaction and returns what ends it.
	Hold() (release func() error, err error)
	// Sync flushes the file.
	Sync() error
	Close() error
}

type store[D dbAPI[T], T txAPI[B], B bucketAPI[C], C cursorAPI] struct {
	db   D
	fill func(B, float64)
}

func (s *store[D, T, B, C]) EmptyViews(n int) error {
	fn := func(T) error { return nil }
	for range n {
		if err := s.db.View(fn); err != nil {
			return err
		}
	}
	return nil
}

func (s *store[D, T, B, C]) ViewGets(keys [][]byte) error {
	var key []byte
	fn := func(tx T) error {
		if tx.Bucket(bucketName).Get(key) == nil {
			return fmt.Errorf("there is no key %q", key)
		}
		return nil
	}
	for _, key = range keys {
		if err := s.db.View(fn); err != nil {
			return err
		}
	}
	return nil
}

func (s *store[D, T, B, C]) Gets(keys [][]byte) error {
	return s.db.View(func(tx T) error {
		b := tx.Bucket(bucketName)
		for _, key := range keys {
			if b.Get(key) == nil {
				return fmt.Errorf("there is no key %q", key)
			}
		}
		return nil
	})
}

func (s *store[D, T, B, C]) Scan() (n int, err error) {
	err = s.db.View(func(tx T) error {
		c := tx.Bucket(bucketName).Cursor()
		for k, _ := c.First(); k != nil; k, _ = c.Next() {
			n++
		}
		return nil
	})
	return n, err
}

func (s *store[D, T, B, C]) ScanBack() (n int, err error) {
	err = s.db.View(func(tx T) error {
		c := tx.Bucket(bucketName).Cursor()
		for k, _ := c.Last(); k != nil; k, _ = c.Prev() {
			n++
		}
		return nil
	})
	return n, err
}

func (s *store[D, T, B, C]) Sleepers(workers int) ([]time.Duration, error) {
	key := []byte("5000")
	return sleepers(workers, func() error {
		return s.db.View(func(tx T) error {
			if tx.Bucket(bucketName).Get(key) == nil {
				return fmt.Errorf("there is no key %q", key)
			}
			time.Sleep(sleep)
			return nil
		})
	})
}

func (s *store[D, T, B, C]) Put(keys, values [][]byte) error {
	return s.db.Update(func(tx T) error {
		b, err := tx.CreateBucketIfNotExists(bucketName)
		if err != nil {
			return err
		}
		for i, key := range keys {
			if err := b.Put(key, values[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *store[D, T, B, C]) Fill(name []byte, from, n int, value []byte) error {
	return s.db.Update(func(tx T) error {
		b, err := tx.CreateBucketIfNotExists(name)
		if err != nil {
			return err
		}
		s.fill(b, 0.9)
		for i := from; i < from+n; i++ {
			if err := b.Put(binary.BigEndian.AppendUint64(nil, uint64(i)), value); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *store[D, T, B, C]) DeleteBucket(name []byte) error {
	return s.db.Update(func(tx T) error { return tx.DeleteBucket(name) })
}

func (s *store[D, T, B, C]) Hold() (func() error, error) {
	tx, err := s.db.Begin(false)
	if err != nil {
		return nil, err
	}
	return tx.Rollback, nil
}

func (s *store[D, T, B, C]) Sync() error { return s.db.Sync() }

func (s *store[D, T, B, C]) Close() error { return s.db.Close() }

// sleep is what a transaction of Sleepers takes without the database.
const sleep = 30 * time.Microsecond

// sleepers runs view ten times in each of many goroutines.
func sleepers(workers int, view func() error) ([]time.Duration, error) {
	const rounds = 10
	times := make([]time.Duration, workers*rounds)
	errs := make(chan error, 1)
	var start, done sync.WaitGroup
	start.Add(1)
	for w := range workers {
		done.Go(func() {
			start.Wait()
			for i := range rounds {
				began := time.Now()
				err := view()
				times[w*rounds+i] = time.Since(began)
				if err != nil {
					select {
					case errs <- err:
					default:
					}
					return
				}
			}
		})
	}
	start.Done()
	done.Wait()
	select {
	case err := <-errs:
		return nil, err
	default:
		return times, nil
	}
}
