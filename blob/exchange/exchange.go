package exchange

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"holdfast"
	"holdfast/blob"
)

// Open opens the store of a transaction, as blob.Open does.
type Open = func(tx *holdfast.Tx) (*blob.Store, error)

// Options of an exchange.
type Options struct {
	// Lease is the id of the lease that holds what is received, of at most 1,024 bytes. Push and Pull need
	// one: Push's is in the peer's store. If Serve has one, it holds what peers push, whatever these say.
	Lease string
	// Expires is when that lease expires, as of blob.Store.Lease; the zero Time: never.
	Expires time.Time
	// Keep is for how long what has arrived of a blob is kept after the last of it, in the receiving store, to the
	// second. 0: seven days.
	Keep time.Duration

	// All has Pull receive all blobs that have users in the peer's store. A damaged root, which does not tell what it is of, is the
	// peer's error after all others have arrived.
	All bool
	// Find has Pull receive blobs by the first digits, in hexadecimal, of their address or their SHA-256
	// (blob.Store.Find): MinDigits or more. Each must lead to one blob. One whose address does not begin so is read when it has
	// arrived: if its SHA-256 does not either, that is its error, though the lease holds it. A peer can make up a blob of 2^63
	// bytes of zeros of a few chunks, which is read until the context ends: of a peer that is not trusted pull by reference.
	Find []string
	// Verify has the side that receives, Pull or Serve, read what it has of each blob, as blob.Store.VerifyStored: what is damaged
	// or lost of it comes again, also of what an exchange that was cut has left. Without it a blob is taken for whole whose root is. Each
	// leaf is gone through as often as it occurs, without an end if a peer makes up a blob of zeros: it is for peers that are trusted.
	Verify bool
	// ReadOnly has Serve refuse what is pushed.
	ReadOnly bool

	// Blob is called for each blob when it is held by the lease, or with the error because of which it is not.
	// The calls are not concurrent.
	Blob func(ref blob.Ref, err error)
	// Progress is called now and then with what was done so far.
	Progress func(Stats)
}

// MinDigits is how many digits a blob is looked for by at least.
const MinDigits = 7

// DefaultKeep is Options.Keep unless it is set.
const DefaultKeep = 7 * 24 * time.Hour

// Stats is what an exchange has done.
type Stats struct {
	Blobs  int64 // that are held by the lease
	Bytes  int64 // of their content
	Failed int64 // blobs that are not, because of an error

	Chunks     int64 // that were sent, or received: leaves and nodes
	ChunkBytes int64

	// Of the side that receives:

	Whole        int64 // blobs that were there already
	Reused       int64 // bytes of content of the others that were
	Transactions int64
}

// Push copies the blobs that refs name from the store that open opens to that of the peer, which calls Serve. Of
// an inline reference nothing is sent.
//
// An error of a single blob, as that the store does not have it, does not stop the others; all are joined. After any
// other error, and when ctx ends, conn is closed if it is an io.Closer, which must end its Read and Write. What has
// arrived stays, and a further Push sends the rest.
func Push(ctx context.Context, conn io.ReadWriter, db *holdfast.DB, open Open, refs []blob.Ref, o Options) (Stats, error) {
	s := session{db: db, open: open, o: o}
	err := s.run(ctx, conn, func() error {
		if err := s.connect(push); err != nil {
			return err
		}
		src := newSource(&s)
		src.refs = refs
		return src.serve()
	})
	return s.stats, wrap("push", err)
}

// Pull copies blobs from the store of the peer, which calls Serve, to that which open opens: those that
// refs name, and those of Options.Find and Options.All. Errors are as of Push.
func Pull(ctx context.Context, conn io.ReadWriter, db *holdfast.DB, open Open, refs []blob.Ref, o Options) (Stats, error) {
	s := session{db: db, open: open, o: o}
	err := s.run(ctx, conn, func() error {
		if err := s.connect(pull); err != nil {
			return err
		}
		k := newSink(&s)
		k.given = refs
		return k.run()
	})
	return s.stats, wrap("pull", err)
}

// Serve answers a peer that calls Push or Pull, until that has ended. Errors are as of Push; of single blobs it
// returns none, for they are the peer's to tell.
func Serve(ctx context.Context, conn io.ReadWriter, db *holdfast.DB, open Open, o Options) error {
	s := session{db: db, open: open, o: o, serves: true}
	err := s.run(ctx, conn, func() error {
		to, err := s.accept()
		if err != nil {
			return err
		}
		if to == push {
			k := newSink(&s)
			k.offered = true
			return k.run()
		}
		src := newSource(&s)
		src.all = true
		return src.serve()
	})
	return wrap("serve", err)
}

func wrap(what string, err error) error {
	if err != nil {
		err = fmt.Errorf("exchange of blobs: %s: %w", what, err)
	}
	return err
}

// session is one exchange.
type session struct {
	db      *holdfast.DB
	open    Open
	o       Options
	serves  bool
	ctx     context.Context
	conn    *frames
	options blob.Options // of both stores
	key     *blob.Key    // with which chunks are sealed on the way; nil: they are not
	stats   Stats
	errs    []error // of single blobs
	ended   func()  // waits for what has used the connection; nil: nothing has
}

// maxErrors bounds how many errors of single blobs are kept.
const maxErrors = 20

// run runs fn with the connection.
func (s *session) run(ctx context.Context, conn io.ReadWriter, fn func() error) error {
	err := s.view(func(store *blob.Store) error {
		s.options = store.Options()
		s.options.Compression = blob.NoCompression // addresses do not depend on it
		s.key = s.options.Key
		return nil
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.ctx, s.conn = ctx, newFrames(conn)
	closer, _ := conn.(io.Closer)
	stop := context.AfterFunc(ctx, func() {
		if closer != nil {
			_ = closer.Close() // that is to end what reads and writes; there is no more to it
		}
	})
	switch err = fn(); {
	case err == nil:
		stop()
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	default:
		s.tell(err)
		cancel(err) // closes the connection
	}
	if s.ended != nil && (err == nil || closer != nil) { // else nothing can end what reads
		s.ended()
	}
	return errors.Join(append(s.errs, err)...)
}

// tellTimeout is for how long a peer is waited for that is told an error.
const tellTimeout = time.Second

// tell tells the peer why this side gives up, unless the reason is the peer or the connection.
func (s *session) tell(err error) {
	var local *localError
	if !errors.As(err, &local) {
		return
	}
	text := []byte(local.Error())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.conn.send(kindFail, text[:min(len(text), maxText)])
	}()
	select {
	case <-done:
	case <-time.After(tellTimeout):
	}
}

// localError is an error that is neither the peer's nor the connection's.
type localError struct{ error }

func (e *localError) Unwrap() error { return e.error }

func local(err error) error {
	if err == nil {
		return nil
	}
	return &localError{err}
}

func (s *session) view(fn func(*blob.Store) error) error {
	return local(s.db.View(func(tx *holdfast.Tx) error {
		store, err := s.open(tx)
		if err != nil {
			return err
		}
		return fn(store)
	}))
}

// connect greets the peer that serves.
func (s *session) connect(to direction) error {
	if err := s.setLease(); err != nil {
		return err
	}
	own := s.hello(to)
	if to == push {
		own.lease, own.keep = s.o.Lease, int64(s.o.Keep/time.Second)
		if !s.o.Expires.IsZero() {
			own.expires = max(s.o.Expires.Unix(), 1)
		}
	}
	sent := s.conn.send(kindHello, own.append(nil))
	// What has not taken the greeting may have said something before: that tells more than a broken pipe.
	h, err := s.greeting()
	if sent != nil && !errors.Is(err, ErrProtocol) && !errors.Is(err, ErrPeer) {
		return sent
	}
	if err != nil {
		return err
	}
	if sent != nil {
		return sent
	}
	if h.direction != to {
		return protocolf("it answers with another direction")
	}
	return alike(&own, &h)
}

// hello is what this side says of its store.
func (s *session) hello(to direction) hello {
	h := hello{direction: to, store: s.options}
	if h.store.Key = nil; s.key != nil {
		h.sealed, h.key = true, s.key.ID()
	}
	return h
}

// overhead is by how many bytes a chunk is longer on the way.
func (s *session) overhead() int {
	if s.key == nil {
		return 0
	}
	return s.key.Overhead()
}

// findLabel is what the digits are sealed as by which a blob is looked for between encrypted stores: those of a SHA-256 can be
// of content that is known, and a peer without the key is not to learn whether a store has it.
var findLabel = []byte("digits of a blob\x00")

func (s *session) sealDigits(digits string) []byte {
	if s.key == nil {
		return []byte(digits)
	}
	return s.key.SealMessage(nil, []byte(digits), findLabel)
}

func (s *session) openDigits(body []byte) ([]byte, error) {
	if s.key == nil {
		return body, nil
	}
	digits, err := s.key.OpenMessage(body, findLabel)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return digits, nil
}

// setLease checks and completes what the options say of the lease.
func (s *session) setLease() error {
	o := &s.o
	switch {
	case o.Lease == "" || len(o.Lease) > MaxLease:
		return fmt.Errorf("%w: the id of the lease has %d bytes, and needs 1 to %d", blob.ErrOptions, len(o.Lease), MaxLease)
	case o.Keep < 0:
		return fmt.Errorf("%w: kept for %v", blob.ErrOptions, o.Keep)
	case o.Keep == 0:
		o.Keep = DefaultKeep
	case o.Keep < time.Second:
		o.Keep = time.Second
	}
	return nil
}

// accept answers the greeting of a peer.
func (s *session) accept() (direction, error) {
	h, err := s.greeting()
	if err != nil {
		return 0, err
	}
	own := s.hello(h.direction)
	if err := alike(&own, &h); err != nil { // the peer is to know the reason
		return 0, firstError(s.conn.send(kindHello, own.append(nil)), err)
	}
	if h.direction == push {
		if s.o.ReadOnly {
			return 0, local(errors.New("the store is served for reading only"))
		}
		if s.o.Lease == "" {
			s.o.Lease, s.o.Keep, s.o.Expires = h.lease, time.Duration(h.keep)*time.Second, time.Time{}
			if h.expires > 0 {
				s.o.Expires = time.Unix(h.expires, 0)
			}
		}
		if err := s.setLease(); err != nil {
			return 0, local(err)
		}
	}
	return h.direction, s.conn.send(kindHello, own.append(nil))
}

// greeting reads the peer's.
func (s *session) greeting() (hello, error) {
	k, n, err := s.conn.header(helloSize + len(blob.Address{}) + MaxLease)
	if errors.Is(err, ErrProtocol) || err == nil && k != kindHello {
		return hello{}, errGreeting
	}
	if err != nil {
		return hello{}, err
	}
	b, err := s.conn.body(n)
	if err != nil {
		return hello{}, err
	}
	return parseHello(b)
}

// reason is why the peer has closed the connection, if it has said so before.
func (s *session) reason(err error) error {
	for range maxRefs { // what it has sent before
		k, n, failed := s.conn.header(s.options.MaxChunk() + s.overhead() + 1)
		if errors.Is(failed, ErrPeer) {
			return failed
		}
		if failed != nil || k == 0 {
			break
		}
		if _, failed := s.conn.r.Discard(n); failed != nil {
			break
		}
	}
	return err
}

// done counts a blob, and tells of it.
func (s *session) done(ref blob.Ref, err error) {
	switch {
	case err == nil:
		s.stats.Blobs++
		s.stats.Bytes += ref.Size()
	case s.serves:
		s.stats.Failed++
	default:
		s.failed(fmt.Errorf("blob %v: %w", ref, err))
	}
	if s.o.Blob != nil {
		s.o.Blob(ref, err)
	}
}

// failed counts a blob that is not known.
func (s *session) failed(err error) {
	s.stats.Failed++
	if len(s.errs) < maxErrors {
		s.errs = append(s.errs, err)
	}
}

func (s *session) progress() {
	if s.o.Progress != nil {
		s.o.Progress(s.stats)
	}
}
