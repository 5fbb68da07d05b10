package snapshot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
)

const recordVersion = 1

// Flags of a record.
const (
	flagPinned     = 1 << iota
	flagListed     // it is in the bucket of those that can be pruned
	flagPending    // a digest of its content is to be computed
	flagDigest     // it has a digest; two further fields follow the labels
	flagDamaged    // the content was not that of the digest when it was last looked at
	flagUnmeasured // what it takes is to be measured
	knownFlags     = flagPinned | flagListed | flagPending | flagDigest | flagDamaged | flagUnmeasured
)

// record is what the metadata say of a snapshot.
type record struct {
	kind    Kind
	flags   byte
	id      ID
	parent  ID
	created uint64 // times are nanoseconds since 1970
	updated uint64
	used    uint64
	usage   Usage
	commit  uint64 // number of the commit; 0: its content was flushed before
	labels  map[string]string

	digest   Digest // with flagDigest
	verified uint64 // when the content last was, or was not, that of the digest
}

func (r *record) listed() bool { return r.flags&flagListed != 0 }

// append encodes the record.
func (r *record) append(b []byte) []byte {
	b = append(b, recordVersion, byte(r.kind), r.flags)
	for _, v := range []uint64{uint64(r.id), uint64(r.parent), r.created, r.updated, r.used,
		uint64(r.usage.Size), uint64(r.usage.Inodes), r.commit, uint64(len(r.labels))} {
		b = binary.AppendUvarint(b, v)
	}
	for _, k := range slices.Sorted(maps.Keys(r.labels)) {
		b = appendString(appendString(b, k), r.labels[k])
	}
	if r.flags&flagDigest != 0 {
		b = binary.AppendUvarint(append(b, r.digest[:]...), r.verified)
	}
	return b
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

var (
	errShort = errors.New("bytes are missing")
	errLong  = errors.New("more than belongs there")
)

// corruptf is an error that wraps ErrCorrupt.
func corruptf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}

// decoder takes values from the front of some bytes. After an error it gives zeroes.
type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
	d.rest = nil
}

func (d *decoder) byte() byte {
	if len(d.rest) == 0 {
		d.fail(errShort)
		return 0
	}
	b := d.rest[0]
	d.rest = d.rest[1:]
	return b
}

// uvarint takes the shortest encoding only, so equal records are equal bytes.
func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.rest)
	switch {
	case n == 0:
		d.fail(errShort)
		return 0
	case n < 0 || n > 1 && d.rest[n-1] == 0:
		d.fail(errLong)
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *decoder) size() int64 {
	v := d.uvarint()
	if v > 1<<62 {
		d.fail(errLong)
		return 0
	}
	return int64(v)
}

func (d *decoder) string() string {
	n := d.uvarint()
	if n > uint64(len(d.rest)) {
		d.fail(errShort)
		return ""
	}
	s := string(d.rest[:n])
	d.rest = d.rest[n:]
	return s
}

func (d *decoder) digest() (sum Digest) {
	if len(d.rest) < len(sum) {
		d.fail(errShort)
		return sum
	}
	d.rest = d.rest[copy(sum[:], d.rest):]
	return sum
}

// end is the error of the whole: of a value, or of bytes that are left.
func (d *decoder) end() error {
	if d.err == nil && len(d.rest) != 0 {
		return errLong
	}
	return d.err
}

// parseRecord decodes a record.
func parseRecord(b []byte) (r record, err error) {
	d := decoder{rest: b}
	if v := d.byte(); d.err == nil && v != recordVersion {
		return r, corruptf("record of a snapshot: version %d is unknown", v)
	}
	r.kind, r.flags = Kind(d.byte()), d.byte()
	r.id, r.parent = ID(d.uvarint()), ID(d.uvarint())
	r.created, r.updated, r.used = uint64(d.size()), uint64(d.size()), uint64(d.size())
	r.usage.Size, r.usage.Inodes = d.size(), d.size()
	r.commit = d.uvarint()
	r.labels = d.labels()
	if r.flags&flagDigest != 0 {
		r.digest, r.verified = d.digest(), uint64(d.size())
	}
	if err := d.end(); err != nil {
		return record{}, corruptf("record of a snapshot: %v", err)
	}
	switch {
	case r.kind < View || r.kind > Committed:
		return record{}, corruptf("record of a snapshot: %v", r.kind)
	case r.flags&^knownFlags != 0:
		return record{}, corruptf("record of a snapshot: unknown flags %#x", r.flags)
	case r.id == 0 || r.parent >= r.id && r.kind != Committed:
		return record{}, corruptf("record of a snapshot: ID %v with parent %v", r.id, r.parent)
	case r.parent == r.id:
		return record{}, corruptf("record of a snapshot: %v is its own parent", r.id)
	case r.kind != Committed && (r.listed() || r.commit != 0 || r.flags&(flagPending|flagDigest|flagUnmeasured) != 0):
		return record{}, corruptf("record of a snapshot: %v has what only committed ones have", r.kind)
	case r.flags&flagUnmeasured != 0 && r.usage != Usage{}:
		return record{}, corruptf("record of a snapshot: it takes %+v, and was not measured", r.usage)
	case r.flags&flagDigest != 0 && (r.verified == 0 || r.flags&flagPending != 0) || r.flags&(flagDigest|flagDamaged) == flagDamaged:
		return record{}, corruptf("record of a snapshot: flags %#x of a digest, verified at %d", r.flags, r.verified)
	}
	return r, nil
}

// labels takes as many labels as a count says that comes first. Keys ascend.
func (d *decoder) labels() map[string]string {
	n := d.uvarint()
	if n > uint64(len(d.rest))/2 { // each has two lengths at least
		d.fail(errShort)
	}
	if d.err != nil || n == 0 {
		return nil
	}
	labels := make(map[string]string, n)
	last := ""
	for range n {
		k, v := d.string(), d.string()
		if d.err != nil {
			return nil
		}
		if k <= last || v == "" {
			d.fail(errors.New("labels are not in order"))
			return nil
		}
		labels[k], last = v, k
	}
	return labels
}

// totals are figures of the whole store.
type totals struct {
	snapshots, committed uint64
	usage                Usage // of the committed ones
}

func (t *totals) append(b []byte) []byte {
	b = append(b, recordVersion)
	for _, v := range []uint64{t.snapshots, t.committed, uint64(t.usage.Size), uint64(t.usage.Inodes)} {
		b = binary.AppendUvarint(b, v)
	}
	return b
}

func parseTotals(b []byte) (t totals, err error) {
	if b == nil {
		return t, nil
	}
	d := decoder{rest: b}
	if v := d.byte(); d.err == nil && v != recordVersion {
		return t, corruptf("totals: version %d is unknown", v)
	}
	t = totals{snapshots: d.uvarint(), committed: d.uvarint(), usage: Usage{Size: d.size(), Inodes: d.size()}}
	if err := d.end(); err != nil {
		return totals{}, corruptf("totals: %v", err)
	}
	return t, nil
}

// syncState is what is known of flushed commits.
type syncState struct {
	boot   string // boot id under which the store was last open
	commit uint64 // last commit number that was given
	synced uint64 // up to this one content is on the disk
}

func (s *syncState) append(b []byte) []byte {
	b = appendString(append(b, recordVersion), s.boot)
	return binary.AppendUvarint(binary.AppendUvarint(b, s.commit), s.synced)
}

func parseSyncState(b []byte) (s syncState, err error) {
	if b == nil {
		return s, nil
	}
	d := decoder{rest: b}
	if v := d.byte(); d.err == nil && v != recordVersion {
		return s, corruptf("state of flushing: version %d is unknown", v)
	}
	s = syncState{boot: d.string(), commit: d.uvarint(), synced: d.uvarint()}
	if err := d.end(); err != nil {
		return syncState{}, corruptf("state of flushing: %v", err)
	}
	if s.synced > s.commit {
		return syncState{}, corruptf("state of flushing: commit %d is flushed, the last one was %d", s.synced, s.commit)
	}
	return s, nil
}
