package snapshot

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"holdfast/worker/mount"
)

// Namespace is a set of snapshots with names of their own. Any number of Namespaces of one name
// may be used at once.
type Namespace struct {
	s    *Store
	name string
}

// Namespace gives the namespace of a name, which need not have been used before.
func (s *Store) Namespace(name string) (*Namespace, error) {
	if err := checkName("namespace", name, MaxNamespaceSize); err != nil {
		return nil, err
	}
	return &Namespace{s: s, name: name}, nil
}

// namespaceClient is the flag of a client.
const namespaceClient = 1

func parseNamespace(v []byte) (client bool, err error) {
	if len(v) != 2 || v[0] != recordVersion || v[1]&^namespaceClient != 0 {
		return false, corruptf("namespace: %x", v)
	}
	return v[1]&namespaceClient != 0, nil
}

// ClientNamespace gives the namespace of a name and marks it, for ever, as that of a client which
// removes by itself what it does not need: nothing of it is pruned. It is for a
// namespace without snapshots, ErrInUse if an ordinary one has some.
func (s *Store) ClientNamespace(name string) (*Namespace, error) {
	t, err := s.Namespace(name)
	if err != nil {
		return nil, err
	}
	s.mu.RLock()
	known := s.clients[name]
	s.mu.RUnlock()
	if known {
		return t, nil
	}
	err = s.update("client", func(tx *txn) error {
		used, err := tx.any(inSnapshots, append([]byte(name), 0))
		if err != nil {
			return err
		}
		if used {
			return fmt.Errorf("namespace %q has snapshots that can be pruned: %w", name, ErrInUse)
		}
		if err := tx.put(inNamespaces, []byte(name), []byte{recordVersion, namespaceClient}); err != nil {
			return err
		}
		// Inside the transaction: the next writer must see it.
		s.mu.Lock()
		s.clients[name] = true
		s.mu.Unlock()
		return nil
	})
	if err != nil {
		s.mu.Lock()
		delete(s.clients, name)
		s.mu.Unlock()
		return nil, err
	}
	return t, nil
}

// IsClient tells whether a namespace is a client's: see ClientNamespace.
func (s *Store) IsClient(namespace string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.clients[namespace]
}

// Namespaces are the names of the namespaces that have snapshots. It takes time in proportion to their number.
func (s *Store) Namespaces(ctx context.Context) (names []string, err error) {
	err = s.view("namespaces", func(tx *txn) error {
		for from := []byte(nil); ; {
			found := ""
			err := tx.scan(inSnapshots, nil, from, func(k, _ []byte) (bool, error) {
				namespace, _, err := splitKey(k)
				found = namespace
				return false, err
			})
			if err != nil || found == "" {
				return err
			}
			names = append(names, found)
			from = append([]byte(found), 1) // after all of its keys
			if err := ctx.Err(); err != nil {
				return err
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list namespaces: %w", err)
	}
	return names, nil
}

// Name is the name of the namespace.
func (t *Namespace) Name() string { return t.name }

// Store is the store of the namespace.
func (t *Namespace) Store() *Store { return t.s }

func (t *Namespace) key(name string) []byte { return nameKey(t.name, name) }

// infoOf makes an Info of a record.
func (t *txn) infoOf(name string, r *record) (Info, error) {
	info := Info{Kind: r.kind, Name: name, ID: r.id, Labels: r.labels, Created: timeOf(r.created),
		Updated: timeOf(r.updated), LastUsed: timeOf(r.used), Pinned: r.flags&flagPinned != 0,
		Usage: r.usage, Distrusted: t.store.trusts(r) != nil,
		Damaged: r.flags&flagDamaged != 0, Digest: r.digest}
	if r.verified != 0 {
		info.Verified = timeOf(r.verified)
	}
	if r.parent != 0 {
		key, err := t.keyOf(r.parent)
		if err != nil {
			return Info{}, err
		}
		if _, info.Parent, err = splitKey(key); err != nil {
			return Info{}, err
		}
	}
	return info, nil
}

func timeOf(ns uint64) time.Time { return time.Unix(0, int64(ns)).UTC() }

// Stat tells of a snapshot. ErrNotFound if there is none of that name.
func (t *Namespace) Stat(ctx context.Context, name string) (info Info, err error) {
	err = t.s.view("stat", func(tx *txn) error {
		r, err := tx.record(t.key(name))
		if err == nil {
			info, err = tx.infoOf(name, &r)
		}
		return err
	})
	if err != nil {
		return Info{}, fmt.Errorf("stat snapshot %q: %w", name, err)
	}
	return info, nil
}

// Update changes the labels of the snapshot info.Name to those of info: all of them, or
// with fields only these, "labels" or "labels.KEY". A label that is empty in info, or not there, is
// removed. Nothing else can be updated: other fields are ErrInvalid. If info.ID is not 0, another snapshot that has
// the name by now is ErrNotFound. It returns what the snapshot is then.
func (t *Namespace) Update(ctx context.Context, info Info, fields ...string) (updated Info, err error) {
	err = t.change("update", info.Name, func(tx *txn, r *record) error {
		if info.ID != 0 && r.id != info.ID {
			return fmt.Errorf("%w: it was replaced by another one of that name", ErrNotFound)
		}
		labels, err := mergeLabels(r.labels, info.Labels, fields)
		if err != nil {
			return err
		}
		r.labels, r.updated = labels, t.s.now()
		updated, err = tx.infoOf(info.Name, r)
		return err
	})
	if err != nil {
		return Info{}, fmt.Errorf("update snapshot %q: %w", info.Name, err)
	}
	return updated, nil
}

// mergeLabels are the labels old with the fields, nil for all, taken from labels.
func mergeLabels(old, labels map[string]string, fields []string) (map[string]string, error) {
	if len(fields) == 0 {
		return keepLabels(labels)
	}
	merged := maps.Clone(old)
	if merged == nil {
		merged = map[string]string{}
	}
	for _, f := range fields {
		if f == "labels" {
			merged = maps.Clone(labels)
			if merged == nil {
				merged = map[string]string{}
			}
		} else if k, ok := strings.CutPrefix(f, "labels."); ok && k != "" {
			merged[k] = labels[k]
		} else {
			return nil, fmt.Errorf("%w: the field %q cannot be updated", ErrInvalid, f)
		}
	}
	return keepLabels(merged)
}

// change has fn change the record of a snapshot, in one transaction.
func (t *Namespace) change(op, name string, fn func(*txn, *record) error) error {
	return t.s.update(op, func(tx *txn) error {
		key := t.key(name)
		r, err := tx.record(key)
		if err != nil {
			return err
		}
		was := r.used
		if err := fn(tx, &r); err != nil {
			return err
		}
		return tx.save(key, &r, was)
	})
}

// Touch says that a committed snapshot is used now, so that it is pruned later.
func (t *Namespace) Touch(ctx context.Context, name string) error {
	err := t.change("touch", name, func(_ *txn, r *record) error {
		r.used = t.s.now()
		return nil
	})
	if err != nil {
		return fmt.Errorf("touch snapshot %q: %w", name, err)
	}
	return nil
}

// Pin protects a snapshot from being pruned and removed, and with it those below it, until
// Unpin. Both are not errors if nothing changes.
func (t *Namespace) Pin(ctx context.Context, name string) error { return t.pin(name, flagPinned) }

// Unpin is the end of Pin.
func (t *Namespace) Unpin(ctx context.Context, name string) error { return t.pin(name, 0) }

func (t *Namespace) pin(name string, pinned byte) error {
	err := t.change("pin", name, func(_ *txn, r *record) error {
		r.flags = r.flags&^flagPinned | pinned
		return nil
	})
	if err != nil {
		return fmt.Errorf("pin snapshot %q: %w", name, err)
	}
	return nil
}

// Trust says that the content of a committed snapshot is as it should be, though the machine went
// down before it was known to be on the disk, or it is not that of its digest: the end of
// ErrDistrusted and ErrDamaged, for this one. In the second case it gets another digest.
func (t *Namespace) Trust(ctx context.Context, name string) error {
	err := t.change("trust", name, func(tx *txn, r *record) error {
		was := *r
		r.commit = 0
		if r.flags&flagDamaged != 0 {
			r.forgetDigest()
			r.flags |= flagPending
		}
		return tx.reschedule(&was, r)
	})
	if err == nil {
		signal(t.s.digests.wake)
	}
	if err != nil {
		return fmt.Errorf("trust snapshot %q: %w", name, err)
	}
	return nil
}

// Walk calls fn for each snapshot of the namespace, in the order of their names, until it returns
// an error, which is returned. It shows what there was when it began: fn may
// call any method, and does not see what that changes. The file cannot reuse space that is
// given up before Walk ends, so fn should not take long.
func (t *Namespace) Walk(ctx context.Context, fn func(Info) error) error {
	return t.WalkPrefix(ctx, "", fn)
}

// WalkPrefix is Walk for the snapshots whose names begin with a prefix. What others there are makes no difference.
func (t *Namespace) WalkPrefix(ctx context.Context, prefix string, fn func(Info) error) error {
	return t.s.view("walk", func(tx *txn) error {
		return tx.scan(inSnapshots, nameKey(t.name, prefix), nil, func(k, v []byte) (bool, error) {
			if err := ctx.Err(); err != nil {
				return false, err
			}
			info, err := tx.infoAt(k, v)
			if err != nil {
				return false, err
			}
			return true, fn(info)
		})
	})
}

// infoAt is what a row says of a snapshot.
func (t *txn) infoAt(k, v []byte) (Info, error) {
	_, name, err := splitKey(k)
	if err != nil {
		return Info{}, err
	}
	r, err := parseRecord(v)
	if err != nil {
		return Info{}, fmt.Errorf("snapshot %q: %w", name, err)
	}
	info, err := t.infoOf(name, &r)
	if err != nil {
		return Info{}, fmt.Errorf("snapshot %q: %w", name, err)
	}
	return info, nil
}

// Page gives up to limit snapshots of the namespace, in the order of their names, from the one after a name; "": from the
// first. A caller that asks for one page after the other holds no transaction in between, however long it takes.
func (t *Namespace) Page(ctx context.Context, after string, limit int) (list []Info, err error) {
	from := nameKey(t.name, after)
	err = t.s.view("page", func(tx *txn) error {
		return tx.scan(inSnapshots, nameKey(t.name, ""), from, func(k, v []byte) (bool, error) {
			if err := ctx.Err(); err != nil {
				return false, err
			}
			if bytes.Equal(k, from) {
				return true, nil
			}
			if len(list) >= limit {
				return false, nil
			}
			info, err := tx.infoAt(k, v)
			if err != nil {
				return false, err
			}
			list = append(list, info)
			return true, nil
		})
	})
	return list, err
}

// Children are the names of the snapshots whose parent a snapshot is.
func (t *Namespace) Children(ctx context.Context, name string) (names []string, err error) {
	err = t.s.view("children", func(tx *txn) error {
		r, err := tx.record(t.key(name))
		if err != nil {
			return err
		}
		return (&ReadTx{t: tx, ctx: ctx}).Children(r.id, func(c Candidate) bool {
			names = append(names, c.Name)
			return true
		})
	})
	if err != nil {
		return nil, fmt.Errorf("children of snapshot %q: %w", name, err)
	}
	return names, nil
}

// Mounts gives the mounts of an active snapshot or a view. Other errors than ErrNotFound: ErrKind
// of a committed one; ErrMissing if its directory is not there, as after a power failure
// soon after Prepare; ErrDistrusted, ErrDamaged.
func (t *Namespace) Mounts(ctx context.Context, name string) ([]mount.Mount, error) {
	var tree Tree
	err := t.s.view("mounts", func(tx *txn) (err error) {
		_, tree, err = tx.tree(t.key(name))
		return err
	})
	if err == nil && tree.Kind == Committed {
		err = fmt.Errorf("%w: committed", ErrKind)
	}
	var mounts []mount.Mount
	if err == nil {
		mounts, err = t.s.mounts(ctx, tree)
	}
	if err != nil {
		return nil, fmt.Errorf("mounts of snapshot %q: %w", name, err)
	}
	return mounts, nil
}

// tree is the snapshot with a key as its driver sees it.
func (t *txn) tree(key []byte) (record, Tree, error) {
	r, err := t.record(key)
	if err != nil {
		return r, Tree{}, err
	}
	if err := t.store.usable(&r); err != nil {
		return r, Tree{}, err
	}
	parents, err := t.ancestors(r.parent)
	if err != nil {
		return r, Tree{}, err
	}
	return r, Tree{Layer: t.store.layer(r.id), Kind: r.kind, Parents: t.store.layers(parents)}, nil
}

// Usage is what a snapshot takes, without its parents: of a committed one as it was measured, once, and of others as it
// is now, which may take time in proportion to the number of its files.
func (t *Namespace) Usage(ctx context.Context, name string) (Usage, error) {
	var r record
	var tree Tree
	look := func(tx *txn) (err error) {
		if r, err = tx.record(t.key(name)); err != nil || r.kind == Committed {
			return err
		}
		_, tree, err = tx.tree(t.key(name))
		return err
	}
	err := t.s.view("usage", look)
	if err == nil && r.flags&flagUnmeasured != 0 {
		if err = t.s.measureOne(ctx, "usage", r.id, nil); err == nil {
			err = t.s.view("usage", look)
		}
	}
	u := r.usage
	if err == nil && r.kind != Committed {
		u, err = t.s.driver.Usage(ctx, tree)
		if err != nil && t.s.isGone(r.id) {
			err = ErrNotFound
		}
	}
	if err != nil {
		return Usage{}, fmt.Errorf("usage of snapshot %q: %w", name, err)
	}
	return u, nil
}
