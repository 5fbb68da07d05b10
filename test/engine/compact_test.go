package engine

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"reflect"
	"testing"

	"holdfast"
	"holdfast/internal/bridge"
	"holdfast/internal/page"
	"holdfast/internal/vfs"
)

// dump is all of a database, by value.
type dump struct {
	Sequence uint64
	Pairs    []pair
	Nested   map[string]dump
}

func dumpDB(t testing.TB, db *holdfast.DB) map[string]dump {
	t.Helper()
	all := map[string]dump{}
	view(t, db, func(tx *holdfast.Tx) {
		must(t, tx.ForEach(func(name []byte, b *holdfast.Bucket) error {
			all[string(name)] = dumpBucket(b)
			return nil
		}))
	})
	return all
}

func dumpBucket(b *holdfast.Bucket) dump {
	d := dump{Sequence: b.Sequence(), Pairs: collect(b.All()), Nested: map[string]dump{}}
	for _, p := range d.Pairs {
		if p.bucket {
			d.Nested[p.key] = dumpBucket(b.Bucket([]byte(p.key)))
		}
	}
	return d
}

// A compacted copy holds the same keys, buckets and sequences, and the same bytes
// however much of it is held in memory; it is one transaction, has no free pages but
// the one that an empty database has, and is not larger than the original.
func TestCompact(t *testing.T) {
	src := openNew(t, 1024)
	update(t, src, func(tx *holdfast.Tx) { must(t, fillSample(tx)) })
	update(t, src, func(tx *holdfast.Tx) {
		must(t, small(tx).SetSequence(42))
		must(t, nest(tx).Bucket([]byte("deep")).SetSequence(1<<40))
		put(t, createBucket(t, createBucket(t, createBucket(t, small(tx), "1"), "2"), "3"), "k", "")
		createBucket(t, tx, "empty")
		must(t, nest(tx).Bucket([]byte("inline")).SetSequence(3))
	})
	fill(t, src, 2000, 100)
	update(t, src, func(tx *holdfast.Tx) { must(t, tx.DeleteBucket([]byte("b"))) })
	want := dumpDB(t, src)
	size := func(db *holdfast.DB) (n int64) {
		view(t, db, func(tx *holdfast.Tx) { n = tx.Size() })
		return n
	}
	var first []byte
	for _, limit := range []int64{0, -1, 1, 100, 5000, 1 << 40} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			dst := openNew(t, 1024)
			before, old := readerID(t, dst), dst.Stats()
			must(t, holdfast.Compact(dst, src, limit))
			checkDB(t, dst)
			written := dst.Stats()
			if d := written.Sub(&old); d.FreePageN+d.PendingPageN > 3 || d.BytesWritten > size(dst) {
				t.Errorf("%d pages are free, %d pending, %d bytes written of %d", d.FreePageN, d.PendingPageN, d.BytesWritten, size(dst))
			}
			if got := dumpDB(t, dst); !reflect.DeepEqual(got, want) {
				t.Error("the copy differs")
			}
			commits := readerID(t, dst) - before
			if commits != 1 {
				t.Errorf("%d transactions", commits)
			}
			var b bytes.Buffer
			view(t, dst, func(tx *holdfast.Tx) {
				_, err := tx.WriteTo(&b)
				must(t, err)
			})
			if pages := b.Bytes()[2*1024:]; first == nil { // the metas have numbers of the moment
				first = pages
			} else if !bytes.Equal(pages, first) {
				t.Error("the copy has other bytes than the first")
			}
			if size(dst) >= size(src) {
				t.Errorf("the copy has %d bytes, the original %d", size(dst), size(src))
			}
		})
	}
	if s := src.Stats(); s.OpenTxN != 0 {
		t.Errorf("%d readers are left", s.OpenTxN)
	}
}

// Compact of a damaged database ends, with the damage, also if a bucket
// contains itself; so does one into a database that is not empty or too small.
func TestCompactErrors(t *testing.T) {
	for name, damage := range map[string]func(s *sample){
		"a bucket in itself": func(s *sample) {
			page.EncodeBucket(s.bucketValue(s.nest, "deep"), page.Bucket{Root: s.nest})
		},
		"no top-level bucket": func(s *sample) { s.set32(s.meta.Root, offLeafVal, 3) },
		"keys in wrong order": func(s *sample) { s.data = bytes.ReplaceAll(s.data, sampleKey(1003), []byte("kez001003")) },
		"a leaf":              func(s *sample) { s.set16(s.leaf(s.keys), offFlags, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSample(t)
			damage(s)
			path := tempPath(t)
			must(t, os.WriteFile(path, s.data, 0o600))
			src := open(t, path, &holdfast.Options{ReadOnly: true, OnDamage: holdfast.DamageIsError})
			dst := openNew(t, 0)
			var fault *holdfast.CorruptError
			if err := within(t, "Compact", func() error { return holdfast.Compact(dst, src, 1000) }); !errors.As(err, &fault) {
				t.Errorf("got %v", err)
			}
			checkDB(t, dst)
			must(t, dst.Update(func(*holdfast.Tx) error { return nil }))
		})
	}
	src, dst := openNew(t, 0), openNew(t, 0)
	fill(t, src, 100, 1000)
	dst.MaxSize = 1
	if err := holdfast.Compact(dst, src, 100); err != holdfast.ErrMaxSizeReached {
		t.Errorf("into a full database: %v", err)
	}
	dst.MaxSize = 0
	must(t, holdfast.Compact(dst, src, 0))
	if err := holdfast.Compact(dst, src, 0); err != holdfast.ErrBucketExists {
		t.Errorf("into one with the same buckets: %v", err)
	}
	// A key at the top level, which only a cursor's bucket can put there.
	update(t, src, func(tx *holdfast.Tx) { put(t, tx.Cursor().Bucket(), "k", "v") })
	if err := holdfast.Compact(openNew(t, 0), src, 0); err == nil {
		t.Error("a key at the top level is lost without an error")
	}
}

// Compact put values that lie in the source's mapping and committed the last of
// them after its view of the source had ended. A source that was written
// meanwhile used those pages again, and the copy held values of several of its
// states. Here the source is rewritten whenever the copy is written, at which
// time the view must be open.
func TestCompactOfLiveSource(t *testing.T) {
	source := vfs.NewMem("source")
	src, err := bridge.Open(source.Open(), &holdfast.Options{PageSize: 1024, NoSync: true})
	must(t, err)
	defer src.Close()
	const count = 50
	rewrite := func(generation byte) {
		update(t, src, func(tx *holdfast.Tx) {
			b, err := tx.CreateBucketIfNotExists([]byte("b"))
			must(t, err)
			for i := range count {
				must(t, b.Put(fmt.Appendf(nil, "%04d", i), bytes.Repeat([]byte{generation}, 3000)))
			}
		})
	}
	rewrite(1)
	for _, limit := range []int64{0, 20_000} {
		first := byte(0)
		view(t, src, func(tx *holdfast.Tx) { first = tx.Bucket([]byte("b")).Get([]byte("0000"))[0] })
		armed, next := false, first
		target := vfs.NewMem("target")
		file := vfs.NewInject(target.Open(), func(op vfs.Op) error {
			if !armed || op.Kind != vfs.KindWrite {
				return nil
			}
			if src.Stats().OpenTxN != 1 {
				t.Errorf("limit %d: write %d, while the view of the source has ended", limit, op.N)
			}
			if next < first+20 {
				for range 4 {
					next++
					rewrite(next)
				}
			}
			return nil
		})
		dst, err := bridge.Open(file, &holdfast.Options{PageSize: 1024, NoSync: true})
		must(t, err)
		armed = true
		must(t, holdfast.Compact(dst, src, limit))
		armed = false
		if next == first {
			t.Fatal("the source was not written meanwhile")
		}
		checkDB(t, dst)
		n := 0
		view(t, dst, func(tx *holdfast.Tx) {
			for k, v := range tx.Bucket([]byte("b")).All() {
				if n++; len(v) != 3000 || bytes.Count(v, []byte{first}) != 3000 {
					t.Fatalf("limit %d: key %s is not as it was when Compact began", limit, k)
				}
			}
		})
		if n != count {
			t.Errorf("limit %d: %d keys, want %d", limit, n, count)
		}
		must(t, dst.Close())
		if s := src.Stats(); s.OpenTxN != 0 {
			t.Errorf("limit %d: %d transactions of the source are left open", limit, s.OpenTxN)
		}
	}
}
