package crash

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"

	"holdfast"
)

// edit changes some things in up to two levels of buckets.
func (h *history) edit(r *rand.Rand, tx *holdfast.Tx) error {
	for range 1 + r.IntN(3) {
		name := fmt.Appendf(nil, "b%d", r.IntN(3))
		if r.IntN(12) == 0 {
			if err := tx.DeleteBucket(name); err != nil && err != holdfast.ErrBucketNotFound {
				return err
			}
			continue
		}
		b, err := tx.CreateBucketIfNotExists(name)
		if err != nil {
			return err
		}
		if err := h.editBucket(r, b, 0); err != nil {
			return err
		}
	}
	return nil
}

func (h *history) editBucket(r *rand.Rand, b *holdfast.Bucket, depth int) error {
	for range r.IntN(25) {
		key := fmt.Appendf(nil, "k%d", r.IntN(60))
		var err error
		switch r.IntN(8) {
		case 0, 1:
			err = b.Delete(key)
		case 2:
			_, err = b.NextSequence()
		case 3:
			if depth < 2 {
				err = h.editNested(r, b, depth)
			}
		default:
			size := r.IntN(60)
			if r.IntN(15) == 0 {
				size = r.IntN(5 * h.page)
				h.set("large value", true)
			}
			err = b.Put(key, bytes.Repeat([]byte{byte('a' + r.IntN(26))}, size))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (h *history) editNested(r *rand.Rand, b *holdfast.Bucket, depth int) error {
	name := fmt.Appendf(nil, "n%d", r.IntN(3))
	if r.IntN(4) == 0 {
		if err := b.DeleteBucket(name); err != holdfast.ErrBucketNotFound {
			return err
		}
		return nil
	}
	child, err := b.CreateBucketIfNotExists(name)
	if err != nil {
		return err
	}
	return h.editBucket(r, child, depth+1)
}

// emptyContent is the content of a new database.
const emptyContent = "."

// reader is what contentOf needs of a transaction of either engine.
type reader[B bucket[B]] interface {
	ForEach(fn func(name []byte, b B) error) error
}

type bucket[B any] interface {
	comparable
	Bucket(name []byte) B
	Sequence() uint64
	ForEach(fn func(k, v []byte) error) error
}

// contentOf writes all that a transaction sees as text.
func contentOf[B bucket[B]](tx reader[B]) (string, error) {
	var s strings.Builder
	err := tx.ForEach(func(name []byte, b B) error {
		fmt.Fprintf(&s, "%s:", name)
		return writeBucket(&s, b)
	})
	s.WriteString(emptyContent)
	return s.String(), err
}

func writeBucket[B bucket[B]](s *strings.Builder, b B) error {
	var none B
	if b == none {
		return fmt.Errorf("a bucket cannot be opened")
	}
	fmt.Fprintf(s, "{%d ", b.Sequence())
	err := b.ForEach(func(k, v []byte) error {
		if v == nil {
			fmt.Fprintf(s, "%s:", k)
			return writeBucket(s, b.Bucket(k))
		}
		first := byte('-')
		if len(v) > 0 {
			first = v[0]
		}
		if !bytes.Equal(v, bytes.Repeat([]byte{first}, len(v))) {
			return fmt.Errorf("value of %q is a mixture", k)
		}
		fmt.Fprintf(s, "%s=%d%c ", k, len(v), first)
		return nil
	})
	s.WriteString("}")
	return err
}
