package blob

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"testing/iotest"
	"time"

	"holdfast"
)

// An ingest that is saved at random places, and goes on in other transactions of a file that is opened
// again, gives the reference that writing at once gives, and leaves nothing else behind.
func TestIngestContinues(t *testing.T) {
	for _, o := range append(slices.Clone(small), Options{LeafSize: 1500, Algorithm: BLAKE3, Chunking: FastCDC}) {
		for seed := range uint64(6) {
			t.Run(fmt.Sprint(o, seed), func(t *testing.T) {
				t.Parallel()
				rng := rand.New(rand.NewPCG(seed, 3))
				path := filepath.Join(t.TempDir(), "db")
				sizes := boundaries(o.LeafSize)
				want := random(seed, sizes[rng.IntN(len(sizes)-4)])
				sum := sha256.Sum256(want)
				options := IngestOptions{WholeDigest: seed%2 == 0}
				if seed%3 == 0 {
					options = IngestOptions{Size: int64(len(want)), Digest: sum}
				}
				var ref Ref
				for done := false; !done; {
					db := must2(holdfast.Open(path, 0o600, &holdfast.Options{NoSync: true, PageSize: 4096}))
					must(t, db.Update(func(tx *holdfast.Tx) error {
						b := tx.Bucket(storeName)
						if b == nil {
							b = must2(tx.CreateBucket(storeName))
							must2(Create(b, o))
						}
						in := must2(must2(openAny(b)).Ingest("x", options))
						var err error
						ref, done, err = ingestSome(in, rng, want)
						return err
					}))
					must(t, db.Close())
				}
				db := must2(holdfast.Open(path, 0o600, &holdfast.Options{NoSync: true}))
				defer db.Close()
				update(t, db, func(s *Store) {
					roots := func(yield func(Ref, error) bool) { yield(ref, nil) }
					must(t, checkClean(s, CheckOptions{Data: true, Roots: roots}))
					if options != (IngestOptions{}) {
						if found, err := s.ByDigest(sum); err != nil || found != ref {
							t.Errorf("by its digest: %v, %v", found, err)
						}
					}
					if again := must2(s.Put(want)); again != ref {
						t.Errorf("in pieces %v, at once %v", ref, again)
					}
					must(t, s.Delete(ref))
				})
			})
		}
	}
}

// ingestSome writes some of a content, saves it, or not, and commits if that was all.
func ingestSome(in *Ingest, rng *rand.Rand, want []byte) (ref Ref, done bool, err error) {
	for range 1 + rng.IntN(4) {
		rest := want[in.Offset():]
		if len(rest) == 0 {
			ref, err = in.Commit()
			return ref, err == nil, err
		}
		n := 1 + rng.IntN(1+rng.IntN(len(rest)))
		if rng.IntN(3) == 0 {
			n = len(rest)
		}
		if rng.IntN(2) == 0 {
			_, err = in.ReadFrom(bytes.NewReader(rest[:n]))
		} else {
			_, err = in.Write(rest[:n])
		}
		if err == nil && rng.IntN(3) > 0 {
			err = in.Save()
		}
		if err != nil {
			return ref, false, err
		}
	}
	return ref, false, nil
}

// What a failing reader has given can be saved and continued with another one.
func TestIngestReadFrom(t *testing.T) {
	db := newStore(t, Options{LeafSize: MinLeafSize})
	want := random(1, 20*MinLeafSize+5)
	broken := errors.New("broken")
	update(t, db, func(s *Store) {
		in := must2(s.Ingest("x", IngestOptions{}))
		n, err := in.ReadFrom(io.MultiReader(bytes.NewReader(want[:7000]), iotest.ErrReader(broken)))
		if n != 7000 || !errors.Is(err, broken) {
			t.Fatalf("%d, %v", n, err)
		}
		must(t, in.Save())
	})
	update(t, db, func(s *Store) {
		in := must2(s.Ingest("x", IngestOptions{}))
		if in.Offset() != 7000 {
			t.Fatalf("offset %d", in.Offset())
		}
		must2(in.ReadFrom(iotest.DataErrReader(iotest.HalfReader(bytes.NewReader(want[7000:9000])))))
		must2(in.ReadFrom(iotest.OneByteReader(bytes.NewReader(want[9000:]))))
		if _, err := in.ReadFrom(stuck{}); !errors.Is(err, io.ErrNoProgress) {
			t.Errorf("%v", err)
		}
		ref := must2(in.Commit())
		if !bytes.Equal(readAll(t, s, ref), want) {
			t.Error("other content")
		}
		if _, err := in.Write(nil); !errors.Is(err, ErrWriterClosed) {
			t.Errorf("%v", err)
		}
		if err := in.Abort(); !errors.Is(err, ErrWriterClosed) {
			t.Errorf("%v", err)
		}
	})
}

type stuck struct{}

func (stuck) Read([]byte) (int, error) { return 0, nil }

// What is not as expected is refused, and the ingest stays as it was saved.
func TestIngestExpects(t *testing.T) {
	db := newStore(t, Options{LeafSize: MinLeafSize})
	p := random(1, 3000)
	sum := sha256.Sum256(p)
	for _, c := range []struct {
		o    IngestOptions
		want error
	}{
		{IngestOptions{Size: 2999}, ErrSizeMismatch},
		{IngestOptions{Size: 3001}, ErrSizeMismatch},
		{IngestOptions{Digest: [32]byte{1}}, ErrDigestMismatch},
		{IngestOptions{Size: 3000, Digest: sum}, nil},
	} {
		update(t, db, func(s *Store) {
			in := must2(s.Ingest("x", c.o))
			must2(in.Write(p[:1500]))
			must(t, in.Save())
		})
		update(t, db, func(s *Store) {
			if _, err := s.Ingest("x", IngestOptions{Size: 77}); !errors.Is(err, ErrIngestOptions) {
				t.Errorf("other options: %v", err)
			}
			in := must2(s.Ingest("x", IngestOptions{}))
			_, err := in.Write(p[1500:])
			var ref Ref
			if err == nil {
				ref, err = in.Commit()
			}
			if !errors.Is(err, c.want) {
				t.Errorf("%+v: %v, want %v", c.o, err, c.want)
			}
			if err == nil {
				must(t, s.Delete(ref))
				return
			}
			if err := in.Save(); !errors.Is(err, c.want) {
				t.Errorf("it can be saved: %v", err)
			}
			for info, err := range s.Ingests() {
				if err != nil || info.Offset != 1500 || info.Name != "x" {
					t.Errorf("%+v, %v", info, err)
				}
			}
			must(t, must2(s.Ingest("x", IngestOptions{})).Abort())
		})
		update(t, db, func(s *Store) {
			for {
				_, more, err := s.Collect(100)
				if must(t, err); !more {
					break
				}
			}
			if u := must2(s.Usage()); u.Leaves+u.Nodes+int64(u.Ingests) != 0 {
				t.Errorf("%+v is left", u)
			}
		})
	}
	if _, err := newReader(t, db).Ingest("x", IngestOptions{}); !errors.Is(err, holdfast.ErrTxNotWritable) {
		t.Errorf("%v", err)
	}
}

// newReader opens the store in a reading transaction.
func newReader(t testing.TB, db *holdfast.DB) *Store {
	tx := must2(db.Begin(false))
	t.Cleanup(func() { _ = tx.Rollback() })
	return openIn(tx)
}

// Any bytes decode to a state or an error, and a state encodes to the same bytes.
func FuzzIngestState(f *testing.F) {
	st := ingestState{options: IngestOptions{Size: 5, WholeDigest: true}, offset: 3*MinLeafSize + 5, sum: hashState{block: []byte("block")}}
	st.levels = []ingestLevel{{n: 3, size: 3 * MinLeafSize, children: make([]byte, 3*fixedEntry)}, {}}
	f.Add(st.append(nil), false)
	f.Add([]byte{}, true)
	plain := st
	plain.options.WholeDigest = false
	old := append(plain.append(nil), goHash(random(1, 3*MinLeafSize+5))...)
	old[0], old[1] = ingestPlain, wholeFlag
	f.Add(old, false)
	f.Fuzz(func(t *testing.T, b []byte, cdc bool) {
		st, err := parseIngest(b, shape{leafSize: MinLeafSize, cdc: cdc})
		if err != nil {
			return
		}
		st.chunks()
		again := st.append(nil)
		if b[0] == ingestVersion && !bytes.Equal(again, b) {
			t.Errorf("%x is encoded as %x", b, again)
		}
		if same, err := parseIngest(again, st.shape); err != nil || !bytes.Equal(same.append(nil), again) {
			t.Errorf("%x is encoded as %x, %v", b, again, err)
		}
	})
}

// An ingest that has a lifetime expires when it has not been saved for so long: Collect gives it up and says so, and
// what it stood on goes. Each Save begins a lifetime; without one it stays.
func TestIngestExpires(t *testing.T) {
	db := newStore(t, small[0])
	begin := func(s *Store, name string, o IngestOptions) *Ingest {
		in := must2(s.Ingest(name, o))
		must2(in.Write(random(1, 5*MinLeafSize+5)))
		must(t, in.Save())
		return in
	}
	update(t, db, func(s *Store) {
		begin(s, "for ever", IngestOptions{})
		begin(s, "short", IngestOptions{Lifetime: 1500 * time.Millisecond})
		begin(s, "saved again", IngestOptions{Lifetime: 2 * time.Second, Size: 1 << 20})
		for _, o := range []IngestOptions{{Lifetime: -1}, {Size: -1}} {
			if _, err := s.Ingest("x", o); !errors.Is(err, ErrOptions) {
				t.Errorf("%+v: %v", o, err)
			}
		}
	})
	var saved int64
	update(t, db, func(s *Store) {
		for info, err := range s.Ingests() {
			must(t, err)
			if life := info.Expires.Sub(info.Saved); info.Name != "for ever" && life != 2*time.Second || info.Name == "for ever" && !info.Expires.IsZero() {
				t.Errorf("%+v", info)
			}
			saved = max(saved, info.Saved.Unix())
		}
		e, err := s.expire(&look{}, time.Unix(saved-10, 0), 100)
		ingests := e.ingests
		if must(t, err); ingests != 0 {
			t.Errorf("%d have expired too early", ingests)
		}
		// Another lifetime is that of the next Save; other options are refused.
		if _, err := s.Ingest("saved again", IngestOptions{Lifetime: time.Hour, Size: 7}); !errors.Is(err, ErrIngestOptions) {
			t.Errorf("%v", err)
		}
		must(t, must2(s.Ingest("saved again", IngestOptions{Lifetime: time.Hour, Size: 1 << 20})).Save())
	})
	r := collection{db: db, open: openStoreOf, o: CollectOptions{Hold: time.Hour}, batch: collectPiece, now: func() time.Time { return time.Unix(saved+1000, 0) }}
	for !r.done {
		must(t, r.transaction())
	}
	if r.stats.Ingests != 1 || r.stats.Leases != 0 || r.stats.Chunks != 0 {
		t.Errorf("%+v", r.stats)
	}
	update(t, db, func(s *Store) {
		var names []string
		for info, err := range s.Ingests() {
			must(t, err)
			names = append(names, info.Name)
		}
		if want := []string{"for ever", "saved again"}; !slices.Equal(names, want) {
			t.Errorf("%q are left, want %q", names, want)
		}
		must(t, must2(s.Ingest("for ever", IngestOptions{})).Abort())
		// Limits are kept, as well as can be: an ingest is not divided.
		e, err := s.expire(&look{}, time.Unix(saved+4000, 0), 1)
		ingests, steps := e.ingests, e.steps
		if must(t, err); ingests != 1 || steps != 6 {
			t.Errorf("%d ingests in %d steps", ingests, steps)
		}
		removed, _, err := s.Collect(100)
		if must(t, err); removed != 5 {
			t.Errorf("%d chunks were removed", removed)
		}
	})
	view(t, db, func(s *Store) { must(t, checkClean(s, CheckOptions{Data: true, Roots: rootsOf()})) })
}

// TestIngestDigestSum: the digest of what was written so far is known also of an ingest that is gone on with, and changes nothing.
func TestIngestDigestSum(t *testing.T) {
	db := newStore(t, Options{LeafSize: MinLeafSize})
	content := noise(1, 5000)
	for _, n := range []int{0, 1, 64, 1000, 3000, 5000} {
		update(t, db, func(s *Store) {
			in := must2(s.Ingest("in", IngestOptions{WholeDigest: true}))
			must2(in.Write(content[in.Offset():n]))
			if sum, ok := in.DigestSum(); !ok || Address(sum) != SHA256.sum(content[:n]) {
				t.Errorf("%d bytes: %x, %v", n, sum, ok)
			}
			must(t, in.Save())
		})
	}
	update(t, db, func(s *Store) {
		if _, ok := must2(s.Ingest("other", IngestOptions{})).DigestSum(); ok {
			t.Error("a digest that is not computed")
		}
		ref := must2(must2(s.Ingest("in", IngestOptions{})).Commit())
		if got := must2(s.ByDigest(SHA256.sum(content))); got != ref {
			t.Error(got)
		}
	})
}
