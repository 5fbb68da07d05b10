package pager_test

import (
	"bytes"
	"errors"
	"slices"
	"syscall"
	"testing"
	"time"

	"holdfast/internal/pager"
	"holdfast/internal/vfs"
)

// dropping records what is dropped from the cache, and that a file is mapped.
type dropping struct {
	vfs.File
	calls   []string
	syncErr error  // of the next flush
	disk    []byte // what the disk has at the beginning of the file, shown once the cache is dropped
}

func (d *dropping) Sync() error {
	if err := d.syncErr; err != nil {
		d.syncErr = nil
		return err
	}
	return d.File.Sync()
}

func (d *dropping) DropCache(off, n int64) error {
	size, err := d.Size()
	if err != nil {
		return err
	}
	what := "part"
	if off == 0 && n >= size {
		what = "all"
	}
	d.calls = append(d.calls, what)
	if _, err := d.File.WriteAt(d.disk, 0); err != nil {
		return err
	}
	d.disk = nil
	return d.File.DropCache(off, n)
}

func (d *dropping) Map(n int64, opts vfs.MapOptions) (vfs.Mapping, error) {
	d.calls = append(d.calls, "map")
	return d.File.Map(n, opts)
}

// A process whose flush had failed was killed; its pages stayed in the cache of the system as if
// they were on the disk. The next one wrote over them and flushed without an error, and ext4 lost
// what it had acknowledged. Where the metas, or the pages that they list, show that the disk has
// lost something, the file is dropped before it is mapped. One that was only killed, or closed, is
// not: it would be cold.
func TestOpenDropsLostFile(t *testing.T) {
	e := newEnv(t)
	e.mustCommit("first", 40)
	metas := slices.Clone(e.mem.Bytes()[:2*pageSize])
	e.mustCommit("second", 40)
	killed := e.mem.Clone()
	e.close()
	lost := slices.Clone(killed.Bytes())
	clear(lost[bytes.Index(lost, []byte("second"))/pageSize*pageSize:][:pageSize]) // a page of the last commit
	unfinished := vfs.NewMem("unfinished")
	if _, err := unfinished.Open().WriteAt(lost, 0); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		mem      *vfs.Mem
		disk     []byte
		readOnly bool
		all      bool
	}{
		"killed":              {mem: killed},
		"closed":              {mem: e.mem},
		"a meta is lost":      {mem: killed, disk: metas, all: true},
		"a page is lost":      {mem: unfinished, all: true},
		"a page, for reading": {mem: unfinished, readOnly: true},
	} {
		d := &dropping{File: c.mem.Clone().Open(), disk: c.disk}
		p, err := pager.Open(d, pager.Options{PageSize: pageSize, Scan: scan, PlainDelay: -1, ReadOnly: c.readOnly})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all, mapped := slices.Index(d.calls, "all"), slices.Index(d.calls, "map")
		if c.all != (all >= 0) || all > mapped {
			t.Errorf("%s: calls %q, all of the file dropped before it is mapped: want %v", name, d.calls, c.all)
		}
		if err := p.Close(pager.CloseOptions{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What happened: a timer's flush failed while the database was closed. Close returned, and a logger that was used up with the database
// was called.
func TestCloseWaitsForTheLog(t *testing.T) {
	for name, timer := range map[string]struct {
		mode pager.Durability
		run  func(*pager.Pager)
	}{
		"plain meta": {pager.Full, (*pager.Pager).PlainNow},
		"flush":      {pager.Periodic, (*pager.Pager).FlushVisible},
	} {
		t.Run(name, func(t *testing.T) {
			logs, ended, first := make(chan struct{}), false, true
			log := func(string, ...any) {
				if first {
					first = false
					close(logs)
					time.Sleep(20 * time.Millisecond)
					ended = true
				}
			}
			d := &dropping{File: vfs.NewMem("log").Open()}
			p, err := pager.Open(d, pager.Options{PageSize: pageSize, Scan: scan, PlainDelay: -1, PeriodicDelay: time.Hour, Log: log})
			if err != nil {
				t.Fatal(err)
			}
			e := &env{Pager: p, t: t, opts: pager.CommitOptions{Mode: timer.mode, AllocSize: 1 << 20}}
			e.mustCommit("first", 1)
			d.syncErr = syscall.EIO
			done := make(chan bool)
			go func() { timer.run(p); close(done) }()
			<-logs
			if err := p.Close(pager.CloseOptions{}); err != nil && !errors.Is(err, pager.ErrStopped) {
				t.Error(err)
			}
			if !ended {
				t.Error("Close has returned while the log was told something")
			}
			<-done
		})
	}
}

// After a failed flush the cache shows what the disk does not have. bbolt, which may be the next to
// open the file, reads the cache, so Close and a failed Open drop it.
func TestStoppedDrops(t *testing.T) {
	e := newEnv(t)
	e.mustCommit("first", 40)
	e.close()
	t.Run("Open", func(t *testing.T) {
		d := &dropping{File: e.mem.Clone().Open(), syncErr: syscall.EIO}
		if _, err := pager.Open(d, pager.Options{PageSize: pageSize, Scan: scan, PlainDelay: -1}); !errors.Is(err, syscall.EIO) {
			t.Fatalf("error %v, want EIO", err)
		}
		if !slices.Contains(d.calls, "all") {
			t.Errorf("calls %q: the file was not dropped", d.calls)
		}
	})
	t.Run("Close", func(t *testing.T) {
		d := &dropping{File: e.mem.Clone().Open()}
		p, err := pager.Open(d, pager.Options{PageSize: pageSize, Scan: scan, PlainDelay: -1})
		if err != nil {
			t.Fatal(err)
		}
		stopped := &env{Pager: p, t: t, opts: pager.CommitOptions{AllocSize: 1 << 20}}
		d.calls, d.syncErr = nil, syscall.EIO
		if err := stopped.commit("second", 1); !errors.Is(err, syscall.EIO) {
			t.Fatalf("error %v, want EIO", err)
		}
		if err := p.Close(pager.CloseOptions{}); err != nil && !errors.Is(err, pager.ErrStopped) {
			t.Fatal(err)
		}
		if !slices.Contains(d.calls, "all") {
			t.Errorf("calls %q: the file was not dropped", d.calls)
		}
	})
}
