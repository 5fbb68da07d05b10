package engine

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"syscall"
	"testing"
	"time"

	"holdfast"
	"holdfast/internal/bridge"
	"holdfast/internal/vfs"
)

// A process was killed whose last commits were in the page cache only. A program that opened the
// file for reading was told of them, and then the power failed: they were gone.
func TestReaderFlushes(t *testing.T) {
	disk := vfs.NewCrash("db", nil, nil)
	killed := disk.Open()
	db, err := bridge.Open(killed, &holdfast.Options{Durability: holdfast.Periodic, PeriodicDelay: time.Hour, SettleDelay: -1})
	must(t, err)
	fill(t, db, 0, 10)
	must(t, db.Sync())
	fill(t, db, 1, 10)
	want := dumpDB(t, db)
	must(t, killed.Close())
	reader, err := bridge.Open(disk.Open(), &holdfast.Options{ReadOnly: true})
	must(t, err)
	if reader.FileState().Unflushed || !reflect.DeepEqual(dumpDB(t, reader), want) {
		t.Errorf("the reader was told of another state, %+v", reader.FileState())
	}
	must(t, reader.Close())
	_ = db.Close() // whose file is gone
	for left := range disk.Disks(rand.New(rand.NewPCG(1, 2)), 4096, 20) {
		after, err := bridge.Open(vfs.NewCrash("db", left, nil).Open(), &holdfast.Options{ReadOnly: true})
		must(t, err)
		if !reflect.DeepEqual(dumpDB(t, after), want) {
			t.Fatal("after a power failure what the reader was told is gone")
		}
		must(t, after.Close())
	}
}

// failingSync is a file that cannot be flushed.
type failingSync struct {
	vfs.File
	err     error
	dropped *int64 // bytes
}

func (f failingSync) Sync() error { return f.err }

func (f failingSync) DropCache(off, n int64) error {
	*f.dropped += n
	return nil
}

// A file that cannot be flushed is read all the same, and FileState says so.
func TestReaderThatCannotFlush(t *testing.T) {
	mem := vfs.NewMem("mem")
	db, err := bridge.Open(mem.Open(), nil)
	must(t, err)
	fill(t, db, 0, 10)
	want := dumpDB(t, db)
	must(t, db.Close())
	for _, c := range []struct {
		err   error
		drops bool // what the cache shows
	}{{syscall.EROFS, false}, {syscall.EINVAL, false}, {syscall.EACCES, false}, {errors.ErrUnsupported, false}, {syscall.EIO, true}} {
		dropped := int64(0)
		log := &memoryLogger{}
		db, err := bridge.Open(failingSync{mem.Open(), c.err, &dropped}, &holdfast.Options{ReadOnly: true, Logger: log})
		must(t, err)
		if !db.FileState().Unflushed || !reflect.DeepEqual(dumpDB(t, db), want) {
			t.Errorf("%v: %+v", c.err, db.FileState())
		}
		if (dropped > 0) != c.drops {
			t.Errorf("%v: %d bytes of the cache were dropped", c.err, dropped)
		}
		log.has(t, "which is opened for reading")
		must(t, db.Close())
		if _, err := bridge.Open(failingSync{mem.Open(), c.err, &dropped}, nil); !errors.Is(err, c.err) {
			t.Errorf("%v: opened for writing: %v", c.err, err)
		}
	}
}
