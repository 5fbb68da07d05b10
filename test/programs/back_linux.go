package programs

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"holdfast"
	"holdfast/test/cluster"
)

// A Back is what became of a member of etcd on Holdfast that was killed and went back to bbolt.
type Back struct {
	Kills   int
	Refused int // how often it did not start on bbolt with a database that was not settled
	Lost    int // how often it started so, and had less than was acknowledged
}

// Back kills a member on Holdfast while clients put, again and again. Each time it must start on bbolt once its database is settled, and on
// Holdfast as it is, with each put that was acknowledged. It is also started on bbolt with the database as it is, which may refuse: bbolt
// finds the state before the last flush, which can be older than the snapshot of Raft that etcd saved after it. Snapshots of Raft are made
// after every few puts here, so that most kills come between the two.
func (x *Etcd) Back(ctx context.Context, times int) (*Back, error) {
	dir, err := os.MkdirTemp(x.Disk.Dir, "etcd")
	if err != nil {
		return nil, err
	}
	c, m, err := x.member(ctx, cluster.Holdfast, dir)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	m.Stop()
	c.Flags = append(c.Flags, "--snapshot-count", "20")
	b := &Back{}
	w := newWriters(8)
	for range times {
		if err := x.killed(ctx, c, m, w); err != nil {
			return nil, err
		}
		if err := x.goBack(ctx, c, m, w, b); err != nil {
			return nil, fmt.Errorf("after kill %d: %w", b.Kills+1, err)
		}
		b.Kills++
	}
	return b, os.RemoveAll(dir)
}

// killed starts the member on Holdfast, where all that was acknowledged must be, and kills it while it is written to.
func (x *Etcd) killed(ctx context.Context, c *cluster.Cluster, m *cluster.Member, w *writers) error {
	m.Engine = cluster.Holdfast
	if err := errors.Join(m.Start(), x.await(ctx, c), w.look(ctx, m)); err != nil {
		return fmt.Errorf("on Holdfast: %w", err)
	}
	wait := w.put(ctx, m)
	time.Sleep(500*time.Millisecond + rand.N(time.Second))
	m.Kill()
	wait()
	return nil
}

// goBack starts the member that was killed on bbolt: with its database settled, and as it is. It leaves the data as the kill has.
func (x *Etcd) goBack(ctx context.Context, c *cluster.Cluster, m *cluster.Member, w *writers, b *Back) error {
	data, kept := filepath.Join(m.Dir, "data"), filepath.Join(m.Dir, "killed")
	restore := func() error { return errors.Join(os.RemoveAll(data), run(ctx, "cp", "-a", kept, data)) }
	if err := os.Rename(data, kept); err != nil {
		return err
	}
	m.Engine = cluster.Stock
	if err := restore(); err != nil {
		return err
	}
	if _, err := holdfast.Settle(filepath.Join(data, "member", "snap", "db"), holdfast.SettleOptions{}); err != nil {
		return err
	}
	if err := errors.Join(m.Start(), x.await(ctx, c), w.look(ctx, m)); err != nil {
		return fmt.Errorf("settled, on bbolt: %w", err)
	}
	m.Kill()
	if err := restore(); err != nil {
		return err
	}
	if err := m.Start(); err != nil {
		return err
	}
	soon, cancel := context.WithTimeout(ctx, damagedPatience)
	defer cancel()
	if c.Await(soon) != nil {
		b.Refused++
	} else if w.look(ctx, m) != nil {
		b.Lost++
	}
	m.Kill()
	if err := restore(); err != nil {
		return err
	}
	return os.RemoveAll(kept)
}

// writers put, each to a key of its own, one number after the other.
type writers struct {
	mu           sync.Mutex
	tried, acked []int
}

func newWriters(n int) *writers { return &writers{tried: make([]int, n), acked: make([]int, n)} }

func (w *writers) key(i int) string { return fmt.Sprintf("writer-%d", i) }

// put has them put until a put fails. The function that it returns waits until all have ended.
func (w *writers) put(ctx context.Context, m *cluster.Member) (wait func()) {
	var all sync.WaitGroup
	for i := range w.acked {
		all.Go(func() {
			for {
				w.mu.Lock()
				w.tried[i]++
				n := w.tried[i]
				w.mu.Unlock()
				if m.Put(ctx, w.key(i), fmt.Sprint(n)) != nil {
					return
				}
				w.mu.Lock()
				w.acked[i] = n
				w.mu.Unlock()
			}
		})
	}
	return all.Wait
}

// look fails unless each key has the last number that was acknowledged, or one that was put after it.
func (w *writers) look(ctx context.Context, m *cluster.Member) error {
	for i, acked := range w.acked {
		text, err := m.Get(ctx, w.key(i))
		if err != nil {
			return err
		}
		var got int
		if text != "" {
			if _, err := fmt.Sscan(text, &got); err != nil {
				return fmt.Errorf("%s is %q", w.key(i), text)
			}
		}
		if got < acked || got > w.tried[i] {
			return fmt.Errorf("%s is %d; %d was acknowledged, and %d put last", w.key(i), got, acked, w.tried[i])
		}
	}
	return nil
}
