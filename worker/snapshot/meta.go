package snapshot

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"holdfast"
)

// bucket is one of the buckets of metadata.db.
type bucket int

const (
	inMeta bucket = iota
	inNamespaces
	inSnapshots
	inIDs
	inChildren
	inUsed
	inLeases
	inLeased
	inExpiries
	inDistrusted
	inTrash
	inVerified
	inUnmeasured
	buckets
)

// bucketNames are stored. The bucket of the namespaces is called tenants.
var bucketNames = [buckets]string{"meta", "tenants", "snapshots", "ids", "children", "used", "leases", "leased",
	"expiries", "distrusted", "trash", "verified", "unmeasured"}

// Keys of the bucket meta.
var (
	keyStore   = []byte("store")
	keyIDs     = []byte("ids")
	keyTotals  = []byte("totals")
	keySync    = []byte("sync")
	keySuspect = []byte("suspect")
)

// number is a number as a key, or at the front of one.
func number(n uint64, rest ...byte) []byte {
	return append(binary.BigEndian.AppendUint64(make([]byte, 0, 8+len(rest)), n), rest...)
}

// numbers are two numbers as a key.
func numbers(a, b uint64, rest ...byte) []byte {
	k := binary.BigEndian.AppendUint64(make([]byte, 0, 16+len(rest)), a)
	return append(binary.BigEndian.AppendUint64(k, b), rest...)
}

// fixed decodes a key or value of n numbers and nothing else.
func fixed(what string, b []byte, n int) (a, z uint64, err error) {
	if len(b) != 8*n {
		return 0, 0, corruptf("%s: %d bytes, not %d", what, len(b), 8*n)
	}
	a = binary.BigEndian.Uint64(b)
	if n == 2 {
		z = binary.BigEndian.Uint64(b[8:])
	}
	return a, z, nil
}

// nameKey is the key of a snapshot in the bucket snapshots.
func nameKey(namespace, name string) []byte {
	k := make([]byte, 0, len(namespace)+1+len(name))
	return append(append(append(k, namespace...), 0), name...)
}

// splitKey is the inverse of nameKey.
func splitKey(k []byte) (namespace, name string, err error) {
	i := bytes.IndexByte(k, 0)
	if i <= 0 || i == len(k)-1 || bytes.IndexByte(k[i+1:], 0) >= 0 {
		return "", "", corruptf("key of a snapshot: %q", k)
	}
	return string(k[:i]), string(k[i+1:]), nil
}

// txn is a transaction on the metadata. Each method that touches keys counts them.
type txn struct {
	store   *Store
	tx      *holdfast.Tx
	open    [buckets]*holdfast.Bucket
	touched int
}

// bucket opens a bucket. There are all of them since the store was created.
func (t *txn) bucket(n bucket) (*holdfast.Bucket, error) {
	if t.open[n] == nil {
		b := t.tx.Bucket([]byte(bucketNames[n]))
		if b == nil {
			if err := t.tx.Err(); err != nil {
				return nil, err
			}
			return nil, corruptf("bucket %s is missing", bucketNames[n])
		}
		t.open[n] = b
	}
	return t.open[n], nil
}

// get is the value of a key; nil if there is none.
func (t *txn) get(n bucket, key []byte) ([]byte, error) {
	b, err := t.bucket(n)
	if err != nil {
		return nil, err
	}
	t.touched++
	v := b.Get(key)
	if v == nil {
		return nil, t.tx.Err()
	}
	return v, nil
}

func (t *txn) put(n bucket, key, value []byte) error {
	b, err := t.bucket(n)
	if err != nil {
		return err
	}
	t.touched++
	return b.Put(key, value)
}

func (t *txn) delete(n bucket, key []byte) error {
	b, err := t.bucket(n)
	if err != nil {
		return err
	}
	t.touched++
	return b.Delete(key)
}

// scan calls fn for the keys that begin with prefix, from the key from on, until it returns false.
func (t *txn) scan(n bucket, prefix, from []byte, fn func(k, v []byte) (bool, error)) error {
	b, err := t.bucket(n)
	if err != nil {
		return err
	}
	if bytes.Compare(from, prefix) < 0 {
		from = prefix
	}
	c := b.Cursor()
	for k, v := c.Seek(from); ; k, v = c.Next() {
		t.touched++
		if k == nil || !bytes.HasPrefix(k, prefix) {
			return t.tx.Err()
		}
		if more, err := fn(k, v); err != nil || !more {
			return err
		}
	}
}

// any tells whether a key begins with prefix.
func (t *txn) any(n bucket, prefix []byte) (bool, error) {
	found := false
	err := t.scan(n, prefix, nil, func(_, _ []byte) (bool, error) {
		found = true
		return false, nil
	})
	return found, err
}

// record is the snapshot with this key; ErrNotFound if there is none.
func (t *txn) record(key []byte) (record, error) {
	v, err := t.get(inSnapshots, key)
	if err != nil {
		return record{}, err
	}
	if v == nil {
		return record{}, ErrNotFound
	}
	return parseRecord(v)
}

// keyOf is the key of the snapshot with an ID that the metadata name.
func (t *txn) keyOf(id ID) ([]byte, error) {
	v, err := t.get(inIDs, number(uint64(id)))
	if err == nil && v == nil {
		err = corruptf("there is no snapshot with ID %v", id)
	}
	return v, err
}

// byID is keyOf with the record.
func (t *txn) byID(id ID) ([]byte, record, error) {
	key, err := t.keyOf(id)
	if err != nil {
		return nil, record{}, err
	}
	r, err := t.named(key, id)
	return key, r, err
}

// named is the record of the snapshot that has, as the metadata say, an ID and a key.
func (t *txn) named(key []byte, id ID) (record, error) {
	r, err := t.record(key)
	if err == nil && r.id != id {
		err = ErrNotFound
	}
	if err == ErrNotFound { //nolint:errorlint // record returns it as it is
		err = corruptf("ID %v is named %q, which is another snapshot", id, key)
	}
	return r, err
}

// maxDepth bounds the walk through ancestors, which in damaged metadata may have no end.
const maxDepth = 1 << 16

// ancestors are the parents of a snapshot whose parent is id, nearest first. It is
// ErrDistrusted or ErrDamaged if the content of one of them is.
func (t *txn) ancestors(id ID) ([]ID, error) { return t.lineage(id, t.store.usable) }

// lineage is ancestors with another check of each.
func (t *txn) lineage(id ID, check func(*record) error) ([]ID, error) {
	var ids []ID
	for id != 0 {
		if len(ids) == maxDepth {
			return nil, corruptf("snapshot %v has more than %d ancestors", ids[0], maxDepth)
		}
		key, r, err := t.byID(id)
		if err != nil {
			return nil, err
		}
		if err := check(&r); err != nil {
			return nil, fmt.Errorf("%q: %w", key, err)
		}
		ids = append(ids, id)
		id = r.parent
	}
	return ids, nil
}

// prunable tells whether pruning may remove a snapshot: the bucket used has those, and no others.
func (t *txn) prunable(key []byte, r *record) (bool, error) {
	if r.kind != Committed || r.flags&flagPinned != 0 || t.store.isClient(key) {
		return false, nil
	}
	for _, n := range []bucket{inChildren, inLeased} {
		if held, err := t.any(n, number(uint64(r.id))); err != nil || held {
			return false, err
		}
	}
	return true, nil
}

// save writes the record of a snapshot and lists it among those that can be pruned, or not.
// was is when it was last used as the list has it.
func (t *txn) save(key []byte, r *record, was uint64) error {
	listed, err := t.prunable(key, r)
	if err != nil {
		return err
	}
	if r.listed() && (!listed || was != r.used) {
		if err := t.delete(inUsed, numbers(was, uint64(r.id))); err != nil {
			return err
		}
	}
	if listed && (!r.listed() || was != r.used) {
		if err := t.put(inUsed, numbers(r.used, uint64(r.id)), nil); err != nil {
			return err
		}
	}
	r.flags &^= flagListed
	if listed {
		r.flags |= flagListed
	}
	return t.put(inSnapshots, key, r.append(nil))
}

// relist is save for a snapshot of which something else than its record has changed.
func (t *txn) relist(id ID) error {
	key, r, err := t.byID(id)
	if err != nil {
		return err
	}
	if listed, err := t.prunable(key, &r); err != nil || listed == r.listed() {
		return err
	}
	return t.save(key, &r, r.used)
}

// count changes the totals by r, which comes or, with sign -1, goes.
func (t *txn) count(r *record, sign int64) error {
	v, err := t.get(inMeta, keyTotals)
	if err != nil {
		return err
	}
	sum, err := parseTotals(v)
	if err != nil {
		return err
	}
	sum.snapshots += uint64(sign)
	if r.kind == Committed {
		sum.committed += uint64(sign)
		sum.usage.Size += sign * r.usage.Size
		sum.usage.Inodes += sign * r.usage.Inodes
	}
	if int64(sum.snapshots) < 0 || int64(sum.committed) < 0 || sum.usage.Size < 0 || sum.usage.Inodes < 0 {
		return corruptf("totals become negative")
	}
	return t.put(inMeta, keyTotals, sum.append(nil))
}

// view runs fn in a reading transaction.
func (s *Store) view(op string, fn func(*txn) error) error { return s.transact(op, s.db.View, fn) }

// update runs fn in a writing transaction, which is as durable when it returns as the store's
// options say. If the disk is full, fn may be called twice.
func (s *Store) update(op string, fn func(*txn) error) error { return s.transact(op, s.db.Update, fn) }

func (s *Store) transact(op string, run func(func(*holdfast.Tx) error) error, fn func(*txn) error) error {
	if s.closed.Load() {
		return ErrClosed
	}
	var touched int
	attempt := func() error {
		return run(func(tx *holdfast.Tx) error {
			t := &txn{store: s, tx: tx}
			err := fn(t)
			touched = t.touched
			return err
		})
	}
	err := attempt()
	if full(err) && s.opts.Full != nil && s.opts.Full() {
		err = attempt()
	}
	if s.observe != nil {
		s.observe(op, touched)
	}
	if errors.Is(err, holdfast.ErrDatabaseNotOpen) { // closed meanwhile
		return ErrClosed
	}
	return err
}

// full tells of an error that there is no room on the disk.
func full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
