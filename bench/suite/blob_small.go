package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"holdfast"
	"holdfast/blob"
)

// Columns of stores with few and with many chunks.
const (
	smallFew  = "small store"
	smallMany = "ten times as many chunks"
)

// Sizes of the group: those of the blobs, of the fillers that only make the index long, and how many come to a transaction.
const (
	smallSize   = 1000
	fillerSize  = 64
	fillersInTx = 100_000
	deletesInTx = 62_500
	randomInTx  = 100
	randomTxs   = 400
	singleTxs   = 200
)

// Rows of it.
const (
	smallPut      = "put all, transactions of 16 MiB"
	smallFile     = "file, of the content"
	smallDelete   = "delete every second one, 62,500 in a transaction"
	smallCollect  = "collect these"
	smallGone     = "delete and collect"
	smallWritten  = "bytes written by delete and collect, of what was deleted"
	smallMedian   = "100 new blobs in a transaction, median"
	smallLongest  = "100 new blobs in a transaction, longest"
	smallBytes    = "100 new blobs in a transaction, bytes written"
	singleAllocs  = "one new blob in a transaction, allocations"
	singleWritten = "one new blob in a transaction, bytes written, of those of a row of that size under a random key"
)

// BlobSmall measures stores of many small blobs: what it costs to fill them, to remove half, and to add a few.
func BlobSmall(c Config) (Table, error) {
	n := c.Blobs.Small
	t := Table{
		Title:   fmt.Sprintf("A store of %d blobs of 1 kB, nothing flushed; and a few more in stores of %d and %d chunks", n, n, 10*n),
		Columns: []string{smallFew, smallMany}, Peer: smallMany, Ours: smallFew,
	}
	rows := map[string]map[string][]sample{}
	c.logf("measuring: %d small blobs", n)
	var runners []runner
	for _, r := range []struct {
		column string
		run    func(path string, m *smallStore) error
	}{
		{smallFew, func(path string, m *smallStore) error { return errors.Join(m.fill(n), m.few(), m.half(), m.db.Close()) }},
		{smallMany, func(path string, m *smallStore) error { return errors.Join(m.fillers(10*n), m.few(), m.db.Close()) }},
	} {
		runners = append(runners, runner{r.column, func() (sample, error) {
			path, err := c.path("small", r.column)
			if err != nil {
				return sample{}, err
			}
			defer remove(path)
			db, err := createBlobs(path)
			if err != nil {
				return sample{}, err
			}
			m := &smallStore{db: db, path: path, source: newBlobSource(smallSize, blobTx),
				note: func(row string, v float64) { note(rows, row, r.column, v) }}
			return sample{}, r.run(path, m)
		}})
	}
	if _, err := byTurns(c.Rounds, runners); err != nil {
		return t, err
	}
	for _, row := range []struct{ name, unit string }{
		{smallPut, "ns"}, {smallFile, "×"}, {smallDelete, "ns"}, {smallCollect, "ns"}, {smallGone, "ns"}, {smallWritten, "×"},
		{smallMedian, "ns"}, {smallLongest, "ns"}, {smallBytes, "B"}, {singleAllocs, ""}, {singleWritten, "×"},
	} {
		t.Rows = append(t.Rows, Row{Workload: row.name, Unit: row.unit, Cells: cellsOf(rows[row.name])})
	}
	t.smallTargets(rows, float64(n)/1e6)
	return t, nil
}

// smallTargets are those of a store of a million, by their share.
func (t *Table) smallTargets(rows map[string]map[string][]sample, millions float64) {
	few := func(row string) float64 { return cellOf(rows[row][smallFew]).Median }
	spent := func(row string, limit time.Duration) {
		limit = time.Duration(float64(limit) * millions)
		t.atMost(row, FormatDuration(limit), few(row), float64(limit), FormatDuration(time.Duration(few(row))))
	}
	ratio := func(row string, limit float64) {
		t.atMost(row, fmt.Sprintf("%.4g ×", limit), few(row), limit, fmt.Sprintf("%.3f×", few(row)))
	}
	spent(smallPut, 4*time.Second)
	ratio(smallFile, 1.15)
	spent(smallGone, 4*time.Second)
	ratio(smallWritten, 3)
	for _, column := range t.Columns {
		for _, r := range []struct {
			row   string
			limit time.Duration
		}{{smallMedian, time.Millisecond}, {smallLongest, 10 * time.Millisecond}} {
			v := cellOf(rows[r.row][column]).Median
			t.atMost(column+": "+r.row, FormatDuration(r.limit), v, float64(r.limit), FormatDuration(time.Duration(v)))
		}
	}
	t.atMost(singleAllocs, "20", few(singleAllocs), 20, fmt.Sprintf("%.1f", few(singleAllocs)))
	ratio(singleWritten, 3)
}

// smallStore is a store that is measured.
type smallStore struct {
	db     *holdfast.DB
	path   string
	source *blobSource
	refs   []blob.Ref
	note   func(row string, value float64)
}

// in runs fn with the store in a transaction.
func (m *smallStore) in(fn func(s *blob.Store) error) error {
	return m.db.Update(func(tx *holdfast.Tx) error {
		s, err := openStore(tx)
		if err != nil {
			return err
		}
		return fn(s)
	})
}

// fill puts n blobs.
func (m *smallStore) fill(n int) error {
	m.refs = make([]blob.Ref, 0, n)
	began := time.Now()
	for len(m.refs) < n {
		err := m.in(func(s *blob.Store) error {
			for i := range min(m.source.perTx, n-len(m.refs)) {
				ref, err := s.Put(m.source.blob(i))
				if err != nil {
					return err
				}
				m.refs = append(m.refs, ref)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	m.note(smallPut, float64(time.Since(began)))
	info, err := os.Stat(m.path)
	if err == nil {
		m.note(smallFile, float64(info.Size())/float64(n*smallSize))
	}
	return err
}

// fillers puts n blobs that are shorter still.
func (m *smallStore) fillers(n int) error {
	source := newBlobSource(fillerSize, fillersInTx*fillerSize)
	source.number = 1 << 60
	for put := 0; put < n; {
		err := m.in(func(s *blob.Store) error {
			for i := range min(source.perTx, n-put) {
				if _, err := s.Put(source.blob(i)); err != nil {
					return err
				}
				put++
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// few adds a few blobs.
func (m *smallStore) few() error {
	runtime.GC()
	var took []time.Duration
	before, err := written()
	for range randomTxs {
		began := time.Now()
		err = errors.Join(err, m.in(func(s *blob.Store) error {
			for i := range randomInTx {
				if _, err := s.Put(m.source.blob(i)); err != nil {
					return err
				}
			}
			return nil
		}))
		took = append(took, time.Since(began))
	}
	after, err2 := written()
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	slices.Sort(took)
	m.note(smallMedian, float64(perMille(took, 500)))
	m.note(smallLongest, float64(perMille(took, 1000)))
	m.note(smallBytes, float64(after-before)/randomTxs)
	return m.single()
}

// single adds one blob in a transaction, and a row of that size to a bucket.
func (m *smallStore) single() error {
	measure := func(fn func(i int) error) (allocs, bytes float64, err error) {
		var first, last runtime.MemStats
		before, err := written()
		if err != nil {
			return 0, 0, err
		}
		runtime.ReadMemStats(&first)
		for i := range singleTxs {
			if err := fn(i); err != nil {
				return 0, 0, err
			}
		}
		runtime.ReadMemStats(&last)
		after, err := written()
		return float64(last.Mallocs-first.Mallocs) / singleTxs, float64(after-before) / singleTxs, err
	}
	allocs, bytes, err := measure(func(i int) error {
		return m.in(func(s *blob.Store) error {
			_, err := s.Put(m.source.blob(i))
			return err
		})
	})
	if err != nil {
		return err
	}
	_, plain, err := measure(func(i int) error {
		return m.db.Update(func(tx *holdfast.Tx) error {
			v := m.source.blob(i)
			return tx.Bucket(bucketName).Put(v[len(v)-8:], v)
		})
	})
	m.note(singleAllocs, allocs)
	m.note(singleWritten, bytes/plain)
	return err
}

// half removes every second blob of fill.
func (m *smallStore) half() error {
	gone := len(m.refs) / 2
	before, err := written()
	if err != nil {
		return err
	}
	began := time.Now()
	for at := 0; at < gone; {
		err := m.in(func(s *blob.Store) error {
			for end := min(at+deletesInTx, gone); at < end; at++ {
				if err := s.Delete(m.refs[2*at]); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	deleted := time.Since(began)
	stats, err := blob.Collect(context.Background(), m.db, openStore, blob.CollectOptions{})
	if err == nil && stats.Chunks != int64(gone) {
		err = fmt.Errorf("%d chunks were collected, and not %d", stats.Chunks, gone)
	}
	if err != nil {
		return err
	}
	took := time.Since(began)
	after, err := written()
	m.note(smallDelete, float64(deleted))
	m.note(smallCollect, float64(took-deleted))
	m.note(smallGone, float64(took))
	m.note(smallWritten, float64(after-before)/float64(gone*smallSize))
	return err
}
