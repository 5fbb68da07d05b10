package blob

import (
	"errors"
	"fmt"

	"holdfast"
	"holdfast/internal/bridge"
)

// Chunking is how blobs are cut into leaves.
type Chunking uint8

// Ways of cutting. In a store all blobs are cut in the same way.
const (
	// FixedSize cuts leaves of LeafSize bytes. It is the fastest way, and finding an
	// offset is a division.
	FixedSize Chunking = 1
	// FastCDC cuts where the content says so, into leaves of a quarter of LeafSize to
	// four times that. So versions of a blob share leaves even where bytes were
	// inserted or removed before them.
	FastCDC Chunking = 2
)

// String is the name of the way.
func (c Chunking) String() string {
	switch c {
	case FixedSize:
		return "fixed"
	case FastCDC:
		return "fastcdc"
	}
	return fmt.Sprintf("chunking %d", uint8(c))
}

// Bounds of Options.LeafSize in bytes.
const (
	MinLeafSize = 1 << 10
	MaxLeafSize = 16 << 20
)

// Leaves that are cut by content have from 1/maxSpread to maxSpread times LeafSize.
const maxSpread = 4

// Options of a store are chosen when it is created, and stay.
type Options struct {
	// Algorithm is the hash function; 0: SHA256.
	Algorithm Algorithm
	// Chunking is how blobs are cut; 0: FixedSize.
	Chunking Chunking
	// LeafSize is the size of a leaf, the chunk size, in bytes, from MinLeafSize to MaxLeafSize. 0:
	// as many bytes as fill 16 pages with their element.
	LeafSize int
	// Compression is how leaves are stored; 0: as they are. It changes no Ref. Older versions refuse to open a
	// store with compression.
	Compression Compression
	// Key encrypts the store; nil: it is not encrypted. Algorithm is KeyedBLAKE3 then, and FastCDC cuts as the
	// key says, so that a Ref is one of stores with this key only. Put keeps no values in a Ref. Older
	// versions refuse to open such a store.
	Key *Key
}

// defaultLeafSize is the size of leaves that, with all that stands around them in
// the file, fill 16 pages of pageSize bytes exactly. overhead is what a leaf gets longer by.
func defaultLeafSize(pageSize, overhead int) int {
	const header, element, key, seal = 16, 16, 8, 8
	size := 16*pageSize - header - element - key - seal - overhead
	return min(max(size, MinLeafSize), MaxLeafSize)
}

func (o *Options) setDefaults(pageSize int) {
	overhead := 0
	if o.Key != nil {
		overhead = 1 + o.Key.overhead
	}
	switch {
	case o.Algorithm != 0:
	case o.Key != nil:
		o.Algorithm = KeyedBLAKE3
	default:
		o.Algorithm = SHA256
	}
	if o.Chunking == 0 {
		o.Chunking = FixedSize
	}
	if o.LeafSize == 0 {
		o.LeafSize = defaultLeafSize(pageSize, overhead)
	}
}

func (o *Options) check() error {
	switch {
	case !o.Algorithm.valid():
		return fmt.Errorf("%w: unknown hash function %d", ErrOptions, o.Algorithm)
	case (o.Algorithm == KeyedBLAKE3) != (o.Key != nil):
		return fmt.Errorf("%w: an encrypted store, and no other, has the hash function %v, and not %v", ErrOptions, KeyedBLAKE3, o.Algorithm)
	case o.Chunking != FixedSize && o.Chunking != FastCDC:
		return fmt.Errorf("%w: unknown chunking %d", ErrOptions, o.Chunking)
	case o.Compression > ZstdBetter:
		return fmt.Errorf("%w: unknown compression %d", ErrOptions, o.Compression)
	case o.LeafSize < MinLeafSize || o.LeafSize > MaxLeafSize:
		return fmt.Errorf("%w: leaf size %d is not between %d and %d", ErrOptions, o.LeafSize, MinLeafSize, MaxLeafSize)
	}
	return nil
}

// Names in the bucket of a store.
var (
	configName = []byte("store")
	leavesName = []byte("leaves")
	packsName  = []byte("packs")
	indexName  = []byte("index")
	deadName   = []byte("dead")
	recentName = []byte("recent")
)

// Store is a store of blobs as one transaction sees it.
type Store struct {
	options   Options
	tx        *holdfast.Tx
	bucket    *holdfast.Bucket
	leaves    *holdfast.Bucket // id -> bytes of a leaf
	packs     *holdfast.Bucket // id -> bytes of a shorter chunk
	index     *holdfast.Bucket // chunkKey -> entry
	recent    *holdfast.Bucket // the same, of new chunks; nil: none. See recent.go
	known     uint64           // sequence of index for which that is so
	elsewhere uint64           // how often another Store of the transaction was seen to have added to the large bucket
	dead      *holdfast.Bucket // chunkKey of an unused chunk -> nothing

	marks    bool          // the database remembers which chunks were verified
	seen     verified      // else this does
	batch    *batch        // what is not in the buckets yet; nil: nothing
	finishes bool          // finish is going to be called before the commit
	open     *Writer       // list of the writers with unfinished blobs
	put      *Writer       // of Put
	key      [keySize]byte // scratch
	value    [maxEntrySize]byte

	pageSize int  // of the database
	checking bool // Check reads the index in pieces: nothing is moved from recent meanwhile

	verifies  bool   // VerifyStored
	inline    int    // InlineUpTo
	announced bool   // to other Stores, that something is unfinished
	changes   uint64 // how often something was begun to be changed

	failed error // what has left the buckets half changed, or nil
}

// Create makes a store of the bucket b, which must be empty: ErrNotEmpty; nil is holdfast.ErrBucketNotFound. Options
// that no store can have are ErrOptions.
func Create(b *holdfast.Bucket, o Options) (*Store, error) {
	s, err := create(b, o)
	if err != nil {
		return nil, fmt.Errorf("creating a blob store: %w", err)
	}
	return s, nil
}

func create(b *holdfast.Bucket, o Options) (*Store, error) {
	if b == nil {
		return nil, holdfast.ErrBucketNotFound
	}
	db := b.Tx().DB()
	if db == nil {
		return nil, holdfast.ErrTxClosed
	}
	o.setDefaults(db.Info().PageSize)
	if err := o.check(); err != nil {
		return nil, err
	}
	if k, _ := b.Cursor().First(); k != nil {
		return nil, ErrNotEmpty
	}
	if err := b.Tx().Err(); err != nil {
		return nil, err
	}
	if err := b.Put(configName, appendConfig(nil, o)); err != nil {
		return nil, err
	}
	for _, name := range [][]byte{leavesName, packsName, indexName, deadName} {
		if _, err := b.CreateBucket(name); err != nil {
			return nil, err
		}
	}
	return openStore(b, o.Key)
}

// Open opens the store in b. ErrNotStore: there is none. ErrCorrupt: its
// configuration is damaged, or of a version that is not known.
//
// ErrKey: it is encrypted; see OpenEncrypted.
func Open(b *holdfast.Bucket) (*Store, error) { return OpenEncrypted(b, nil) }

// OpenEncrypted is Open for a store that was created with Options.Key, or with a nil key for one that was not. ErrKey: it
// was created with another key, or without one: so a file in which someone has put another store in its place does not
// get in clear what was to be encrypted.
func OpenEncrypted(b *holdfast.Bucket, key *Key) (*Store, error) {
	s, err := openStore(b, key)
	if err != nil {
		return nil, fmt.Errorf("opening a blob store: %w", err)
	}
	return s, nil
}

func openStore(b *holdfast.Bucket, key *Key) (*Store, error) {
	if b == nil || b.Tx().DB() == nil {
		return nil, errors.Join(ErrNotStore, holdfast.ErrTxClosed)
	}
	b = b.KeepDamage() // all calls on a Store ask the transaction for it
	o, err := parseConfig(b.Get(configName), key)
	if err != nil {
		if damage := b.Tx().Err(); damage != nil {
			return nil, damage
		}
		return nil, err
	}
	s := &Store{options: o, tx: b.Tx(), bucket: b, pageSize: bridge.PageSize(b.Tx().DB())}
	s.InlineUpTo(defaultInline)
	for _, part := range []struct {
		name   []byte
		bucket **holdfast.Bucket
	}{{leavesName, &s.leaves}, {packsName, &s.packs}, {indexName, &s.index}, {deadName, &s.dead}} {
		if *part.bucket = b.Bucket(part.name); *part.bucket == nil {
			if damage := b.Tx().Err(); damage != nil {
				return nil, damage
			}
			return nil, corruptf("bucket %q is missing", part.name)
		}
	}
	if s.marks = bridge.Remembers(s.tx); s.tx.Writable() {
		bridge.SetWide(s.packs, true)
		bridge.SetDense(s.index)
		bridge.SetDense(s.dead)
		if o.hasFrames() {
			bridge.SetTight(s.packs)
		}
	}
	if config := b.Get(configName); config[len(configMagic)] == configPlain {
		if err := s.checkLeafSize(); err != nil {
			return nil, err
		}
	}
	s.known = s.index.Sequence() & comeMask
	if s.setRecent(b.Bucket(recentName)); s.recent == nil && b.Tx().Err() != nil {
		return nil, b.Tx().Err()
	}
	return s, nil
}

// checkLeafSize compares the leaf size of a configuration that has no checksum with the first leaf and the last one.
func (s *Store) checkLeafSize() error {
	c := s.leaves.Cursor()
	for _, at := range []func() (key, v []byte){c.First, c.Last} {
		key, leaf := at()
		if key == nil {
			break
		}
		if !s.isLeaf(&chunkKey{}, len(leaf)) || int64(len(leaf)) > s.options.shape().maxLeaf() {
			return corruptf("configuration: leaves of %d bytes, and there is one of %d", s.options.LeafSize, len(leaf))
		}
	}
	return s.tx.Err()
}

// IsStore tells whether b holds a store of blobs, of whatever version.
func IsStore(b *holdfast.Bucket) bool {
	if b == nil {
		return false
	}
	config := b.Get(configName)
	return len(config) >= len(configMagic) && string(config[:len(configMagic)]) == configMagic
}

// IsEncrypted tells whether b holds a store of blobs that is said to be encrypted.
func IsEncrypted(b *holdfast.Bucket) bool {
	if !IsStore(b) {
		return false
	}
	config := b.Get(configName)
	return len(config) > len(configMagic) && config[len(configMagic)] == configSealed
}

// Options are those that the store was created with, with its defaults.
func (s *Store) Options() Options { return s.options }

// Put stores p as a blob and counts one use of it. p is not kept. A value that is
// there already is not stored again. A short one, of less than 256 bytes unless InlineUpTo says otherwise,
// is copied into the Ref itself, and nothing is stored; one of at most 32 bytes costs no allocation.
//
// If there is more than one processor, a blob of four leaves or more is hashed on two.
func (s *Store) Put(p []byte) (Ref, error) {
	if err := s.writable(); err != nil {
		return Ref{}, fmt.Errorf("storing a blob: %w", err)
	}
	if len(p) <= s.inline {
		return inlineRef(s.options.Algorithm, p), nil
	}
	ref, err := s.putBytes(p)
	if err != nil {
		return Ref{}, fmt.Errorf("storing a blob of %d bytes: %w", len(p), err)
	}
	return ref, nil
}

// defaultInline: an entry of the index and the bytes of a chunk cost more than a value of that many bytes in its row, also
// if it is there twice.
const defaultInline = 255

// InlineUpTo sets how many bytes the longest value has that Put keeps in the Ref itself: at most MaxInline, -1 for
// none. It is 255 for each Store that is opened, and -1 for an encrypted one, whatever n is. Writers and ingests keep nothing in
// a Ref.
func (s *Store) InlineUpTo(n int) {
	if s.inline = min(n, MaxInline); s.options.Key != nil {
		s.inline = -1
	}
}

// deleted tells whether the bucket of the store has been deleted in this transaction.
func (s *Store) deleted() bool {
	// Only a bucket that is there can be told to delete a key that is not.
	return errors.Is(s.bucket.Delete(nil), holdfast.ErrBucketNotFound)
}

// writable is the error of a change, if any.
func (s *Store) writable() error {
	switch {
	case s.tx.DB() == nil:
		return holdfast.ErrTxClosed
	case !s.tx.Writable():
		return holdfast.ErrTxNotWritable
	}
	return nil
}

// ended is the error of a read after the transaction has ended.
func (s *Store) ended() error {
	if s.tx.DB() == nil {
		return holdfast.ErrTxClosed
	}
	return nil
}
