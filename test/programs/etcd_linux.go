package programs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"time"

	"holdfast/test/cluster"
)

// Etcd measures one member of etcd.
type Etcd struct {
	Binaries map[cluster.Engine]string
	Load     string // etcd's own tool benchmark
	Disk     *Disk
	Rounds   int // of each measurement, on either engine
	Puts     int // of one measurement with 64 clients; fewer clients put fewer
	MiB      int // that are put into files that are emptied or opened
	Log      io.Writer
}

// member starts a member in a directory, which may be that of an earlier one.
func (x *Etcd) member(ctx context.Context, e cluster.Engine, dir string, env ...string) (*cluster.Cluster, *cluster.Member, error) {
	c := &cluster.Cluster{Binaries: x.Binaries, Dir: dir, Env: env, Flags: []string{"--quota-backend-bytes", fmt.Sprint(int64(64) << 30)}}
	if err := c.Form(e); err != nil {
		return nil, nil, err
	}
	m := c.Members[0]
	if err := m.Start(); err != nil {
		return nil, nil, err
	}
	if err := x.await(ctx, c); err != nil {
		c.Close()
		return nil, nil, err
	}
	return c, m, nil
}

func (x *Etcd) await(ctx context.Context, c *cluster.Cluster) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	return c.Await(ctx)
}

func (x *Etcd) String() string { return "etcd" }

// each runs a measurement in a directory of its own for both engines, in all rounds.
func (x *Etcd) each(do func(e cluster.Engine, dir string) error) error {
	return rounds(x.Log, x, x.Rounds, func(e cluster.Engine) error {
		dir, err := os.MkdirTemp(x.Disk.Dir, "etcd")
		if err != nil {
			return err
		}
		if err := do(e, dir); err != nil {
			return err
		}
		return os.RemoveAll(dir)
	})
}

// Young measures puts on a file that is new.
func (x *Etcd) Young(ctx context.Context) (*Table, error) {
	t := &Table{Title: "etcd on a young file: puts of 1 KiB"}
	return t, x.each(func(e cluster.Engine, dir string) error {
		c, m, err := x.member(ctx, e, dir)
		if err != nil {
			return err
		}
		defer c.Close()
		return x.puts(ctx, m, t)
	})
}

// Aged measures puts on a file that held MiB of values, which were deleted and compacted.
func (x *Etcd) Aged(ctx context.Context) (*Table, error) {
	t := &Table{Title: fmt.Sprintf("etcd on a file that held %d MiB and was emptied: puts of 1 KiB", x.MiB)}
	return t, x.each(func(e cluster.Engine, dir string) error {
		c, m, err := x.member(ctx, e, dir)
		if err != nil {
			return err
		}
		defer c.Close()
		if err := x.fill(ctx, m); err != nil {
			return err
		}
		if err := x.empty(ctx, m); err != nil {
			return err
		}
		return x.puts(ctx, m, t)
	})
}

// puts measures puts by several numbers of clients.
func (x *Etcd) puts(ctx context.Context, m *cluster.Member, t *Table) error {
	for _, clients := range []int{1, 16, 64} {
		total := x.Puts
		if clients == 1 {
			total /= 10
		}
		written, err := x.Disk.Written()
		if err != nil {
			return err
		}
		commits, err := commitTimes(ctx, m)
		if err != nil {
			return err
		}
		l, err := x.load(ctx, m, load{clients: clients, total: total, size: 1024, keys: 100_000})
		if err != nil {
			return err
		}
		after, err := commitTimes(ctx, m)
		if err != nil {
			return err
		}
		end, err := x.Disk.Written()
		if err != nil {
			return err
		}
		after.sub(commits)
		who := fmt.Sprintf("%d clients", clients)
		if clients == 1 {
			who = "1 client"
		}
		t.Add(m.Engine, who+": puts", PerSecond, l.rate)
		t.Add(m.Engine, who+": 99th percentile of a put", Seconds, l.p99)
		t.Add(m.Engine, who+": mean of a backend commit", Seconds, after.mean())
		t.Add(m.Engine, who+": 99th percentile of a backend commit", Seconds, after.quantile(0.99))
		t.Add(m.Engine, who+": bytes written by a put", Bytes, float64(end-written)/float64(total))
	}
	return nil
}

// fill puts MiB of values of 64 KiB.
func (x *Etcd) fill(ctx context.Context, m *cluster.Member) error {
	n := x.MiB * 16
	_, err := x.load(ctx, m, load{clients: 16, total: n, size: 64 << 10, keys: n, inOrder: true})
	return err
}

// empty deletes all keys and waits until their pages are free.
func (x *Etcd) empty(ctx context.Context, m *cluster.Member) error {
	if err := m.DeleteAll(ctx); err != nil {
		return err
	}
	s, err := m.Status(ctx)
	if err != nil {
		return err
	}
	if err := m.Compact(ctx, s.Header.Revision); err != nil {
		return err
	}
	for {
		if s, err = m.Status(ctx); err != nil {
			return err
		}
		if s.InUse < 8<<20 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Start measures how long a member takes until it serves, on a file of MiB of values of which every other one was deleted.
func (x *Etcd) Start(ctx context.Context) (*Table, error) {
	t := &Table{Title: fmt.Sprintf("etcd's start on a file that held %d MiB, of which every other value was deleted", x.MiB)}
	return t, x.each(func(e cluster.Engine, dir string) error {
		c, m, err := x.member(ctx, e, dir)
		if err != nil {
			return err
		}
		defer c.Close()
		if err := x.fill(ctx, m); err != nil {
			return err
		}
		if err := x.thin(ctx, m); err != nil {
			return err
		}
		for range 3 {
			m.Stop()
			began := time.Now()
			if err := m.Start(); err != nil {
				return err
			}
			if err := x.await(ctx, c); err != nil {
				return err
			}
			t.Add(e, "start", Seconds, time.Since(began).Seconds())
		}
		info, err := os.Stat(filepath.Join(m.Dir, "data", "member", "snap", "db"))
		if err != nil {
			return err
		}
		t.Add(e, "size of the file", Bytes, float64(info.Size()))
		return nil
	})
}

// thin deletes every other key that fill has put.
func (x *Etcd) thin(ctx context.Context, m *cluster.Member) error {
	var keys [][]byte
	for i := 1; i < x.MiB*16; i += 2 {
		key := make([]byte, 16)
		binary.PutVarint(key, int64(i)) // as benchmark makes them
		if keys = append(keys, key); len(keys) == 128 {
			if err := m.Delete(ctx, keys); err != nil {
				return err
			}
			keys = nil
		}
	}
	if err := m.Delete(ctx, keys); err != nil {
		return err
	}
	s, err := m.Status(ctx)
	if err != nil {
		return err
	}
	return m.Compact(ctx, s.Header.Revision)
}

// Shrink measures what puts notice while every other value of a file is deleted and compacted, and then while the file becomes shorter: by
// defrag with bbolt, by automatic vacuum with Holdfast.
func (x *Etcd) Shrink(ctx context.Context) (*Table, error) {
	t := &Table{Title: fmt.Sprintf("etcd under 500 puts a second: of a file of %d MiB every other value is deleted; then it becomes shorter by defrag and by automatic vacuum", x.MiB)}
	return t, x.each(func(e cluster.Engine, dir string) error {
		c, m, err := x.member(ctx, e, dir, "HOLDFAST_AUTO_VACUUM=on")
		if err != nil {
			return err
		}
		defer c.Close()
		if err := x.fill(ctx, m); err != nil {
			return err
		}
		alone, err := x.during(ctx, m, func() error { return sleep(ctx, 10*time.Second) })
		if err != nil {
			return err
		}
		t.Add(e, "before: slowest put", Seconds, alone.slowest)
		deleted, err := x.during(ctx, m, func() error { return x.thin(ctx, m) })
		if err != nil {
			return err
		}
		t.Add(e, "deletion and compaction: slowest put", Seconds, deleted.slowest)
		shorter, err := x.during(ctx, m, func() error { return x.becomesShort(ctx, m, t) })
		if err != nil {
			return err
		}
		t.Add(e, "slowest put meanwhile", Seconds, shorter.slowest)
		t.Add(e, "99th percentile of a put meanwhile", Seconds, shorter.p99)
		t.Add(e, "puts that failed meanwhile", Count, float64(shorter.failed))
		return nil
	})
}

// during has clients put, 500 times a second, from two seconds before work begins until it has ended, and returns the worst of what they
// measured.
func (x *Etcd) during(ctx context.Context, m *cluster.Member, work func() error) (worst result, err error) {
	const (
		seconds = 4    // of one run of the load; the next follows at once
		noticed = 0.05 // seconds of a put that is logged
	)
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			l, err := x.load(ctx, m, load{clients: 16, total: 500 * seconds, rate: 500, size: 1024, keys: 10_000, mayFail: true})
			if l.slowest > noticed {
				fmt.Fprintf(x.Log, "a put took %.0f ms, until %s\n", l.slowest*1000, time.Now().Format(time.TimeOnly))
			}
			worst.failed += l.failed
			worst.slowest, worst.p99 = max(worst.slowest, l.slowest), max(worst.p99, l.p99)
			if err != nil {
				done <- err
				return
			}
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
		}
	}()
	time.Sleep(2 * time.Second)
	err = work()
	close(stop)
	return worst, errors.Join(err, <-done)
}

// sleep does nothing for a time.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// becomesShort measures how long it takes after a compaction until the file has 1.2 times what is in use.
func (x *Etcd) becomesShort(ctx context.Context, m *cluster.Member, t *Table) error {
	began := time.Now()
	if m.Engine == cluster.Stock {
		if err := m.Defrag(ctx); err != nil {
			return err
		}
	}
	for inUse := int64(math.MaxInt64); ; {
		s, err := m.Status(ctx)
		if err != nil {
			return err
		}
		inUse = min(inUse, s.InUse) // a file that is being cut off seems to use more: its end is not free any more, and still there
		if float64(s.DBSize) <= 1.2*float64(inUse) {
			t.Add(m.Engine, "until the file has 1.2 times what is in use", Seconds, time.Since(began).Seconds())
			t.Add(m.Engine, "size of the file then", Bytes, float64(s.DBSize))
			return x.staysShort(ctx, m, t)
		}
		if time.Since(began) > 2*time.Minute {
			return fmt.Errorf("after two minutes the file has %d MiB, of which %d are in use", s.DBSize>>20, s.InUse>>20)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// staysShort waits until the file has had one size for a while.
func (x *Etcd) staysShort(ctx context.Context, m *cluster.Member, t *Table) error {
	const while, most = 10 * time.Second, 2 * time.Minute
	var size int64
	for began, since := time.Now(), time.Now(); time.Since(since) < while && time.Since(began) < most; time.Sleep(100 * time.Millisecond) {
		s, err := m.Status(ctx)
		if err != nil {
			return err
		}
		if s.DBSize != size {
			size, since = s.DBSize, time.Now()
		}
	}
	t.Add(m.Engine, "size of the file in the end", Bytes, float64(size))
	return nil
}
