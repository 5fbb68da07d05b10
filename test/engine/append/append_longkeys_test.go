package append

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"holdfast"
	"holdfast/internal/bridge"
	"holdfast/internal/vfs"
)

// TestAppendAfterLongKeys: keys of the longest size make a branch of two or three elements as long as one that is split at the
// edge. When an earlier leaf had been edited, it was split before its first element: an empty branch was left, and nothing of the
// bucket was found any more, though Append returned nil.
func TestAppendAfterLongKeys(t *testing.T) {
	long := func(first byte) []byte { return bytes.Repeat([]byte{first}, holdfast.MaxKeySize) }
	for longs := range 6 {
		for _, edit := range []string{"none", "first", "each", "new"} {
			t.Run(fmt.Sprintf("%d, edited %s", longs, edit), func(t *testing.T) {
				db, err := bridge.Open(vfs.NewMem("mem").Open(), &holdfast.Options{PageSize: 1024})
				if err != nil {
					t.Fatal(err)
				}
				defer db.Close()
				want := map[string]string{}
				put := func(b *holdfast.Bucket, key []byte, value string) error {
					want[string(key)] = value
					return b.Put(key, []byte(value))
				}
				soundUpdate(t, db, func(tx *holdfast.Tx) error {
					b, err := tx.CreateBucket([]byte("b"))
					for i := 0; i < 20 && err == nil; i++ {
						err = put(b, fmt.Appendf(nil, "A%02d", i), string(bytes.Repeat([]byte("v"), 100)))
					}
					for i := range longs {
						err = errors.Join(err, put(b, long('b'+byte(i)), "long"))
					}
					return err
				})
				soundUpdate(t, db, func(tx *holdfast.Tx) error {
					b := tx.Bucket([]byte("b"))
					var err error
					switch edit {
					case "first":
						err = put(b, []byte("A00"), "edited")
					case "each":
						for i := range longs {
							err = errors.Join(err, put(b, long('b'+byte(i)), "edited"))
						}
					case "new":
						err = put(b, []byte("B"), "new")
					}
					for i := 0; i < 40 && err == nil; i++ {
						key := append(bytes.Repeat([]byte{'x'}, 100+i*797), fmt.Appendf(nil, "%02d", i)...)
						if i%3 == 0 {
							key = append(bytes.Repeat([]byte{'x'}, i), fmt.Appendf(nil, "y%02d", i)...)
						}
						key = append([]byte{'w', byte(i)}, key...)
						want[string(key)] = "appended"
						err = b.Append(key, []byte("appended"))
						n := 0
						for k, v := range b.All() {
							if n++; want[string(k)] != string(v) {
								t.Fatalf("after %d: key %.10q has value %q", i+1, k, v)
							}
						}
						if n != len(want) || tx.Err() != nil {
							t.Fatalf("after %d: %d keys, want %d: %v", i+1, n, len(want), tx.Err())
						}
					}
					return err
				})
				soundUpdate(t, db, func(tx *holdfast.Tx) error { return tx.Bucket([]byte("b")).Delete([]byte("A01")) })
			})
		}
	}
}
