package step

import (
	"encoding/binary"
	"fmt"
	"time"

	"holdfast/blob"
	"holdfast/worker/snapshot"
)

const recordVersion = 1

// Flags of a record.
const (
	flagAdopted = 1 // its snapshot was found without a record
	flagLayer   = 2 // layer is known: of older records it is not
)

// record is what results.db says of a step.
type record struct {
	flags    byte
	created  uint64 // times are nanoseconds since 1970
	used     uint64
	duration uint64 // nanoseconds
	user     uint64
	system   uint64
	memory   uint64 // bytes
	code     uint64
	written  uint64 // bytes of output
	layer    uint64 // ID of the snapshot, of those that had the name one after the other; 0: not known
	snapshot string
	output   blob.Ref // zero: none was kept
}

func (r *record) numbers() []*uint64 {
	list := []*uint64{&r.created, &r.used, &r.duration, &r.user, &r.system, &r.memory, &r.code, &r.written}
	if r.flags&flagLayer != 0 {
		list = append(list, &r.layer)
	}
	return list
}

// of tells whether the record is of a snapshot with its name, and not of one that had the name before: what
// that has printed is not what has made this one.
func (r *record) of(info *snapshot.Info) bool {
	if r.flags&flagLayer == 0 {
		return !timeOf(r.created).Before(info.Created)
	}
	return r.layer == uint64(info.ID)
}

// append encodes the record: version, flags, numbers, name of the snapshot, and the reference
// to the output, which takes the rest.
func (r *record) append(b []byte) ([]byte, error) {
	b = append(b, recordVersion, r.flags)
	for _, n := range r.numbers() {
		b = binary.AppendUvarint(b, *n)
	}
	b = appendText(b, r.snapshot)
	if r.output.IsZero() {
		return b, nil
	}
	return r.output.AppendBinary(b)
}

func parseRecord(b []byte) (r record, err error) {
	if len(b) < 2 {
		return record{}, fmt.Errorf("%w: %d bytes", ErrCorrupt, len(b))
	}
	if b[0] != recordVersion {
		return record{}, fmt.Errorf("%w: version %d is unknown", ErrCorrupt, b[0])
	}
	if b[1]&^(flagAdopted|flagLayer) != 0 {
		return record{}, fmt.Errorf("%w: unknown flags %#x", ErrCorrupt, b[1])
	}
	r.flags = b[1]
	b = b[2:]
	var length uint64
	for _, n := range append(r.numbers(), &length) {
		v, size := binary.Uvarint(b)
		// The shortest form only, so that equal records are equal bytes.
		if size <= 0 || size > 1 && b[size-1] == 0 || v > 1<<63-1 {
			return record{}, fmt.Errorf("%w: not a number at %x", ErrCorrupt, b[:min(len(b), 10)])
		}
		*n, b = v, b[size:]
	}
	if length > uint64(len(b)) {
		return record{}, fmt.Errorf("%w: a name of %d bytes in %d", ErrCorrupt, length, len(b))
	}
	r.snapshot, b = string(b[:length]), b[length:]
	if len(b) == 0 {
		return r, nil
	}
	if err := r.output.UnmarshalBinary(append([]byte(nil), b...)); err != nil {
		return record{}, fmt.Errorf("%w: its output: %w", ErrCorrupt, err)
	}
	return r, nil
}

func timeOf(ns uint64) time.Time { return time.Unix(0, int64(ns)).UTC() }
