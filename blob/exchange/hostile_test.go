package exchange

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"runtime"
	"strings"
	"testing"

	"holdfast"
	"holdfast/blob"
)

// frame encodes a message.
func frame(k kind, parts ...[]byte) []byte {
	b := []byte{0, 0, 0, 0, byte(k)}
	for _, p := range parts {
		b = append(b, p...)
	}
	binary.LittleEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

func greeting(to direction, o blob.Options) []byte {
	h := hello{direction: to, store: o, keep: 60, lease: "hostile"}
	return frame(kindHello, h.append(nil))
}

func refFrame(refs ...blob.Ref) []byte {
	var b []byte
	for _, ref := range refs {
		p, _ := ref.MarshalBinary()
		b = append(binary.LittleEndian.AppendUint16(b, uint16(len(p))), p...)
	}
	return frame(kindRefs, b)
}

// duplex is an end of a connection of which each direction can be closed by itself.
type duplex struct {
	*io.PipeReader
	*io.PipeWriter
}

func (d duplex) Close() error { return errors.Join(d.PipeReader.Close(), d.PipeWriter.Close()) }

// against runs Serve with a peer that sends what play does, and reads all that it is sent.
func against(t *testing.T, db *holdfast.DB, o Options, play func(w io.Writer)) error {
	t.Helper()
	toHere, fromThere := io.Pipe()
	toThere, fromHere := io.Pipe()
	go func() { _, _ = io.Copy(io.Discard, toThere) }()
	go func() {
		play(fromThere)
		_ = fromThere.Close()
	}()
	here := duplex{toHere, fromHere}
	err := Serve(context.Background(), here, db, open, o)
	_ = here.Close()
	return err
}

func send(w io.Writer, frames ...[]byte) {
	for _, f := range frames {
		if _, err := w.Write(f); err != nil {
			return
		}
	}
}

// TestHostileSender has peers push what is not what they say. Each is an error, nothing is stored, and the store is sound.
func TestHostileSender(t *testing.T) {
	kind := blob.Options{Algorithm: blob.SHA256, Chunking: blob.FixedSize, LeafSize: blob.MinLeafSize}
	other := newStore(t, kind)
	leaf, tree := random(1, 1000), random(2, 3000)
	refs := put(t, other, leaf, tree)
	short := refFrame(refs[0])
	huge, err := blob.ParseRef("sha256:" + refs[0].Address().String() + ":67108864")
	must(t, err)
	level, err := blob.ParseRef("sha256-tree:" + refs[0].Address().String() + ":70000:9")
	must(t, err)
	longer, err := blob.ParseRef("sha256-tree:" + refs[1].Address().String() + ":3001:1")
	must(t, err)
	var root []byte
	view(t, other, func(s *blob.Store) error {
		p, err := s.Chunk(refs[1].Address(), 1)
		root = bytes.Clone(p)
		return err
	})
	chunk := func(status byte, p []byte) []byte { return frame(kindChunk, []byte{status}, p) }
	for _, c := range []struct {
		name   string
		frames [][]byte
		want   error
	}{
		{"wrong bytes", [][]byte{short, chunk(0, random(9, 1000))}, blob.ErrCorrupt},
		{"one bit", [][]byte{short, chunk(0, flipped(leaf))}, blob.ErrCorrupt},
		{"too short", [][]byte{short, chunk(0, leaf[:999])}, ErrProtocol},
		{"too long", [][]byte{short, chunk(0, append(bytes.Clone(leaf), 0))}, ErrProtocol},
		{"endless", [][]byte{short, {0xff, 0xff, 0xff, 0xff, byte(kindChunk)}}, ErrProtocol},
		{"no length", [][]byte{short, {0, 0, 0, 0, byte(kindChunk)}}, ErrProtocol},
		{"cut off", [][]byte{short, chunk(0, leaf)[:500]}, io.ErrUnexpectedEOF},
		{"wrong status", [][]byte{short, chunk(7, leaf)}, ErrProtocol},
		{"missing with bytes", [][]byte{short, chunk(statusMissing, leaf)}, ErrProtocol},
		{"no status", [][]byte{short, frame(kindChunk)}, ErrProtocol},
		{"references for a chunk", [][]byte{short, short}, ErrProtocol},
		{"a chunk for references", [][]byte{chunk(0, leaf)}, ErrProtocol},
		{"a request", [][]byte{frame(kindGet, make([]byte, chunkEntry))}, ErrProtocol},
		{"end", [][]byte{frame(kindEnd)}, ErrProtocol},
		{"garbage", [][]byte{random(77, 5000)}, ErrProtocol},
		{"garbage as references", [][]byte{frame(kindRefs, random(78, 5000))}, ErrProtocol},
		{"too many references", [][]byte{frame(kindRefs, make([]byte, maxSmall+1))}, ErrProtocol},
		{"an inline reference", [][]byte{inlineFrame(t)}, ErrProtocol},
		{"a node for a leaf", [][]byte{short, chunk(0, root)}, ErrProtocol},
		{"a leaf for a node", [][]byte{refFrame(refs[1]), chunk(0, leaf)}, blob.ErrCorrupt},
		{"a node with a wrong child", [][]byte{refFrame(refs[1]), chunk(0, flipped(root))}, blob.ErrCorrupt},
		{"a node of another size", [][]byte{refFrame(longer), chunk(0, root)}, blob.ErrCorrupt},
		{"leaves in the wrong order", [][]byte{refFrame(refs[1]), chunk(0, root), chunk(0, tree[1024:2048]), chunk(0, tree[:1024]), chunk(0, tree[2048:])}, blob.ErrCorrupt},
		{"a leaf that is not asked for", [][]byte{refFrame(refs[1]), chunk(0, root), chunk(0, leaf)}, ErrProtocol},
		{"it gives up", [][]byte{frame(kindFail, []byte("no\x1b[31m"))}, ErrPeer},
		{"it gives up at length", [][]byte{frame(kindFail, make([]byte, maxText+1))}, ErrProtocol},
		// These are errors of the blob, and the peer is told.
		{"a leaf longer than any", [][]byte{refFrame(huge), refFrame()}, nil},
		{"a level that is none", [][]byte{refFrame(level), refFrame()}, nil},
		{"missing", [][]byte{short, chunk(statusMissing, nil), refFrame()}, nil},
		{"damaged", [][]byte{refFrame(refs[1]), chunk(statusDamaged, nil), refFrame()}, nil},
		{"a leaf is missing", [][]byte{refFrame(refs[1]), chunk(0, root), chunk(0, tree[:1024]), chunk(statusMissing, nil), chunk(0, tree[2048:]), refFrame()}, nil},
	} {
		t.Run(c.name, func(t *testing.T) { hostileSender(t, kind, c.frames, c.want) })
	}
}

// hostileSender has a peer send these messages after a good greeting.
func hostileSender(t *testing.T, kind blob.Options, frames [][]byte, want error) {
	t.Helper()
	db := newStore(t, kind)
	failed := 0
	err := against(t, db, Options{Blob: func(_ blob.Ref, err error) {
		if err != nil {
			failed++
		} else {
			t.Error("a blob is held")
		}
	}}, func(w io.Writer) {
		send(w, append([][]byte{greeting(push, kind)}, frames...)...)
	})
	if !errors.Is(err, want) || want == nil && (err != nil || failed != 1) {
		t.Errorf("%v, and %d blobs failed", err, failed)
	}
	if err != nil && strings.Contains(err.Error(), "\x1b") {
		t.Errorf("control characters of the peer in %q", err)
	}
	sound(t, db)
}

func flipped(p []byte) []byte {
	p = bytes.Clone(p)
	p[len(p)-1] ^= 1
	return p
}

func inlineFrame(t *testing.T) []byte {
	t.Helper()
	var frame []byte
	update(t, newStore(t, blob.Options{}), func(s *blob.Store) error {
		s.InlineUpTo(blob.MaxInline)
		ref, err := s.Put(make([]byte, 1000))
		frame = refFrame(ref)
		return err
	})
	return frame
}

// TestHostileReceiver has peers ask for what they must not.
func TestHostileReceiver(t *testing.T) {
	kind := blob.Options{Algorithm: blob.SHA256, Chunking: blob.FixedSize, LeafSize: blob.MinLeafSize}
	db := newStore(t, kind)
	refs := put(t, db, random(1, 3000))
	p, _ := refs[0].MarshalBinary()
	result := append([]byte{byte(len(p))}, p...)
	for _, c := range []struct {
		name   string
		frames [][]byte
		want   error
	}{
		{"no chunks", [][]byte{frame(kindGet)}, ErrProtocol},
		{"half a chunk", [][]byte{frame(kindGet, make([]byte, chunkEntry+5))}, ErrProtocol},
		{"too many", [][]byte{frame(kindGet, make([]byte, chunkEntry*(maxChunks+1)))}, ErrProtocol},
		{"what is not there", [][]byte{frame(kindGet, make([]byte, chunkEntry*maxChunks)), frame(kindEnd)}, nil},
		{"a level that is none", [][]byte{frame(kindGet, bytes.Repeat([]byte{0xff}, chunkEntry)), frame(kindEnd)}, nil},
		{"a result of nothing", [][]byte{frame(kindResult, result)}, ErrProtocol},
		{"an empty result", [][]byte{frame(kindResult)}, ErrProtocol},
		{"a result cut off", [][]byte{frame(kindResult, result[:5])}, ErrProtocol},
		// 1 and that length, added as bytes, were 0, and the program that served panicked.
		{"a result of a reference of 255 bytes", [][]byte{frame(kindResult, bytes.Repeat([]byte{0xff}, 300))}, ErrProtocol},
		{"few digits", [][]byte{frame(kindFind, []byte("ab"))}, ErrProtocol},
		{"no digits", [][]byte{frame(kindFind, []byte("nothing here"))}, ErrProtocol},
		{"many digits", [][]byte{frame(kindFind, bytes.Repeat([]byte("a"), 5000))}, ErrProtocol},
		{"a chunk", [][]byte{frame(kindChunk, []byte{0})}, ErrProtocol},
		{"references", [][]byte{refFrame(refs...)}, ErrProtocol},
		{"a second greeting", [][]byte{greeting(pull, kind)}, ErrProtocol},
		{"kind 0", [][]byte{frame(0)}, ErrProtocol},
		{"all, and no end", [][]byte{frame(kindOffer)}, io.EOF},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := against(t, db, Options{}, func(w io.Writer) {
				send(w, append([][]byte{greeting(pull, kind)}, c.frames...)...)
			})
			if !errors.Is(err, c.want) || c.want == nil && err != nil {
				t.Error(err)
			}
		})
	}
}

// TestHostileGreeting has peers that are none, or of another version.
func TestHostileGreeting(t *testing.T) {
	kind := blob.Options{Algorithm: blob.SHA256, Chunking: blob.FixedSize, LeafSize: blob.MinLeafSize}
	good := greeting(push, kind)
	changed := func(at int, to byte) []byte {
		b := bytes.Clone(good)
		b[at] = to
		return b
	}
	none := hello{direction: push, store: kind}
	for name, first := range map[string][]byte{
		"text": []byte("Welcome to this host\n"), "magic": changed(5, 'x'), "version": changed(9, 2), "direction": changed(10, 3),
		"hash": changed(11, 9), "leaf size": changed(16, 0xff), "expires": changed(24, 0xff), "keep": changed(32, 0xff),
		"nothing": frame(kindHello), "no lease": frame(kindHello, none.append(nil)), "long lease": frame(kindHello, none.append(nil), make([]byte, MaxLease+1)),
	} {
		db := newStore(t, kind)
		err := against(t, db, Options{}, func(w io.Writer) { send(w, first, refFrame()) })
		if err == nil || errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", name, err)
		}
		sound(t, db)
	}
	if err := against(t, newStore(t, kind), Options{ReadOnly: true}, func(w io.Writer) { send(w, good) }); err == nil || !strings.Contains(err.Error(), "for reading only") {
		t.Error(err)
	}
}

// TestSilent: a peer that says nothing is waited for until the context ends, at each point.
func TestSilent(t *testing.T) {
	kind := blob.Options{Algorithm: blob.SHA256, Chunking: blob.FixedSize, LeafSize: blob.MinLeafSize}
	db := newStore(t, kind)
	refs := put(t, db, random(1, 3000))
	for name, first := range map[string][][]byte{
		"at once": nil, "pushes": {greeting(push, kind)}, "pulls": {greeting(pull, kind)},
		"offers": {greeting(push, kind), refFrame(put(t, newStore(t, kind), random(8, 5000))...)},
		"half":   {greeting(push, kind), {9}},
	} {
		here, there := net.Pipe()
		ctx, cancel := context.WithCancel(context.Background())
		go func() { _, _ = io.Copy(io.Discard, there) }()
		go func() {
			send(there, first...) // returns when that was read
			cancel()
		}()
		if name == "at once" {
			cancel()
		}
		if err := Serve(ctx, here, db, open, Options{}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
		_ = there.Close()
	}
	here, there := net.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = there.Read(make([]byte, 1<<16))
		cancel()
	}()
	if _, err := Push(ctx, here, db, open, refs, lease("L")); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestLyingTree: a peer offers a blob of nearly 2^63 bytes, of a few nodes each of which names one child again and again. With
// fixed leaves it is a blob as any other, of zeros, and is received in no time; where the nodes are not as a store makes them it is
// refused.
func TestLyingTree(t *testing.T) {
	for _, kind := range kinds {
		for _, partly := range []bool{false, true} {
			if partly && kind.Chunking != blob.FastCDC {
				continue
			}
			db := newStore(t, kind)
			var o blob.Options
			view(t, db, func(s *blob.Store) error { o = s.Options(); return nil })
			chunks, ref := lyingTree(t, o, partly)
			here, there := net.Pipe()
			go serveChunks(there, o, ref, chunks)
			held := false
			err := Serve(t.Context(), here, db, open, Options{Blob: func(_ blob.Ref, err error) { held = err == nil }})
			if err != nil || held == partly {
				t.Errorf("%s, nodes in part %v: %v, held %v", name(kind), partly, err, held)
			}
			sound(t, db)
		}
	}
}

// TestOtherCut: a blob of one leaf that a store would have cut by its content into more is refused, and nothing is left of it.
func TestOtherCut(t *testing.T) {
	db := newStore(t, kinds[2])
	var o blob.Options
	view(t, db, func(s *blob.Store) error { o = s.Options(); return nil })
	content := random(6, 4*o.LeafSize)
	one := put(t, newStore(t, blob.Options{Algorithm: o.Algorithm}), content)[0]
	here, there := net.Pipe()
	go serveChunks(there, o, one, map[blob.Address][]byte{one.Address(): content})
	var failed error
	must(t, Serve(t.Context(), here, db, open, Options{Blob: func(_ blob.Ref, err error) { failed = err }}))
	if !errors.Is(failed, errOther) || len(leased(t, db, "hostile")) > 0 {
		t.Error(failed)
	}
	collect(t, db)
	if n := chunks(t, db); n != 0 {
		t.Errorf("%d chunks are left", n)
	}
	sound(t, db)
}

// lyingTree makes the chunks of such a tree.
func lyingTree(t *testing.T, o blob.Options, partly bool) (map[blob.Address][]byte, blob.Ref) {
	t.Helper()
	chunks := map[blob.Address][]byte{}
	leaf := make([]byte, o.LeafSize)
	sum := func(p []byte) blob.Address {
		var a blob.Address
		update(t, newStore(t, blob.Options{Algorithm: o.Algorithm, LeafSize: 1 << 20, Key: o.Key}), func(s *blob.Store) error {
			ref, err := s.Put(p)
			a = ref.Address()
			return err
		})
		return a
	}
	a, size := sum(leaf), int64(len(leaf))
	chunks[a] = leaf
	fanout, magic := 126, "HFN1"
	if o.Chunking == blob.FastCDC {
		fanout, magic = 100, "HFC1"
	}
	if partly {
		fanout--
	}
	for level := 1; ; level++ {
		if level == 8 || size > math.MaxInt64/int64(fanout)/256 {
			ref, err := blob.ParseRef(fmt.Sprintf("%v-tree:%v:%d:%d", o.Algorithm, a, size, level-1))
			must(t, err)
			return chunks, ref
		}
		b := append([]byte(magic), byte(level), 0, byte(fanout), 0)
		b = binary.LittleEndian.AppendUint64(b, uint64(size)*uint64(fanout))
		for range fanout {
			b = append(b, a[:]...)
			if magic == "HFC1" {
				b = binary.LittleEndian.AppendUint64(b, uint64(size)|uint64(level-1)<<56)
			}
		}
		a, size = sum(b), size*int64(fanout)
		chunks[a] = b
	}
}

// serveChunks is a sender that offers a reference, and sends chunks by their addresses.
func serveChunks(conn net.Conn, o blob.Options, ref blob.Ref, chunks map[blob.Address][]byte) {
	defer conn.Close()
	f := newFrames(conn)
	s := session{options: o, key: o.Key}
	h := s.hello(push)
	h.keep, h.lease = 60, "hostile"
	_ = f.send(kindHello, h.append(nil))
	offered := false
	for {
		k, b, err := f.read()
		if err != nil {
			return
		}
		switch k {
		case kindOffer:
			if offered {
				_ = f.send(kindRefs)
			} else {
				_, _ = conn.Write(refFrame(ref))
			}
			offered = true
		case kindGet:
			for ; len(b) > 0; b = b[chunkEntry:] {
				a := blob.Address(b[1:chunkEntry])
				p := chunks[a]
				if o.Key != nil {
					p = o.Key.SealMessage(nil, p, chunkLabel(a, b[0]))
				}
				_ = f.write(kindChunk, []byte{0}, p)
			}
			_ = f.flush()
		case kindEnd:
			return
		}
	}
}

// TestEndlessReferences: a peer offers blobs without an end. What it says of them takes no memory.
func TestEndlessReferences(t *testing.T) {
	kind := blob.Options{Algorithm: blob.SHA256, Chunking: blob.FixedSize, LeafSize: blob.MinLeafSize}
	db := newStore(t, kind)
	ref, err := blob.ParseRef("sha256:" + strings.Repeat("ab", 32) + ":5000000") // no leaf is so long
	must(t, err)
	var many []blob.Ref
	for range maxRefs {
		many = append(many, ref)
	}
	batch := refFrame(many...)
	memory := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := memory()
	err = against(t, db, Options{}, func(w io.Writer) {
		send(w, greeting(push, kind))
		for range 100 {
			send(w, batch)
		}
	})
	if !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	if after := memory(); after > before+8<<20 {
		t.Errorf("%d bytes of memory more than before", after-before)
	}
}
