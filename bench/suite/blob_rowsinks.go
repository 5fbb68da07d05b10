package suite

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"

	"go.etcd.io/bbolt"

	"holdfast"
	"holdfast/blob"
)

// rowSink is where rows go, in transactions.
type rowSink interface {
	begin() error
	row(key uint64, value []byte, blobs [][]byte) error
	commit() error
	close() error
}

// slab gives memory that stays as it is until the end of a transaction, since that is how
// long the engines keep a value.
type slab struct {
	blocks [][]byte
	used   int // of these
}

const slabBlock = 1 << 20

// take is an empty slice with room for n bytes.
func (s *slab) take(n int) []byte {
	if s.used == 0 || cap(s.blocks[s.used-1])-len(s.blocks[s.used-1]) < n {
		if s.used == len(s.blocks) {
			s.blocks = append(s.blocks, make([]byte, 0, max(n, slabBlock)))
		}
		s.used++
	}
	b := &s.blocks[s.used-1]
	at := len(*b)
	*b = (*b)[:at+n]
	return (*b)[at : at : at+n]
}

func (s *slab) reset() {
	for i := range s.blocks[:s.used] {
		s.blocks[i] = s.blocks[i][:0]
	}
	s.used = 0
}

// importRows imports n rows, at most so many in a transaction, and gives the bytes of their
// blobs.
func importRows(to rowSink, k *rowKind, n, columns, most int) (bytes int64, err error) {
	var own slab
	values := make([][]byte, columns)
	for i := 0; i < n; {
		if err := to.begin(); err != nil {
			return bytes, err
		}
		own.reset()
		for size, last := 0, min(n, i+most); i < last && size < blobTx; i++ {
			at := i * 101 % (len(noise) - rowColumns)
			size += 8 + rowColumns
			for column := range columns {
				v := k.value(own.take(16), i, column)
				values[column] = v
				size += len(v)
				bytes += int64(len(v))
			}
			if err := to.row(uint64(i), noise[at:at+rowColumns], values); err != nil {
				return bytes, err
			}
		}
		if err := to.commit(); err != nil {
			return bytes, err
		}
	}
	return bytes, nil
}

// blobRows has the blobs in a store, or short ones in the rows.
type blobRows struct {
	db     *holdfast.DB
	inline bool
	tx     *holdfast.Tx
	rows   *holdfast.Bucket
	store  *blob.Store
	own    slab
	key    []byte
}

func openBlobRows(path string, inline bool) (rowSink, error) {
	db, err := createBlobs(path)
	return &blobRows{db: db, inline: inline}, err
}

func (s *blobRows) begin() (err error) {
	if s.tx, err = s.db.Begin(true); err != nil {
		return err
	}
	s.own.reset()
	s.rows = s.tx.Bucket(bucketName)
	s.rows.FillPercent = 1
	if s.store, err = openStore(s.tx); err != nil {
		return err
	}
	if s.inline {
		s.store.InlineUpTo(blob.MaxInline)
	}
	return nil
}

// refSize is how many bytes a reference takes that has nothing inline.
const refSize = 48

func (s *blobRows) row(key uint64, value []byte, blobs [][]byte) error {
	n := len(value)
	for _, b := range blobs {
		n += refSize
		if s.inline {
			n += min(len(b), blob.MaxInline)
		}
	}
	row := append(s.own.take(n), value...)
	for _, b := range blobs {
		ref, err := s.store.Put(b)
		if err == nil {
			row, err = ref.AppendBinary(row)
		}
		if err != nil {
			return err
		}
	}
	s.key = binary.BigEndian.AppendUint64(s.key[:0], key)
	return s.rows.Put(s.key, row)
}

func (s *blobRows) commit() error {
	tx := s.tx
	s.tx = nil
	return tx.Commit()
}

func (s *blobRows) close() error {
	if s.tx != nil {
		_ = s.tx.Rollback()
	}
	return s.db.Close()
}

// stockRows has the blobs in a bucket next to the rows, under their SHA-256.
type stockRows struct {
	stockSink
	rows *bbolt.Bucket
	own  slab
	key  []byte
}

func openStockRows(path string) (rowSink, error) {
	s, err := openStockSink(path, true)
	if err != nil {
		return nil, err
	}
	r := &stockRows{stockSink: *s.(*stockSink)}
	return r, r.db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket(bucketName)
		return err
	})
}

func (s *stockRows) begin() error {
	if err := s.stockSink.begin(); err != nil {
		return err
	}
	s.own.reset()
	s.rows = s.tx.Bucket(bucketName)
	s.rows.FillPercent = 1
	return nil
}

func (s *stockRows) row(key uint64, value []byte, blobs [][]byte) error {
	row := append(s.own.take(len(value)+len(blobs)*sha256.Size), value...)
	for _, b := range blobs {
		sum := sha256.Sum256(b)
		if err := s.b.Put(sum[:], b); err != nil {
			return err
		}
		row = append(row, sum[:]...)
	}
	s.key = binary.BigEndian.AppendUint64(s.key[:0], key)
	return s.rows.Put(s.key, row)
}

// floorRows does with the blobs what cannot be left out, and nothing with the rows.
type floorRows struct {
	hashSink
	seal sealSink
	to   sink
}

func openFloorRows(path string) (rowSink, error) {
	to, err := openPwrite(path)
	return &floorRows{to: to}, err
}

func (s *floorRows) row(_ uint64, _ []byte, blobs [][]byte) error {
	for _, b := range blobs {
		if err := errors.Join(s.hashSink.put(b), s.seal.put(b), s.to.put(b)); err != nil {
			return err
		}
	}
	return nil
}

func (s *floorRows) commit() error { return s.to.commit() }
func (s *floorRows) close() error  { return s.to.close() }
