package step

import (
	"context"
	"errors"
	"maps"
	"testing"
)

// cached are mounts of caches.
func cached(sharing Sharing, names ...string) (list []Mount) {
	for _, name := range names {
		list = append(list, Mount{Cache: name, Sharing: sharing})
	}
	return list
}

// taker takes caches, and says when it has them.
type taker struct {
	t       *testing.T
	has     chan map[string]string
	release func()
	cancel  context.CancelFunc
	err     chan error
}

// takes returns when the uses know of it: it has what it wants, or waits.
func takes(t *testing.T, u *cacheUses, mounts []Mount) *taker {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	k := &taker{t: t, has: make(chan map[string]string, 1), err: make(chan error, 1), cancel: cancel}
	u.mu.Lock()
	before := len(u.waiting)
	u.mu.Unlock()
	done := make(chan struct{})
	go func() {
		got, release, err := u.take(ctx, mounts)
		k.release = release
		if err != nil {
			k.err <- err
		} else {
			k.has <- got
		}
		close(done)
	}()
	for {
		u.mu.Lock()
		waits := len(u.waiting) > before
		u.mu.Unlock()
		select {
		case <-done:
			return k
		default:
		}
		if waits {
			return k
		}
	}
}

// gets fails unless it has, or gets, these instances.
func (k *taker) gets(want map[string]string) *taker {
	k.t.Helper()
	if got := <-k.has; !maps.Equal(got, want) {
		k.t.Fatalf("%v, and not %v", got, want)
	}
	return k
}

func (k *taker) waits() *taker {
	k.t.Helper()
	select {
	case got := <-k.has:
		k.t.Fatalf("it has %v", got)
	default:
	}
	return k
}

func TestCacheUses(t *testing.T) {
	u := &cacheUses{}
	a := map[string]string{"a": "a"}
	s1, s2 := takes(t, u, cached(SharingShared, "a")).gets(a), takes(t, u, cached(SharingShared, "a")).gets(a)
	locked := takes(t, u, cached(SharingLocked, "a")).waits()
	later := takes(t, u, cached(SharingShared, "a")).waits() // it comes after the other
	other := takes(t, u, cached(SharingLocked, "b")).gets(map[string]string{"b": "b"})
	s1.release()
	locked.waits()
	s2.release()
	locked.gets(a)
	later.waits()
	private := takes(t, u, cached(SharingPrivate, "a")).gets(map[string]string{"a": "a//2"})
	locked.release()
	later.gets(a)
	later.release()
	private.release()
	other.release()

	// Two caches in either order, as many as want them; none holds one while it waits for the other.
	one := takes(t, u, cached(SharingLocked, "a", "b")).gets(map[string]string{"a": "a", "b": "b"})
	two := takes(t, u, cached(SharingLocked, "b", "a")).waits()
	three := takes(t, u, cached(SharingLocked, "b", "c")).waits()
	one.release()
	two.gets(map[string]string{"a": "a", "b": "b"})
	three.waits()
	two.release()
	three.gets(map[string]string{"b": "b", "c": "c"})
	three.release()

	// Who goes away lets those after it have their turn.
	one = takes(t, u, cached(SharingShared, "a")).gets(a)
	two = takes(t, u, cached(SharingLocked, "a")).waits()
	later = takes(t, u, cached(SharingShared, "a")).waits()
	two.cancel()
	if err := <-two.err; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	later.gets(a).release()
	one.release()

	var held []*taker
	for n := range MaxInstances {
		held = append(held, takes(t, u, cached(SharingPrivate, "a")).gets(map[string]string{"a": instance("a", n)}))
	}
	more := takes(t, u, cached(SharingPrivate, "a")).waits()
	held[5].release()
	more.gets(map[string]string{"a": "a//6"})
	held[5] = more
	for _, k := range held {
		k.release()
	}
	if len(u.users) > 0 || len(u.waiting) > 0 {
		t.Errorf("%v, %d wait", u.users, len(u.waiting))
	}
}

func TestCacheInvalid(t *testing.T) {
	for what, mounts := range map[string][]Mount{
		"kind":     {{Cache: "a", Target: "/a", Sharing: 3}},
		"tmpfs":    {{Target: "/a", Sharing: SharingLocked}},
		"source":   {{Source: "/usr", Target: "/a", Sharing: SharingPrivate}},
		"instance": {{Cache: "a//2", Target: "/a"}},
		"both":     {{Cache: "a", Target: "/a"}, {Cache: "a", Target: "/b", Sharing: SharingLocked}},
	} {
		if _, err := (Step{Base: "b", Command: []string{"c"}, Mounts: mounts}).normalize(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
