package differential

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"
)

// What `holdfast vacuum` leaves of a file that bbolt has written is a file that bbolt
// opens, finds no fault in, and goes on with.
func TestVacuumCommand(t *testing.T) {
	program := filepath.Join(t.TempDir(), "holdfast")
	build := exec.Command("go", "build", "-o", program, "./holdfast")
	build.Dir = filepath.Join("..", "..", "command")
	build.Env = append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the command: %v\n%s", err, out)
	}
	for _, options := range []bbolt.Options{{}, {NoFreelistSync: true, FreelistType: bbolt.FreelistMapType}} {
		path := filepath.Join(t.TempDir(), "db")
		options.NoSync = true
		update := func(fn func(b *bbolt.Bucket, i int) error) {
			db, err := bbolt.Open(path, 0o600, &options)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			err = db.Update(func(tx *bbolt.Tx) error {
				b, err := tx.CreateBucketIfNotExists([]byte("b"))
				for i := 0; i < 10_000 && err == nil; i++ {
					err = fn(b, i)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		key := func(i int) []byte { return fmt.Appendf(nil, "%06d", i) }
		value := func(i int) []byte { return fmt.Appendf(nil, "%0*d", 10+i%2000, i) }
		update(func(b *bbolt.Bucket, i int) error { return b.Put(key(i), value(i)) })
		update(func(b *bbolt.Bucket, i int) error {
			if i%7 == 0 {
				return nil
			}
			return b.Delete(key(i))
		})
		want := stockReads(t, path)
		out, err := exec.Command(program, "vacuum", path).CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte(" given back (")) {
			t.Fatalf("%v: %s", err, out)
		}
		t.Logf("%s", out)
		if got := stockReads(t, path); !maps.Equal(got, want) {
			t.Errorf("bbolt reads %d keys, before it read %d", len(got), len(want))
		}
		update(func(b *bbolt.Bucket, i int) error { // bbolt goes on
			if i%70 == 0 {
				return b.Put(key(i), value(i+1))
			}
			return nil
		})
		for i := 0; i < 10_000; i += 70 {
			want[string(key(i))] = string(value(i + 1))
		}
		if got := stockReads(t, path); !maps.Equal(got, want) {
			t.Errorf("after bbolt's own commit it reads %d keys, want %d", len(got), len(want))
		}
	}
}
