package programs

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"holdfast/bench/age/trace"
	"holdfast/test/cluster"
	"holdfast/test/record/hook"
)

// A Recorder has a program that was built on bbolt with hooks (package record) log two cycles of the same work with other content, and
// makes a trace of the second one. Dir is an empty directory; the program finds it by the variable hook.Env of its environment.
type Recorder struct {
	Dir  string
	last string // the name of the log
}

// idle is how long a program commits nothing once it has done what it was told.
const idle = 3 * time.Second

// phase waits until the program is idle and has it continue with another log.
func (r *Recorder) phase(ctx context.Context, name string) error {
	if r.last != "" {
		if err := r.await(ctx); err != nil {
			return err
		}
	}
	r.last = name
	file := filepath.Join(r.Dir, hook.Phase)
	if err := os.WriteFile(file+".new", []byte(name), 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// await waits until the log has not grown for a while.
func (r *Recorder) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	size, since := int64(-1), time.Now()
	for time.Since(since) < idle {
		info, err := os.Stat(r.log(r.last))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err == nil && info.Size() != size {
			size, since = info.Size(), time.Now()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the program does not become idle: %w", ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil
}

func (r *Recorder) log(phase string) string { return filepath.Join(r.Dir, phase+".log") }

// cycles are the names of both.
var cycles = []string{"first", "second"}

// begin comes before the program is started: what it does then belongs to no cycle.
func (r *Recorder) begin(ctx context.Context) error { return r.phase(ctx, "start") }

// run does the work of both cycles, of which there are contents.
func (r *Recorder) run(ctx context.Context, put, remove func(cycle int) error) error {
	for i, name := range cycles {
		if err := r.phase(ctx, name+"-make"); err != nil {
			return err
		}
		if err := put(i); err != nil {
			return err
		}
		if err := r.phase(ctx, name+"-remove"); err != nil {
			return err
		}
		if err := remove(i); err != nil {
			return err
		}
	}
	return r.phase(ctx, "end")
}

// Trace reads what was logged.
func (r *Recorder) Trace(program string) (*trace.Trace, error) {
	var read [2]trace.Cycle
	for i, name := range cycles {
		var err error
		if read[i].Make, err = r.read(name + "-make"); err != nil {
			return nil, err
		}
		if read[i].Remove, err = r.read(name + "-remove"); err != nil {
			return nil, err
		}
	}
	return trace.Convert(program, read[0], read[1])
}

func (r *Recorder) read(phase string) ([]trace.Tx, error) {
	f, err := os.Open(r.log(phase))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return trace.ReadLog(f)
}

// Record has containerd import an image of some layers, run containers of it and remove it.
func (x *Containerd) Record(ctx context.Context, r *Recorder) (err error) {
	if err := r.begin(ctx); err != nil {
		return err
	}
	c, err := x.begin(ctx, cluster.Stock)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	put := func(cycle int) error {
		image := filepath.Join(c.dir, "image.tar")
		const layers, files = 5, 3
		if err := errors.Join(WriteImage(image, layers, files+cycle), c.load(ctx, image)); err != nil {
			return err
		}
		for i := range x.Containers {
			id := fmt.Sprintf("%x", sha256.Sum256(fmt.Append(nil, cycle, i))) // as most clients name them
			if err := c.container(ctx, id); err != nil {
				return err
			}
		}
		return nil
	}
	return r.run(ctx, put, func(int) error { return c.run(ctx, "images", "rm", "--sync", imageName) })
}

// Record has BuildKit build an image and prune it, with the record of the build.
func (x *BuildKit) Record(ctx context.Context, r *Recorder) (err error) {
	if err := r.begin(ctx); err != nil {
		return err
	}
	b, err := x.begin(ctx, cluster.Stock)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	build := func(cycle int) error { return b.buildRight(ctx, "cycle "+cycles[cycle]) }
	return r.run(ctx, build, func(int) error {
		return errors.Join(b.run(ctx, "prune-histories"), b.run(ctx, "prune", "--all"))
	})
}

// Record has etcd put and delete keys, delete all that are left, and compact; one revision stays, which the next cycle removes.
func (x *Etcd) Record(ctx context.Context, r *Recorder) error {
	if err := r.begin(ctx); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(x.Disk.Dir, "etcd")
	if err != nil {
		return err
	}
	c, m, err := x.member(ctx, cluster.Stock, dir)
	if err != nil {
		return err
	}
	defer c.Close()
	const keys = 100
	pace := time.NewTicker(10 * time.Millisecond) // etcd commits ten times a second
	defer pace.Stop()
	put := func(int) error {
		for i := range x.Puts {
			<-pace.C
			key := fmt.Sprintf("/registry/%d", i*37%keys)
			err := m.Put(ctx, key, fmt.Sprintf("%0*d", 100+i*61%900, i))
			if err == nil && i%8 == 7 {
				err = m.Delete(ctx, [][]byte{[]byte(key)})
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	return r.run(ctx, put, func(int) error {
		// A compaction leaves deletions of the last revision, and of another key one that was put.
		if err := errors.Join(m.DeleteAll(ctx), m.Put(ctx, "/last", "")); err != nil {
			return err
		}
		s, err := m.Status(ctx)
		if err != nil {
			return err
		}
		return m.Compact(ctx, s.Header.Revision)
	})
}
