package exchange

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"

	"holdfast/blob"
)

// TestDifferentKeys: encrypted stores exchange with those of the same key only. Both sides know the reason.
func TestDifferentKeys(t *testing.T) {
	for name, o := range map[string]blob.Options{"another key": {Key: otherKey}, "none": {}, "none, of BLAKE3": {Algorithm: blob.BLAKE3}} {
		for _, swapped := range []bool{false, true} {
			from, into := newStore(t, blob.Options{Key: testKey}), newStore(t, o)
			if swapped {
				from, into = into, from
			}
			refs := put(t, from, []byte("secret"))
			for _, to := range []direction{push, pull} {
				out := exchange(t, to, from, into, refs, lease("L"), -1)
				if !errors.Is(out.err, ErrDifferentKeys) || !errors.Is(out.serveErr, ErrDifferentKeys) {
					t.Errorf("%s: %v and %v", name, out.err, out.serveErr)
				}
				if got := leased(t, into, "L"); len(got) > 0 {
					t.Errorf("%s: %v", name, got)
				}
			}
		}
	}
}

// recorded is a connection of which all that is read and written is kept.
type recorded struct {
	net.Conn
	mu  sync.Mutex
	all bytes.Buffer
}

func (r *recorded) keep(p []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all.Write(p)
}

func (r *recorded) Read(p []byte) (int, error) {
	n, err := r.Conn.Read(p)
	r.keep(p[:n])
	return n, err
}

func (r *recorded) Write(p []byte) (int, error) {
	r.keep(p)
	return r.Conn.Write(p)
}

// TestNothingInClearOnTheWay: between encrypted stores no content, nor a part of a node, goes over the connection in clear; between
// others the same search finds it.
func TestNothingInClearOnTheWay(t *testing.T) {
	content := random(1, 200_000)
	for _, key := range []*blob.Key{nil, testKey} {
		from, into := newStore(t, blob.Options{Key: key}), newStore(t, blob.Options{Key: key})
		refs := put(t, from, content)
		here, there := net.Pipe()
		conn := &recorded{Conn: here}
		ended := make(chan error)
		go func() { ended <- Serve(t.Context(), there, into, open, Options{}) }()
		_, err := Push(t.Context(), conn, from, open, refs, lease("L"))
		must(t, errors.Join(err, <-ended, here.Close(), there.Close()))
		holds(t, into, refs[0], content, 1)
		all := conn.all.Bytes()
		clear := 0
		for i := 0; i+64 <= len(content); i += 64 {
			if bytes.Contains(all, content[i:i+64]) {
				clear++
			}
		}
		node := bytes.Contains(all, []byte("HFN1"))
		if found := clear > 0 || node; found != (key == nil) {
			t.Errorf("with %v: %d pieces in clear, a node: %v", key, clear, node)
		}
	}
}

// TestPeerWithoutKey: a peer that says it has the key, and has not, neither learns what is pushed to it nor has what it sends stored.
func TestPeerWithoutKey(t *testing.T) {
	o := blob.Options{Algorithm: blob.KeyedBLAKE3, Chunking: blob.FixedSize, LeafSize: blob.MinLeafSize}
	encrypted := o
	encrypted.Key = testKey
	content := random(3, 1000)
	db := newStore(t, encrypted)
	ref := put(t, db, content)[0]
	h := hello{direction: push, store: o, sealed: true, key: testKey.ID(), keep: 60, lease: "hostile"}
	into := newStore(t, encrypted)
	for name, chunk := range map[string][]byte{
		"in clear":         append(bytes.Clone(content), make([]byte, testKey.Overhead())...),
		"with another key": otherKey.SealMessage(nil, content, chunkLabel(ref.Address(), 0)),
		"another chunk":    testKey.SealMessage(nil, content, chunkLabel(blob.Address{}, 0)),
		"other content":    testKey.SealMessage(nil, random(4, 1000), chunkLabel(ref.Address(), 0)),
	} {
		err := against(t, into, Options{}, func(w io.Writer) {
			send(w, frame(kindHello, h.append(nil)), refFrame(ref), frame(kindChunk, []byte{statusHere}, chunk))
		})
		if !errors.Is(err, ErrProtocol) || !errors.Is(err, blob.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	view(t, into, func(s *blob.Store) error {
		u, err := s.Usage()
		if u.Leaves+u.Nodes > 0 {
			t.Errorf("stored: %+v", u)
		}
		return err
	})
}

// A peer that knew the id of the key, which any peer is told, and not the key, could ask a store that was served whether it had a
// blob with a SHA-256, and so of some content; and what was asked for stood on the way in clear.
func TestPeerWithoutKeyFinds(t *testing.T) {
	encrypted := blob.Options{Algorithm: blob.KeyedBLAKE3, Chunking: blob.FixedSize, LeafSize: blob.MinLeafSize, Key: testKey}
	from, into := newStore(t, encrypted), newStore(t, encrypted)
	content := random(3, 1000)
	digest := sha256.Sum256(content)
	update(t, from, func(s *blob.Store) error {
		w := s.Writer()
		w.Digest(true)
		_, err := w.Write(content)
		if err == nil {
			_, err = w.Commit()
		}
		return err
	})
	digits := fmt.Appendf(nil, "%x", digest)
	h := hello{direction: pull, store: encrypted, sealed: true, key: testKey.ID()}
	h.store.Key = nil
	for name, body := range map[string][]byte{"in clear": digits, "with another key": otherKey.SealMessage(nil, digits, findLabel)} {
		err := against(t, from, Options{}, func(w io.Writer) { send(w, frame(kindHello, h.append(nil)), frame(kindFind, body), frame(kindEnd)) })
		if !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
	here, there := net.Pipe()
	conn := &recorded{Conn: here}
	ended := make(chan error)
	go func() { ended <- Serve(t.Context(), there, from, open, Options{}) }()
	o := lease("L")
	o.Find = []string{string(digits)}
	stats, err := Pull(t.Context(), conn, into, open, nil, o)
	must(t, errors.Join(err, <-ended, here.Close(), there.Close()))
	if stats.Blobs != 1 || bytes.Contains(conn.all.Bytes(), digits) {
		t.Errorf("%d blobs, and in clear on the way: %v", stats.Blobs, bytes.Contains(conn.all.Bytes(), digits))
	}
}

// TestHelloOfKey: a greeting is what it was when it is decoded, and what is cut off is none.
func TestHelloOfKey(t *testing.T) {
	for _, key := range []*blob.Key{nil, testKey} {
		s := session{options: blob.Options{Algorithm: blob.KeyedBLAKE3, Chunking: blob.FixedSize, LeafSize: 5000, Key: key}, key: key}
		h := s.hello(pull)
		h.lease, h.keep = "lease", 7
		b := h.append(nil)
		if got, err := parseHello(b); err != nil || got != h {
			t.Errorf("%+v, not %+v: %v", got, h, err)
		}
		for n := range len(b) - len(h.lease) {
			if _, err := parseHello(b[:n]); !errors.Is(err, ErrProtocol) {
				t.Errorf("%d bytes: %v", n, err)
			}
		}
	}
}
