package suite

import (
	"errors"
	"io"
	"math/rand/v2"

	"holdfast"
	"holdfast/blob"
)

// BlobConfig says how much the groups about blobs write and read.
type BlobConfig struct {
	Written   int64  // bytes of one measurement
	Amplified int64  // bytes of one measurement of what gets to the file
	Large     int64  // bytes of the blob that is read and removed
	Rows      int    // with small values
	Sized     int    // rows with values of 100 B to 1 MB
	Reads     int    // random ones
	Small     int    // blobs of 1 kB
	Dolt      string // the program made of bench/dolt; none: Dolt does not take part
}

// BlobQuick is a run of about a minute, BlobFull one of the sizes that the documentation
// quotes. The latter needs 4 GiB of disk.
var (
	BlobQuick = Config{Rounds: 3, Blobs: BlobConfig{
		Written: 32 << 20, Amplified: 64 << 20, Large: 256 << 20, Rows: 200_000, Sized: 20_000, Reads: 1000, Small: 100_000,
	}}
	BlobFull = Config{Rounds: 5, Blobs: BlobConfig{
		Written: 256 << 20, Amplified: 1e9, Large: 1e9, Rows: 200_000, Sized: 200_000, Reads: 10_000, Small: 1_000_000,
	}}
)

// blobTx is how many bytes go into one transaction.
const blobTx = 16 << 20

// renewStride is the distance of the numbers that make each part of a blob new. It is less
// than the smallest chunk of any of those who take part.
const renewStride = 4000

// blobSource gives blobs of one size that never come again, nor does any chunk of them. The
// blobs of a transaction do not share memory: bbolt keeps what it was given until it commits.
type blobSource struct {
	size, perTx int
	buf         []byte // of a transaction
	number      uint64
}

func newBlobSource(size int, tx int64) *blobSource {
	s := &blobSource{size: size, perTx: max(1, int(tx)/size)}
	s.buf = make([]byte, s.perTx*size)
	for at := 0; at < len(s.buf); at += len(noise) {
		copy(s.buf[at:], noise)
	}
	return s
}

// blob is that with number i of a transaction.
func (s *blobSource) blob(i int) []byte {
	p := s.buf[i*s.size : (i+1)*s.size : (i+1)*s.size]
	s.number = renew(p, s.number)
	return p
}

// renew makes each part of p new, the last bytes too, and gives the next number.
func renew(p []byte, number uint64) uint64 {
	put := func(at int) {
		number++
		for i := range 8 {
			p[at+i] = byte(number >> (8 * i))
		}
	}
	for at := 0; at+8 <= len(p); at += renewStride {
		put(at)
	}
	if tail := len(p) - 8; tail > 0 {
		put(tail)
	}
	return number
}

// transactions is how many it takes for so many bytes.
func (s *blobSource) transactions(bytes int64) int {
	return max(1, int(bytes/int64(len(s.buf))))
}

// sink is where blobs go, in transactions.
type sink interface {
	begin() error
	put(p []byte) error
	commit() error
	close() error
}

// write puts the blobs of n transactions, and gives their number.
func (s *blobSource) write(to sink, n int) (int, error) {
	for range n {
		if err := to.begin(); err != nil {
			return 0, err
		}
		for i := range s.perTx {
			if err := to.put(s.blob(i)); err != nil {
				return 0, err
			}
		}
		if err := to.commit(); err != nil {
			return 0, err
		}
	}
	return n * s.perTx, nil
}

// sinkKind makes sinks, each with a new file or directory at path.
type sinkKind struct {
	name string
	open func(path string) (sink, error)
}

// with runs fn on a sink of the kind that is removed afterwards.
func (c *Config) with(k sinkKind, fn func(s sink) error) error {
	path, err := c.path("blobs", k.name)
	if err != nil {
		return err
	}
	defer remove(path)
	s, err := k.open(path)
	if err != nil {
		return err
	}
	return errors.Join(fn(s), s.close())
}

var blobsName = []byte("blobs")

// createBlobs makes a database with a store of blobs and a bucket for rows.
func createBlobs(path string) (*holdfast.DB, error) {
	db, err := holdfast.Open(path, 0o600, &holdfast.Options{NoSync: true})
	if err != nil {
		return nil, err
	}
	err = db.Update(func(tx *holdfast.Tx) error {
		if _, err := tx.CreateBucket(bucketName); err != nil {
			return err
		}
		b, err := tx.CreateBucket(blobsName)
		if err != nil {
			return err
		}
		_, err = blob.Create(b, blob.Options{})
		return err
	})
	if err != nil {
		_ = db.Close()
		return nil, err
	}
	return db, nil
}

// openStore opens the store such that short values are stored, too, and not kept in the reference.
func openStore(tx *holdfast.Tx) (*blob.Store, error) {
	s, err := blob.Open(tx.Bucket(blobsName))
	if err == nil {
		s.InlineUpTo(-1)
	}
	return s, err
}

// largeReader gives size bytes whose every chunk is new. It is the same for the same size.
type largeReader struct {
	left   int64
	buf    []byte
	rest   []byte
	number uint64
}

func newLargeReader(size int64) *largeReader {
	return &largeReader{left: size, buf: append([]byte(nil), noise...)}
}

func (r *largeReader) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		if r.left == 0 {
			return 0, io.EOF
		}
		r.number = renew(r.buf, r.number)
		r.rest = r.buf[:min(int64(len(r.buf)), r.left)]
		r.left -= int64(len(r.rest))
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// offsets are those of n reads of length bytes in size.
func offsets(n int, size, length int64) []int64 {
	r := rand.New(rand.NewPCG(8, 9))
	all := make([]int64, n)
	for i := range all {
		all[i] = r.Int64N(size - length + 1)
	}
	return all
}
