package engine

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast"
	"holdfast/internal/bridge"
	"holdfast/internal/extension"
	"holdfast/internal/vfs"
)

// fileNumber is a file with an identity, as the system's files have one.
type fileNumber struct {
	vfs.File
	id uint64
}

func (f fileNumber) Identity() uint64 { return f.id }

// copyTest is a database that is copied while it is in use.
type copyTest struct {
	t       testing.TB
	options holdfast.Options
	states  map[string]bool // each that was committed
}

// modes calls test for each way to commit.
func modes(t *testing.T, test func(t *testing.T, c *copyTest)) {
	for name, options := range map[string]holdfast.Options{
		"Full": {}, "StrictCompat": {StrictCompat: true}, "NoSync": {NoSync: true},
		"Periodic": {Durability: holdfast.Periodic, PeriodicDelay: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			options.PageSize, options.SettleDelay = 1024, -1
			test(t, &copyTest{t, options, map[string]bool{}})
		})
	}
}

// commit puts some keys among 500, of which each has the number of its commit.
func (c *copyTest) commit(db *holdfast.DB, n int) {
	c.t.Helper()
	content := ""
	update(c.t, db, func(tx *holdfast.Tx) {
		for i := range 3 {
			b, err := tx.CreateBucketIfNotExists(fmt.Appendf(nil, "b%d", (n+i)%3))
			must(c.t, err)
			must(c.t, b.Put(fmt.Appendf(nil, "%03d", (n*137+i*59)%500), bytes.Repeat(fmt.Appendf(nil, "%05d", n), 6)))
		}
		content = sumOf(tx)
	})
	c.states[content] = true
	if c.options.Durability == holdfast.Periodic && n%4 == 0 {
		must(c.t, db.Sync())
	}
}

// sumOf is a hash of all that a transaction sees.
func sumOf(tx *holdfast.Tx) string {
	h := sha256.New()
	_ = tx.ForEach(func(name []byte, b *holdfast.Bucket) error { // View returns what damage it meets
		fmt.Fprintf(h, "%q\n", name)
		if b == nil {
			return nil
		}
		return b.ForEach(func(k, v []byte) error {
			fmt.Fprintf(h, "%q=%q\n", k, v)
			return nil
		})
	})
	return string(h.Sum(nil))
}

// judge opens a copy, for reading and for writing: it is to be refused, or to have what was
// committed once. It returns what it was.
func (c *copyTest) judge(what string, data []byte, id uint64) (refused, wrong bool) {
	for _, readOnly := range []bool{true, false} {
		mem := vfs.NewMem("copy")
		_, err := mem.Open().WriteAt(data, 0)
		must(c.t, err)
		db, err := bridge.Open(fileNumber{mem.Open(), id}, &holdfast.Options{ReadOnly: readOnly, SettleDelay: -1})
		if err != nil {
			if refused = true; !errors.Is(err, holdfast.ErrTornCopy) && id != 0 {
				c.t.Errorf("%s: %v", what, err)
			}
			if !bytes.Equal(mem.Bytes(), data) {
				c.t.Errorf("%s: opening has changed the file", what)
			}
			continue
		}
		content := ""
		if err := db.View(func(tx *holdfast.Tx) error { content = sumOf(tx); return nil }); err != nil {
			if wrong = true; id != 0 {
				c.t.Errorf("%s: damage was found too late: %v", what, err)
			}
		}
		must(c.t, db.Close())
		wrong = wrong || !c.states[content]
	}
	return refused, wrong
}

// A copy that was made with cp while the file was in use opened without an error, with pages of
// several points in time, wherever the pages of the last two flushes were of one: with StrictCompat and
// NoSync, of which no pages are listed, nearly always. Such a copy is looked at as a whole.
func TestCopyInUse(t *testing.T) {
	modes(t, func(t *testing.T, c *copyTest) {
		mem := vfs.NewMem("original")
		db, err := bridge.Open(fileNumber{mem.Open(), 1}, &c.options)
		must(t, err)
		defer func() { must(t, db.Close()) }()
		db.AllocSize = 1 << 10
		var moments [][]byte
		for n := range 160 {
			if c.commit(db, n); n >= 100 && n%20 == 0 {
				moments = append(moments, mem.Bytes())
			}
		}
		newest := mem.Bytes()
		for _, moment := range append(moments, newest) {
			if refused, wrong := c.judge("of one moment", moment, 2); refused || wrong {
				t.Errorf("a copy of one moment: refused %v, wrong %v", refused, wrong)
			}
		}
		refusals, wrongs, before := 0, 0, 0
		try := func(what string, data []byte) {
			refused, wrong := c.judge(what, data, 2)
			if wrong {
				t.Logf("%s: it is opened, and has what was never committed", what)
				wrongs++
			}
			if refused {
				refusals++
			}
			if _, wrong := c.judge(what, data, 0); wrong { // as before: where files have no identity
				before++
			}
		}
		for m, moment := range moments {
			for at := 2048; at < len(moment); at += 1024 {
				data := bytes.Clone(newest)
				copy(data[at:][:1024], moment[at:])
				try(fmt.Sprintf("page %d as of moment %d", at/1024, m), data)
				data = bytes.Clone(newest)
				copy(data, moment[:at])
				try(fmt.Sprintf("the first %d pages as of moment %d", at/1024, m), data)
				data = bytes.Clone(newest)
				copy(data[at:], moment[at:])
				try(fmt.Sprintf("pages from %d on as of moment %d", at/1024, m), data)
			}
		}
		t.Logf("%d copies refused, %d wrong; of those files without an identity %d are wrong", refusals, wrongs, before)
		// A leaf that was at the same place in the tree, and in the same page of the file, fits: what all
		// pages add up to tells it.
		if before < 100 || wrongs > 0 {
			t.Errorf("%d copies are wrong, and would be %d if nothing was looked at", wrongs, before)
		}
	})
}

// openCopy opens a file under an identity, and tells whether it was looked at as a copy of a file in use.
func openCopy(t *testing.T, mem *vfs.Mem, id uint64, options holdfast.Options) (db *holdfast.DB, looked bool) {
	t.Helper()
	logger := &memoryLogger{}
	options.Logger = logger
	db, err := bridge.Open(fileNumber{mem.Open(), id}, &options)
	must(t, err)
	return db, strings.Contains(logger.text(), "is a copy of a file that was not closed")
}

// What is looked at as a whole takes time, so it is done once, and never of a copy of a closed file,
// nor where the file is still the one that a program wrote to before it was killed.
func TestCopyIsLookedAtOnce(t *testing.T) {
	modes(t, func(t *testing.T, c *copyTest) {
		for _, noList := range []bool{false, true} {
			c.options.NoFreelistSync = noList
			mem := vfs.NewMem("file")
			open := func(id uint64, want bool) *holdfast.DB {
				t.Helper()
				db, looked := openCopy(t, mem, id, c.options)
				if looked != want {
					t.Errorf("opened as file %d it is looked at: %v, want %v", id, looked, want)
				}
				return db
			}
			// kill leaves the file as it is now.
			kill := func(db *holdfast.DB) {
				t.Helper()
				data := mem.Bytes()
				must(t, db.Close())
				mem = vfs.NewMem("file")
				_, err := mem.Open().WriteAt(data, 0)
				must(t, err)
			}
			db := open(1, false)
			c.commit(db, 0)
			must(t, db.Sync())
			must(t, db.Close())
			db = open(2, false) // of a closed file
			c.commit(db, 4)
			must(t, db.Sync())
			kill(db)
			db = open(2, false) // it is the file that it was
			kill(db)
			db = open(3, true)
			c.commit(db, 8)
			must(t, db.Sync())
			kill(db)
			db = open(3, false) // it was looked at
			c.commit(db, 12)
			must(t, db.Close())
			db = open(4, false)
			must(t, db.Close())
		}
	})
}

// fileNames are the numbers of files that the extensions of both slots give.
func fileNames(data []byte, pageSize int) (names [2]uint32) {
	for slot := range names {
		if ext, err := extension.Decode(data[slot*pageSize:][:pageSize]); err == nil {
			names[slot] = ext.File
		}
	}
	return names
}

// A closed file said that it is in use: one that was only opened and closed again, and one whose freelist
// had no room. And with NoSync switched off before it, Close wrote over the last meta page that was durable before it
// had flushed what came after that.
func TestCloseNamesNoFile(t *testing.T) {
	full, unflushed := false, false
	mem := vfs.NewMem("file")
	hook := func(op vfs.Op) error {
		switch {
		case full && (op.Kind == vfs.KindGrow || op.Kind == vfs.KindWrite && op.Off >= 2048):
			return syscall.ENOSPC
		case op.Kind == vfs.KindSync:
			unflushed = false
		case op.Kind == vfs.KindWrite && op.Off < 2048 && unflushed:
			t.Errorf("a meta page is written before what came before it is flushed")
		}
		return nil
	}
	options := holdfast.Options{PageSize: 1024, SettleDelay: -1, StrictCompat: true}
	c := &copyTest{t: t, options: options, states: map[string]bool{}}
	db, err := bridge.Open(vfs.NewInject(fileNumber{mem.Open(), 1}, hook), &options)
	must(t, err)
	for n := range 50 {
		c.commit(db, n)
	}
	used := mem.Bytes()
	full = true
	must(t, db.Close())
	if names := fileNames(mem.Bytes(), 1024); names != [2]uint32{} {
		t.Errorf("closed on a full disk it has %v", names)
	}
	for _, noList := range []bool{false, true} {
		copied := vfs.NewMem("copy")
		_, err = copied.Open().WriteAt(used, 0)
		must(t, err)
		options.NoFreelistSync = noList
		db, looked := openCopy(t, copied, 2, options)
		must(t, db.Close())
		if names := fileNames(copied.Bytes(), 1024); !looked || names != [2]uint32{} {
			t.Errorf("opened and closed it has %v; looked at: %v", names, looked)
		}
	}
	full = false
	mem = vfs.NewMem("file")
	options = holdfast.Options{PageSize: 1024, SettleDelay: -1, NoFreelistSync: true}
	db, err = bridge.Open(vfs.NewInject(fileNumber{mem.Open(), 1}, hook), &options)
	must(t, err)
	c.commit(db, 0)
	must(t, db.Sync())
	db.NoSync = true
	c.commit(db, 1)
	db.NoSync, unflushed = false, true
	must(t, db.Close())
}
