package shared

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
)

// The database of these tests says by itself whether what is read of it is one state: the sum of the numbers in all values of a
// bucket is in another bucket, with how many there are. Values have random lengths that follow from their
// key and number, some of several pages, so that each transaction takes and gives up pages all over the file.

const (
	maxKeys  = 4000
	maxPlain = 300    // bytes of most values
	maxLarge = 40_000 // of a few
)

var (
	rowsName = []byte("rows")
	sumsName = []byte("sums")
	sumName  = []byte("sum")
)

// bucket is what bbolt's and Holdfast's have in common.
type bucket interface {
	Get(key []byte) []byte
	Put(key, value []byte) error
	Delete(key []byte) error
	ForEach(fn func(k, v []byte) error) error
}

// totals are the sum of the numbers, and of how many rows.
type totals struct{ sum, rows uint64 }

func (t totals) bytes() []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, t.sum), t.rows)
}

func totalsOf(b []byte) (t totals, err error) {
	if b == nil {
		return t, nil
	}
	if len(b) != 16 {
		return t, fmt.Errorf("the totals have %d bytes", len(b))
	}
	return totals{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])}, nil
}

func key(i int) []byte { return fmt.Appendf(nil, "row-%06d", i*7919%maxKeys) }

// value is the one of a key with a number.
func value(key []byte, n uint64) []byte {
	h := fnv.New64a()
	_, _ = h.Write(binary.BigEndian.AppendUint64(key[:len(key):len(key)], n))
	seed := h.Sum64()
	length := 16 + int(seed>>8%maxPlain)
	if seed%97 == 0 {
		length = int(seed >> 8 % maxLarge)
	}
	v := make([]byte, max(length, 16))
	binary.BigEndian.PutUint64(v, n)
	for at := 8; at+8 <= len(v); at += 8 {
		seed = seed*6364136223846793005 + 1442695040888963407
		binary.BigEndian.PutUint64(v[at:], seed)
	}
	return v
}

// number is the one of a row; it is an error if the row cannot have that value.
func number(k, v []byte) (uint64, error) {
	if len(v) < 16 {
		return 0, fmt.Errorf("row %s has %d bytes", k, len(v))
	}
	n := binary.BigEndian.Uint64(v)
	if string(value(k, n)) != string(v) {
		return 0, fmt.Errorf("row %s has a value that was never written", k)
	}
	return n, nil
}

// change changes some rows.
func change(rows, sums bucket, random *rand.Rand) error {
	t, err := totalsOf(sums.Get(sumName))
	if err != nil {
		return err
	}
	n := 1 + random.IntN(60)
	if random.IntN(20) == 0 {
		n = 1500 // what it gives up is much of the file
	}
	remove := random.IntN(4) == 0
	for range n {
		k := key(random.IntN(maxKeys))
		if v := rows.Get(k); v != nil {
			old, err := number(k, v)
			if err != nil {
				return err
			}
			t.sum -= old
			t.rows--
			if remove {
				if err := rows.Delete(k); err != nil {
					return err
				}
				continue
			}
		}
		number := random.Uint64() >> 16
		if err := rows.Put(k, value(k, number)); err != nil {
			return err
		}
		t.sum += number
		t.rows++
	}
	return sums.Put(sumName, t.bytes())
}

// look is an error if what is read is not one state. pause is called for each row.
func look(rows, sums bucket, pause func()) error {
	want, err := totalsOf(sums.Get(sumName))
	if err != nil {
		return err
	}
	var got totals
	err = rows.ForEach(func(k, v []byte) error {
		n, err := number(k, v)
		if err != nil {
			return err
		}
		got.sum += n
		got.rows++
		pause()
		return nil
	})
	if err == nil && got != want {
		err = fmt.Errorf("the rows add up to %d, and not to %d", got, want)
	}
	return err
}
