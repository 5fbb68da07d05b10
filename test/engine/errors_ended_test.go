package engine

import (
	"fmt"
	"io"
	"path/filepath"

	"holdfast"
)

// ended is what a program may still hold of a transaction that has ended.
type ended struct {
	db     *holdfast.DB
	tx     *holdfast.Tx
	bucket *holdfast.Bucket
	cursor *holdfast.Cursor
}

// tryEnded makes a call on what is left of transactions that have ended in each
// way. Another transaction has changed the database since.
func (r *errorRow) tryEnded(name string, use func(e ended) error) {
	r.Helper()
	for _, way := range []string{"rollback", "read", "commit", "failed commit"} {
		r.try(name+", "+way, newSample(r).data, func(path string) error {
			return openUse(path, holdfast.Options{}, func(db *holdfast.DB) error {
				tx := begin(r, db, way != "read")
				e := ended{db: db, tx: tx, bucket: nest(tx).Bucket([]byte("deep"))}
				e.cursor = e.bucket.Cursor()
				e.cursor.First()
				switch way {
				case "commit":
					must(r, tx.Commit()) // of nothing
				case "failed commit":
					db.MaxSize = 1
					must(r, e.bucket.Put([]byte("k"), make([]byte, 1<<20)))
					if err := tx.Commit(); err != holdfast.ErrMaxSizeReached {
						return fmt.Errorf("commit: %v", err)
					}
					db.MaxSize = 0
				default:
					must(r, tx.Rollback())
				}
				other := begin(r, db, true)
				defer other.Rollback()
				must(r, other.DeleteBucket([]byte("nest")))
				return use(e)
			})
		})
	}
}

func endedTx(r *errorRow) {
	name := []byte("small")
	for call, use := range map[string]func(e ended) error{
		"commit":       func(e ended) error { return e.tx.Commit() },
		"rollback":     func(e ended) error { return e.tx.Rollback() },
		"create":       func(e ended) error { _, err := e.tx.CreateBucket(name); return err },
		"create if":    func(e ended) error { _, err := e.tx.CreateBucketIfNotExists(name); return err },
		"delete":       func(e ended) error { return e.tx.DeleteBucket(name) },
		"move":         func(e ended) error { return e.tx.MoveBucket(name, nil, nil) },
		"for each":     func(e ended) error { return e.tx.ForEach(nil) },
		"page":         func(e ended) error { _, err := e.tx.Page(3); return err },
		"write to":     func(e ended) error { _, err := e.tx.WriteTo(io.Discard); return err },
		"copy":         func(e ended) error { return e.tx.Copy(io.Discard) },
		"check":        func(e ended) error { return <-e.tx.Check() },
		"page check":   func(e ended) error { return <-e.tx.Check(holdfast.WithPageId(3)) },
		"copy to file": func(e ended) error { return tryCopyFile(r, e.tx) },
	} {
		r.tryEnded(call, use)
	}
}

// tryCopyFile also looks whether a call that fails leaves a file behind.
func tryCopyFile(r *errorRow, tx *holdfast.Tx) error {
	path := filepath.Join(r.TempDir(), "copy")
	err := tx.CopyFile(path, 0o600)
	if readFile(r, path) != nil {
		return fmt.Errorf("left a file behind: %w", err)
	}
	return err
}

func endedBucket(r *errorRow) {
	k := sampleKey(1)
	for call, use := range map[string]func(e ended) error{
		"put":             func(e ended) error { return e.bucket.Put(k, k) },
		"delete":          func(e ended) error { return e.bucket.Delete(k) },
		"create":          func(e ended) error { _, err := e.bucket.CreateBucket(k); return err },
		"create if":       func(e ended) error { _, err := e.bucket.CreateBucketIfNotExists(k); return err },
		"delete bucket":   func(e ended) error { return e.bucket.DeleteBucket(k) },
		"move":            func(e ended) error { return e.bucket.MoveBucket(k, e.bucket) },
		"set sequence":    func(e ended) error { return e.bucket.SetSequence(1) },
		"next sequence":   func(e ended) error { _, err := e.bucket.NextSequence(); return err },
		"for each":        func(e ended) error { return e.bucket.ForEach(nil) },
		"for each bucket": func(e ended) error { return e.bucket.ForEachBucket(nil) },
		"scan":            func(e ended) error { return e.bucket.Scan(nil, nil) },
		"cursor":          func(e ended) error { return e.cursor.Delete() },
		"new cursor":      func(e ended) error { return e.bucket.Cursor().Delete() },
		"of the tx":       func(e ended) error { return e.tx.Cursor().Delete() },
	} {
		r.tryEnded(call, use)
	}
}

func endedReads(r *errorRow) {
	r.tryEnded("all", func(e ended) error {
		for i, c := range []*holdfast.Cursor{e.cursor, e.bucket.Cursor(), e.tx.Cursor()} {
			for j, move := range []func() ([]byte, []byte){c.First, c.Last, c.Next, c.Prev, func() ([]byte, []byte) { return c.Seek(sampleKey(0)) }} {
				if k, v := move(); k != nil || v != nil {
					return fmt.Errorf("cursor %d, move %d: %q", i, j, k)
				}
			}
		}
		for k := range e.bucket.All() {
			return fmt.Errorf("All: %q", k)
		}
		for k := range e.bucket.Backward() {
			return fmt.Errorf("Backward: %q", k)
		}
		e.tx.OnCommit(func() { r.Error("OnCommit runs") })
		switch {
		case e.bucket.Get(sampleKey(1)) != nil:
			return fmt.Errorf("Get gives a value")
		case e.bucket.Bucket([]byte("x")) != nil || e.tx.Bucket([]byte("nest")) != nil:
			return fmt.Errorf("Bucket gives a bucket")
		case e.tx.DB() != nil:
			return fmt.Errorf("DB is not nil")
		case e.bucket.Stats() != holdfast.BucketStats{}:
			return fmt.Errorf("Stats: %+v", e.bucket.Stats())
		case e.tx.Inspect().KeyN != 0 || e.bucket.Inspect().KeyN != 0:
			return fmt.Errorf("Inspect finds keys")
		case e.tx.ID() <= 0 || e.tx.Size() <= 0 || e.bucket.Tx() != e.tx:
			return fmt.Errorf("the transaction has lost its name")
		}
		e.tx.Stats()
		return e.tx.Err()
	})
}

func readOnlyTx(r *errorRow) {
	name := []byte("deep")
	for call, use := range map[string]func(tx *holdfast.Tx) error{
		"commit":          func(tx *holdfast.Tx) error { return tx.Commit() },
		"create":          func(tx *holdfast.Tx) error { _, err := tx.CreateBucket(name); return err },
		"create if":       func(tx *holdfast.Tx) error { _, err := tx.CreateBucketIfNotExists(name); return err },
		"create existing": func(tx *holdfast.Tx) error { _, err := tx.CreateBucketIfNotExists([]byte("nest")); return err },
		"delete bucket":   func(tx *holdfast.Tx) error { return tx.DeleteBucket([]byte("nest")) },
		"move":            func(tx *holdfast.Tx) error { return tx.MoveBucket(name, nest(tx), nil) },
		"put":             func(tx *holdfast.Tx) error { return small(tx).Put(name, name) },
		"put empty":       func(tx *holdfast.Tx) error { return small(tx).Put(nil, nil) },
		"delete":          func(tx *holdfast.Tx) error { return small(tx).Delete([]byte("k")) },
		"delete missing":  func(tx *holdfast.Tx) error { return small(tx).Delete([]byte("no")) },
		"nested create":   func(tx *holdfast.Tx) error { _, err := small(tx).CreateBucket(name); return err },
		"nested delete":   func(tx *holdfast.Tx) error { return nest(tx).DeleteBucket(name) },
		"set sequence":    func(tx *holdfast.Tx) error { return small(tx).SetSequence(1) },
		"next sequence":   func(tx *holdfast.Tx) error { _, err := small(tx).NextSequence(); return err },
		"cursor": func(tx *holdfast.Tx) error {
			c := small(tx).Cursor()
			c.First()
			return c.Delete()
		},
	} {
		r.tryUse(call, newSample(r).data, func(db *holdfast.DB) error {
			tx := begin(r, db, false)
			defer tx.Rollback()
			tx.OnCommit(func() { r.Error("OnCommit runs in a reading transaction") })
			if tx.Writable() || nest(tx).Writable() {
				return fmt.Errorf("writable")
			}
			return use(tx)
		})
	}
}

func readOnlyDB(r *errorRow) {
	for call, use := range map[string]func(db *holdfast.DB) error{
		"begin":  func(db *holdfast.DB) error { _, err := db.Begin(true); return err },
		"update": func(db *holdfast.DB) error { return db.Update(nil) },
		"batch":  func(db *holdfast.DB) error { return db.Batch(nil) },
	} {
		r.try(call, newSample(r).data, func(path string) error {
			return openUse(path, holdfast.Options{ReadOnly: true}, use)
		})
	}
}
