package blob

import (
	"bytes"
	"crypto/sha256"
	"encoding"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"
	"slices"
	"testing"
	"time"
)

// plainConfig is the configuration as the first version has it.
func plainConfig(o Options) []byte {
	b := append([]byte(configMagic), configPlain, byte(o.Algorithm), byte(o.Chunking), 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(o.LeafSize))
	return append(b, 0, 0, 0, 0)
}

// One flipped bit in the record of a store made leaves of another size of it, without an error: what was
// put from then on had other addresses. Whichever bit it is, the store does not open.
func TestFlippedConfig(t *testing.T) {
	for _, o := range small {
		update2(t, newStore(t, o), func(s *Store) {
			must2(s.Put([]byte("short"))) // there is no leaf to compare with
			was := bytes.Clone(s.bucket.Get(configName))
			for bit := range 8 * len(was) {
				b := bytes.Clone(was)
				b[bit/8] ^= 1 << (bit % 8)
				must(t, s.bucket.Put(configName, b))
				if s, err := openAny(s.bucket); err == nil {
					t.Errorf("%v: with bit %d flipped it is %v", o, bit, s.Options())
				}
			}
			must(t, s.bucket.Put(configName, was))
			if got := must2(openAny(s.bucket)).Options(); got != s.options {
				t.Errorf("%+v is %+v", s.options, got)
			}
		})
	}
}

// A store of the first version, whose record has no checksum, opens. Its leaf size is compared with that of
// leaves, so there too a flipped bit is noticed, in a store with fixed leaves.
func TestPlainConfig(t *testing.T) {
	for _, o := range small {
		if o.Key != nil {
			continue // of the fourth version only
		}
		o.Compression = NoCompression
		update2(t, newStore(t, o), func(s *Store) {
			plain := plainConfig(s.options)
			for _, empty := range []bool{true, false} {
				if !empty {
					must2(s.Put(random(1, 20*MinLeafSize)))
					must(t, s.flush())
				}
				must(t, s.bucket.Put(configName, plain))
				if got := must2(openAny(s.bucket)).Options(); got != s.options {
					t.Errorf("%+v is %+v", s.options, got)
				}
			}
			for bit := range 32 {
				b := bytes.Clone(plain)
				b[8+bit/8] ^= 1 << (bit % 8)
				must(t, s.bucket.Put(configName, b))
				if _, err := openAny(s.bucket); !errors.Is(err, ErrCorrupt) && o.Chunking == FixedSize {
					t.Errorf("%v: with bit %d of the leaf size flipped: %v", o, bit, err)
				}
			}
		})
	}
}

// The longest Lifetime became a negative one by rounding it up, and the ingest was refused when it was continued.
func TestLongestLifetime(t *testing.T) {
	for _, life := range []time.Duration{math.MaxInt64, math.MaxInt64 - 1, math.MaxInt64 - time.Second, math.MaxInt64 / time.Second * time.Second} {
		update(t, newStore(t, small[0]), func(s *Store) {
			in := must2(s.Ingest("name", IngestOptions{Lifetime: life}))
			must(t, in.Save())
			for info, err := range s.Ingests() {
				must(t, err)
				if got := info.Options.Lifetime; got < life-time.Second || got <= 0 || !info.Expires.After(time.Now()) {
					t.Errorf("a lifetime of %v is %v, until %v", life, got, info.Expires)
				}
			}
			if e, err := s.expire(&look{}, time.Now(), 100); err != nil || e != (expired{}) {
				t.Errorf("%+v, %v", e, err)
			}
			must2(s.Ingest("name", IngestOptions{Lifetime: life}))
		})
	}
}

// The end of a lease in the last second there is was rounded up to a time long ago.
func TestLeaseLastSecond(t *testing.T) {
	for _, at := range []time.Time{time.Unix(math.MaxInt64, 1), time.Unix(math.MaxInt64-1, 1), time.Unix(math.MaxInt64, 0)} {
		if end := must2(decodeExpires(encodeExpires(at))); end < math.MaxInt64-1 {
			t.Errorf("%d", end)
		}
	}
}

// ExpectRef of the zero Ref, which names nothing, let the empty blob pass. No blob does.
func TestExpectNothing(t *testing.T) {
	update(t, newStore(t, small[0]), func(s *Store) {
		w := s.Writer()
		w.ExpectRef(Ref{})
		if ref, err := w.Commit(); !errors.Is(err, ErrInvalidRef) {
			t.Errorf("the empty blob: %v, %v", ref, err)
		}
		w.ExpectRef(Ref{})
		if _, err := w.Write([]byte("x")); !errors.Is(err, ErrInvalidRef) {
			t.Errorf("Write: %v", err)
		}
		if _, err := w.Commit(); !errors.Is(err, ErrInvalidRef) {
			t.Errorf("Commit: %v", err)
		}
		must2(w.Write([]byte("x"))) // of the next blob nothing is expected
		must(t, s.Delete(must2(w.Commit())))
	})
}

// goHash is the state of SHA-256 after p as crypto/sha256 gives it, and as saved ingests of the first version have it.
func goHash(p []byte) []byte {
	sum := sha256.New()
	sum.Write(p)
	b, err := sum.(encoding.BinaryMarshaler).MarshalBinary()
	if err != nil {
		panic(err)
	}
	return b
}

// A saved ingest had the state of SHA-256 in the private form of one version of Go. It has what the
// standard defines: the initial value is that of FIPS 180-4, 5.3.3.
func TestHashState(t *testing.T) {
	first := must2(saveHash(sha256.New(), 0))
	initial := first.append(nil)
	if got := hex.EncodeToString(initial); got != "6a09e667bb67ae853c6ef372a54ff53a510e527f9b05688c1f83d9ab5be0cd19" {
		t.Errorf("the initial value is %s", got)
	}
	p := random(1, 300)
	for n := range p {
		sum := sha256.New()
		sum.Write(p[:n])
		state := must2(saveHash(sum, int64(n)))
		if len(state.block) != n%64 || !bytes.Equal(state.block, p[n-n%64:n]) {
			t.Fatalf("after %d bytes the block is %x", n, state.block)
		}
		state = must2(parseHash(state.append(nil), int64(n)))
		again := sha256.New()
		must(t, state.load(again, int64(n)))
		again.Write(p[n:])
		if [32]byte(again.Sum(nil)) != sha256.Sum256(p) {
			t.Errorf("another sum after %d bytes", n)
		}
		old := must2(parseGoHash(goHash(p[:n]), int64(n)))
		if !bytes.Equal(old.append(nil), state.append(nil)) {
			t.Errorf("the old form after %d bytes", n)
		}
		if _, err := parseGoHash(goHash(p[:n]), int64(n+1)); err == nil {
			t.Error("a state of another size")
		}
	}
}

// An ingest that was saved by the first version goes on, and is of the second from its next Save on. One of
// a version to come is an error that says so.
func TestIngestOfFirstVersion(t *testing.T) {
	for _, n := range []int{0, 5, 3*MinLeafSize + 7} {
		db := newStore(t, small[0])
		p := random(1, 5*MinLeafSize+5)
		update(t, db, func(s *Store) {
			in := must2(s.Ingest("name", IngestOptions{Digest: sha256.Sum256(p)}))
			must2(in.Write(p[:n]))
			must(t, in.Save())
			b := must2(in.bucket())
			state := bytes.Clone(b.Get(stateName))
			state = append(state[:len(state)-sha256.Size-n%sha256.BlockSize], goHash(p[:n])...)
			state[0] = ingestPlain
			must(t, b.Put(stateName, state))
		})
		update(t, db, func(s *Store) {
			in := must2(s.Ingest("name", IngestOptions{}))
			must2(in.Write(p[n : n+10]))
			must(t, in.Save())
			if v := must2(in.bucket()).Get(stateName)[0]; v != ingestVersion {
				t.Errorf("version %d", v)
			}
			must2(in.Write(p[n+10:]))
			ref := must2(in.Commit())
			if got := must2(s.ByDigest(sha256.Sum256(p))); got != ref {
				t.Errorf("%v, not %v", got, ref)
			}
			in = must2(s.Ingest("later", IngestOptions{}))
			b := must2(in.bucket())
			was := bytes.Clone(b.Get(stateName))
			later := slices.Clone(was)
			later[0] = ingestVersion + 1
			must(t, b.Put(stateName, later))
			if _, err := s.Ingest("later", IngestOptions{}); !errors.Is(err, ErrCorrupt) || !bytes.Contains([]byte(err.Error()), []byte("version 3 is unknown")) {
				t.Errorf("%v", err)
			}
			must(t, b.Put(stateName, was))
		})
	}
}
