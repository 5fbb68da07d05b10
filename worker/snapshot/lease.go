package snapshot

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
)

// lease is one lease on one snapshot.
type lease struct {
	id        ID
	namespace string
	name      string
	expires   uint64 // nanoseconds since 1970; 0: never
}

func (l *lease) expired(now uint64) bool { return l.expires != 0 && l.expires <= now }

// byName, bySnapshot and byTime are its keys.
func (l *lease) byName() []byte {
	return append(leasePrefix(l.namespace, l.name), number(uint64(l.id))...)
}
func (l *lease) bySnapshot() []byte { return number(uint64(l.id), []byte(l.name)...) }
func (l *lease) byTime() []byte     { return numbers(l.expires, uint64(l.id), []byte(l.name)...) }

// parseExpiry is the inverse of byTime, but for the namespace.
func parseExpiry(k []byte) (lease, error) {
	if len(k) <= 16 {
		return lease{}, corruptf("expiry: %d bytes", len(k))
	}
	when, id, err := fixed("expiry", k[:16], 2)
	if err == nil && when == 0 {
		err = corruptf("expiry: of a lease without an end")
	}
	return lease{id: ID(id), name: string(k[16:]), expires: when}, err
}

// held is the lease as callers see it.
func (l *lease) held() Held {
	h := Held{Lease: l.name}
	if l.expires != 0 {
		h.Expires = timeOf(l.expires)
	}
	return h
}

func leasePrefix(namespace, name string) []byte { return append(nameKey(namespace, name), 0) }

// Lease holds a snapshot, and those below it, for a time, 0: for ever. It is neither pruned nor, unless the lease is a
// weak one (WeakPrefix), removed meanwhile. A lease may hold any number of snapshots; on one that it holds already it
// changes the time.
func (t *Namespace) Lease(ctx context.Context, leaseName, name string, ttl time.Duration) error {
	err := checkLease(leaseName, ttl)
	if err == nil {
		err = t.s.update("lease", func(tx *txn) error {
			r, err := tx.record(t.key(name))
			if err != nil {
				return err
			}
			return t.take(tx, leaseName, ttl, t.key(name), &r)
		})
	}
	if err != nil {
		return fmt.Errorf("lease %q on snapshot %q: %w", leaseName, name, err)
	}
	return nil
}

func checkLease(name string, ttl time.Duration) error {
	if ttl < 0 {
		return fmt.Errorf("%w: a lease for %v", ErrInvalid, ttl)
	}
	return checkName("lease", name, MaxNamespaceSize)
}

// take takes a lease on the snapshot r with a key.
func (t *Namespace) take(tx *txn, name string, ttl time.Duration, key []byte, r *record) error {
	l := lease{id: r.id, namespace: t.name, name: name}
	if ttl != 0 {
		l.expires = min(t.s.now()+uint64(ttl), math.MaxInt64) // what a time.Time can say
	}
	return tx.putLease(l, key, r)
}

// putLease enters a lease, in place of an older one of that name.
func (t *txn) putLease(l lease, key []byte, r *record) error {
	old, found, err := t.leaseOf(l)
	if err != nil {
		return err
	}
	if found && old.expires != 0 {
		if err := t.delete(inExpiries, old.byTime()); err != nil {
			return err
		}
	}
	when := binary.BigEndian.AppendUint64(nil, l.expires)
	if err := t.put(inLeases, l.byName(), when); err != nil {
		return err
	}
	if err := t.put(inLeased, l.bySnapshot(), when); err != nil {
		return err
	}
	if l.expires != 0 {
		if err := t.put(inExpiries, l.byTime(), nil); err != nil {
			return err
		}
	}
	return t.save(key, r, r.used)
}

// dropLease takes a lease away; the caller lists the snapshot anew.
func (t *txn) dropLease(l lease) error {
	if err := t.delete(inLeases, l.byName()); err != nil {
		return err
	}
	if err := t.delete(inLeased, l.bySnapshot()); err != nil {
		return err
	}
	if l.expires == 0 {
		return nil
	}
	return t.delete(inExpiries, l.byTime())
}

// leasesOf are the leases on a snapshot.
func (t *txn) leasesOf(id ID) (leases []lease, err error) {
	err = t.scan(inLeased, number(uint64(id)), nil, func(k, v []byte) (bool, error) {
		expires, _, err := fixed("lease", v, 1)
		leases = append(leases, lease{id: id, name: string(k[8:]), expires: expires})
		return true, err
	})
	if err != nil || len(leases) == 0 {
		return nil, err
	}
	key, err := t.keyOf(id)
	if err != nil {
		return nil, err
	}
	namespace, _, err := splitKey(key)
	for i := range leases {
		leases[i].namespace = namespace
	}
	return leases, err
}

// Held is a lease on a snapshot.
type Held struct {
	Lease   string
	Expires time.Time // zero: never
}

// Leases are the leases on a snapshot itself, those that have expired and were not taken away yet
// included.
func (t *Namespace) Leases(ctx context.Context, name string) (held []Held, err error) {
	err = t.s.view("leases", func(tx *txn) error {
		r, err := tx.record(t.key(name))
		if err != nil {
			return err
		}
		leases, err := tx.leasesOf(r.id)
		for _, l := range leases {
			held = append(held, l.held())
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("leases on snapshot %q: %w", name, err)
	}
	return held, nil
}

// Release gives up a lease on one snapshot; ErrNotFound if there is none.
func (t *Namespace) Release(ctx context.Context, leaseName, name string) error {
	err := t.change("release", name, func(tx *txn, r *record) error {
		l, found, err := tx.leaseOf(lease{id: r.id, namespace: t.name, name: leaseName})
		if err != nil {
			return err
		}
		if !found {
			return fmt.Errorf("lease: %w", ErrNotFound)
		}
		return tx.dropLease(l)
	})
	if err != nil {
		return fmt.Errorf("release %q on snapshot %q: %w", leaseName, name, err)
	}
	return nil
}

// leaseBatch is how many leases are given up in one transaction.
const leaseBatch = 256

// ReleaseAll gives up a lease on all snapshots that it holds. It takes as many transactions as they
// need; a snapshot that is leased meanwhile may be held or not.
func (t *Namespace) ReleaseAll(ctx context.Context, leaseName string) error {
	prefix := leasePrefix(t.name, leaseName)
	err := t.s.dropLeases(ctx, func(tx *txn) (leases []lease, err error) {
		err = tx.scan(inLeases, prefix, nil, func(k, v []byte) (bool, error) {
			id, _, err := fixed("lease", k[len(prefix):], 1)
			if err != nil {
				return false, err
			}
			expires, _, err := fixed("lease", v, 1)
			leases = append(leases, lease{id: ID(id), namespace: t.name, name: leaseName, expires: expires})
			return len(leases) < leaseBatch, err
		})
		return leases, err
	})
	if err != nil {
		return fmt.Errorf("release %q: %w", leaseName, err)
	}
	return nil
}

// ExpireLeases takes away the leases whose time is over. The store does so every minute.
func (s *Store) ExpireLeases(ctx context.Context) error {
	err := s.dropLeases(ctx, func(tx *txn) (leases []lease, err error) {
		now := s.now()
		err = tx.scan(inExpiries, nil, nil, func(k, _ []byte) (bool, error) {
			l, err := parseExpiry(k)
			if err != nil || !l.expired(now) {
				return false, err
			}
			leases = append(leases, l)
			return len(leases) < leaseBatch, nil
		})
		for i := range leases {
			if err != nil {
				return nil, err
			}
			var key []byte
			if key, err = tx.keyOf(leases[i].id); err == nil {
				leases[i].namespace, _, err = splitKey(key)
			}
		}
		return leases, err
	})
	if err != nil {
		return fmt.Errorf("expire leases: %w", err)
	}
	return nil
}

// dropLeases takes away what find finds, until it finds less than a batch.
func (s *Store) dropLeases(ctx context.Context, find func(*txn) ([]lease, error)) error {
	for {
		var some []lease
		look := func(tx *txn) (err error) {
			some, err = find(tx)
			return err
		}
		if err := s.view("leases", look); err != nil || len(some) == 0 {
			return err
		}
		err := s.update("leases", func(tx *txn) error {
			if err := look(tx); err != nil {
				return err
			}
			for _, l := range some {
				if err := tx.dropLease(l); err != nil {
					return err
				}
			}
			for _, l := range some {
				if err := tx.relist(l.id); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil || len(some) < leaseBatch {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// WeakPrefix begins the names of weak leases. They keep a snapshot until what they are for has begun: the next use of
// what was just given as an answer. One keeps a snapshot, with those below it, from being pruned; Remove and Replacing
// go on in spite of it, and take it away.
const WeakPrefix = "weak/"

// IsWeak tells whether a lease is a weak one.
func IsWeak(lease string) bool { return strings.HasPrefix(lease, WeakPrefix) }

// PassingLease is WithLease that also takes the lease of that name from the parent: as long as there is the new
// snapshot, that stays without it. At any time one of them has it. A lease of the parent that lasts longer than the new
// one stays there: it was promised to others for that long.
func PassingLease(lease string, ttl time.Duration) Option {
	return func(c *choices) { c.lease, c.ttl, c.pass = lease, ttl, true }
}

// passLease takes the lease with a name from the parent of r, if that has it no longer than r. The parent has a child,
// so no other list changes.
func (t *Namespace) passLease(tx *txn, leaseName string, r *record) error {
	if r.parent == 0 {
		return nil
	}
	old, found, err := tx.leaseOf(lease{id: r.parent, namespace: t.name, name: leaseName})
	if err != nil || !found {
		return err
	}
	passed, _, err := tx.leaseOf(lease{id: r.id, namespace: t.name, name: leaseName})
	if err != nil || !passed.outlasts(&old) {
		return err
	}
	return tx.dropLease(old)
}

// outlasts tells whether a lease lasts as long as another one, or longer.
func (l *lease) outlasts(other *lease) bool {
	return l.expires == 0 || other.expires != 0 && l.expires >= other.expires
}

// leaseOf completes a lease with the time when it expires; found is false if there is none.
func (t *txn) leaseOf(l lease) (_ lease, found bool, err error) {
	v, err := t.get(inLeased, l.bySnapshot())
	if err != nil || v == nil {
		return l, false, err
	}
	l.expires, _, err = fixed("lease", v, 1)
	return l, err == nil, err
}

// Use is Touch of a committed snapshot and, unless leaseName is empty, Lease, in one transaction, for what is used
// often: it writes nothing if the last use is less than a grain ago and the lease lasts for ttl, but for a grain,
// already. It returns what the snapshot is then, and whether it has written. Errors are ErrNotFound, ErrKind,
// ErrInvalid; with ErrDistrusted and ErrDamaged nothing is written.
func (t *Namespace) Use(ctx context.Context, name, leaseName string, ttl, grain time.Duration) (info Info, written bool, err error) {
	if leaseName != "" {
		if err := checkLease(leaseName, ttl); err != nil {
			return Info{}, false, fmt.Errorf("use of snapshot %q: %w", name, err)
		}
	}
	key := t.key(name)
	var r record
	look := func(tx *txn) (fresh bool, err error) {
		if r, err = tx.record(key); err != nil {
			return false, err
		}
		if r.kind != Committed {
			return false, fmt.Errorf("%w: %v, not committed", ErrKind, r.kind)
		}
		if info, err = tx.infoOf(name, &r); err != nil {
			return false, err
		}
		if err := info.Unusable(); err != nil {
			return false, err
		}
		return t.isUsed(tx, leaseName, ttl, grain, &r)
	}
	fresh := false
	err = t.s.view("use", func(tx *txn) (err error) {
		fresh, err = look(tx)
		return err
	})
	if err == nil && !fresh {
		err = t.s.update("use", func(tx *txn) error {
			if _, err := look(tx); err != nil {
				return err
			}
			was := r.used
			if leaseName != "" {
				if err := t.take(tx, leaseName, ttl, key, &r); err != nil {
					return err
				}
			}
			r.used = t.s.now()
			info.LastUsed, written = timeOf(r.used), true
			return tx.save(key, &r, was)
		})
	}
	if err != nil {
		return info, false, fmt.Errorf("use of snapshot %q: %w", name, err)
	}
	return info, written, nil
}

// isUsed tells whether Use has nothing to write.
func (t *Namespace) isUsed(tx *txn, leaseName string, ttl, grain time.Duration, r *record) (bool, error) {
	now := t.s.now()
	if now > r.used && now-r.used >= uint64(grain) {
		return false, nil
	}
	if leaseName == "" {
		return true, nil
	}
	l, found, err := tx.leaseOf(lease{id: r.id, namespace: t.name, name: leaseName})
	if err != nil || !found {
		return false, err
	}
	return l.expires == 0 || ttl != 0 && l.expires >= min(now+uint64(ttl), math.MaxInt64)-uint64(min(grain, ttl)), nil
}

// Leased calls fn for each snapshot of the namespace on which there is a lease with a name that has not
// expired, until it returns false.
func (t *Namespace) Leased(ctx context.Context, leaseName string, fn func(Info, Held) bool) error {
	prefix := leasePrefix(t.name, leaseName)
	err := t.s.view("leased", func(tx *txn) error {
		now := t.s.now()
		return tx.scan(inLeases, prefix, nil, func(k, v []byte) (bool, error) {
			id, _, err := fixed("lease", k[len(prefix):], 1)
			if err != nil {
				return false, err
			}
			l := lease{name: leaseName}
			if l.expires, _, err = fixed("lease", v, 1); err != nil || l.expired(now) {
				return err == nil, err
			}
			c, err := (&ReadTx{t: tx, ctx: ctx}).byID(ID(id))
			return err == nil && fn(c.Info, l.held()), errors.Join(err, ctx.Err())
		})
	})
	if err != nil {
		return fmt.Errorf("snapshots with the lease %q: %w", leaseName, err)
	}
	return nil
}

// free takes the lease with a name and an end, if there is one, from the snapshot r with a key.
func (t *txn) free(key []byte, r *record, leaseName string) error {
	namespace, _, err := splitKey(key)
	if err != nil {
		return err
	}
	l, found, err := t.leaseOf(lease{id: r.id, namespace: namespace, name: leaseName})
	if err != nil || !found || l.expires == 0 {
		return err
	}
	if err := t.dropLease(l); err != nil {
		return err
	}
	return t.save(key, r, r.used)
}
