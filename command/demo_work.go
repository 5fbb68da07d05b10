package command

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"holdfast"
	"holdfast/internal/vfs"
)

// The recipe of the two databases.
const (
	demoValueBytes = 900    // of each value in bucket big
	demoTxValues   = 20_000 // in one transaction
	demoFill       = 0.9
	demoKeys       = 100 // in bucket small
	demoSmallBytes = 100 // of each value in bucket small
)

var (
	demoBig   = []byte("big")
	demoSmall = []byte("small")
)

func demoKey(i int) []byte { return fmt.Appendf(nil, "k%04d", i%demoKeys) }

// makeAged makes a database from which all but a few of its values were deleted.
func makeAged(ctx context.Context, path string, values int) error {
	db, err := holdfast.Open(path, 0o600, &holdfast.Options{NoSync: true, Timeout: defaultTimeout})
	if err != nil {
		return err
	}
	value := make([]byte, demoValueBytes)
	for from := 0; from < values && err == nil; from += demoTxValues {
		if err = ctx.Err(); err == nil {
			err = putBig(db, from, min(from+demoTxValues, values), value)
		}
	}
	if err == nil {
		err = db.Update(func(tx *holdfast.Tx) error { return tx.DeleteBucket(demoBig) })
	}
	return errors.Join(err, fillSmall(db), db.Sync(), db.Close())
}

func putBig(db *holdfast.DB, from, to int, value []byte) error {
	return db.Update(func(tx *holdfast.Tx) error {
		b, err := tx.CreateBucketIfNotExists(demoBig)
		if err != nil {
			return err
		}
		b.FillPercent = demoFill
		for i := from; i < to; i++ {
			if err := b.Put(binary.BigEndian.AppendUint64(nil, uint64(i)), value); err != nil {
				return err
			}
		}
		return nil
	})
}

// makeYoung makes a database that has the keys of the aged one and no past.
func makeYoung(path string) error {
	db, err := holdfast.Open(path, 0o600, &holdfast.Options{NoSync: true, Timeout: defaultTimeout})
	if err != nil {
		return err
	}
	return errors.Join(fillSmall(db), db.Sync(), db.Close())
}

func fillSmall(db *holdfast.DB) error {
	return db.Update(func(tx *holdfast.Tx) error {
		b, err := tx.CreateBucketIfNotExists(demoSmall)
		if err != nil {
			return err
		}
		for i := range demoKeys {
			if err := b.Put(demoKey(i), make([]byte, demoSmallBytes)); err != nil {
				return err
			}
		}
		return nil
	})
}

// demoOpens is the number of times that a database is opened to time it.
const demoOpens = 9

// openTimed opens a database and notes how long that takes.
func openTimed(path string, r *demoStore) (*holdfast.DB, error) {
	var took []time.Duration
	for {
		start := time.Now()
		db, err := holdfast.Open(path, 0o600, &holdfast.Options{Timeout: defaultTimeout})
		if err != nil {
			return nil, err
		}
		took = append(took, time.Since(start))
		if len(took) < demoOpens {
			if err := db.Close(); err != nil {
				return nil, err
			}
			continue
		}
		slices.Sort(took)
		r.OpenUS = inMicros(quantile(took, 0.5))
		r.FreePages = db.Stats().FreePageN
		if info, err := os.Stat(path); err == nil {
			r.SizeBytes = info.Size()
		}
		return db, nil
	}
}

// flushMeter measures what it takes to write a page and flush it, without a
// database.
type flushMeter struct {
	file vfs.File
	took []time.Duration
}

func newFlushMeter(path string) (*flushMeter, error) {
	f, err := vfs.OpenOS(path, os.O_RDWR|os.O_CREATE, 0o600, nil)
	return &flushMeter{file: f}, err
}

// flush writes and flushes a page.
func (m *flushMeter) flush() error {
	buf := make([]byte, os.Getpagesize())
	start := time.Now()
	if _, err := m.file.WriteAt(buf, 0); err != nil {
		return err
	}
	if err := m.file.Sync(); err != nil {
		return err
	}
	m.took = append(m.took, time.Since(start))
	return nil
}

// median ends the measurement.
func (m *flushMeter) median() (float64, error) {
	slices.Sort(m.took)
	return inMicros(quantile(m.took, 0.5)), m.file.Close()
}

// commitMeter measures durable one-key commits on a database.
type commitMeter struct {
	db     *holdfast.DB
	took   []time.Duration
	bytes  int64
	untold bool // the system does not tell how many bytes were written
	value  [demoSmallBytes]byte
}

// commit puts the next key.
func (m *commitMeter) commit() error {
	m.value[0]++
	before := bytesWritten()
	start := time.Now()
	err := m.db.Update(func(tx *holdfast.Tx) error {
		return tx.Bucket(demoSmall).Put(demoKey(len(m.took)), m.value[:])
	})
	if err != nil {
		return err
	}
	m.took = append(m.took, time.Since(start))
	after := bytesWritten()
	m.bytes += after - before
	m.untold = m.untold || before < 0 || after < 0
	return nil
}

func (m *commitMeter) report(r *demoStore) {
	slices.Sort(m.took)
	r.Commits = len(m.took)
	r.CommitMidUS, r.CommitP99US = inMicros(quantile(m.took, 0.5)), inMicros(quantile(m.took, 0.99))
	r.CommitsPerSec = 1e6 / r.CommitMidUS
	if !m.untold {
		each := float64(m.bytes) / float64(len(m.took))
		r.BytesPerCommit = &each
	}
}

// How a growing file is written: so many values of so many bytes in each
// commit, until it has grown by so much.
const (
	growTxValues   = 100
	growValueBytes = 1000
	growMaxBytes   = 256 << 20
)

// growth lets a file grow for d while another goroutine begins one short read
// after the other.
func growth(ctx context.Context, path string, held bool, d time.Duration) (demoGrowth, error) {
	g := demoGrowth{ReaderHeld: held}
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return g, err
	}
	if err := makeYoung(path); err != nil {
		return g, err
	}
	db, err := holdfast.Open(path, 0o600, &holdfast.Options{Timeout: defaultTimeout})
	if err != nil {
		return g, err
	}
	var reader *holdfast.Tx
	if held {
		reader, err = db.Begin(false)
	}
	if err == nil {
		err = g.measure(ctx, db, d)
	}
	if reader != nil { // before Close, which waits for it
		err = errors.Join(err, reader.Rollback())
	}
	return g, errors.Join(err, db.Close())
}

func (g *demoGrowth) measure(ctx context.Context, db *holdfast.DB, d time.Duration) error {
	runtime.GC()
	quit, reads := make(chan struct{}), make(chan []time.Duration, 1)
	go func() { reads <- readUntil(db, quit) }()
	commits, err := growFor(ctx, db, d)
	close(quit)
	g.take(commits, <-reads)
	if info, err := os.Stat(db.Path()); err == nil {
		g.GrownBytes = info.Size()
	}
	return err
}

// growFor commits new values for d and returns how long each commit took.
func growFor(ctx context.Context, db *holdfast.DB, d time.Duration) (took []time.Duration, err error) {
	value := make([]byte, growValueBytes)
	next := uint64(0)
	for start := time.Now(); time.Since(start) < d && next*growValueBytes < growMaxBytes; {
		if err := ctx.Err(); err != nil {
			return took, err
		}
		began := time.Now()
		err := db.Update(func(tx *holdfast.Tx) error {
			b, err := tx.CreateBucketIfNotExists(demoBig)
			for range growTxValues {
				if err == nil {
					err = b.Put(binary.BigEndian.AppendUint64(nil, next), value)
				}
				next++
			}
			return err
		})
		if err != nil {
			return took, err
		}
		took = append(took, time.Since(began))
	}
	return took, nil
}

// readPause is the time between two reads.
const readPause = 20 * time.Microsecond

// readUntil looks up keys in transactions of their own until quit is closed.
func readUntil(db *holdfast.DB, quit <-chan struct{}) []time.Duration {
	var took []time.Duration
	for i := 0; ; i++ {
		select {
		case <-quit:
			return took
		default:
		}
		start := time.Now()
		err := db.View(func(tx *holdfast.Tx) error {
			tx.Bucket(demoSmall).Get(demoKey(i))
			return nil
		})
		if err == nil {
			took = append(took, time.Since(start))
		}
		time.Sleep(readPause)
	}
}

func (g *demoGrowth) take(commits, reads []time.Duration) {
	slices.Sort(commits)
	slices.Sort(reads)
	g.Commits, g.Reads = len(commits), len(reads)
	g.CommitMidUS, g.CommitMaxUS = inMicros(quantile(commits, 0.5)), inMicros(quantile(commits, 1))
	g.ReadMidUS, g.ReadP99US = inMicros(quantile(reads, 0.5)), inMicros(quantile(reads, 0.99))
	g.ReadMaxUS = inMicros(quantile(reads, 1))
}

// quantile is the q-th quantile of sorted times.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(q*float64(len(sorted)-1))]
}

func inMicros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

// micros writes microseconds for people.
func micros(us float64) string {
	switch {
	case us < 10:
		return fmt.Sprintf("%.1f µs", us)
	case us < 1000:
		return fmt.Sprintf("%.0f µs", us)
	}
	return fmt.Sprintf("%.1f ms", us/1000)
}
