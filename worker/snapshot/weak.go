package snapshot

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
)

// Weak leases keep a snapshot until what they are for has begun: the next use of what was just given as an answer. Only pruning heeds
// them. Leases of every kind are in lease.go.

// WeakPrefix begins the names of weak leases. One keeps a snapshot, with those below it, from being pruned; Remove and
// Replacing go on in spite of it, and take it away.
const WeakPrefix = "weak/"

// IsWeak tells whether a lease is a weak one.
func IsWeak(lease string) bool { return strings.HasPrefix(lease, WeakPrefix) }

// PassingLease is WithLease that also takes the lease of that name from the parent: as long as there is the new snapshot, that stays
// without it. There is no moment at which neither has it. A lease of the parent that lasts longer than the new one stays there: it was
// promised to others for that long.
func PassingLease(lease string, ttl time.Duration) Option {
	return func(c *choices) { c.lease, c.ttl, c.pass = lease, ttl, true }
}

// passLease takes the lease with a name from the parent of r, if that has it no longer than r. The parent has a child, so no other
// list changes.
func (t *Tenant) passLease(tx *txn, leaseName string, r *record) error {
	if r.parent == 0 {
		return nil
	}
	old, found, err := tx.leaseOf(lease{id: r.parent, tenant: t.name, name: leaseName})
	if err != nil || !found {
		return err
	}
	passed, _, err := tx.leaseOf(lease{id: r.id, tenant: t.name, name: leaseName})
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

// Use is Touch of a committed snapshot and, unless leaseName is empty, Lease, in one transaction, for what is used often: it writes nothing
// if the last use is less than a grain ago and the lease lasts for ttl, but for a grain, already. It returns what the snapshot is then,
// and whether it has written. Errors are ErrNotFound, ErrKind, ErrInvalid; with ErrDistrusted and ErrDamaged nothing is written.
func (t *Tenant) Use(ctx context.Context, name, leaseName string, ttl, grain time.Duration) (info Info, written bool, err error) {
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
			info.LastUsed, written = moment(r.used), true
			return tx.save(key, &r, was)
		})
	}
	if err != nil {
		return info, false, fmt.Errorf("use of snapshot %q: %w", name, err)
	}
	return info, written, nil
}

// isUsed tells whether Use has nothing to write.
func (t *Tenant) isUsed(tx *txn, leaseName string, ttl, grain time.Duration, r *record) (bool, error) {
	now := t.s.now()
	if now > r.used && now-r.used >= uint64(grain) {
		return false, nil
	}
	if leaseName == "" {
		return true, nil
	}
	l, found, err := tx.leaseOf(lease{id: r.id, tenant: t.name, name: leaseName})
	if err != nil || !found {
		return false, err
	}
	return l.expires == 0 || ttl != 0 && l.expires >= min(now+uint64(ttl), math.MaxInt64)-uint64(min(grain, ttl)), nil
}

// Leased calls fn for each snapshot of the tenant on which there is a lease with a name that has not expired, until it returns false.
func (t *Tenant) Leased(ctx context.Context, leaseName string, fn func(Info, Held) bool) error {
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
			key, r, err := tx.byID(ID(id))
			if err != nil {
				return false, err
			}
			_, name, err := splitKey(key)
			if err != nil {
				return false, err
			}
			info, err := tx.infoOf(name, &r)
			return err == nil && fn(info, l.held()), errors.Join(err, ctx.Err())
		})
	})
	if err != nil {
		return fmt.Errorf("snapshots with the lease %q: %w", leaseName, err)
	}
	return nil
}

// free takes the lease with a name and an end, if there is one, from the snapshot r with a key.
func (t *txn) free(key []byte, r *record, leaseName string) error {
	tenant, _, err := splitKey(key)
	if err != nil {
		return err
	}
	l, found, err := t.leaseOf(lease{id: r.id, tenant: tenant, name: leaseName})
	if err != nil || !found || l.expires == 0 {
		return err
	}
	if err := t.dropLease(l); err != nil {
		return err
	}
	return t.save(key, r, r.used)
}
