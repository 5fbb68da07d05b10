package exchange

import (
	"encoding/binary"
	"errors"
	"fmt"

	"holdfast"
	"holdfast/blob"
)

// source answers a sink: it sends references, and chunks by their addresses.
type source struct {
	*session
	refs    []blob.Ref // that it offers
	all     bool       // it offers all that there are
	listed  bool       // which are in refs
	unknown error      // of one whose reference cannot be told
	pending map[blob.Ref]int
	buf     []byte // bytes of chunks
	sizes   []int  // of those in buf; negative: a status
}

func newSource(s *session) *source {
	return &source{session: s, pending: map[blob.Ref]int{}}
}

// serve answers until the sink has ended.
func (s *source) serve() error {
	s.inline()
	for {
		k, b, err := s.conn.read()
		if err != nil {
			return err
		}
		switch k {
		case kindOffer:
			err = s.offer()
		case kindFind:
			err = s.find(b)
		case kindGet:
			err = s.get(b)
		case kindResult:
			err = s.result(b)
		case kindEnd:
			return s.end()
		default:
			err = protocolf("a message of kind %d", k)
		}
		if err != nil {
			return err
		}
		s.progress()
	}
}

// inline takes out the references that need not be sent.
func (s *source) inline() {
	rest := make([]blob.Ref, 0, len(s.refs))
	for _, ref := range s.refs {
		if _, is := ref.Inline(); is {
			s.done(ref, nil)
		} else if err := s.options.CheckRef(ref); err != nil {
			s.done(ref, err)
		} else {
			rest = append(rest, ref)
		}
	}
	s.refs = rest
}

// end is the error of a sink that ends before it has said what became of all blobs.
func (s *source) end() error {
	n := len(s.pending)
	if !s.all {
		n += len(s.refs)
	}
	if n > 0 {
		return protocolf("it ends, and has not said what became of %d blobs", n)
	}
	return nil
}

// offer sends some of the references.
func (s *source) offer() error {
	if s.all && !s.listed {
		s.listed = true
		s.unknown = s.list()
	}
	if len(s.refs) == 0 && s.unknown != nil {
		return s.unknown
	}
	n := min(len(s.refs), maxRefs)
	some := s.refs[:n]
	s.refs = s.refs[n:]
	if !s.all {
		for _, ref := range some {
			s.pending[ref]++
		}
	}
	return s.send(some)
}

// list lists all blobs of the store. An error of one, or of a page of the file, is that of the exchange when the others are there.
func (s *source) list() error {
	return s.view(func(store *blob.Store) (unknown error) {
		for ref, err := range store.Roots() {
			if err == nil {
				s.refs = append(s.refs, ref)
			}
			unknown = firstError(unknown, err)
		}
		return unknown
	})
}

func (s *source) send(refs []blob.Ref) error {
	var b []byte
	for _, ref := range refs {
		p, err := ref.MarshalBinary()
		if err != nil {
			return local(err)
		}
		b = append(binary.LittleEndian.AppendUint16(b, uint16(len(p))), p...)
	}
	return s.answer(s.conn.send(kindRefs, b))
}

// answer is the error of writing an answer: why the peer does not take it, if it says so.
func (s *source) answer(err error) error {
	if err != nil {
		return s.reason(err)
	}
	return nil
}

// maxFound bounds how many blobs are sent of those that were looked for: more than one is an error anyhow.
const maxFound = 16

func (s *source) find(body []byte) error {
	digits, err := s.openDigits(body)
	if err != nil {
		return err
	}
	if len(digits) < MinDigits {
		return protocolf("it looks for blobs by %d digits", len(digits))
	}
	var found []blob.Ref
	err = s.view(func(store *blob.Store) (err error) {
		found, err = store.Find(string(digits))
		return err
	})
	switch {
	case errors.Is(err, blob.ErrInvalidRef):
		return protocolf("it looks for %.70q", digits)
	case err != nil:
		return err
	}
	return s.send(found[:min(len(found), maxFound)])
}

// pieceSize is how many bytes of chunks are read in one transaction, and copied, so that none is open while the peer
// takes them.
const pieceSize = 1 << 20

// get sends chunks.
func (s *source) get(b []byte) error {
	if len(b) == 0 || len(b)%chunkEntry != 0 || len(b)/chunkEntry > maxChunks {
		return protocolf("a request for chunks of %d bytes", len(b))
	}
	for len(b) > 0 {
		if err := s.ctx.Err(); err != nil {
			return err
		}
		n, err := s.load(b)
		if err != nil {
			return err
		}
		b = b[n*chunkEntry:]
		p := s.buf
		for _, size := range s.sizes {
			status := byte(statusHere)
			if size < 0 {
				status, size = byte(-size), 0
			} else {
				s.stats.Chunks++
				s.stats.ChunkBytes += int64(size - s.overhead())
			}
			if err := s.conn.write(kindChunk, []byte{status}, p[:size]); err != nil {
				return s.answer(err)
			}
			p = p[size:]
		}
	}
	return s.answer(s.conn.flush())
}

// load copies some of the chunks in the request to buf, and gives how many. One that cannot be read is the last.
func (s *source) load(b []byte) (n int, err error) {
	s.buf, s.sizes = s.buf[:0], s.sizes[:0]
	failed := false
	err = s.db.View(func(tx *holdfast.Tx) error {
		store, err := s.open(tx)
		if err != nil {
			return err
		}
		for ; n*chunkEntry < len(b) && len(s.buf) < pieceSize && !failed; n++ {
			entry := b[n*chunkEntry:][:chunkEntry]
			p, err := store.Chunk(blob.Address(entry[1:]), entry[0])
			if err != nil && !unreadable(tx, err) {
				return err
			}
			switch {
			case err == nil:
				begin := len(s.buf)
				if s.key != nil {
					s.buf = s.key.SealMessage(s.buf, p, chunkLabel(blob.Address(entry[1:]), entry[0]))
				} else {
					s.buf = append(s.buf, p...)
				}
				s.sizes = append(s.sizes, len(s.buf)-begin)
				continue
			case errors.Is(err, blob.ErrMissing):
				s.sizes = append(s.sizes, -statusMissing)
			default:
				s.sizes = append(s.sizes, -statusDamaged)
			}
			failed = true
		}
		return nil
	})
	if failed { // what the transaction says of the damage is known
		err = nil
	}
	return n, local(err)
}

// unreadable tells whether err is of one chunk, and others may be read.
func unreadable(tx *holdfast.Tx, err error) bool {
	return errors.Is(err, blob.ErrMissing) || errors.Is(err, blob.ErrCorrupt) || tx.Err() != nil
}

// result takes what became of a blob that was offered.
func (s *source) result(b []byte) error {
	if len(b) == 0 {
		return protocolf("an empty result")
	}
	n := 1 + int(b[0])
	if len(b) < n || len(b)-n > maxText {
		return protocolf("a result of %d bytes", len(b))
	}
	var ref blob.Ref
	if err := ref.UnmarshalBinary(b[1:n]); err != nil {
		return protocolf("a result: %v", err)
	}
	switch s.pending[ref] {
	case 0:
		return protocolf("the result of blob %v, which was not offered", ref)
	case 1:
		delete(s.pending, ref)
	default:
		s.pending[ref]--
	}
	if text := b[n:]; len(text) > 0 {
		s.done(ref, fmt.Errorf("%w: %s", errNotStored, printable(text)))
		return nil
	}
	s.done(ref, nil)
	return nil
}

// errNotStored is of a blob that the receiver has not stored.
var errNotStored = errors.New("not stored by the peer")
