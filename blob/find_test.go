package blob

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// Blobs are found by address, by any prefix of it, and among the roots; what is deleted, a part of
// another, or an ingest's, is not.
func TestFind(t *testing.T) {
	update(t, newStore(t, Options{LeafSize: MinLeafSize}), func(s *Store) {
		refs := map[string]Ref{}
		for i := range 300 {
			ref := must2(s.Put(random(uint64(i), i*10)))
			refs[ref.Address().String()] = ref
		}
		gone := must2(s.Put(random(1, 3*MinLeafSize)))
		must(t, s.Delete(gone))
		in := must2(s.Ingest("x", IngestOptions{}))
		must2(in.Write(random(9, 2*MinLeafSize)))
		must(t, in.Save())
		must(t, s.finish())
		n := 0
		for ref, err := range s.Roots() {
			if must(t, err); refs[ref.Address().String()] != ref {
				t.Errorf("root %v", ref)
			}
			n++
		}
		if n != len(refs) {
			t.Errorf("%d roots of %d", n, len(refs))
		}
		for text, ref := range refs {
			if found := must2(s.Find(text)); !slices.Equal(found, []Ref{ref}) {
				t.Errorf("found %v for %v", found, ref)
			}
			for _, digits := range []int{0, 1, 2, 3, 6, 64} {
				found := must2(s.Find(strings.ToUpper(text[:digits])))
				want := 0
				for other := range refs {
					if strings.HasPrefix(other, text[:digits]) {
						want++
					}
				}
				if len(found) != want || !slices.Contains(found, ref) {
					t.Errorf("prefix %s: found %d, want %d", text[:digits], len(found), want)
				}
			}
		}
		for _, prefix := range []string{"g", "0g", "0x", strings.Repeat("0", 65), strings.Repeat("0", 66)} {
			if _, err := s.Find(prefix); !errors.Is(err, ErrInvalidRef) {
				t.Errorf("prefix %q: %v", prefix, err)
			}
		}
		for _, addr := range []Address{gone.Address(), {}, s.options.sum(random(9, 2*MinLeafSize)[:MinLeafSize])} {
			if found, err := s.Find(addr.String()); len(found) > 0 || err != nil {
				t.Errorf("address %v: %v, %v", addr, found, err)
			}
		}
	})
}

// Stat counts what a blob consists of, also where the same leaves and nodes occur many times.
func TestStat(t *testing.T) {
	update(t, newStore(t, Options{LeafSize: MinLeafSize}), func(s *Store) {
		leaf := random(1, MinLeafSize)
		same := must2(s.Put(bytes.Repeat(leaf, 126*126+3)))
		got := must2(s.Stat(same))
		// A leaf; a node of 126 of it and one of 3; a node of 126 of the former; the root.
		want := Stat{Size: (126*126 + 3) * MinLeafSize, Level: 3, Leaves: 126*126 + 3, Nodes: 126 + 1 + 1 + 1,
			Chunks: 5, Stored: MinLeafSize + 2*(16+126*32) + (16 + 3*32) + (16 + 2*32), Users: 1}
		want.Shared, want.SharedBytes, want.Content = 2, MinLeafSize+16+126*32, want.Stored
		if got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		other := must2(s.Put(append(random(2, 3*MinLeafSize), leaf...)))
		got = must2(s.Stat(other))
		want = Stat{Size: 4 * MinLeafSize, Level: 1, Leaves: 4, Nodes: 1, Chunks: 5, Stored: 4*MinLeafSize + 16 + 4*32, Shared: 1, SharedBytes: MinLeafSize, Users: 1}
		want.Content = want.Stored
		if got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		short := must2(s.Put([]byte("short")))
		must(t, s.Retain(short))
		got = must2(s.Stat(short))
		if want = (Stat{Size: 5, Leaves: 1, Chunks: 1, Content: 5, Stored: 5, Shared: 1, SharedBytes: 5, Users: 2}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		if got := must2(s.Stat(inlineRef(SHA256, []byte("inline")))); got != (Stat{Size: 6}) {
			t.Errorf("%+v", got)
		}
		for range 2 {
			must(t, s.Delete(short))
		}
		if _, err := s.Stat(short); !errors.Is(err, ErrNotFound) {
			t.Errorf("%v", err)
		}
		u := must2(s.Usage())
		wantUsage := Usage{Blobs: 2, Users: 2, Content: (126*126 + 3 + 4) * MinLeafSize, Leaves: 5, LeafBytes: 4*MinLeafSize + 5,
			LeafContent: 4*MinLeafSize + 5, LiveContent: 4 * MinLeafSize,
			Nodes: 5, NodeBytes: 2*(16+126*32) + 16 + 3*32 + 16 + 2*32 + 16 + 4*32, Packed: 6, Dead: 1, DeadBytes: 5}
		if u != wantUsage {
			t.Errorf("%+v, want %+v", u, wantUsage)
		}
	})
}

// Retain and Delete count, and refuse what is not there.
func TestRetain(t *testing.T) {
	update(t, newStore(t, Options{LeafSize: MinLeafSize}), func(s *Store) {
		ref := must2(s.Put([]byte("blob")))
		must(t, s.Retain(ref))
		must(t, s.Delete(ref))
		must(t, s.Delete(ref))
		inline := inlineRef(SHA256, []byte("blob"))
		must(t, errors.Join(s.Retain(inline), s.Delete(inline)))
		wrong := ref
		wrong.size++
		for _, c := range []struct {
			ref  Ref
			want error
		}{{ref, ErrNotFound}, {Ref{algorithm: SHA256}, ErrNotFound}, {Ref{algorithm: BLAKE3}, ErrAlgorithm}, {Ref{}, ErrInvalidRef}, {wrong, ErrInvalidRef}} {
			if err := s.Delete(c.ref); !errors.Is(err, c.want) {
				t.Errorf("delete %v: %v, want %v", c.ref, err, c.want)
			}
			if err := s.Retain(c.ref); !errors.Is(err, c.want) {
				t.Errorf("retain %v: %v, want %v", c.ref, err, c.want)
			}
		}
		if has, err := s.Has(ref); has || err != nil {
			t.Errorf("%v, %v", has, err)
		}
	})
}

// A lease holds what is in it until it is released, or expires.
func TestLease(t *testing.T) {
	db := newStore(t, Options{LeafSize: MinLeafSize})
	var ref Ref
	held := func(s *Store) bool { return must2(s.Has(ref)) }
	update(t, db, func(s *Store) {
		ref = must2(s.Put(random(1, 5*MinLeafSize)))
		for i, expires := range []time.Time{{}, time.Unix(1, 1), time.Now().Add(time.Hour)} {
			l := must2(s.Lease(fmt.Sprint(i), expires))
			must(t, errors.Join(l.Add(ref), l.Add(ref), l.Add(inlineRef(SHA256, nil))))
		}
		must(t, s.Delete(ref))
		if err := s.Delete(Ref{algorithm: SHA256}); !errors.Is(err, ErrNotFound) {
			t.Errorf("%v", err)
		}
		var infos []string
		for info, err := range s.Leases() {
			must(t, err)
			infos = append(infos, fmt.Sprintln(info.ID, info.Blobs, info.Expires.IsZero(), info.Expires.Unix() == 2))
		}
		if want := []string{"0 1 true false\n", "1 1 false true\n", "2 1 false false\n"}; !slices.Equal(infos, want) {
			t.Errorf("%q, want %q", infos, want)
		}
	})
	update(t, db, func(s *Store) {
		_, _, err := s.Collect(1)
		must(t, err)
		must(t, must2(s.Lease("0", time.Time{})).Release())
		_, more, err := s.Collect(100)
		if must(t, err); more || !held(s) {
			t.Error("what a lease holds is gone")
		}
		must2(s.Lease("2", time.Unix(0, 0)))
		if _, _, err = s.Collect(100); err != nil || held(s) {
			t.Errorf("what a lease has held that expired is there: %v", err)
		}
		if u := must2(s.Usage()); u.Leases != 0 || u.Leaves != 0 {
			t.Errorf("%+v", u)
		}
		if err := must2(s.Lease("0", time.Time{})).Add(ref); !errors.Is(err, ErrNotFound) {
			t.Errorf("%v", err)
		}
	})
}

// Leases with many blobs that have expired are given back in pieces.
func TestLeaseExpiresInPieces(t *testing.T) {
	db := newStore(t, Options{LeafSize: MinLeafSize})
	update(t, db, func(s *Store) {
		for i := range 3 {
			l := must2(s.Lease(fmt.Sprint(i), time.Unix(0, 0)))
			for j := range 50 {
				ref := must2(s.Put(random(uint64(j), 10+i)))
				must(t, errors.Join(l.Add(ref), s.Delete(ref)))
			}
		}
		given := 0
		for more := true; more; {
			before := must2(s.Usage())
			e, err := s.expire(&look{}, time.Now(), 20)
			must(t, err)
			n := e.leases
			if n > 21 {
				t.Errorf("%d given back at once", n)
			}
			given += n
			more = n >= 20
			if after := must2(s.Usage()); int(after.Dead-before.Dead)+before.Leases-after.Leases != n {
				t.Errorf("%d given back, from %+v to %+v", n, before, after)
			}
		}
		if given != 153 {
			t.Errorf("%d given back", given)
		}
	})
}

// Digests of whole blobs lead to them, as long as they are there.
func TestByDigest(t *testing.T) {
	for _, o := range small {
		update(t, newStore(t, o), func(s *Store) {
			w := s.Writer()
			w.Digest(true)
			for _, size := range []int{0, 5, MinLeafSize, 5 * MinLeafSize, 127 * MinLeafSize} {
				p := random(1, size)
				sum := sha256.Sum256(p)
				if _, err := s.ByDigest(sum); !errors.Is(err, ErrNotFound) {
					t.Errorf("%v", err)
				}
				must2(w.Write(p))
				ref := must2(w.Commit())
				if found, err := s.ByDigest(sum); err != nil || found != ref {
					t.Errorf("%v of %d bytes: %v, %v", o, size, found, err)
				}
				must(t, s.Delete(ref))
				if _, err := s.ByDigest(sum); !errors.Is(err, ErrNotFound) {
					t.Errorf("deleted: %v", err)
				}
				again := must2(s.Put(p)) // it knows the digest still
				if found, err := s.ByDigest(sum); err != nil || found != ref {
					t.Errorf("put again: %v, %v", found, err)
				}
				must(t, s.Delete(again))
				must(t, checkClean(s, CheckOptions{}))
				for more := true; more; {
					var err error
					_, more, err = s.Collect(1000)
					must(t, err)
				}
				if u := must2(s.Usage()); u.Digests != 0 {
					t.Errorf("%+v", u)
				}
			}
		})
	}
}

// Who deletes more often than he has put does not take what belongs to a lease or an ingest, or to another's
// transaction: whatever has been flushed, and whichever of several Stores it is.
func TestDeleteTooMany(t *testing.T) {
	leaf := random(1, MinLeafSize)
	for _, flushed := range []bool{false, true} {
		db := newStore(t, small[0])
		var ref Ref
		update(t, db, func(s *Store) {
			ref = must2(s.Put(leaf))
			for _, id := range []string{"a", "b"} {
				must(t, must2(s.Lease(id, time.Time{})).Add(ref))
				if flushed {
					must(t, s.flush())
				}
			}
			must(t, s.Delete(ref))
			in := must2(s.Ingest("ingest", IngestOptions{}))
			must2(in.Write(leaf))
			must2(in.Write(leaf))
			must(t, in.Save())
		})
		held := func(s *Store, leases uint64) {
			t.Helper()
			for _, store := range []*Store{s, openIn(s.tx)} {
				if err := store.Delete(ref); !errors.Is(err, ErrNotFound) {
					t.Errorf("Delete of what %d leases hold: %v", leases, err)
				}
			}
			if n := must2(s.Users(ref)); n != leases {
				t.Errorf("%d users, not %d", n, leases)
			}
			if _, _, err := s.Collect(100); err != nil {
				t.Error(err)
			}
			if !bytes.Equal(readAll(t, s, ref), leaf) {
				t.Error("other content")
			}
		}
		for leases, id := range []string{"b", "a", ""} {
			update(t, db, func(s *Store) {
				held(s, uint64(2-leases))
				if id != "" {
					must(t, must2(s.Lease(id, time.Time{})).Release())
				}
			})
		}
		update(t, db, func(s *Store) {
			if has := must2(s.Has(ref)); !has {
				t.Error("an ingest stands on it, and it is not held")
			}
			for ref := range s.Roots() {
				t.Errorf("%v is a root", ref)
			}
			got := must2(must2(s.Ingest("ingest", IngestOptions{})).Commit())
			if !bytes.Equal(readAll(t, s, got), append(slices.Clone(leaf), leaf...)) {
				t.Error("other content")
			}
			must(t, s.Delete(got))
		})
		must2(Collect(context.Background(), db, openStoreOf, CollectOptions{}))
		view(t, db, func(s *Store) {
			if n := checkStore(t, s); n != 0 {
				t.Errorf("%d chunks are left", n)
			}
		})
	}
}
