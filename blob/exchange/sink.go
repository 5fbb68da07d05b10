package exchange

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"holdfast/blob"
)

// sink receives blobs. It plans, in walk.go: goes through trees and asks for what is not there, so that up to
// maxBuffered bytes are on their way or have arrived. And it writes, in write.go: takes what has arrived to the store, in
// the order of the plan. Both are for one goroutine; what arrives is read by a receiver meanwhile.
type sink struct {
	*session
	r       *receiver
	given   []blob.Ref // what was asked for by the caller
	offered bool       // the peer says what is to be received

	sought map[blob.Ref][]string // the digits by which the peer has found a blob that has another address: of its SHA-256, it says

	unfinished map[string]int64 // ingests of this lease, and how far they have come
	mends      bool             // a chunk was found to be damaged: what is written is compared with what is stored

	queue    []*transfer          // blobs that are not planned to the end
	window   []*slot              // leaves to be asked for
	steps    []step               // the plan, from what is to be written next
	asked    map[blob.Chunk]*slot // leaves in it
	buffered int64                // bytes of these
}

// Bounds of memory, and of what is lost with a process; tests make them smaller.
var (
	maxWritten  int64 = 16 << 20 // bytes in a transaction
	maxBuffered       = 2 * maxWritten
	maxWindow   int64 = 1 << 20 // bytes of leaves in a request
)

// maxSteps bounds the plan where it has much that need not be sent.
const maxSteps = 64 << 10

// transfer is a blob that is being received.
type transfer struct {
	ref    blob.Ref
	name   string // of its ingest
	start  int64  // how far that had come when the walk began
	walk   walk
	round  int  // of the walk: what earlier ones have planned is left out
	leaves bool // a chunk could not be appended that was planned so: its first leaf is received, and no node appended
	again  int  // rounds without progress
	kept   bool // there is an ingest
	known  bool // this exchange has met the ingest: what it stands on was gone through
	done   bool
	err    error
}

// step is a part of the plan: a chunk of a blob, or its end.
type step struct {
	t      *transfer
	round  int
	kind   stepKind
	chunk  blob.Chunk
	offset int64 // in the blob
	slot   *slot // nil: the store has it
	err    error // why the blob is given up
}

type stepKind uint8

const (
	stepChunk stepKind = iota
	stepEnd            // all of the blob is there
	stepReset          // what is stored of it cannot be gone on with
	stepFail           // it is given up
)

func newSink(s *session) *sink {
	k := &sink{session: s, r: newReceiver(s), asked: map[blob.Chunk]*slot{}, sought: map[blob.Ref][]string{}, mends: s.o.Verify}
	s.ended = k.r.end
	return k
}

// run receives all, and says that it has ended.
func (k *sink) run() error {
	if err := k.receive(); err != nil {
		return err
	}
	return k.conn.send(kindEnd)
}

func (k *sink) receive() error {
	if !k.offered {
		if err := k.find(); err != nil {
			return err
		}
		for refs := k.given; len(refs) > 0; refs = refs[min(len(refs), maxRefs):] {
			if err := k.batch(refs[:min(len(refs), maxRefs)]); err != nil {
				return err
			}
		}
		if !k.o.All {
			return nil
		}
	}
	for {
		refs, err := k.list(kindOffer, nil)
		if err != nil || len(refs) == 0 {
			return err
		}
		if err := k.batch(refs); err != nil {
			return err
		}
	}
}

// list asks for references.
func (k *sink) list(what kind, body []byte) ([]blob.Ref, error) {
	q, err := k.r.ask(what, nil, body)
	if err == nil {
		err = k.wait(q)
	}
	if err != nil {
		return nil, err
	}
	return q.refs, nil
}

// Errors of Options.Find.
var (
	errNone    = fmt.Errorf("no blob of the peer has a digest that begins so: %w", blob.ErrNotFound)
	errSeveral = errors.New("several blobs of the peer have digests that begin so; give more digits")
)

// find adds to what is asked for the blobs of which the first digits are known.
func (k *sink) find() error {
	for _, digits := range k.o.Find {
		if len(digits) < MinDigits || len(digits) > 2*len(blob.Address{}) || strings.Trim(strings.ToLower(digits), "0123456789abcdef") != "" {
			k.failed(fmt.Errorf("%.70q are not %d hexadecimal digits or more: %w", digits, MinDigits, blob.ErrInvalidRef))
			continue
		}
		refs, err := k.list(kindFind, k.sealDigits(digits))
		switch {
		case err != nil:
			return err
		case len(refs) == 0:
			k.failed(fmt.Errorf("%s: %w", digits, errNone))
		case len(refs) > 1:
			k.failed(fmt.Errorf("%s: %w", digits, errSeveral))
		default:
			k.given = append(k.given[:len(k.given):len(k.given)], refs[0])
			if digits = strings.ToLower(digits); !strings.HasPrefix(refs[0].Address().String(), digits) {
				k.sought[refs[0]] = append(k.sought[refs[0]], digits)
			}
		}
	}
	return nil
}

// errNotSought is of a blob that a peer has given for another.
var errNotSought = errors.New("neither its address nor its SHA-256 begins with the digits that were looked for")

// isSought reads a blob that has arrived, and that was found by its SHA-256, and is an error if it has another.
func (k *sink) isSought(ref blob.Ref) error {
	digits := k.sought[ref]
	if len(digits) == 0 {
		return nil
	}
	r, err := blob.OpenReader(k.ctx, k.db, k.open, ref)
	if err != nil {
		return err
	}
	defer r.Close()
	h := sha256.New()
	if _, err := r.WriteTo(h); err != nil {
		return err
	}
	sum := hex.EncodeToString(h.Sum(nil))
	for _, d := range digits {
		if !strings.HasPrefix(sum, d) {
			return fmt.Errorf("%s: %w", d, errNotSought)
		}
	}
	return nil
}

// wait waits for an answer. An error is one of the connection, of the peer, or of the context.
func (k *sink) wait(q *request) error {
	select {
	case <-q.done:
		return q.err
	case <-k.ctx.Done():
		return k.ctx.Err()
	}
}

// batch receives blobs, as many as are in a message at most.
func (k *sink) batch(refs []blob.Ref) error {
	k.queue = k.queue[:0]
	seen := map[blob.Ref]bool{}
	var whole []blob.Ref
	var failed []*transfer
	err := k.view(func(store *blob.Store) error {
		if k.unfinished == nil {
			if err := k.findUnfinished(store); err != nil {
				return err
			}
		}
		for _, ref := range refs {
			t := &transfer{ref: ref}
			_, inline := ref.Inline()
			if t.err = k.options.CheckRef(ref); t.err == nil && !inline && !seen[ref] {
				t.done, t.err = k.isThere(store, ref)
			}
			switch {
			case t.err != nil:
				failed = append(failed, t)
			case t.done || inline || seen[ref]:
				whole = append(whole, ref)
			default:
				t.begin(k.o.Lease, k.unfinished, k.o.Verify)
				k.queue = append(k.queue, t)
			}
			seen[ref] = true
		}
		return nil
	})
	for _, t := range failed {
		err = firstError(err, k.finish(t))
	}
	if err == nil {
		err = k.transfer()
	}
	if err == nil {
		err = k.holdWhole(whole)
	}
	if err == nil { // what was removed meanwhile
		err = k.transfer()
	}
	return err
}

// isThere tells whether the store has a blob, whose root is not known to be lost or damaged: such a one is to come again, and with
// Verify each is gone through.
func (k *sink) isThere(store *blob.Store, ref blob.Ref) (bool, error) {
	has, err := hasRoot(store, ref)
	return has && !k.o.Verify, err
}

func hasRoot(store *blob.Store, ref blob.Ref) (bool, error) {
	if has, err := store.Has(ref); err != nil || !has {
		return false, err
	}
	if _, inline := ref.Inline(); inline {
		return true, nil
	}
	return store.HasChunk(ref.Root())
}

// findUnfinished notes the ingests of what has arrived of blobs for the lease.
func (k *sink) findUnfinished(store *blob.Store) error {
	k.unfinished = map[string]int64{}
	prefix := ingestName(k.o.Lease, "")
	for in, err := range store.Ingests() {
		if err == nil && strings.HasPrefix(in.Name, prefix) {
			k.unfinished[in.Name] = in.Offset
		}
	}
	return nil
}

// ingestName is the name of the ingest that holds what has arrived of a blob.
func ingestName(lease, ref string) string { return "exchange " + lease + " " + ref }

// begin begins the walk where an earlier exchange has ended. What that has found in the store was not read: so with verify it begins anew.
func (t *transfer) begin(lease string, unfinished map[string]int64, verify bool) {
	text, _ := t.ref.AppendText(nil) // it was checked
	t.name = ingestName(lease, string(text))
	if t.start, t.kept = unfinished[t.name]; verify {
		t.start = 0
	}
	t.walk.begin(t.ref)
}

// transfer receives the blobs in the queue.
func (k *sink) transfer() error {
	for {
		err := k.plan()
		n, broken := k.arrived(err != nil)
		if n == 0 && len(k.queue) == 0 && err == nil && broken == nil {
			return nil
		}
		written := k.write(k.steps[:n])
		k.drop(n)
		k.progress()
		if err = firstError(written, err, broken, k.ctx.Err()); err != nil {
			return err
		}
	}
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// arrived waits until enough has arrived for a transaction, and gives how many steps that are. After an
// error it gives those of which all has.
func (k *sink) arrived(broken bool) (n int, err error) {
	size := int64(0)
	for i := range k.steps {
		s := k.steps[i].slot
		switch {
		case size >= maxWritten:
			return i, nil
		case s == nil:
			continue
		case broken && (s.request == nil || !s.request.answered()):
			return i, nil
		}
		if err := k.wait(s.request); err != nil && (!s.request.answered() || s.err == errBroken) {
			return i, err
		}
		size += s.chunk.Size
	}
	return len(k.steps), nil
}

func (q *request) answered() bool {
	select {
	case <-q.done:
		return true
	default:
		return false
	}
}

// drop forgets n steps, which were written.
func (k *sink) drop(n int) {
	for i := range k.steps[:n] {
		s := k.steps[i].slot
		if s == nil {
			continue
		}
		if s.uses--; s.uses == 0 {
			k.buffered -= s.chunk.Size
			delete(k.asked, s.chunk)
			if s.err == nil {
				k.stats.Chunks++
				k.stats.ChunkBytes += s.chunk.Size
			}
		}
	}
	rest := copy(k.steps, k.steps[n:])
	clear(k.steps[rest:])
	k.steps = k.steps[:rest]
}

// finish tells what has become of a blob.
func (k *sink) finish(t *transfer) error {
	if t.err == nil {
		t.err = k.isSought(t.ref)
	}
	k.done(t.ref, t.err)
	if !k.offered {
		return nil
	}
	b, err := t.ref.MarshalBinary() // of MaxRefSize at most: no inline one is offered
	if err != nil {
		return local(err)
	}
	text := ""
	if t.err != nil {
		text = t.err.Error()
		text = text[:min(len(text), maxText)]
	}
	if err := k.conn.write(kindResult, []byte{byte(len(b))}, b, []byte(text)); err != nil {
		return err
	}
	return k.conn.flush()
}
