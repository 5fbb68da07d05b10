package exchange

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"path/filepath"
	"testing"
	"time"

	"holdfast"
	"holdfast/blob"
)

var storeName = []byte("blobs")

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// random gives n bytes that depend on the seed only.
func random(seed uint64, n int) []byte {
	p := make([]byte, n)
	var key [32]byte
	key[0], key[1], key[2], key[3] = byte(seed), byte(seed>>8), byte(seed>>16), 7
	_, _ = rand.NewChaCha8(key).Read(p)
	return p
}

// testKey is that of encrypted stores, otherKey that of some others.
var testKey, otherKey = newKey(1), newKey(2)

func newKey(seed uint64) *blob.Key {
	key, err := blob.NewKey([32]byte(random(seed, 32)))
	if err != nil {
		panic(err)
	}
	return key
}

// open has short values stored, too.
func open(tx *holdfast.Tx) (*blob.Store, error) {
	b := tx.Bucket(storeName)
	var key *blob.Key
	if blob.IsEncrypted(b) {
		key = testKey
	}
	s, err := blob.OpenEncrypted(b, key)
	if errors.Is(err, blob.ErrKey) {
		s, err = blob.OpenEncrypted(b, otherKey)
	}
	if err == nil {
		s.InlineUpTo(-1)
	}
	return s, err
}

// newStore makes a database with an empty store.
func newStore(t testing.TB, o blob.Options) *holdfast.DB {
	t.Helper()
	db, err := holdfast.Open(filepath.Join(t.TempDir(), "db"), 0o600, &holdfast.Options{NoSync: true, PageSize: 4096})
	must(t, err)
	t.Cleanup(func() { db.Close() })
	must(t, db.Update(func(tx *holdfast.Tx) error {
		b, err := tx.CreateBucket(storeName)
		if err == nil {
			_, err = blob.Create(b, o)
		}
		return err
	}))
	return db
}

func update(t testing.TB, db *holdfast.DB, fn func(s *blob.Store) error) {
	t.Helper()
	must(t, db.Update(func(tx *holdfast.Tx) error {
		s, err := open(tx)
		if err == nil {
			err = fn(s)
		}
		return err
	}))
}

func view(t testing.TB, db *holdfast.DB, fn func(s *blob.Store) error) {
	t.Helper()
	must(t, db.View(func(tx *holdfast.Tx) error {
		s, err := open(tx)
		if err == nil {
			err = fn(s)
		}
		return err
	}))
}

// put puts blobs, each with one use.
func put(t testing.TB, db *holdfast.DB, contents ...[]byte) (refs []blob.Ref) {
	t.Helper()
	update(t, db, func(s *blob.Store) error {
		for _, p := range contents {
			ref, err := s.Put(p)
			if err != nil {
				return err
			}
			refs = append(refs, ref)
		}
		return nil
	})
	return refs
}

// sound checks a store, with all bytes, and that its blobs have no users besides leases and those that put has counted.
func sound(t testing.TB, db *holdfast.DB, put ...blob.Ref) {
	t.Helper()
	view(t, db, func(s *blob.Store) error {
		roots := func(yield func(blob.Ref, error) bool) {
			for _, ref := range put {
				if !yield(ref, nil) {
					return
				}
			}
		}
		_, err := s.Check(context.Background(), blob.CheckOptions{Data: true, Roots: roots}, func(p blob.Problem) error {
			t.Errorf("check: %v", p)
			return nil
		})
		return err
	})
}

// holds is an error unless the store has the blob with that content, with the lease as its only user.
func holds(t testing.TB, db *holdfast.DB, ref blob.Ref, content []byte, users uint64) {
	t.Helper()
	view(t, db, func(s *blob.Store) error {
		r, err := s.Reader(ref)
		if err != nil {
			return err
		}
		got, err := io.ReadAll(r)
		if err == nil && !bytes.Equal(got, content) {
			t.Errorf("blob %v has other content", ref)
		}
		if n, uerr := s.Users(ref); uerr != nil || n != users {
			t.Errorf("blob %v has %d users, not %d (%v)", ref, n, users, uerr)
		}
		return err
	})
}

// leased are the blobs that the lease holds.
func leased(t testing.TB, db *holdfast.DB, id string) map[blob.Ref]bool {
	t.Helper()
	all := map[blob.Ref]bool{}
	view(t, db, func(s *blob.Store) error {
		for ref, err := range s.Leased(id) {
			if err != nil {
				return err
			}
			all[ref] = true
		}
		return nil
	})
	return all
}

// counted is a connection that counts what was read from the peer, and breaks after so much of it.
type counted struct {
	net.Conn
	read  int64
	limit int64 // <0: none
}

var errCut = errors.New("cut")

func (c *counted) Read(p []byte) (int, error) {
	if c.limit >= 0 {
		if c.read >= c.limit {
			_ = c.Conn.Close()
			return 0, errCut
		}
		p = p[:min(int64(len(p)), c.limit-c.read)]
	}
	n, err := c.Conn.Read(p)
	c.read += int64(n)
	return n, err
}

// lease are options with a lease.
func lease(id string) Options { return Options{Lease: id, Expires: time.Now().Add(time.Hour)} }

// outcome is what both sides of an exchange return.
type outcome struct {
	stats    Stats
	err      error // of Push or Pull
	serveErr error
	received int64 // bytes that the receiver has read
}

// exchange pushes or pulls refs from one store to another, over a connection of which the receiver reads limit
// bytes at most.
func exchange(t testing.TB, to direction, from, into *holdfast.DB, refs []blob.Ref, o Options, limit int64) outcome {
	t.Helper()
	return exchangeWith(t, to, from, into, refs, o, Options{Verify: o.Verify}, limit)
}

// exchangeWith is exchange with options of the side that serves.
func exchangeWith(t testing.TB, to direction, from, into *holdfast.DB, refs []blob.Ref, o, serve Options, limit int64) outcome {
	t.Helper()
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	var out outcome
	ended := make(chan struct{})
	served, receiver := from, &counted{Conn: here, limit: limit}
	var client, server net.Conn = receiver, there
	if to == push {
		served = into
		receiver = &counted{Conn: there, limit: limit}
		client, server = here, receiver
	}
	go func() {
		defer close(ended)
		out.serveErr = Serve(context.Background(), server, served, open, serve)
	}()
	if to == push {
		out.stats, out.err = Push(context.Background(), client, from, open, refs, o)
	} else {
		out.stats, out.err = Pull(context.Background(), client, into, open, refs, o)
	}
	<-ended
	out.received = receiver.read
	return out
}

// good is exchange without an error.
func good(t testing.TB, to direction, from, into *holdfast.DB, refs []blob.Ref, o Options) outcome {
	t.Helper()
	out := exchange(t, to, from, into, refs, o, -1)
	must(t, out.err)
	must(t, out.serveErr)
	return out
}

// kinds are stores whose trees become high with little content.
var kinds = []blob.Options{
	{LeafSize: blob.MinLeafSize},
	{LeafSize: blob.MinLeafSize, Algorithm: blob.BLAKE3},
	{LeafSize: blob.MinLeafSize, Chunking: blob.FastCDC},
	{LeafSize: blob.MinLeafSize, Key: testKey},
	{LeafSize: blob.MinLeafSize, Chunking: blob.FastCDC, Key: testKey},
}

func name(o blob.Options) string { return o.Algorithm.String() + "-" + o.Chunking.String() }

// smallBounds has transactions, and what is under way, be small.
func smallBounds(t testing.TB, written, buffered, window int64) {
	t.Helper()
	w, b, i := maxWritten, maxBuffered, maxWindow
	maxWritten, maxBuffered, maxWindow = written, buffered, window
	t.Cleanup(func() { maxWritten, maxBuffered, maxWindow = w, b, i })
}
