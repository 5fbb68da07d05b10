package step

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"syscall"

	"holdfast/worker/internal/idmap"
	"holdfast/worker/mount"
)

// This file decides which ids steps have outside: with a user namespace root in a step is an unprivileged
// user of the machine. users_linux.go has how Native does it.

// UserNamespaces says whether steps have user namespaces.
type UserNamespaces int

const (
	// UserNamespacesAuto gives them to steps of Native where the kernel and the file system of the store can map ids.
	UserNamespacesAuto UserNamespaces = iota

	// UserNamespacesOff has root in a step be root of the machine, without its capabilities.
	UserNamespacesOff
)

// errOff is why steps have no user namespaces that could have some.
var errOff = errors.New("it is switched off")

// Ids of steps: outside, they begin at one of idRanges multiples from firstID on, below what systemd gives
// to foreign ids and above what /etc/subuid and systemd-nspawn use. Ids in snapshots are those of the step.
const (
	idCount  = 1 << 16
	firstID  = 0x70000000
	idRanges = (0x7ffe0000 - firstID) / idCount
)

// idsOf are the ids of the steps of a store: others for each store, if its hash is.
func idsOf(root string) idmap.Map {
	if abs, err := filepath.Abs(root); err == nil {
		root = abs
	}
	sum := sha256.Sum256([]byte(root))
	return idmap.Map{Base: firstID + idCount*(binary.LittleEndian.Uint32(sum[:])%idRanges), Count: idCount}
}

// covers tells whether a user has only ids that are mapped.
func covers(ids idmap.Map, u *User) bool {
	return ids.Has(u.UID) && ids.Has(u.GID) && !slices.ContainsFunc(u.Groups, func(g uint32) bool { return !ids.Has(g) })
}

// errUnmapped says that a step that was to have a user namespace cannot, and has to be planned anew.
var errUnmapped = errors.New("its ids cannot be mapped")

// errNewPrivileges says why set-user-ID programs do not count.
var errNewPrivileges = fmt.Errorf("new privileges are for steps with a user namespace, where root owns nothing outside; this one has none: %w", errors.ErrUnsupported)

// errAbove says that the user that the base has for a name has ids that are not mapped.
var errAbove = errors.New("its user has ids that are not mapped")

// unmap has no step of a way have a user namespace from now on.
func (r *Runner) unmap(w *way, reason error) {
	if !w.unmapped.Swap(true) {
		r.log.Warn("steps have no user namespace: root in a step is root of the machine, without its capabilities", "reason", reason)
	}
}

// mapped is a spec with ids that are shown as others.
func mapped(spec mount.Spec, ids idmap.Map) mount.Spec {
	if ids.Set() {
		spec.Options = append(slices.Clone(spec.Options), fmt.Sprintf("idmap=%d:%d", ids.Base, ids.Count))
	}
	return spec
}

// acquireRoot mounts the root of a step, and returns the ids that the step has.
func (r *Runner) acquireRoot(f *flight, spec mount.Spec) (*mount.Handle, idmap.Map, error) {
	// A mount that is under way when the step is canceled would stay, on directories that are then deleted.
	ctx := context.WithoutCancel(f.ctx)
	ids := f.plan.ids
	root, err := r.opt.Mounts.Acquire(ctx, mapped(spec, ids))
	if ids.Set() && errors.Is(err, errors.ErrUnsupported) {
		r.unmap(f.plan.way, err)
		return nil, ids, errUnmapped
	}
	if err == nil && isReadOnly(root.FD()) {
		root.Release()
		return nil, ids, errors.Join(r.whyReadOnly(), root.Wait(ctx))
	}
	if err != nil || !ids.Set() || f.step.User.Name == "" {
		return root, ids, err
	}
	// What a name stands for only the base says. That is part of what the step is: the same step always ends up here.
	if u, unknown := lookupUser(root.FD(), f.step.User); unknown == nil && !covers(ids, &u) {
		root.Release()
		return nil, ids, errors.Join(errAbove, root.Wait(ctx))
	}
	return root, ids, nil
}

// whyReadOnly is the error of a root that the kernel has mounted read-only, as it does without an error if it cannot
// make the work directory of an overlay.
func (r *Runner) whyReadOnly() error {
	if r.diskFull() {
		return fmt.Errorf("the work directory of the overlay: %w", syscall.ENOSPC)
	}
	return fmt.Errorf("the kernel could not make the work directory of the overlay: %w", syscall.EROFS)
}

// acquireMapped mounts something of the store that a step sees beside its root; without a map where there
// can be none: it belongs to no user of the step then.
func (r *Runner) acquireMapped(ctx context.Context, spec mount.Spec, ids idmap.Map) (*mount.Handle, error) {
	h, err := r.opt.Mounts.Acquire(ctx, mapped(spec, ids))
	if ids.Set() && errors.Is(err, errors.ErrUnsupported) {
		return r.opt.Mounts.Acquire(ctx, spec)
	}
	return h, err
}
