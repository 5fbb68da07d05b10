package blob

import (
	"bytes"
	"fmt"
	"time"

	"holdfast"
)

// look is one walk over leases and ingests, in pieces and over several transactions, for what has expired. Each
// is looked at once: what comes to be before the place where it goes on is left to the next walk.
type look struct {
	part  int      // 0: leases; 1: ingests; 2: all were looked at
	from  []byte   // where it goes on in the bucket of those
	ended [][]byte // before that, which have expired and are still to be given back
	count int      // leases and ingests that were looked at
}

// lookPiece is how many leases or ingests are looked at between two looks at the clock.
const lookPiece = 64

func (l *look) done() bool { return l.part == 2 }

// expired is what was given back and given up.
type expired struct {
	leases  int // blobs of leases, and leases
	ingests int
	steps   int // a blob of a lease is one, a chunk on which an ingest stands, and the end of either
}

// expire gives back what leases hold that have expired, and gives up ingests, until that has taken some limit steps
// or all were looked at.
func (s *Store) expire(l *look, now time.Time, limit int) (e expired, err error) {
	for !l.done() && e.steps < limit && err == nil {
		err = s.expireSome(l, now, limit, &e)
	}
	return e, err
}

// expireSome is expire for a piece. What is damaged is left alone.
func (s *Store) expireSome(l *look, now time.Time, limit int, e *expired) error {
	part := [...]struct {
		name  []byte
		ended func(id []byte, b *holdfast.Bucket, now time.Time) bool
		give  func(id []byte, limit int, e *expired) (done bool, err error)
	}{{leasesName, s.leaseEnded, s.giveLease}, {ingestsName, s.ingestEnded, s.giveIngest}}[l.part]
	all, err := s.child(part.name)
	if err != nil {
		return err
	}
	if all == nil {
		l.from, l.ended = nil, nil
	}
	if len(l.ended) == 0 && all != nil {
		cursor := all.Cursor()
		id, _ := cursor.Seek(l.from)
		for n := 0; id != nil && n < lookPiece; id, _ = cursor.Next() {
			n++
			l.count++
			if b := all.Bucket(id); b != nil && part.ended(id, b, now) {
				l.ended = append(l.ended, bytes.Clone(id))
			}
		}
		l.from = bytes.Clone(id)
	}
	if err := s.tx.Err(); err != nil {
		return err
	}
	for len(l.ended) > 0 {
		id := l.ended[0]
		if e.steps >= limit {
			return nil
		}
		if b := all.Bucket(id); b != nil && part.ended(id, b, now) { // it may have been renewed since
			done, err := part.give(id, limit-e.steps, e)
			if err != nil || !done {
				return err
			}
		}
		l.ended = l.ended[1:]
	}
	if l.ended = nil; l.from == nil {
		l.part++
	}
	return nil
}

func (s *Store) leaseEnded(_ []byte, b *holdfast.Bucket, now time.Time) bool {
	at, err := decodeExpires(b.Get(expiresName))
	return err == nil && at <= now.Unix()
}

func (s *Store) giveLease(id []byte, limit int, e *expired) (bool, error) {
	l := Lease{s, string(id), s.bucket.Bucket(leasesName).Bucket(id)}
	n, done, err := l.give(limit)
	if err != nil {
		return false, fmt.Errorf("lease %.100q has expired: %w", id, err)
	}
	if done {
		n++
	}
	e.leases += n
	e.steps += n
	return done, nil
}

func (s *Store) ingestEnded(id []byte, b *holdfast.Bucket, now time.Time) bool {
	state, err := s.loadIngest(id, b)
	return err == nil && state.expired(now)
}

func (s *Store) giveIngest(id []byte, _ int, e *expired) (bool, error) {
	b := s.bucket.Bucket(ingestsName).Bucket(id)
	state, err := s.loadIngest(id, b)
	if err == nil {
		e.steps += 1 + len(state.chunks())
		err = s.removeIngest(string(id), b)
	}
	if err != nil {
		return false, fmt.Errorf("ingest %.100q has expired: %w", id, err)
	}
	e.ingests++
	return true, nil
}
