package suite

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"holdfast"
)

// What works on a database while something is done to it. The readers rest so that they,
// the writer and what is measured do not just queue for two processors: what is to be seen
// is who waits for the database.
const (
	trafficReaders = 4
	trafficGets    = 4 // of a View
	trafficRest    = 200 * time.Microsecond
)

// traffic is some readers and a writer, who commits one key after the other.
type traffic struct {
	db     *holdfast.DB
	bucket []byte
	keys   [][]byte // that are read, and get new values
	size   int      // of a value

	began   time.Time
	stop    atomic.Bool
	workers sync.WaitGroup
	commits []stamp
	views   [trafficReaders][]stamp
	errs    [trafficReaders + 1]error
}

// stamp is when something was done, since the traffic began.
type stamp struct{ from, to time.Duration }

// interval is a time that the traffic went on.
type interval = stamp

// warm reads all keys. Otherwise the readers would meet pages that are not mapped yet, and
// the more of them the earlier it is: without a vacuum more than with one.
func (t *traffic) warm() error {
	return t.db.View(func(tx *holdfast.Tx) error {
		return tx.Bucket(t.bucket).ForEach(func(_, v []byte) error {
			if len(v) != t.size {
				return errLostKey
			}
			return nil
		})
	})
}

// startWriter starts the writer alone.
func (t *traffic) startWriter() {
	t.began = time.Now()
	t.workers.Go(func() { t.errs[trafficReaders] = t.write() })
}

func (t *traffic) start() {
	t.startWriter()
	for i := range trafficReaders {
		t.workers.Go(func() { t.errs[i] = t.read(i) })
	}
}

// end waits until all have ended.
func (t *traffic) end() error {
	t.stop.Store(true)
	t.workers.Wait()
	return errors.Join(t.errs[:]...)
}

func (t *traffic) write() error {
	for i := firstValue; !t.stop.Load(); i++ {
		key := t.keys[rand.IntN(len(t.keys))]
		at := i * 101 % (len(noise) - t.size)
		from := time.Since(t.began)
		err := t.db.Update(func(tx *holdfast.Tx) error {
			return tx.Bucket(t.bucket).Put(key, noise[at:at+t.size])
		})
		if err != nil {
			return err
		}
		t.commits = append(t.commits, stamp{from, time.Since(t.began)})
	}
	return nil
}

var errLostKey = errors.New("a key is gone")

func (t *traffic) read(reader int) error {
	view := func(tx *holdfast.Tx) error {
		b := tx.Bucket(t.bucket)
		for range trafficGets {
			if len(b.Get(t.keys[rand.IntN(len(t.keys))])) != t.size {
				return errLostKey
			}
		}
		return nil
	}
	for !t.stop.Load() {
		from := time.Since(t.began)
		if err := t.db.View(view); err != nil {
			return err
		}
		t.views[reader] = append(t.views[reader], stamp{from, time.Since(t.began)})
		time.Sleep(trafficRest)
	}
	return nil
}

// while runs fn, and tells when that was.
func (t *traffic) while(fn func() error) (interval, error) {
	from := time.Since(t.began)
	err := fn()
	return interval{from, time.Since(t.began)}, err
}

// latencies are how long things took in the time that was looked at.
type latencies struct {
	commits, views []time.Duration
	lasted         time.Duration
}

func (l *latencies) sort() {
	slices.Sort(l.commits)
	slices.Sort(l.views)
}

// gather adds what went on at some time of the interval. The traffic has ended.
func (l *latencies) gather(t *traffic, when interval) {
	add := func(to *[]time.Duration, all []stamp) {
		for _, s := range all {
			if s.to > when.from && s.from < when.to {
				*to = append(*to, s.to-s.from)
			}
		}
	}
	l.lasted += when.to - when.from
	add(&l.commits, t.commits)
	for _, all := range t.views {
		add(&l.views, all)
	}
}
