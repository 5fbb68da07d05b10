package blob

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"iter"
	"math"
	"time"

	"holdfast"
)

// ErrIngestOptions: an ingest was to be continued with other options than it was begun with.
var ErrIngestOptions = errors.New("ingest was begun with other options")

// IngestOptions are options of an ingest.
type IngestOptions struct {
	// Size is the size in bytes that the content must have. 0: any.
	Size int64
	// Digest is the SHA-256 that the whole content must have. Zero: any.
	Digest [32]byte
	// WholeDigest has the SHA-256 of the whole content computed, so that ByDigest finds the blob.
	// Digest implies it.
	WholeDigest bool
	// Lifetime is for how long the ingest is kept after its last Save, rounded up to seconds: then it has
	// expired, and Collect gives it up. 0: for ever.
	Lifetime time.Duration
}

// Ingest writes a blob over several transactions, and over restarts. Save puts into the
// transaction how far it has come; when that has committed, a later one, in another process perhaps,
// goes on from there: it opens the ingest by its name again and writes the content from Offset on.
// Commit makes it a blob. What was written since the last Save is given up with the
// transaction.
//
// An Ingest is valid as long as the transaction of its Store, and is for one goroutine.
type Ingest struct {
	s     *Store
	name  string
	w     *Writer
	state ingestState // but for levels and tail, which the writer has
	whole hash.Hash   // nil: not computed
	buf   []byte      // of ReadFrom
	err   error
}

// IngestInfo describes an ingest as it was saved last.
type IngestInfo struct {
	Name    string
	Offset  int64 // bytes that were written
	Options IngestOptions
	Started time.Time // to the second
	Saved   time.Time
	Expires time.Time // the zero Time: never
}

// Ingest begins an ingest of that name, or goes on with the one that there is, with the options that it was
// begun with: o may be zero then, or must be the same (ErrIngestOptions), but for Lifetime: another one
// than 0 is that of the next Save. Each Save begins a lifetime. One that has expired and that Collect has
// not met goes on as any other.
func (s *Store) Ingest(name string, o IngestOptions) (*Ingest, error) {
	in, err := s.ingest(name, o)
	if err != nil {
		return nil, fmt.Errorf("ingest %.100q: %w", name, err)
	}
	return in, nil
}

func (s *Store) ingest(name string, o IngestOptions) (*Ingest, error) {
	if err := s.writable(); err != nil {
		return nil, err
	}
	if o.Size < 0 || o.Lifetime < 0 {
		return nil, fmt.Errorf("%w: size %d, lifetime %v", ErrOptions, o.Size, o.Lifetime)
	}
	if part := o.Lifetime % time.Second; part > 0 {
		if o.Lifetime -= part; o.Lifetime <= math.MaxInt64-time.Second { // as good as the next one
			o.Lifetime += time.Second
		}
	}
	all, err := s.bucket.CreateBucketIfNotExists(ingestsName)
	if err != nil {
		return nil, err
	}
	o.WholeDigest = o.WholeDigest || o.Digest != [32]byte{}
	in := &Ingest{s: s, name: name, w: s.Writer()}
	b := all.Bucket([]byte(name))
	if b == nil {
		if b, err = all.CreateBucket([]byte(name)); err != nil {
			return nil, err
		}
		in.state = ingestState{options: o, started: time.Now().Unix()}
		if o.WholeDigest {
			in.whole = sha256.New()
		}
		in.expect()
		return in, in.save(b)
	}
	state, err := s.loadIngest([]byte(name), b)
	if err != nil {
		return nil, err
	}
	if o.Lifetime > 0 {
		state.options.Lifetime = o.Lifetime
	}
	o.Lifetime = 0
	if was := state.options; o != (IngestOptions{}) {
		if was.Lifetime = 0; o != was {
			return nil, ErrIngestOptions
		}
	}
	in.state = state
	in.expect()
	if err := in.resume(); err != nil {
		in.w.Abort() // or it would hold what it has taken up until the transaction ends
		return nil, err
	}
	return in, nil
}

func (in *Ingest) expect() {
	if size := in.state.options.Size; size > 0 {
		in.w.Expect(size)
	}
}

// resume brings the writer to where it was when the state was saved. It holds what
// it stands on next to the saved state, so that either can be given up without the other.
func (in *Ingest) resume() error {
	if err := in.s.checkSizes(&in.state); err != nil {
		return err
	}
	if err := in.s.hold(in.state.chunks()); err != nil {
		return err
	}
	w := in.w
	if err := w.start(); err != nil {
		return errors.Join(err, in.s.letGo(in.state.chunks()))
	}
	for _, l := range in.state.levels {
		nb := nodeBuilder{n: l.n, size: l.size}
		nb.b = append(make([]byte, nodeHeaderSize, maxNodeSize), l.children...)
		w.tree.levels = append(w.tree.levels, nb)
	}
	w.size = in.state.offset - int64(len(in.state.tail))
	if _, err := w.Write(in.state.tail); err != nil {
		return err
	}
	if len(w.leaf) != len(in.state.tail) {
		return corruptf("the part of a leaf that was saved is longer than a leaf")
	}
	if in.state.options.WholeDigest {
		in.whole = sha256.New()
		if err := in.state.sum.load(in.whole, in.state.offset); err != nil {
			return err
		}
	}
	in.state.levels, in.state.tail, in.state.sum = nil, nil, hashState{}
	return nil
}

// Name is the ingest's name.
func (in *Ingest) Name() string { return in.name }

// Offset is how many bytes of the content were written: the next Write goes on there.
func (in *Ingest) Offset() int64 { return in.w.Size() }

// DigestSum is the SHA-256 of what was written so far, if it is computed (IngestOptions.WholeDigest): a caller
// that resumes can compare it with that of its content.
func (in *Ingest) DigestSum() (sum [32]byte, ok bool) {
	if in.whole != nil {
		in.whole.Sum(sum[:0])
	}
	return sum, in.whole != nil
}

// Write writes p after what was written. p is not kept. An error gives up what was
// written since the last Save.
func (in *Ingest) Write(p []byte) (int, error) {
	if in.err != nil {
		return 0, in.err
	}
	n, err := in.w.Write(p)
	if err != nil {
		return n, in.fail(err)
	}
	if in.whole != nil {
		in.whole.Write(p)
	}
	return n, nil
}

// ReadFrom writes what r gives until io.EOF. If r gives another error it is returned,
// and what came before it is kept: it can be saved, and continued with another reader at Offset. A
// reader that gives neither bytes nor an error many times in a row is io.ErrNoProgress.
func (in *Ingest) ReadFrom(r io.Reader) (total int64, err error) {
	if in.buf == nil {
		in.buf = make([]byte, 64<<10)
	}
	for empty := 0; empty < maxEmptyReads; empty++ {
		n, err := r.Read(in.buf)
		if n < 0 || n > len(in.buf) {
			return total, fmt.Errorf("ingest %.100q: %w", in.name, errReadCount)
		}
		if n > 0 {
			empty = 0
			if _, err := in.Write(in.buf[:n]); err != nil {
				return total, err
			}
			total += int64(n)
		}
		switch {
		case err == io.EOF:
			return total, nil
		case err != nil:
			return total, fmt.Errorf("ingest %.100q: %w", in.name, err)
		}
	}
	return total, fmt.Errorf("ingest %.100q: %w", in.name, io.ErrNoProgress)
}

// Save puts what was written so far into the transaction. It can be written on afterwards, in this one
// and, when it has committed, in another.
func (in *Ingest) Save() error {
	if in.err != nil {
		return in.err
	}
	b, err := in.bucket()
	if err == nil {
		err = in.save(b)
	}
	if err != nil {
		return in.fail(err)
	}
	return nil
}

// Commit makes what was written a blob and counts one use of it, and removes the ingest.
// ErrSizeMismatch and ErrDigestMismatch if it is not what the options say; then the ingest
// stays as it was saved, until Abort.
func (in *Ingest) Commit() (Ref, error) {
	if in.err != nil {
		return Ref{}, in.err
	}
	ref, err := in.commit()
	if err != nil {
		return Ref{}, in.fail(err)
	}
	in.err = fmt.Errorf("ingest %.100q: %w", in.name, ErrWriterClosed)
	return ref, nil
}

func (in *Ingest) commit() (Ref, error) {
	sum, _ := in.DigestSum()
	// The size first: it says more.
	if o := &in.state.options; o.Size > 0 && in.w.Size() != o.Size {
		return Ref{}, fmt.Errorf("%w: %d bytes, not %d", ErrSizeMismatch, in.w.Size(), o.Size)
	} else if o.Digest != [32]byte{} && sum != o.Digest {
		return Ref{}, fmt.Errorf("%w: sha256:%x, not sha256:%x", ErrDigestMismatch, sum, o.Digest)
	}
	b, err := in.bucket() // whether it is there still, before a use is counted
	if err != nil {
		return Ref{}, err
	}
	ref, err := in.w.Commit()
	if err != nil {
		return Ref{}, err
	}
	if in.whole != nil {
		err = in.s.setDigest(sum, ref)
	}
	if err == nil {
		err = in.s.removeIngest(in.name, b)
	}
	if err != nil { // the caller has no reference, and would never give the use back
		k := ref.key()
		return Ref{}, errors.Join(err, in.s.adjust(&k, 0, -1))
	}
	return ref, nil
}

// Abort gives up the ingest, with what was saved of it.
func (in *Ingest) Abort() error {
	if errors.Is(in.err, ErrWriterClosed) {
		return in.err
	}
	in.w.Abort()
	if err := in.remove(); err != nil {
		return in.fail(err)
	}
	in.err = fmt.Errorf("ingest %.100q: %w", in.name, ErrWriterClosed)
	return nil
}

// fail gives up what the writer has.
func (in *Ingest) fail(err error) error {
	in.w.Abort()
	in.err = fmt.Errorf("ingest %.100q: %w", in.name, err)
	return in.err
}

// bucket is where the ingest is saved.
func (in *Ingest) bucket() (*holdfast.Bucket, error) {
	all, err := in.s.child(ingestsName)
	if all == nil {
		return nil, firstError(err, ErrWriterClosed)
	}
	b := all.Bucket([]byte(in.name))
	if b == nil {
		return nil, firstError(in.s.tx.Err(), ErrWriterClosed)
	}
	return b, nil
}

// save replaces what was saved before. What is saved is a parent of the chunks that it stands on, besides the writer.
func (in *Ingest) save(b *holdfast.Bucket) error {
	if err := in.s.writable(); err != nil {
		return err
	}
	in.state.offset, in.state.saved = in.w.Size(), time.Now().Unix()
	in.state.levels = in.state.levels[:0]
	for level := range in.w.tree.levels {
		nb := &in.w.tree.levels[level]
		l := ingestLevel{n: nb.n, size: nb.size}
		if nb.n > 0 {
			l.children = nb.b[nodeHeaderSize:]
		}
		in.state.levels = append(in.state.levels, l)
	}
	in.state.shape = in.s.options.shape()
	in.state.tail = bytes.Clone(in.w.leaf)
	if in.whole != nil {
		var err error
		if in.state.sum, err = saveHash(in.whole, in.state.offset); err != nil {
			return err
		}
	}
	chunks := in.state.chunks()
	if err := in.s.hold(chunks); err != nil {
		return err
	}
	if err := in.s.releaseSaved(in.name, b); err != nil {
		return errors.Join(err, in.s.letGo(chunks))
	}
	if err := in.s.putIngest([]byte(in.name), b, &in.state); err != nil {
		return in.s.fail(err) // what was saved before stands on nothing now
	}
	return nil
}

// remove removes what was saved.
func (in *Ingest) remove() error {
	b, err := in.bucket()
	if err != nil {
		return err
	}
	return in.s.removeIngest(in.name, b)
}

func (s *Store) removeIngest(name string, b *holdfast.Bucket) error {
	if err := s.releaseSaved(name, b); err != nil {
		return err
	}
	if err := s.bucket.Bucket(ingestsName).DeleteBucket([]byte(name)); err != nil {
		return s.fail(err) // it would stand on what was released
	}
	return nil
}

// hold makes an ingest a parent of chunks: of all or, after an error, none.
func (s *Store) hold(chunks []chunkKey) error {
	for i := range chunks {
		if err := s.refer(&chunks[i], 1, 0); err != nil {
			return errors.Join(err, s.letGo(chunks[:i]))
		}
	}
	return nil
}

// letGo takes a parent from each of chunks. As for Collect, one that is missing or whose count is too low is
// damage that Check finds, and does not keep a caller from giving up the ingest.
func (s *Store) letGo(chunks []chunkKey) error {
	for i := range chunks {
		if err := s.orphan(&chunks[i]); err != nil {
			return err
		}
	}
	return nil
}

// releaseSaved gives back what the saved state stands on, if there is one.
func (s *Store) releaseSaved(name string, b *holdfast.Bucket) error {
	if b.Get(stateName) == nil {
		return s.tx.Err()
	}
	old, err := s.loadIngest([]byte(name), b)
	if err != nil {
		return err
	}
	return s.letGo(old.chunks())
}

// Ingests iterates over the ingests that were begun, in the order of their names. One that is
// damaged is an error after which the iteration goes on.
func (s *Store) Ingests() iter.Seq2[IngestInfo, error] {
	return func(yield func(IngestInfo, error) bool) {
		for name, state := range s.ingests() {
			info := IngestInfo{Name: name, Offset: state.offset, Options: state.options}
			info.Started, info.Saved = time.Unix(state.started, 0), time.Unix(state.saved, 0)
			if life := state.options.Lifetime; life > 0 {
				info.Expires = info.Saved.Add(life)
			}
			err := state.err
			if err != nil {
				err = fmt.Errorf("ingest %.100q: %w", name, err)
			}
			if !yield(info, err) {
				return
			}
		}
		if err := s.tx.Err(); err != nil {
			yield(IngestInfo{}, err)
		}
	}
}

// ingests iterates over the saved states, which have an error if they are damaged.
func (s *Store) ingests() iter.Seq2[string, ingestState] {
	return func(yield func(string, ingestState) bool) {
		all, err := s.child(ingestsName)
		if err != nil || all == nil {
			return
		}
		for name := range all.All() {
			var state ingestState
			if b := all.Bucket(name); b == nil {
				state.err = corruptf("it is not a bucket")
			} else if state, err = s.loadIngest(name, b); err != nil {
				state.err = err
			}
			if !yield(string(name), state) {
				return
			}
		}
	}
}
