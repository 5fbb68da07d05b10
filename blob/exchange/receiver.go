package exchange

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"holdfast/blob"
)

// Why a blob is not received.
var (
	// ErrMissing: the sender has not, or not any more, a chunk that the blob is made of.
	ErrMissing = errors.New("the sender does not have all of it")
	// ErrDamaged: a chunk is damaged in the sender's store.
	ErrDamaged = errors.New("damaged in the sender's store")
)

var errBroken = errors.New("it has not arrived")

// slot is a chunk that was asked for. Its fields are valid when the request is done.
type slot struct {
	chunk   blob.Chunk
	request *request
	t       *transfer // of a node: the blob that needs it
	uses    int       // of a leaf: by steps that are not written yet
	data    blob.VerifiedChunk
	err     error
}

// request is what the sender was asked for: chunks, or references.
type request struct {
	slots []*slot
	refs  []blob.Ref // the answer, unless chunks were asked for
	err   error      // why there is none
	done  chan struct{}
}

// maxRequests bounds the requests that are not answered.
const maxRequests = 1 << 10

// receiver reads the answers of the sender, in the order of the requests, in a goroutine of its own: so both sides can
// write at the same time. It verifies chunks as they arrive.
type receiver struct {
	*session
	queue chan *request
	ended sync.WaitGroup
}

func newReceiver(s *session) *receiver {
	r := &receiver{session: s, queue: make(chan *request, maxRequests)}
	r.ended.Add(1)
	go r.run()
	return r
}

func (r *receiver) run() {
	defer r.ended.Done()
	var failed error
	for q := range r.queue {
		if failed == nil {
			failed = r.answer(q)
		} else {
			q.breakOff(0, failed)
		}
		close(q.done)
	}
}

// answer reads the answer of a request.
func (r *receiver) answer(q *request) error {
	if q.slots == nil {
		q.refs, q.err = r.list()
		return q.err
	}
	for i, s := range q.slots {
		if err := r.chunk(s); err != nil {
			q.breakOff(i, err)
			return err
		}
	}
	return nil
}

// breakOff says that what was asked for, from slot i on, will not arrive.
func (q *request) breakOff(i int, err error) {
	q.err = err
	for ; i < len(q.slots); i++ {
		q.slots[i].err = errBroken
	}
}

// chunk reads a chunk and verifies it.
func (r *receiver) chunk(s *slot) error {
	limit := s.chunk.Size // of a leaf; a node is not longer than the longest chunk
	if s.chunk.Level > 0 {
		limit = int64(r.options.MaxChunk())
	}
	limit += int64(r.overhead())
	k, n, err := r.conn.header(int(limit) + 1)
	if err != nil {
		return err
	}
	if k != kindChunk || n == 0 {
		return protocolf("a message of kind %d and %d bytes where a chunk should be", k, n)
	}
	status, err := r.conn.r.ReadByte()
	if err != nil {
		return fmt.Errorf("reading from the peer: %w", err)
	}
	n--
	switch {
	case status == statusMissing && n == 0:
		s.err = ErrMissing
		return nil
	case status == statusDamaged && n == 0:
		s.err = ErrDamaged
		return nil
	case status != statusHere || s.chunk.Level == 0 && int64(n) != limit:
		return protocolf("a chunk of status %d and %d bytes, where one of %d bytes of content was asked for", status, n, s.chunk.Size)
	}
	p, err := r.conn.body(n)
	if err != nil {
		return err
	}
	if r.key != nil {
		if p, err = r.key.OpenMessage(p, chunkLabel(s.chunk.Address, s.chunk.Level)); err != nil {
			return fmt.Errorf("%w: %w", ErrProtocol, err)
		}
	}
	if s.data, err = r.options.VerifyChunk(s.chunk, p); err != nil {
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return nil
}

// chunkLabel is what a chunk is sealed as on the way between encrypted stores.
func chunkLabel(a blob.Address, level uint8) []byte {
	return append([]byte("exchange of blobs\x00"), append(a[:], level)...)
}

// list reads references.
func (r *receiver) list() ([]blob.Ref, error) {
	k, b, err := r.conn.read()
	if err != nil {
		return nil, err
	}
	if k != kindRefs {
		return nil, protocolf("a message of kind %d where references should be", k)
	}
	return parseRefs(b)
}

func parseRefs(b []byte) (refs []blob.Ref, err error) {
	for len(b) > 0 {
		if len(b) < 2 || len(refs) == maxRefs {
			return nil, protocolf("a list of references that is too long, or cut off")
		}
		n := int(binary.LittleEndian.Uint16(b))
		if b = b[2:]; n > len(b) {
			return nil, protocolf("a reference of %d bytes in %d", n, len(b))
		}
		var ref blob.Ref
		if err := ref.UnmarshalBinary(b[:n]); err != nil {
			return nil, protocolf("%v", err)
		}
		if _, inline := ref.Inline(); inline {
			return nil, protocolf("an inline reference, of which nothing needs to be sent")
		}
		refs = append(refs, ref)
		b = b[n:]
	}
	return refs, nil
}

// ask asks for chunks, or with another kind of message for references. The caller waits for r.done.
func (r *receiver) ask(k kind, slots []*slot, body []byte) (*request, error) {
	q := &request{slots: slots, done: make(chan struct{})}
	for _, s := range slots {
		body = append(body, s.chunk.Level)
		body = append(body, s.chunk.Address[:]...)
		s.request = q
	}
	r.queue <- q
	err := r.conn.send(k, body)
	if err == nil {
		return q, nil
	}
	select { // the peer may have said why it does not read
	case <-q.done:
		if errors.Is(q.err, ErrPeer) {
			err = q.err
		}
	case <-r.ctx.Done():
	}
	return nil, err
}

// end waits until all answers are read. If the connection is in order there are none.
func (r *receiver) end() {
	close(r.queue)
	r.ended.Wait()
}
