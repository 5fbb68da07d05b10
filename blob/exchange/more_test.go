package exchange

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"

	"holdfast"
	"holdfast/blob"
)

// TestAllAndFind: blobs are pulled that the caller knows by their first digits only, or not at all.
func TestAllAndFind(t *testing.T) {
	from := newStore(t, kinds[0])
	var many [][]byte
	for i := range uint64(maxRefs + 300) { // more than are in a message
		many = append(many, random(i, 20))
	}
	refs := put(t, from, many...)
	into := newStore(t, kinds[0])
	o := lease("L")
	o.All = true
	if out := good(t, pull, from, into, nil, o); out.stats.Blobs != int64(len(many)) {
		t.Errorf("%+v", out.stats)
	}
	if n := len(leased(t, into, "L")); n != len(many) {
		t.Errorf("%d blobs are held", n)
	}
	sound(t, into)

	into = newStore(t, kinds[0])
	o = lease("L")
	o.Find = []string{refs[0].Address().String()[:10], strings.Repeat("0", 64), "abc", "nothing"}
	out := exchange(t, pull, from, into, nil, o, -1)
	if !errors.Is(out.err, blob.ErrNotFound) || !errors.Is(out.err, blob.ErrInvalidRef) || out.serveErr != nil || out.stats.Blobs != 1 || out.stats.Failed != 3 {
		t.Errorf("%v, %v, %+v", out.err, out.serveErr, out.stats)
	}
	holds(t, into, refs[0], many[0], 1)
}

// A peer that was asked for a blob by its SHA-256 gave another one, and that was taken for it. It is read, and an error.
func TestFindAnother(t *testing.T) {
	for _, to := range []bool{false, true} {
		from, into := newStore(t, kinds[0]), newStore(t, kinds[0])
		content, other := random(1, 200_000), random(2, 200_000)
		var sum [32]byte
		var ref blob.Ref
		update(t, from, func(s *blob.Store) (err error) {
			w := s.Writer()
			w.Digest(true)
			if _, err = w.Write(content); err == nil {
				ref, err = w.Commit()
			}
			sum, _ = w.DigestSum()
			return err
		})
		if to { // the peer's store says that the other one has this SHA-256
			otherRef := put(t, from, other)[0]
			must(t, from.Update(func(tx *holdfast.Tx) error {
				p, _ := otherRef.MarshalBinary()
				return tx.Bucket(storeName).Bucket([]byte("digests")).Put(sum[:], p)
			}))
		}
		o := lease("L")
		o.Find = []string{strings.ToUpper(hex.EncodeToString(sum[:]))[:20]}
		out := exchange(t, pull, from, into, nil, o, -1)
		if out.serveErr != nil || to != errors.Is(out.err, errNotSought) || !to && (out.err != nil || out.stats.Blobs != 1) || to && (out.stats.Blobs != 0 || out.stats.Failed != 1) {
			t.Errorf("%v, %v, %+v", out.err, out.serveErr, out.stats)
		}
		if !to {
			holds(t, into, ref, content, 1)
		}
	}
}

// TestOneIsMissing: a blob that the sender does not have, or that is damaged there, is an error of that blob only.
func TestOneIsMissing(t *testing.T) {
	for _, to := range []direction{push, pull} {
		from, into := newStore(t, kinds[0]), newStore(t, kinds[0])
		all := [][]byte{random(1, 100), random(2, 200_000), random(3, 300_000)}
		refs := put(t, from, all...)
		gone := put(t, newStore(t, kinds[0]), random(4, 100), random(5, 5000))
		mixed := []blob.Ref{refs[0], gone[0], refs[1], gone[1], refs[2], {}, refs[0]}
		damage(t, from, all[2][1024*7:][:100])
		failed := map[blob.Ref]error{}
		o := lease("L")
		o.Blob = func(ref blob.Ref, err error) {
			if err != nil {
				failed[ref] = err
			}
		}
		out := exchange(t, to, from, into, mixed, o, -1)
		if out.err == nil || out.serveErr != nil || out.stats.Blobs != 3 || out.stats.Failed != 4 {
			t.Errorf("%v, %v, %+v", out.err, out.serveErr, out.stats)
		}
		for ref, want := range map[blob.Ref]error{gone[0]: ErrMissing, gone[1]: ErrMissing, refs[2]: ErrDamaged} {
			if err := failed[ref]; err == nil || !strings.Contains(err.Error(), want.Error()) {
				t.Errorf("blob %v: %v, not %v", ref, err, want)
			}
		}
		holds(t, into, refs[0], all[0], 1)
		holds(t, into, refs[1], all[1], 1)
		sound(t, into)
	}
}

// damage changes a byte of the leaf that begins so.
func damage(t *testing.T, db *holdfast.DB, begin []byte) {
	t.Helper()
	must(t, db.Update(func(tx *holdfast.Tx) error {
		b := tx.Bucket(storeName).Bucket([]byte("leaves"))
		for k, v := range b.All() {
			if bytes.HasPrefix(v, begin) {
				v = bytes.Clone(v)
				v[500] ^= 1
				return b.Put(k, v)
			}
		}
		return errors.New("there is no such leaf")
	}))
}

// TestDamagedReceiver: a leaf that is damaged at the receiver is as there: the index is believed, as by a put. One of
// a blob that is short, and whose bytes are needed, comes again.
func TestDamagedReceiver(t *testing.T) {
	from, into := newStore(t, kinds[0]), newStore(t, kinds[0])
	content := random(1, 50_100) // the last leaf is short, and in the other bucket
	put(t, into, content[48<<10:])
	refs := put(t, from, content)
	must(t, into.Update(func(tx *holdfast.Tx) error {
		b := tx.Bucket(storeName).Bucket([]byte("packs"))
		k, v := b.Cursor().First()
		v = bytes.Clone(v)
		v[3] ^= 1
		return b.Put(k, v)
	}))
	good(t, push, from, into, refs, lease("L"))
	if got := leased(t, into, "L"); !got[refs[0]] {
		t.Error("the blob is not held")
	}
}

// pausing is a connection that calls a function before a read.
type pausing struct {
	net.Conn
	before func(read int64)
	read   int64
}

func (p *pausing) Read(b []byte) (int, error) {
	p.before(p.read)
	n, err := p.Conn.Read(b)
	p.read += int64(n)
	return n, err
}

var meanwhileContent = random(1, 200<<10)

// meanwhile are changes of a store to which that content is being copied.
var meanwhile = map[string]func(s *blob.Store, ref blob.Ref) error{
	"removed": func(s *blob.Store, _ blob.Ref) error { // what is planned to be there
		for ref, err := range s.Roots() {
			if err == nil && ref.Size() == 100<<10 {
				err = s.Delete(ref)
			}
			if err != nil {
				return err
			}
		}
		for more := true; more; {
			var err error
			if _, more, err = s.Collect(1000); err != nil {
				return err
			}
		}
		return nil
	},
	"put": func(s *blob.Store, _ blob.Ref) error {
		ref, err := s.Put(meanwhileContent)
		if err != nil {
			return err
		}
		l, err := s.Lease("other", lease("").Expires)
		if err != nil {
			return err
		}
		return errors.Join(l.Add(ref), s.Delete(ref))
	},
	"dropped": func(s *blob.Store, ref blob.Ref) error {
		for in := range s.Ingests() {
			g, err := s.Ingest(in.Name, blob.IngestOptions{})
			if err == nil {
				err = g.Abort()
			}
			if err != nil {
				return err
			}
		}
		return nil
	},
	"another": func(s *blob.Store, ref blob.Ref) error { // exchange has got further
		for in := range s.Ingests() {
			g, err := s.Ingest(in.Name, blob.IngestOptions{})
			if err == nil {
				_, err = g.Write(meanwhileContent[g.Offset() : g.Offset()+10<<10])
			}
			if err == nil {
				err = g.Save()
			}
			if err != nil {
				return err
			}
		}
		return nil
	},
	"other form": func(s *blob.Store, ref blob.Ref) error { // what cannot be gone on with
		for in := range s.Ingests() {
			g, err := s.Ingest(in.Name, blob.IngestOptions{})
			if err == nil {
				_, err = g.Write(meanwhileContent[g.Offset() : g.Offset()+100])
			}
			if err == nil {
				err = g.Save()
			}
			if err != nil {
				return err
			}
		}
		return nil
	},
}

// TestMeanwhile changes the receiving store during an exchange: what was planned does not hold any more.
func TestMeanwhile(t *testing.T) {
	smallBounds(t, 20_000, 40_000, 5000)
	content := meanwhileContent
	for name, change := range meanwhile {
		for _, at := range []int64{3000, 70_000, 120_000} {
			from, into := newStore(t, kinds[0]), newStore(t, kinds[0])
			refs := put(t, from, content)
			put(t, into, content[100<<10:])
			here, there := net.Pipe()
			done := false
			receiver := &pausing{Conn: there}
			receiver.before = func(read int64) {
				if !done && read >= at {
					done = true
					update(t, into, func(s *blob.Store) error { return change(s, refs[0]) })
				}
			}
			served := make(chan error, 1)
			go func() { served <- Serve(context.Background(), receiver, into, open, Options{}) }()
			_, err := Push(context.Background(), here, from, open, refs, lease("L"))
			if serveErr := <-served; err != nil || serveErr != nil {
				t.Errorf("%s at %d: %v, %v", name, at, err, serveErr)
			}
			if got := leased(t, into, "L"); !got[refs[0]] {
				t.Errorf("%s at %d: the blob is not held", name, at)
			}
			noIngests(t, into)
			view(t, into, func(s *blob.Store) error {
				r, err := s.Reader(refs[0])
				if err != nil {
					return err
				}
				got, err := io.ReadAll(r)
				if !bytes.Equal(got, content) {
					t.Errorf("%s at %d: other content", name, at)
				}
				return err
			})
		}
	}
}

// TestMemory: a large blob does not take more memory than the bounds say.
func TestMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("a blob of 150 MiB")
	}
	o := blob.Options{}
	from, into := newStore(t, o), newStore(t, o)
	var refs []blob.Ref
	update(t, from, func(s *blob.Store) error {
		w := s.Writer()
		_, err := w.ReadFrom(io.LimitReader(bytes.NewReader(random(1, 150<<20)), 150<<20))
		if err != nil {
			return err
		}
		ref, err := w.Commit()
		refs = []blob.Ref{ref}
		return err
	})
	runtime.GC()
	var before, most, now runtime.MemStats
	runtime.ReadMemStats(&before)
	opts := lease("L")
	opts.Progress = func(s Stats) {
		if s.Chunks%256 == 0 {
			runtime.GC()
			runtime.ReadMemStats(&now)
			if now.HeapAlloc > most.HeapAlloc {
				most = now
			}
		}
	}
	good(t, push, from, into, refs, opts)
	if used := int64(most.HeapAlloc) - int64(before.HeapAlloc); used > 64<<20 {
		t.Errorf("%d MiB of memory", used>>20)
	}
}

// TestLeases: a lease of the server holds what is pushed, whatever the peer names; a lease is needed.
func TestLeases(t *testing.T) {
	from, into := newStore(t, kinds[0]), newStore(t, kinds[0])
	refs := put(t, from, []byte("x"))
	here, there := net.Pipe()
	served := make(chan error, 1)
	go func() { served <- Serve(context.Background(), there, into, open, Options{Lease: "own"}) }()
	_, err := Push(context.Background(), here, from, open, refs, lease("theirs"))
	must(t, errors.Join(err, <-served))
	if !leased(t, into, "own")[refs[0]] || len(leased(t, into, "theirs")) > 0 {
		t.Error("another lease holds it")
	}
	for _, id := range []string{"", strings.Repeat("x", MaxLease+1)} {
		if _, err := Push(context.Background(), here, from, open, refs, lease(id)); !errors.Is(err, blob.ErrOptions) {
			t.Error(err)
		}
	}
}

// TestInline: of inline references nothing is sent, and they count as held.
func TestInline(t *testing.T) {
	from, into := newStore(t, kinds[0]), newStore(t, kinds[0])
	var ref blob.Ref
	update(t, from, func(s *blob.Store) (err error) {
		s.InlineUpTo(blob.MaxInline)
		ref, err = s.Put([]byte("inline"))
		return err
	})
	for _, to := range []direction{push, pull} {
		if out := good(t, to, from, into, []blob.Ref{ref}, lease("L")); out.stats.Blobs != 1 || out.stats.Chunks != 0 {
			t.Errorf("%+v", out.stats)
		}
	}
	sound(t, into)
}

// FuzzMessages has both sides meet any bytes, after a good greeting or not.
func FuzzMessages(f *testing.F) {
	kind := blob.Options{Algorithm: blob.SHA256, Chunking: blob.FixedSize, LeafSize: blob.MinLeafSize}
	db := newStore(f, kind)
	refs := put(f, db, random(1, 3000))
	f.Add([]byte{}, byte(0))
	f.Add(refFrame(refs...), byte(1))
	f.Add(frame(kindGet, make([]byte, chunkEntry)), byte(2))
	f.Add(frame(kindFind, []byte(hex.EncodeToString(make([]byte, 8)))), byte(2))
	f.Add(greeting(push, kind), byte(0))
	f.Fuzz(func(t *testing.T, b []byte, first byte) {
		switch first % 3 {
		case 1:
			b = append(greeting(push, kind), b...)
		case 2:
			b = append(greeting(pull, kind), b...)
		}
		conn := &struct {
			io.Reader
			io.Writer
		}{bytes.NewReader(b), io.Discard}
		if err := Serve(context.Background(), conn, db, open, Options{}); err == nil && !bytes.Contains(b, []byte{byte(kindEnd)}) && first%3 != 1 {
			t.Error("no error")
		}
	})
}
