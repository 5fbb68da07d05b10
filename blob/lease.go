package blob

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
	"time"

	"holdfast"
)

// The bucket of leases holds a bucket for each, named by its id: in it stands when it
// expires (8 bytes: seconds since 1970), and for each blob that it holds
// the key of the root chunk -> size of the content, as a uvarint.
var (
	leasesName  = []byte("leases")
	expiresName = []byte("expires")
)

// never is when a lease expires that does not.
const never = math.MaxInt64

// Lease holds blobs for a caller that has not named them anywhere yet: a user of
// each of its blobs until it is released, or until it has expired and Collect has
// come by. It is valid as long as the transaction of its Store.
type Lease struct {
	s  *Store
	id string
	b  *holdfast.Bucket
}

// LeaseInfo describes a lease.
type LeaseInfo struct {
	ID      string
	Expires time.Time // the zero Time: never
	Blobs   int
}

// Lease makes a lease of that id, or sets when the one that there is expires. It is
// rounded up to seconds; with the zero Time it never does.
func (s *Store) Lease(id string, expires time.Time) (*Lease, error) {
	if err := s.writable(); err != nil {
		return nil, fmt.Errorf("lease %.100q: %w", id, err)
	}
	all, err := s.bucket.CreateBucketIfNotExists(leasesName)
	if err != nil {
		return nil, fmt.Errorf("lease %.100q: %w", id, err)
	}
	b, err := all.CreateBucketIfNotExists([]byte(id))
	if err == nil {
		err = b.Put(expiresName, encodeExpires(expires))
	}
	if err != nil {
		return nil, fmt.Errorf("lease %.100q: %w", id, err)
	}
	return &Lease{s, id, b}, nil
}

func encodeExpires(t time.Time) []byte {
	at := int64(never)
	if !t.IsZero() {
		at = t.Unix()
		if t.Nanosecond() > 0 && at < never {
			at++
		}
	}
	return binary.LittleEndian.AppendUint64(nil, uint64(at))
}

func decodeExpires(b []byte) (int64, error) {
	if len(b) != 8 {
		return 0, corruptf("lease whose end is %d bytes long", len(b))
	}
	return int64(binary.LittleEndian.Uint64(b)), nil
}

// ID is the lease's name.
func (l *Lease) ID() string { return l.id }

// Add has the lease hold a blob, once however often it is added. ErrNotFound if the store
// does not hold it.
func (l *Lease) Add(ref Ref) error {
	if ref.inlined {
		return nil
	}
	if err := l.add(ref); err != nil {
		return fmt.Errorf("lease %.100q: %w", l.id, err)
	}
	return nil
}

func (l *Lease) add(ref Ref) error {
	k, e, ok, err := l.s.standingRoot(ref)
	if err == nil && (!ok || e.dead()) {
		err = fmt.Errorf("blob %v: %w", ref, ErrNotFound)
	}
	if err == nil && k.level > 0 {
		err = l.s.checkTree(&k, ref.size) // what is recorded of its size is known to be right
	}
	if err != nil {
		return err
	}
	return l.hold(&k, ref.size)
}

// hold has the lease hold a chunk that is there, unless it does.
func (l *Lease) hold(k *chunkKey, size int64) error {
	key := k.encode()
	if l.b.Get(key[:]) != nil {
		return nil
	}
	// The record first: without it nothing would ever give the use back.
	if err := l.b.Put(key[:], binary.AppendUvarint(nil, uint64(size))); err != nil {
		return err
	}
	if err := l.s.lend(k, 1); err != nil {
		if undo := l.b.Delete(key[:]); undo != nil {
			return errors.Join(err, l.s.fail(undo))
		}
		return err
	}
	return nil
}

// Refs iterates over the blobs that the lease holds.
func (l *Lease) Refs() iter.Seq2[Ref, error] { return l.s.Leased(l.id) }

// Leased iterates over the blobs that the lease of that id holds; none if there is no such lease.
func (s *Store) Leased(id string) iter.Seq2[Ref, error] {
	return func(yield func(Ref, error) bool) {
		all, err := s.child(leasesName)
		if all != nil {
			if b := all.Bucket([]byte(id)); b != nil && !s.leasedIn(b, yield) {
				return
			}
			err = s.tx.Err()
		}
		if err != nil {
			yield(Ref{}, fmt.Errorf("lease %.100q: %w", id, err))
		}
	}
}

// leasedIn calls yield with the blobs of a lease; false: it has returned false.
func (s *Store) leasedIn(b *holdfast.Bucket, yield func(Ref, error) bool) bool {
	for key, v := range b.All() {
		if string(key) == string(expiresName) {
			continue
		}
		k, size, err := parseLeased(key, v)
		if !yield(s.ref(k, size), err) {
			return false
		}
	}
	return true
}

// parseLeased decodes what a lease says of a blob.
func parseLeased(key, v []byte) (chunkKey, int64, error) {
	k, err := parseKey(key)
	if err != nil {
		return k, 0, corruptf("lease: %v", err)
	}
	size, rest, err := uvarint(v)
	if err != nil || len(rest) != 0 || size > math.MaxInt64 {
		return k, 0, corruptf("lease: size of blob %v", k.addr)
	}
	return k, int64(size), nil
}

// Release gives back all that the lease holds, and removes it.
func (l *Lease) Release() error {
	if _, _, err := l.give(math.MaxInt); err != nil {
		return fmt.Errorf("release lease %.100q: %w", l.id, err)
	}
	return nil
}

// give gives back at most limit of the lease's blobs, and removes it if that is all: then it is done.
func (l *Lease) give(limit int) (given int, done bool, err error) {
	for more := true; more; {
		var keys [][]byte
		more = false
		for key := range l.b.All() {
			if string(key) == string(expiresName) {
				continue
			}
			if more = len(keys) == min(limit-given, 1<<10); more {
				break
			}
			keys = append(keys, append([]byte(nil), key...))
		}
		if err := l.s.tx.Err(); err != nil {
			return given, false, err
		}
		for _, key := range keys {
			k, err := parseKey(key)
			if err == nil {
				err = l.s.unlease(&k)
			}
			if err != nil {
				return given, false, err
			}
			if err := l.b.Delete(key); err != nil {
				return given, false, l.s.fail(err)
			}
		}
		if given += len(keys); more && given == limit {
			return given, false, nil
		}
	}
	return given, true, l.s.bucket.Bucket(leasesName).DeleteBucket([]byte(l.id))
}

// unlease takes a lease from a chunk, which may be missing in a store that is damaged.
func (s *Store) unlease(k *chunkKey) error {
	e, ok, err := s.standing(k)
	if err != nil || !ok || e.users == 0 || e.leased == 0 {
		return err
	}
	return s.lend(k, -1)
}

// Leases iterates over the leases, in the order of their ids, expired ones too.
func (s *Store) Leases() iter.Seq2[LeaseInfo, error] {
	return func(yield func(LeaseInfo, error) bool) {
		all, err := s.child(leasesName)
		if err != nil {
			yield(LeaseInfo{}, err)
		}
		if all == nil {
			return
		}
		for id := range all.All() {
			info, err := s.leaseInfo(all, id)
			if !yield(info, err) {
				return
			}
		}
		if err := s.tx.Err(); err != nil {
			yield(LeaseInfo{}, err)
		}
	}
}

func (s *Store) leaseInfo(all *holdfast.Bucket, id []byte) (LeaseInfo, error) {
	info := LeaseInfo{ID: string(id)}
	b := all.Bucket(id)
	if b == nil {
		return info, firstError(s.tx.Err(), corruptf("lease %.100q is not a bucket", id))
	}
	at, err := decodeExpires(b.Get(expiresName))
	if err != nil {
		return info, fmt.Errorf("lease %.100q: %w", id, err)
	}
	if at != never {
		info.Expires = time.Unix(at, 0)
	}
	for key := range b.All() {
		if len(key) == keySize {
			info.Blobs++
		}
	}
	return info, s.tx.Err()
}
