package programs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"

	"holdfast/test/cluster"
)

// A daemon is a process and what it needs to be started again.
type daemon struct {
	binary string
	args   []string
	env    []string
	log    string       // the file that gets what it prints
	ready  func() error // nil once it serves
	// patience is how long start waits until it serves; 0: a minute.
	patience time.Duration

	cmd    *exec.Cmd
	exited chan struct{}
}

// start starts the process and waits until it serves.
func (d *daemon) start(ctx context.Context) error {
	log, err := os.OpenFile(d.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	from, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	name := filepath.Base(d.binary)
	cmd := exec.Command(d.binary, d.args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), d.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	d.cmd, d.exited = cmd, exited
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	patience := cmp.Or(d.patience, time.Minute)
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		err := d.ready()
		if err == nil {
			return nil
		}
		select {
		case <-exited:
			return fmt.Errorf("%s has ended: %v: %s; its log is %s", name, cmd.ProcessState, lastWords(d.log, from, name), d.log)
		case <-ctx.Done():
			return ctx.Err()
		default:
		}
		if time.Since(began) > patience {
			return fmt.Errorf("%s does not serve after %v: %w; its log is %s", name, patience, err, d.log)
		}
	}
}

// lastWords is what a program says of its end in its log from some byte on: the line of an error or a panic, or else the last line.
func lastWords(log string, from int64, program string) string {
	b, err := os.ReadFile(log)
	if err != nil {
		return err.Error()
	}
	last := ""
	for line := range strings.Lines(string(b[min(from, int64(len(b))):])) {
		if strings.HasPrefix(line, program+": ") || strings.HasPrefix(line, "panic: ") {
			return strings.TrimSpace(line)
		}
		if strings.TrimSpace(line) != "" {
			last = line
		}
	}
	return strings.TrimSpace(last)
}

// kill ends it as a crash does, stop as an operator does.
func (d *daemon) kill() { d.end(syscall.SIGKILL) }
func (d *daemon) stop() { d.end(syscall.SIGTERM) }

func (d *daemon) end(signal syscall.Signal) {
	if d.cmd == nil {
		return
	}
	_ = d.cmd.Process.Signal(signal)
	select {
	case <-d.exited:
	case <-time.After(30 * time.Second):
		_ = d.cmd.Process.Kill()
		<-d.exited
	}
	d.cmd = nil
}

// killWithin starts work, kills the daemon at some moment of it, and starts it again. Whatever the work gave is returned: it may have ended
// before.
func (d *daemon) killWithin(ctx context.Context, most time.Duration, work func() error) (workErr, err error) {
	done := make(chan error, 1)
	go func() { done <- work() }()
	time.Sleep(rand.N(most))
	d.kill()
	workErr = <-done
	return workErr, d.start(ctx)
}

// age has each database below a directory hold MiB of values, and deletes them. Nothing may have them open.
func age(dir string, mib int) error {
	return filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".db" || !entry.Type().IsRegular() {
			return err
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

// written runs work and returns how long it took, and what was written to the disk for it until all was there.
func (d *Disk) written(work func() error) (took time.Duration, bytes int64, err error) {
	before, err := d.Written()
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	if err := work(); err != nil {
		return 0, 0, err
	}
	took = time.Since(began)
	after, err := d.Written()
	return took, after - before, err
}
