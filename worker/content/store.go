package content

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"holdfast"
	"holdfast/blob"
)

// Options of a Store.
type Options struct {
	// Logger gets errors of work in the background. nil: they are not logged.
	Logger holdfast.Logger
	// Timeout is how long Open waits for a file that another process has open; 0: for ever.
	Timeout time.Duration
	// Share is where other processes can read the store's file, as holdfast.Options.Share.
	Share string
}

// Buckets of the file.
var (
	bucketBlobs   = []byte("blobs")   // a blob.Store
	bucketContent = []byte("content") // SHA-256: infoRecord
	bucketIngests = []byte("ingests") // ref: ingestRecord. Its data are an ingest of the blob.Store
)

// Limits on what is in memory.
const (
	maxWriters = 4096      // of one Store
	buffers    = 256 << 20 // bytes of all writers together, about
	maxBuffer  = 4 << 20   // bytes of one writer that are not saved yet,
	minBuffer  = 64 << 10  // however many there are
	pageRows   = 256       // that one transaction reads for a list
	maxRead    = 1 << 20   // bytes that one transaction reads
)

// A Store keeps content in a file.
type Store struct {
	db      *holdfast.DB
	collect chan struct{} // there is space to be freed
	stop    context.CancelFunc
	done    sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	writers map[string]*Writer // by ref
}

// Open opens the store in the file at path, which it makes if it is not there.
func Open(path string, o Options) (*Store, error) {
	db, err := holdfast.Open(path, 0o600, &holdfast.Options{
		Timeout: o.Timeout, Logger: o.Logger, Share: o.Share, AutoVacuum: &holdfast.AutoVacuum{},
	})
	if err != nil {
		return nil, fmt.Errorf("content store: %w", err)
	}
	if err := db.Update(create); err != nil {
		return nil, errors.Join(fmt.Errorf("content store %s: %w", path, err), db.Close())
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Store{db: db, collect: make(chan struct{}, 1), stop: cancel, writers: make(map[string]*Writer)}
	s.collect <- struct{}{} // of what was deleted before
	s.done.Go(func() { s.collector(ctx, o.Logger) })
	return s, nil
}

// create makes the buckets that are not there.
func create(tx *holdfast.Tx) error {
	for _, name := range [][]byte{bucketContent, bucketIngests} {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	if b := tx.Bucket(bucketBlobs); b != nil {
		_, err := blob.Open(b)
		return err
	}
	b, err := tx.CreateBucket(bucketBlobs)
	if err == nil {
		_, err = blob.Create(b, blob.Options{Algorithm: blob.BLAKE3})
	}
	return err
}

// blobs is the blob.Store of a transaction.
func blobs(tx *holdfast.Tx) (*blob.Store, error) {
	b := tx.Bucket(bucketBlobs)
	if b == nil {
		return nil, corruptf("there is no bucket %s", bucketBlobs)
	}
	return blob.Open(b)
}

// Database is the file of the store, for its figures. It must not be written through it, nor closed.
func (s *Store) Database() *holdfast.DB { return s.db }

// Close closes the store. What writers have is saved first.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	open := make([]*Writer, 0, len(s.writers))
	for _, w := range s.writers {
		open = append(open, w)
	}
	s.mu.Unlock()
	var errs []error
	for _, w := range open {
		errs = append(errs, w.Close())
	}
	s.stop()
	s.done.Wait()
	return errors.Join(append(errs, s.db.Close())...)
}

// DB is the file. It must not be changed.
func (s *Store) DB() *holdfast.DB { return s.db }

// collector frees the space of what was deleted, until ctx ends.
func (s *Store) collector(ctx context.Context, log holdfast.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.collect:
		}
		_, err := blob.Collect(ctx, s.db, blobs, blob.CollectOptions{})
		if err != nil && ctx.Err() == nil && log != nil {
			log.Warningf("content store %s: freeing space: %v", s.db.Path(), err)
		}
	}
}

// freed has the collector look.
func (s *Store) freed() {
	select {
	case s.collect <- struct{}{}:
	default: // it is going to
	}
}

// find is the record of content in a transaction.
func find(tx *holdfast.Tx, d digest.Digest) (Info, blob.Ref, error) {
	sum, err := digestSum(d)
	if err != nil {
		return Info{}, blob.Ref{}, err
	}
	v := tx.Bucket(bucketContent).Get(sum[:])
	if v == nil {
		return Info{}, blob.Ref{}, fmt.Errorf("content %s: %w", d, ErrNotFound)
	}
	return parseInfo(sum, v)
}

// Info tells of content. ErrNotFound if there is none of that digest.
func (s *Store) Info(ctx context.Context, d digest.Digest) (info Info, err error) {
	err = s.view(ctx, func(tx *holdfast.Tx) error {
		info, _, err = find(tx, d)
		return err
	})
	return info, err
}

// Update changes the labels of content to those of info: all of them, or with fields only these, "labels" or "labels.KEY". A
// label that is empty in info, or not there, is removed. Other fields are ErrInvalid. It returns what the content is then.
func (s *Store) Update(ctx context.Context, info Info, fields ...string) (updated Info, err error) {
	err = s.update(ctx, func(tx *holdfast.Tx) error {
		var ref blob.Ref
		if updated, ref, err = find(tx, info.Digest); err != nil {
			return err
		}
		if err := updated.relabel(info.Labels, fields); err != nil {
			return err
		}
		updated.Updated = time.Now().UTC()
		return putInfo(tx, &updated, ref)
	})
	return updated, err
}

func putInfo(tx *holdfast.Tx, info *Info, ref blob.Ref) error {
	sum, err := digestSum(info.Digest)
	if err != nil {
		return err
	}
	v, err := info.record(ref)
	if err != nil {
		return err
	}
	return tx.Bucket(bucketContent).Put(sum[:], v)
}

// Delete removes content, also what is damaged. Its space is freed in the background.
func (s *Store) Delete(ctx context.Context, d digest.Digest) error {
	err := s.update(ctx, func(tx *holdfast.Tx) error {
		_, ref, err := find(tx, d)
		if err != nil && !errors.Is(err, ErrCorrupt) {
			return err
		}
		sum, err := digestSum(d)
		if err != nil {
			return err
		}
		if err := tx.Bucket(bucketContent).Delete(sum[:]); err != nil {
			return err
		}
		return release(tx, ref)
	})
	if err == nil {
		s.freed()
	}
	return err
}

// release gives back the blob of content that is removed. A damaged record can name one that is not there, or none.
func release(tx *holdfast.Tx, ref blob.Ref) error {
	if ref.IsZero() {
		return nil
	}
	b, err := blobs(tx)
	if err != nil {
		return err
	}
	err = b.Delete(ref)
	if errors.Is(err, blob.ErrNotFound) || errors.Is(err, blob.ErrInvalidRef) || errors.Is(err, blob.ErrAlgorithm) {
		return nil
	}
	return err
}

// Walk calls fn for all content in the order of the digests, until it returns an error, which is returned. No transaction is
// open while fn runs, which may take as long as it likes and call any method: what changes meanwhile is shown or not.
func (s *Store) Walk(ctx context.Context, fn func(Info) error) error {
	return s.pages(ctx, bucketContent, func(k, v []byte) (func() error, error) {
		if len(k) != 32 {
			return nil, corruptf("a digest of %d bytes", len(k))
		}
		info, _, err := parseInfo([32]byte(k), v)
		return func() error { return fn(info) }, err
	})
}

// pages reads the rows of a bucket, some in each transaction, and calls what row makes of each after it.
func (s *Store) pages(ctx context.Context, bucket []byte, row func(k, v []byte) (func() error, error)) error {
	for after := []byte(nil); ; {
		var calls []func() error
		err := s.view(ctx, func(tx *holdfast.Tx) error {
			c := tx.Bucket(bucket).Cursor()
			k, v := c.Seek(after)
			if after != nil && bytes.Equal(k, after) {
				k, v = c.Next()
			}
			for ; k != nil && len(calls) < pageRows; k, v = c.Next() {
				call, err := row(k, v)
				if err != nil {
					return err
				}
				calls, after = append(calls, call), bytes.Clone(k)
			}
			return nil
		})
		if err != nil || len(calls) == 0 {
			return err
		}
		for _, call := range calls {
			if err := call(); err != nil {
				return err
			}
		}
	}
}

// ReadAt reads len(p) bytes of content from offset on; io.EOF if there are fewer. A chunk that is not what its hash says is a
// *blob.CorruptError, and nothing of it is read.
func (s *Store) ReadAt(ctx context.Context, d digest.Digest, p []byte, offset int64) (n int, err error) {
	if offset < 0 {
		return 0, fmt.Errorf("content %s at %d: %w", d, offset, ErrOffset)
	}
	for {
		piece := p[n:min(len(p), n+maxRead)]
		err = s.view(ctx, func(tx *holdfast.Tx) error {
			_, ref, err := find(tx, d)
			if err != nil {
				return err
			}
			b, err := blobs(tx)
			if err != nil {
				return err
			}
			r, err := b.Reader(ref)
			if err != nil {
				return fmt.Errorf("content %s: %w", d, err)
			}
			got, err := r.ReadAt(piece, offset+int64(n))
			n += got
			if errors.Is(err, io.EOF) {
				return io.EOF
			}
			if err != nil {
				return fmt.Errorf("content %s at %d: %w", d, offset, err)
			}
			return nil
		})
		if err != nil || n == len(p) {
			return n, err
		}
	}
}

// view runs fn in a reading transaction.
func (s *Store) view(ctx context.Context, fn func(*holdfast.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return closed(s.db.View(fn))
}

// update runs fn in a writing transaction; several that come at once share a flush.
func (s *Store) update(ctx context.Context, fn func(*holdfast.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return closed(s.db.Update(fn))
}

// closed says ErrClosed of a closed file.
func closed(err error) error {
	if errors.Is(err, holdfast.ErrDatabaseNotOpen) {
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return err
}
