package suite

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"os"
	"path/filepath"
	"runtime"

	"go.etcd.io/bbolt"

	"holdfast"
	"holdfast/blob"
)

// Columns of ways to store blobs, and of what each of them has to do at least.
const (
	floorHash      = "SHA-256 alone"
	floorPwrite    = "pwrite alone"
	floorSeal      = "seals alone"
	blobOurs       = "holdfast"
	blobOneCore    = "holdfast, one core"
	blobConcurrent = "holdfast, hash on both cores"
	blobStockHash  = "stock, under SHA-256"
	blobStockSeq   = "stock, under numbers"
	blobFiles      = "bare files"
)

var floorKinds = []sinkKind{
	{floorHash, func(string) (sink, error) { return new(hashSink), nil }},
	{floorPwrite, openPwrite},
	{floorSeal, func(string) (sink, error) { return new(sealSink), nil }},
}

var storeKinds = []sinkKind{
	{blobOurs, func(path string) (sink, error) { return openBlobSink(path, false) }},
	{blobOneCore, openOneCoreSink},
	{blobConcurrent, func(path string) (sink, error) { return openBlobSink(path, true) }},
	{blobStockHash, func(path string) (sink, error) { return openStockSink(path, true) }},
	{blobStockSeq, func(path string) (sink, error) { return openStockSink(path, false) }},
	{blobFiles, openFiles},
}

// noTransactions are the parts of a sink that has nothing to do there.
type noTransactions struct{}

func (noTransactions) begin() error  { return nil }
func (noTransactions) commit() error { return nil }
func (noTransactions) close() error  { return nil }

// hashSink hashes.
type hashSink struct {
	noTransactions
	sum [sha256.Size]byte
}

func (s *hashSink) put(p []byte) error {
	s.sum = sha256.Sum256(p)
	return nil
}

// sealSink computes the sums of page seals.
type sealSink struct {
	noTransactions
	sum uint32
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (s *sealSink) put(p []byte) error {
	s.sum ^= crc32.Checksum(p, castagnoli)
	return nil
}

// pwriteSink writes as many bytes as it was given, in whole pages, to the end of a file.
type pwriteSink struct {
	noTransactions
	f   *os.File
	at  int64
	n   int    // bytes of the transaction
	buf []byte // other bytes than those that it was given, and as far from the processor
}

// pwriteMost is how much one call writes at most.
const pwriteMost = 1 << 20

func openPwrite(path string) (sink, error) {
	f, err := os.Create(path)
	return &pwriteSink{f: f, buf: make([]byte, blobTx)}, err
}

func (s *pwriteSink) put(p []byte) error {
	s.n += len(p)
	return nil
}

func (s *pwriteSink) commit() error {
	left := (s.n + pageSize - 1) / pageSize * pageSize
	s.n = 0
	for from := 0; left > 0; {
		n := min(left, pwriteMost)
		if from+n > len(s.buf) {
			from = 0
		}
		if _, err := s.f.WriteAt(s.buf[from:from+n], s.at); err != nil {
			return err
		}
		from, s.at, left = from+n, s.at+int64(n), left-n
	}
	return nil
}

func (s *pwriteSink) close() error { return s.f.Close() }

// blobSink stores blobs with package blob.
type blobSink struct {
	db         *holdfast.DB
	tx         *holdfast.Tx
	store      *blob.Store
	writer     *blob.Writer
	concurrent bool
}

func openBlobSink(path string, concurrent bool) (sink, error) {
	db, err := createBlobs(path)
	return &blobSink{db: db, concurrent: concurrent}, err
}

// oneCoreSink stores blobs with one processor.
type oneCoreSink struct {
	sink
	processors int // that were used before
}

func openOneCoreSink(path string) (sink, error) {
	before := runtime.GOMAXPROCS(1)
	s, err := openBlobSink(path, false)
	if err != nil {
		runtime.GOMAXPROCS(before)
		return nil, err
	}
	return &oneCoreSink{s, before}, nil
}

func (s *oneCoreSink) close() error {
	defer runtime.GOMAXPROCS(s.processors)
	return s.sink.close()
}

func (s *blobSink) begin() (err error) {
	if s.tx, err = s.db.Begin(true); err != nil {
		return err
	}
	if s.store, err = openStore(s.tx); err == nil && s.concurrent {
		s.writer = s.store.Writer()
		s.writer.Concurrent(true)
	}
	return err
}

func (s *blobSink) put(p []byte) error {
	if !s.concurrent {
		_, err := s.store.Put(p)
		return err
	}
	if _, err := s.writer.Write(p); err != nil {
		return err
	}
	_, err := s.writer.Commit()
	return err
}

func (s *blobSink) commit() error {
	tx := s.tx
	s.tx, s.store, s.writer = nil, nil, nil
	return tx.Commit()
}

func (s *blobSink) close() error {
	if s.tx != nil {
		_ = s.tx.Rollback()
	}
	return s.db.Close()
}

// stockSink stores blobs as values of bbolt.
type stockSink struct {
	db     *bbolt.DB
	tx     *bbolt.Tx
	b      *bbolt.Bucket
	hashed bool // the keys are the digests, else numbers
}

func openStockSink(path string, hashed bool) (sink, error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		return nil, err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket(blobsName)
		return err
	})
	return &stockSink{db: db, hashed: hashed}, err
}

func (s *stockSink) begin() (err error) {
	if s.tx, err = s.db.Begin(true); err != nil {
		return err
	}
	s.b = s.tx.Bucket(blobsName)
	if !s.hashed {
		s.b.FillPercent = 1 // what is best for keys that come in order
	}
	return nil
}

func (s *stockSink) put(p []byte) error {
	if s.hashed {
		sum := sha256.Sum256(p)
		return s.b.Put(sum[:], p)
	}
	n, err := s.b.NextSequence()
	if err != nil {
		return err
	}
	return s.b.Put(numberKey(n), p)
}

func numberKey(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func (s *stockSink) commit() error {
	tx := s.tx
	s.tx, s.b = nil, nil
	return tx.Commit()
}

func (s *stockSink) close() error {
	if s.tx != nil {
		_ = s.tx.Rollback()
	}
	return s.db.Close()
}

// fileSink makes a file of each blob, named by its digest.
type fileSink struct {
	noTransactions
	dir string
}

func openFiles(path string) (sink, error) {
	return &fileSink{dir: path}, os.Mkdir(path, 0o700)
}

func (s *fileSink) put(p []byte) error {
	sum := sha256.Sum256(p)
	return os.WriteFile(filepath.Join(s.dir, hex.EncodeToString(sum[:])), p, 0o600)
}
