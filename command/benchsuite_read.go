package command

import (
	"fmt"
	"math/rand/v2"

	"holdfast"
)

// suiteReaders is how many goroutines read at once.
const suiteReaders = 4

// readers measures transactions that read one key, alone and while another goroutine
// commits. The readers rest between two of them, so that what is seen is who waits for the
// database, and not who waits for a processor.
func (s *benchSuite) readers(w *workloadReport) error {
	f := suiteFile{values: int(s.size / demoValueBytes), size: demoValueBytes, left: 1}
	if err := s.make("readers.db", f); err != nil {
		return err
	}
	return s.with("readers.db", holdfast.Options{}, func(db *holdfast.DB) error {
		if err := keysThere(db, demoBig, int64(f.values)); err != nil { // which also reads all of it: the first reads would find less of it in memory than the next
			return err
		}
		view := func(int) error {
			return db.View(func(tx *holdfast.Tx) error {
				if len(tx.Bucket(demoBig).Get(suiteKey(rand.IntN(f.values)))) != f.size {
					return errMissing
				}
				return tx.Err()
			})
		}
		commit := func() error { return db.Update(commitKey) }
		reading := phase{what: "readers", share: 1.0 / 3, workers: suiteReaders, rest: readPause}
		views, err := s.measure(reading, view)
		if err != nil {
			return err
		}
		alone, err := s.measure(phase{what: "a writer", share: 1.0 / 3, workers: 1}, func(int) error { return commit() })
		if err != nil {
			return err
		}
		reading.what = "readers and a writer"
		end := s.beside(commit)
		viewsBeside, err := s.measure(reading, view)
		beside, failed := end()
		if err != nil || failed != nil {
			return firstError(err, failed)
		}
		readers := plural(suiteReaders, "reader")
		quiet := w.add("views_alone", "View, "+readers, views)
		w.add("views_beside_commits", "View, "+readers+" and a writer", viewsBeside).to(quiet, ratioP99)
		quiet = w.add("commits_alone", "commit, a writer", alone)
		w.add("commits_beside_views", "commit, a writer and "+readers, beside).to(quiet, ratioP99)
		return committed(db, demoSmall, alone.n+beside.n)
	})
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// scanValue is the size of the values that are scanned, and of those that fill a file.
const scanValue = 100

// scan measures going over all keys.
func (s *benchSuite) scan(w *workloadReport) error {
	f := suiteFile{values: int(s.size / scanValue), size: scanValue, left: 1}
	if err := s.make("scan.db", f); err != nil {
		return err
	}
	each := int64(f.size + len(suiteKey(0)))
	return s.with("scan.db", holdfast.Options{}, func(db *holdfast.DB) error {
		var ops []clocked
		ways := []struct {
			name, label string
			walk        func(*holdfast.Bucket, func(k, v []byte) error) error
		}{
			{"next", "cursor, forward", func(b *holdfast.Bucket, fn func(k, v []byte) error) error {
				c := b.Cursor()
				for k, v := c.First(); k != nil; k, v = c.Next() {
					if err := fn(k, v); err != nil {
						return err
					}
				}
				return nil
			}},
			{"prev", "cursor, backward", func(b *holdfast.Bucket, fn func(k, v []byte) error) error {
				c := b.Cursor()
				for k, v := c.Last(); k != nil; k, v = c.Prev() {
					if err := fn(k, v); err != nil {
						return err
					}
				}
				return nil
			}},
			{"for_each", "ForEach", (*holdfast.Bucket).ForEach},
		}
		for _, way := range ways {
			ops = append(ops, clock(func() error { return s.scanOnce(db, f, way.walk) }))
		}
		times, err := s.turns("scan", 1, ops...)
		if err != nil {
			return err
		}
		for i, way := range ways {
			row := w.add(way.name, way.label, times[i])
			row.amount(times[i], row.Operations*int64(f.values), row.Operations*int64(f.values)*each)
			row.to(w.Rows[0], ratioKeys)
		}
		return w.Rows[0].file(db)
	})
}

// scanOnce goes over all keys and sees that none is missing.
func (s *benchSuite) scanOnce(db *holdfast.DB, f suiteFile, walk func(*holdfast.Bucket, func(k, v []byte) error) error) error {
	return db.View(func(tx *holdfast.Tx) error {
		keys, bytes := 0, 0
		err := walk(tx.Bucket(demoBig), func(_, v []byte) error {
			keys++
			bytes += len(v)
			if keys%tickEvery == 0 {
				return s.ctx.Err()
			}
			return nil
		})
		if err == nil && (keys != f.values || bytes != keys*f.size) {
			err = fmt.Errorf("%w: %d keys were written, and %d are read", errMissing, f.values, keys)
		}
		return firstError(err, tx.Err())
	})
}

// largeBytes is how many bytes of values of each size are kept.
const largeBytes = 16 << 20

// large measures large values, each put in a durable transaction of its own and read in one
// of its own.
func (s *benchSuite) large(w *workloadReport) error {
	sizes := []int{64 << 10, 256 << 10, 1 << 20}
	share := 1 / float64(2*len(sizes))
	return s.with("large.db", holdfast.Options{}, func(db *holdfast.DB) error {
		var puts, gets *suiteRow
		for _, n := range sizes {
			l := &largeValues{db: db, bucket: fmt.Appendf(nil, "%d", n), value: make([]byte, n)}
			name := size(int64(n))
			before := db.Stats()
			put, err := s.measure(phase{what: "put " + name, share: share, workers: 1}, l.put)
			if err != nil {
				return err
			}
			row := w.add(fmt.Sprintf("put_%dkib", n>>10), "put, "+name, put)
			row.amount(put, 0, put.n*int64(n))
			row.wrote(db, before)
			if err := row.file(db); err != nil {
				return err
			}
			if puts == nil {
				puts = row
			}
			row.to(puts, ratioBytes)
			get, err := s.measure(phase{what: "get " + name, share: share, workers: 1}, l.get)
			if err != nil {
				return err
			}
			row = w.add(fmt.Sprintf("get_%dkib", n>>10), "get, "+name, get)
			row.amount(get, 0, get.n*int64(n))
			if gets == nil {
				gets = row
			}
			row.to(gets, ratioBytes)
			if err := keysThere(db, l.bucket, int64(l.keys())); err != nil {
				return err
			}
		}
		return nil
	})
}

// largeValues are values of one size, in a bucket of their own.
type largeValues struct {
	db           *holdfast.DB
	bucket       []byte
	value        []byte
	written, got int
}

// keys is how many values there are.
func (l *largeValues) keys() int { return min(l.written, largeBytes/len(l.value)) }

func (l *largeValues) put(int) error {
	for at := 0; at < len(l.value); at += len(suiteNoise) {
		copy(l.value[at:], suiteNoise)
	}
	copy(l.value, suiteKey(l.written)) // so that it is another one
	key := suiteKey(l.written % (largeBytes / len(l.value)))
	l.written++
	return l.db.Update(func(tx *holdfast.Tx) error {
		b, err := tx.CreateBucketIfNotExists(l.bucket)
		if err != nil {
			return err
		}
		return b.Put(key, l.value)
	})
}

// get reads a value, to its end.
func (l *largeValues) get(int) error {
	key := suiteKey(l.got % l.keys())
	l.got++
	return l.db.View(func(tx *holdfast.Tx) error {
		v := tx.Bucket(l.bucket).Get(key)
		if len(v) != len(l.value) {
			return firstError(tx.Err(), errMissing)
		}
		copy(l.value, v)
		return nil
	})
}
