package step

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"syscall"
	"time"

	"holdfast"
	"holdfast/blob"
	"holdfast/worker/internal/damage"
	"holdfast/worker/snapshot"
)

// Buckets of results.db.
var (
	inMeta    = []byte("meta")
	inResults = []byte("results") // ID -> record
	inOutput  = []byte("output")  // a store of blobs
	inSources = []byte("sources") // see sources.go

	keyVersion = []byte("results")
	keyStore   = []byte("store")
)

// storeIDSize is the size of what names this store in the identity of a base of which nothing better is known.
const storeIDSize = 16

const (
	resultsName    = "results.db"
	resultsVersion = 1
)

// results are the records of steps, with their output.
type results struct {
	db      *holdfast.DB
	store   [storeIDSize]byte         // random, since the file was made
	full    func() bool               // makes room; nil: there is none to be made
	observe func(op string, keys int) // for tests
}

func openResults(root string, d holdfast.Durability, share string, full func() bool) (*results, error) {
	path := filepath.Join(root, resultsName)
	db, err := holdfast.Open(path, 0o600, &holdfast.Options{
		Durability: d, Share: share, AutoVacuum: &holdfast.AutoVacuum{}, Timeout: time.Second})
	if err != nil {
		return nil, fmt.Errorf("step: opening %s: %w", path, damaged(err))
	}
	r := &results{db: db, full: full}
	if err := r.update(r.prepare); err != nil {
		return nil, errors.Join(fmt.Errorf("step: opening %s: %w", path, err), db.Close())
	}
	return r, nil
}

// damaged adds ErrResults to an error, if that is why.
func damaged(err error) error {
	if damage.Is(err) {
		return fmt.Errorf("%w: %w", ErrResults, err)
	}
	return err
}

func (r *results) view(fn func(*holdfast.Tx) error) error { return damaged(r.db.View(fn)) }

// update runs a transaction, once more if there was no room for it and some could be made.
func (r *results) update(fn func(*holdfast.Tx) error) error {
	err := r.db.Update(fn)
	if (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)) && r.full != nil && r.full() {
		err = r.db.Update(fn)
	}
	return damaged(err)
}

func (r *results) prepare(tx *holdfast.Tx) error {
	meta, err := tx.CreateBucketIfNotExists(inMeta)
	if err != nil {
		return err
	}
	switch v := meta.Get(keyVersion); {
	case v == nil:
		if err := meta.Put(keyVersion, []byte{resultsVersion}); err != nil {
			return err
		}
	case len(v) != 1 || v[0] != resultsVersion:
		return fmt.Errorf("%w: version %x of the file is unknown", ErrCorrupt, v)
	}
	switch v := meta.Get(keyStore); {
	case v == nil:
		_, _ = rand.Read(r.store[:]) // that always succeeds
		if err := meta.Put(keyStore, r.store[:]); err != nil {
			return err
		}
	case len(v) != storeIDSize:
		return fmt.Errorf("%w: a name of the store of %d bytes", ErrCorrupt, len(v))
	default:
		copy(r.store[:], v)
	}
	for _, name := range [][]byte{inResults, inSources} {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	b, err := tx.CreateBucketIfNotExists(inOutput)
	if err != nil || blob.IsStore(b) {
		return err
	}
	_, err = blob.Create(b, blob.Options{})
	return err
}

func (r *results) close() error { return r.db.Close() }

// touched tells tests how many keys an operation has read or written.
func (r *results) touched(op string, keys int) {
	if r.observe != nil {
		r.observe(op, keys)
	}
}

// buckets of a transaction.
func buckets(tx *holdfast.Tx) (records, output *holdfast.Bucket, err error) {
	records, output = tx.Bucket(inResults), tx.Bucket(inOutput)
	if records == nil || output == nil {
		return nil, nil, fmt.Errorf("%w: a bucket is missing", ErrCorrupt)
	}
	return records, output, nil
}

// get returns the record of a step with its output; ErrNotFound if there is none.
func (r *results) get(id ID) (rec record, out []byte, err error) {
	err = r.view(func(tx *holdfast.Tx) error {
		rec, out, err = r.read(tx, id)
		return err
	})
	if err != nil {
		return record{}, nil, fmt.Errorf("result of step %s: %w", id, err)
	}
	return rec, out, nil
}

// read is get in a transaction.
func (r *results) read(tx *holdfast.Tx, id ID) (rec record, out []byte, err error) {
	records, output, err := buckets(tx)
	if err != nil {
		return rec, nil, err
	}
	r.touched("get", 1)
	v := records.Get(id[:])
	if v == nil {
		return rec, nil, ErrNotFound
	}
	if rec, err = parseRecord(v); err != nil || rec.output.IsZero() {
		return rec, nil, err
	}
	if p, ok := rec.output.Inline(); ok {
		return rec, []byte(p), nil
	}
	store, err := blob.Open(output)
	if err != nil {
		return rec, nil, err
	}
	reader, err := store.Reader(rec.output)
	if err != nil {
		return rec, nil, err
	}
	out, err = io.ReadAll(reader)
	return rec, out, err
}

// adopt stores a record of a snapshot without its output, unless the run of the step has written one meanwhile. It returns
// the one that is there then.
func (r *results) adopt(id ID, info *snapshot.Info, rec record) (is record, out []byte, err error) {
	err = r.update(func(tx *holdfast.Tx) error {
		is, out, err = r.read(tx, id)
		switch {
		case err == nil && is.of(info):
			return nil
		case err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrCorrupt):
			return err
		}
		is, out = rec, nil
		return r.putIn(tx, id, &is, nil)
	})
	if err != nil {
		return record{}, nil, fmt.Errorf("recording step %s: %w", id, err)
	}
	return is, out, nil
}

// recorded is what is recorded of a step, which is not of an earlier snapshot than the one that is there.
func (r *results) recorded(t *snapshot.Namespace, id ID) (*Result, error) {
	rec, out, err := r.get(id)
	if err != nil {
		return nil, err
	}
	info, err := t.Stat(context.Background(), id.Snapshot())
	switch {
	case err == nil && !rec.of(&info):
		return nil, fmt.Errorf("the record of step %s is of an earlier result: %w", id, ErrNotFound)
	case err != nil && !errors.Is(err, snapshot.ErrNotFound):
		return nil, fmt.Errorf("step %s: %w", id, err)
	}
	return rec.result(id, out), nil
}

// put stores a record with its output, in place of an older one, in one transaction.
func (r *results) put(id ID, rec *record, out []byte) error {
	if err := r.update(func(tx *holdfast.Tx) error { return r.putIn(tx, id, rec, out) }); err != nil {
		return fmt.Errorf("recording step %s: %w", id, err)
	}
	return nil
}

func (r *results) putIn(tx *holdfast.Tx, id ID, rec *record, out []byte) error {
	records, output, err := buckets(tx)
	if err != nil {
		return err
	}
	old, err := oldOutput(records, id)
	if err != nil {
		return err
	}
	if out == nil && old.IsZero() { // no blob comes or goes
		rec.output = blob.Ref{}
		return r.save(records, id, rec)
	}
	store, err := blob.Open(output)
	if err != nil {
		return err
	}
	if rec.output = (blob.Ref{}); out != nil {
		store.InlineUpTo(blob.MaxInline)
		if rec.output, err = store.Put(out); err != nil {
			return err
		}
	}
	if err := r.save(records, id, rec); err != nil {
		return err
	}
	return giveUp(store, old)
}

func (r *results) save(records *holdfast.Bucket, id ID, rec *record) error {
	v, err := rec.append(nil)
	if err != nil {
		return err
	}
	r.touched("put", 2)
	return records.Put(id[:], v)
}

// oldOutput is the output of the record that a step has. Of a record that cannot be read it is
// not known, and stays.
func oldOutput(records *holdfast.Bucket, id ID) (blob.Ref, error) {
	v := records.Get(id[:])
	if v == nil {
		return blob.Ref{}, nil
	}
	old, err := parseRecord(v)
	if errors.Is(err, ErrCorrupt) {
		return blob.Ref{}, nil
	}
	return old.output, err
}

// collectChunks is how many chunks of output that no record names a transaction removes at most.
const collectChunks = 64

// giveUp ends the use of an output.
func giveUp(store *blob.Store, ref blob.Ref) error {
	if _, inline := ref.Inline(); inline || ref.IsZero() {
		return nil
	}
	if err := store.Delete(ref); err != nil && !errors.Is(err, blob.ErrNotFound) {
		return err
	}
	_, _, err := store.Collect(collectChunks)
	return err
}

// touch says that a result is used now.
func (r *results) touch(id ID, now uint64) error {
	err := r.update(func(tx *holdfast.Tx) error {
		records, _, err := buckets(tx)
		if err != nil {
			return err
		}
		v := records.Get(id[:])
		if v == nil {
			return nil
		}
		rec, err := parseRecord(v)
		if err != nil {
			return err
		}
		rec.used = max(rec.used, now)
		return r.save(records, id, &rec)
	})
	if err != nil {
		return fmt.Errorf("use of step %s: %w", id, err)
	}
	return nil
}

// drop removes the records of some steps, but for those that were made after a time: then the
// step has been run again.
func (r *results) drop(ids []ID, before uint64) error {
	if len(ids) == 0 {
		return nil
	}
	err := r.update(func(tx *holdfast.Tx) error {
		records, output, err := buckets(tx)
		if err != nil {
			return err
		}
		store, err := blob.Open(output)
		if err != nil {
			return err
		}
		for _, id := range ids {
			r.touched("drop", 2)
			var old blob.Ref
			rec, err := parseRecord(records.Get(id[:]))
			switch {
			case err == nil && rec.created >= before:
				continue
			case err == nil:
				old = rec.output
			case !errors.Is(err, ErrCorrupt):
				return err
			}
			if err := records.Delete(id[:]); err != nil {
				return err
			}
			if err := giveUp(store, old); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("removing records of steps: %w", err)
	}
	return nil
}

// sweepBatch is how many records one transaction looks at.
const sweepBatch = 256

// sweep removes the records for which gone says so.
func (r *results) sweep(ctx context.Context, before uint64, gone func(ID) (bool, error)) error {
	var from []byte
	for ctx.Err() == nil {
		var ids []ID
		err := r.view(func(tx *holdfast.Tx) error {
			records, _, err := buckets(tx)
			if err != nil {
				return err
			}
			c := records.Cursor()
			for k, _ := c.Seek(from); k != nil && len(ids) < sweepBatch; k, _ = c.Next() {
				if len(k) != len(ID{}) {
					return fmt.Errorf("%w: a key of %d bytes", ErrCorrupt, len(k))
				}
				ids = append(ids, ID(k))
			}
			return nil
		})
		if err != nil || len(ids) == 0 {
			return err
		}
		from = append(ids[len(ids)-1][:], 0)
		var doomed []ID
		for _, id := range ids {
			out, err := gone(id)
			if err != nil {
				return err
			}
			if out {
				doomed = append(doomed, id)
			}
		}
		if err := r.drop(doomed, before); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// check reads all records and verifies the store of blobs.
func (r *results) check(ctx context.Context, c *CheckReport, gone func(ID) (bool, error)) error {
	return r.view(func(tx *holdfast.Tx) error {
		records, output, err := buckets(tx)
		if err != nil {
			return err
		}
		var refs []blob.Ref
		err = records.ForEach(func(k, v []byte) error {
			c.Results++
			rec, err := parseRecord(v)
			if err != nil || len(k) != len(ID{}) || rec.snapshot != ID(k).Snapshot() {
				c.Problems = append(c.Problems, fmt.Sprintf("the record %x: %v", k, err))
				return nil
			}
			if !rec.output.IsZero() {
				refs = append(refs, rec.output)
			}
			out, err := gone(ID(k))
			if out {
				c.Pruned++
			}
			return err
		})
		if err != nil {
			return err
		}
		store, err := blob.Open(output)
		if err != nil {
			return err
		}
		roots := func(yield func(blob.Ref, error) bool) {
			for _, ref := range refs {
				if !yield(ref, nil) {
					return
				}
			}
		}
		_, err = store.Check(ctx, blob.CheckOptions{Data: true, Roots: roots}, func(p blob.Problem) error {
			c.Problems = append(c.Problems, "output: "+p.String())
			return nil
		})
		return err
	})
}
