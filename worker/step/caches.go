package step

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Sharing says how steps that run at once use a cache of the same name.
type Sharing uint8

// Kinds of Sharing. A step with another kind heeds it, too: one that has a cache locked has it alone.
const (
	SharingShared  Sharing = 0 // together with others that share it
	SharingPrivate Sharing = 1 // alone: if others use it, one of its further instances, of which MaxInstances are kept
	SharingLocked  Sharing = 2 // alone: if others use it, it waits for them
)

// MaxInstances is how many instances a cache has at most, itself included. A private one waits if all are in use.
const MaxInstances = 8

// instanceSeparator comes before the number of a further instance, in its name.
const instanceSeparator = "//"

// instance is the name of an instance of a cache: the first one is the cache itself.
func instance(name string, n int) string {
	if n == 0 {
		return name
	}
	return fmt.Sprintf("%s%s%d", name, instanceSeparator, n+1)
}

// normalCache verifies the cache of the mount i.
func normalCache(mounts []Mount, i int) error {
	m := &mounts[i]
	if m.Sharing > SharingLocked || m.Sharing != SharingShared && m.Cache == "" {
		return invalidf("mount at %q: the sharing %d", m.Target, m.Sharing)
	}
	if strings.Contains(m.Cache, instanceSeparator) {
		return invalidf("the cache %q: a name with %s in it is that of a further instance", m.Cache, instanceSeparator)
	}
	for _, other := range mounts[:i] {
		if m.Cache != "" && other.Cache == m.Cache && other.Sharing != m.Sharing {
			return invalidf("the cache %q is mounted twice, and shared in different ways", m.Cache)
		}
	}
	return nil
}

// cacheUses are the caches that steps use. Who comes first is served first, so no step waits for ever for those that
// come after it.
type cacheUses struct {
	mu      sync.Mutex
	users   map[string]int // instances that steps use: how many together; alone: one does
	waiting []*cacheWait
}

// alone is the number of users of an instance that is not shared.
const alone = -1

// cacheWait is a step that wants caches, all at once: it holds none while it waits.
type cacheWait struct {
	wants map[string]Sharing
	got   map[string]string // the instance of each
	ready chan struct{}     // closed when it has them
}

// take returns the instances of caches that a step uses from now on, when it can have them.
func (u *cacheUses) take(ctx context.Context, mounts []Mount) (instances map[string]string, release func(), err error) {
	w := &cacheWait{wants: map[string]Sharing{}, ready: make(chan struct{})}
	for _, m := range mounts {
		if m.Cache != "" {
			w.wants[m.Cache] = m.Sharing
		}
	}
	if len(w.wants) == 0 {
		return nil, func() {}, nil
	}
	u.mu.Lock()
	u.waiting = append(u.waiting, w)
	u.serve()
	u.mu.Unlock()
	select {
	case <-w.ready:
	case <-ctx.Done():
		u.leave(w)
		return nil, nil, ctx.Err()
	}
	return w.got, func() { u.release(w) }, nil
}

// serve gives those who wait what they can have. The mutex is locked.
func (u *cacheUses) serve() {
	wanted := map[string]bool{} // by those before
	left := u.waiting[:0]
	for _, w := range u.waiting {
		if u.give(w, wanted) {
			close(w.ready)
			continue
		}
		for name, sharing := range w.wants {
			for n := range instancesOf(sharing) {
				wanted[instance(name, n)] = true
			}
		}
		left = append(left, w)
	}
	clear(u.waiting[len(left):])
	u.waiting = left
}

// instancesOf is how many instances a step can have one of.
func instancesOf(s Sharing) int {
	if s == SharingPrivate {
		return MaxInstances
	}
	return 1
}

// give gives a step all that it wants, or nothing.
func (u *cacheUses) give(w *cacheWait, wanted map[string]bool) bool {
	got := map[string]string{}
	for name, sharing := range w.wants {
		for n := range instancesOf(sharing) {
			one := instance(name, n)
			users := u.users[one]
			if !wanted[one] && (users == 0 || users > 0 && sharing == SharingShared) {
				got[name] = one
				break
			}
		}
	}
	if len(got) < len(w.wants) {
		return false
	}
	if u.users == nil {
		u.users = map[string]int{}
	}
	for name, one := range got {
		if w.wants[name] == SharingShared {
			u.users[one]++
		} else {
			u.users[one] = alone
		}
	}
	w.got = got
	return true
}

// leave ends a wait.
func (u *cacheUses) leave(w *cacheWait) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if i := slices.Index(u.waiting, w); i >= 0 {
		u.waiting = slices.Delete(u.waiting, i, i+1)
		u.serve()
		return
	}
	u.giveBack(w)
}

func (u *cacheUses) release(w *cacheWait) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.giveBack(w)
}

func (u *cacheUses) giveBack(w *cacheWait) {
	for _, one := range w.got {
		if u.users[one]--; u.users[one] <= 0 {
			delete(u.users, one)
		}
	}
	u.serve()
}
