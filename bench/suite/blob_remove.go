package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"holdfast"
	"holdfast/blob"
)

// Columns of ways to remove a large blob.
const (
	removeNoSync  = "holdfast, `NoSync`"
	removeDurable = "holdfast, durable"
	removeStock   = "stock, one transaction, durable"
	removeFile    = "bare file"
)

// Rows of it.
const (
	removeTotal   = "time of all"
	removeHeld    = "longest time that another writer could not begin"
	removeHolds   = "median of that"
	removeLongest = "longest transaction, its flush included"
	removeMedian  = "median of that, all transactions"
	removeCount   = "transactions"
)

// holdLimit is the target for how long a transaction holds the writer.
const holdLimit = 10 * time.Millisecond

// BlobRemove measures removing a large blob.
func BlobRemove(c Config) (Table, error) {
	t := Table{
		Title: fmt.Sprintf("Removing a blob of %s", wholeBytes(c.Blobs.Large)),
		Peer:  removeStock, Ours: removeDurable,
	}
	rows := map[string]map[string][]sample{}
	var runners []runner
	for _, w := range []struct {
		name   string
		build  func(path string, size int64) error
		remove func(path string) (removal, error)
	}{
		{removeNoSync, largeKinds[0].build, func(path string) (removal, error) { return removeBlob(path, true) }},
		{removeDurable, largeKinds[0].build, func(path string) (removal, error) { return removeBlob(path, false) }},
		{removeStock, largeKinds[1].build, removeLargeStock},
		{removeFile, largeKinds[2].build, removeLargeFile},
	} {
		t.Columns = append(t.Columns, w.name)
		runners = append(runners, runner{w.name, func() (sample, error) {
			path, err := c.fileOf("large-"+w.name, 2*c.Blobs.Large)
			if err != nil {
				return sample{}, err
			}
			defer remove(path)
			if err := w.build(path, c.Blobs.Large); err != nil {
				return sample{}, err
			}
			r, err := w.remove(path)
			if err == nil {
				r.note(rows, w.name)
			}
			return sample{}, err
		}})
	}
	c.logf("measuring: removing %s", wholeBytes(c.Blobs.Large))
	if _, err := byTurns(c.Rounds, runners); err != nil {
		return t, err
	}
	for _, row := range []struct{ name, unit string }{
		{removeTotal, "ns"}, {removeHeld, "ns"}, {removeHolds, "ns"}, {removeLongest, "ns"}, {removeMedian, "ns"}, {removeCount, ""},
	} {
		t.Rows = append(t.Rows, Row{Workload: row.name, Unit: row.unit, Cells: cellsOf(rows[row.name])})
	}
	for _, name := range []string{removeNoSync, removeDurable} {
		longest := cellOf(rows[removeHeld][name]).High
		t.atMost(fmt.Sprintf("removing %s, %s: longest time that another writer could not begin", wholeBytes(c.Blobs.Large), name),
			FormatDuration(holdLimit), longest, float64(holdLimit), FormatDuration(time.Duration(longest))+" at worst")
	}
	return t, nil
}

// removal is what was measured of removing a blob.
type removal struct {
	took         time.Duration
	transactions []time.Duration // none where there are no transactions
	held         []time.Duration // how long another writer that wanted to begin could not
}

func (r *removal) note(rows map[string]map[string][]sample, column string) {
	note(rows, removeTotal, column, float64(r.took))
	if len(r.transactions) > 0 {
		note(rows, removeCount, column, float64(len(r.transactions)))
	}
	for _, f := range []struct {
		times           []time.Duration
		longest, median string
	}{{r.transactions, removeLongest, removeMedian}, {r.held, removeHeld, removeHolds}} {
		if len(f.times) > 0 {
			slices.Sort(f.times)
			note(rows, f.longest, column, float64(perMille(f.times, 1000)))
			note(rows, f.median, column, float64(perMille(f.times, 500)))
		}
	}
}

// removeBlob deletes the blob in the file of buildLargeBlob and collects what is left.
func removeBlob(path string, noSync bool) (r removal, err error) {
	db, err := holdfast.Open(path, 0o600, &holdfast.Options{NoSync: noSync})
	if err != nil {
		return r, err
	}
	stop, waits := make(chan struct{}), make(chan []time.Duration)
	go waitForWriter(db, stop, waits)
	began := time.Now()
	// A transaction begins just before the store is opened.
	open := func(tx *holdfast.Tx) (*blob.Store, error) {
		from := time.Now()
		tx.OnCommit(func() { r.transactions = append(r.transactions, time.Since(from)) })
		return openStore(tx)
	}
	err = db.Update(func(tx *holdfast.Tx) error {
		s, err := open(tx)
		if err != nil {
			return err
		}
		ref, err := largeRef(tx)
		if err != nil {
			return err
		}
		return errors.Join(s.Delete(ref), tx.Bucket(bucketName).Delete(refName))
	})
	if err == nil {
		_, err = blob.Collect(context.Background(), db, open, blob.CollectOptions{})
	}
	r.took = time.Since(began)
	close(stop)
	r.held = <-waits
	if err == nil {
		err = nothingLeft(db)
	}
	return r, errors.Join(err, db.Close())
}

// waitForWriter begins and gives up one transaction after the other, and sends how long it
// waited for each: what holds the writer holds up this one, but for the rest between two.
func waitForWriter(db *holdfast.DB, stop <-chan struct{}, waits chan<- []time.Duration) {
	var all []time.Duration
	for {
		began := time.Now()
		tx, err := db.Begin(true)
		all = append(all, time.Since(began))
		if err == nil {
			_ = tx.Rollback()
		}
		select {
		case <-stop:
			waits <- all
			return
		case <-time.After(trafficRest):
		}
	}
}

// nothingLeft is an error if a store still has blobs.
func nothingLeft(db *holdfast.DB) error {
	return db.View(func(tx *holdfast.Tx) error {
		s, err := openStore(tx)
		if err != nil {
			return err
		}
		u, err := s.Usage()
		if left := u.Leaves + u.Nodes; err == nil && left > 0 {
			err = fmt.Errorf("%d chunks are left", left)
		}
		return err
	})
}

// removeLargeStock removes the values in the file of buildLargeStock.
func removeLargeStock(path string) (r removal, err error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoFreelistSync: true, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		return r, err
	}
	began := time.Now()
	err = db.Update(func(tx *bbolt.Tx) error { return tx.DeleteBucket(blobsName) })
	r.took = time.Since(began)
	r.transactions = []time.Duration{r.took}
	return r, errors.Join(err, db.Close())
}

func removeLargeFile(path string) (r removal, err error) {
	began := time.Now()
	err = os.Remove(path)
	r.took = time.Since(began)
	return r, err
}
