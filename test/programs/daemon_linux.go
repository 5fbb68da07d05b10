package programs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"

	"holdfast"
	"holdfast/test/cluster"
	"holdfast/test/process"
)

// A daemon is a process that says when it serves.
type daemon struct {
	process.Process
	ready    func() error  // nil once it serves
	patience time.Duration // how long start waits until it serves; 0: a minute
}

// start starts the process and waits until it serves.
func (d *daemon) start(ctx context.Context) error {
	if err := d.Start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(d.patience, time.Minute))
	defer cancel()
	return d.Await(ctx, d.ready)
}

// killWithin starts work, kills the daemon at some moment of it, and starts it again. Whatever the work gave is returned: it may have ended
// before.
func (d *daemon) killWithin(ctx context.Context, most time.Duration, work func() error) (workErr, err error) {
	done := make(chan error, 1)
	go func() { done <- work() }()
	time.Sleep(rand.N(most))
	d.Kill()
	workErr = <-done
	return workErr, d.start(ctx)
}

// age has each database below a directory hold MiB of values, and deletes them. Nothing may have them open. They are settled before, since
// bbolt does it: BuildKit ends without closing its databases, and what the last flush wrote would be lost.
func age(log io.Writer, dir string, mib int) error {
	return filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".db" || !entry.Type().IsRegular() {
			return err
		}
		found, err := holdfast.Settle(path, holdfast.SettleOptions{Timeout: time.Second})
		if err != nil {
			return err
		}
		if found.BboltBehind {
			fmt.Fprintf(log, "%s was left without being closed, and is settled\n", filepath.Base(path))
		}
		db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: time.Second, NoSync: true})
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		name, value := []byte("holdfast test: age"), make([]byte, 3000)
		for filled := 0; filled < mib<<20 && err == nil; {
			err = db.Update(func(tx *bolt.Tx) error {
				b, err := tx.CreateBucketIfNotExists(name)
				for range 5000 {
					if err == nil {
						err = b.Put(fmt.Appendf(nil, "%020d", filled), value)
					}
					filled += 4096 // one to a page
				}
				return err
			})
		}
		if err == nil {
			err = db.Update(func(tx *bolt.Tx) error { return tx.DeleteBucket(name) })
		}
		return errors.Join(err, db.Sync(), db.Close())
	})
}

// A Bin is the directory of programs that were built on an engine, for each.
type Bin map[cluster.Engine]string
