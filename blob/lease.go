package blob

import (
	"encoding/binary"
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

// Lease holds blobs for somebody who has not named them anywhere yet: a user of
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
		if t.Nanosecond() > 0 {
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
	k := ref.key()
	key := k.encode()
	if l.b.Get(key[:]) != nil {
		return nil
	}
	_, e, ok, err := l.s.root(ref)
	if err == nil && (!ok || e.dead()) {
		err = fmt.Errorf("blob %v: %w", ref, ErrNotFound)
	}
	if err == nil {
		err = l.s.lend(&k, 1)
	}
	if err != nil {
		return fmt.Errorf("lease %.100q: %w", l.id, err)
	}
	return l.b.Put(key[:], binary.AppendUvarint(nil, uint64(ref.size)))
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
				return given, false, err
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
	e, ok, err := s.lookup(k)
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
		return info, firstError(s.tx.Err(), corruptf("lease %.100q is no bucket", id))
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

// expire gives back what leases hold that have expired, and gives up ingests, in some limit steps.
func (s *Store) expire(now time.Time, limit int) (leases, ingests, steps int, err error) {
	if leases, err = s.expireLeases(now, limit); err == nil && leases < limit {
		ingests, steps, err = s.expireIngests(now, limit-leases)
	}
	return leases, ingests, leases + steps, err
}

// expireLeases is for leases, in at most limit steps: a
// blob is one, and the end of a lease. A lease that is damaged is left alone.
func (s *Store) expireLeases(now time.Time, limit int) (given int, err error) {
	all, err := s.child(leasesName)
	if all == nil {
		return 0, err
	}
	var expired []string
	for id := range all.All() {
		b := all.Bucket(id)
		if b == nil {
			continue
		}
		if at, err := decodeExpires(b.Get(expiresName)); err == nil && at <= now.Unix() {
			expired = append(expired, string(id))
		}
	}
	if err := s.tx.Err(); err != nil {
		return 0, err
	}
	for _, id := range expired {
		if given >= limit {
			break
		}
		l := Lease{s, id, all.Bucket([]byte(id))}
		n, done, err := l.give(limit - given)
		if err != nil {
			return given, fmt.Errorf("lease %.100q has expired: %w", id, err)
		}
		if given += n; done {
			given++
		}
	}
	return given, nil
}
