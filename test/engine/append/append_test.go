package append

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"holdfast"
)

func appendKey(i int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(i)) }

// appendValue is n bytes that say whose value they are.
func appendValue(i, n int) []byte { return bytes.Repeat([]byte{byte(i), byte(i >> 8), 7}, n/3+1)[:n] }

func appendDB(t *testing.T, options *holdfast.Options) *holdfast.DB {
	t.Helper()
	db, err := holdfast.Open(filepath.Join(t.TempDir(), "db"), 0o600, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// soundUpdate is an Update that succeeds, and leaves a sound file.
func soundUpdate(t *testing.T, db *holdfast.DB, fn func(tx *holdfast.Tx) error) {
	t.Helper()
	if err := db.Update(fn); err != nil {
		t.Fatal(err)
	}
	mustBeSound(t, db)
}

func mustBeSound(t *testing.T, db *holdfast.DB) {
	t.Helper()
	err := db.View(func(tx *holdfast.Tx) error {
		for err := range tx.Check() {
			t.Error(err)
		}
		return nil
	})
	if err != nil || t.Failed() {
		t.Fatal(err)
	}
}

// appendSize is the size of value i in a test of some kind.
func appendSize(kind string, i int) int {
	switch kind {
	case "small":
		return i % 1200
	case "page":
		return 3900 + i%400
	case "large":
		return 4096 + i*977%70000
	}
	return []int{10, 1000, 65488, 4096, 300, 20000, 5, 4095}[i%8]
}

// wantAppended fails unless b holds elements 0 to n-1, and nothing else.
func wantAppended(t *testing.T, b *holdfast.Bucket, kind string, n int) {
	t.Helper()
	i := 0
	for k, v := range b.All() {
		if !bytes.Equal(k, appendKey(i)) || !bytes.Equal(v, appendValue(i, appendSize(kind, i))) {
			t.Fatalf("element %d is %x with %d bytes", i, k, len(v))
		}
		i++
	}
	if i != n {
		t.Fatalf("%d elements, want %d", i, n)
	}
	for i := range n {
		if v := b.Get(appendKey(i)); !bytes.Equal(v, appendValue(i, appendSize(kind, i))) {
			t.Fatalf("key %d has %d bytes", i, len(v))
		}
	}
}

// What is appended is there in the same transaction and after it, and the caller may use
// key and value again.
func TestAppend(t *testing.T) {
	for _, kind := range []string{"small", "page", "large", "mixed"} {
		t.Run(kind, func(t *testing.T) {
			db := appendDB(t, nil)
			const n = 400
			from := 0
			for round := range 3 {
				soundUpdate(t, db, func(tx *holdfast.Tx) error {
					b, err := tx.CreateBucketIfNotExists([]byte("b"))
					if err != nil {
						return err
					}
					key, value := make([]byte, 8), make([]byte, 100_000)
					for i := from; i < from+n; i++ {
						copy(key, appendKey(i))
						v := value[:copy(value, appendValue(i, appendSize(kind, i)))]
						if err := b.Append(key, v); err != nil {
							return err
						}
						clear(key)
						clear(v)
						if i%100 == 3 {
							if err := b.Append(appendKey(i), nil); !errors.Is(err, holdfast.ErrUnordered) {
								return fmt.Errorf("the same key: %v", err)
							}
						}
					}
					from += n
					if round > 0 {
						wantAppended(t, b, kind, from)
					}
					return nil
				})
				err := db.View(func(tx *holdfast.Tx) error {
					wantAppended(t, tx.Bucket([]byte("b")), kind, from)
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
