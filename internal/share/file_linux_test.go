package share

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// pagesBytes is how much the file of a test's database has.
const pagesBytes = 64 * 4096

// A share can be written by those who may read the database, by its user and group, whatever the umask, and is gone with its owner.
func TestCreate(t *testing.T) {
	d := newDatabase(t)
	must(t, os.Chmod(d.path, 0o644))
	before := unix.Umask(0o077)
	file := d.opened(t, os.O_RDWR)
	o, err := Create(d.dir, d.id, file, State{Tx: 1}, Options{Like: file})
	unix.Umask(before)
	must(t, err)
	info, err := os.Stat(d.share())
	if must(t, err); info.Mode() != 0o660 || info.Size() != fileSize {
		t.Errorf("the share has mode %v and %d bytes", info.Mode(), info.Size())
	}
	_, err = Create(d.dir, d.id, d.opened(t, os.O_RDWR), State{Tx: 1}, Options{})
	wants(t, "a second owner", err, ErrOwned)
	must(t, o.Close())
	if left, err := os.ReadDir(d.dir); err != nil || len(left) != 0 {
		t.Errorf("%v is left (%v)", left, err)
	}
}

// What dead owners left goes, whole shares and others.
func TestCreateReplaces(t *testing.T) {
	d := newDatabase(t)
	dead := d.owner(t)
	dead.Publish(State{Tx: 9})
	must(t, dead.release())
	must(t, dead.database.UnlockByte(tenureByte(dead.nonce)))
	must(t, os.WriteFile(filepath.Join(d.dir, "."+d.id.name()+".0123456789abcdef"), nil, 0o600))
	_, err := Open(d.dir, d.id, d.opened(t, os.O_RDONLY))
	wants(t, "Open of what a dead owner left", err, ErrNoOwner)
	o := d.owner(t)
	if s := begin(t, d.reader(t)); s.Tx != 1 {
		t.Errorf("transaction %d of the owner before", s.Tx)
	}
	if left, err := os.ReadDir(d.dir); err != nil || len(left) != 1 {
		t.Errorf("%v is there (%v)", left, err)
	}
	// The share of another owner stays, if one is there that had no right to be.
	must(t, os.Rename(d.share(), d.share()+"x"))
	must(t, os.WriteFile(d.share(), nil, 0o600))
	must(t, o.Close())
	if _, err := os.Stat(d.share()); err != nil {
		t.Error(err)
	}
}

// What killed owners of other databases left goes, and shares that live stay, whatever else is in the directory.
func TestRemoveDead(t *testing.T) {
	dead, alive, d := newDatabase(t), newDatabase(t), newDatabase(t)
	dead.dir, alive.dir = d.dir, d.dir
	o := dead.owner(t)
	must(t, o.release())
	alive.owner(t)
	others := map[string][]byte{"12-34": nil, "12-35": make([]byte, fileSize), "etcd.json": make([]byte, fileSize)}
	for name, content := range others {
		must(t, os.WriteFile(filepath.Join(d.dir, name), content, 0o600))
	}
	d.owner(t)
	if _, err := os.Stat(dead.share()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the dead one is left (%v)", err)
	}
	alive.reader(t)
	if left, err := os.ReadDir(d.dir); err != nil || len(left) != len(others)+2 {
		t.Errorf("%v is left (%v)", left, err)
	}
	// One that lives, and was taken for dead a moment ago, gets its name back.
	removeIfDead(alive.share())
	alive.reader(t)
}

// Two owners of other databases moved to the same name what one owner had left, and what the next one had just made: the first
// removed the share of the one that lives, before the second could move it back.
func TestRemoveDeadTwice(t *testing.T) {
	d := newDatabase(t)
	must(t, d.owner(t).release())
	defer func() { judged = func() {} }()
	moved, removed, ended := make(chan bool), make(chan bool), make(chan bool)
	judged = func() { // by the first, which has found a dead one
		judged = func() { // by the second, which had found a dead one, too
			close(moved)
			<-removed
		}
		d.owner(t)
		go func() {
			defer close(ended)
			removeIfDead(d.share())
		}()
		<-moved
	}
	removeIfDead(d.share())
	close(removed)
	<-ended
	d.reader(t)
	if left, err := os.ReadDir(d.dir); err != nil || len(left) != 1 {
		t.Errorf("%v is left (%v)", left, err)
	}
}

// What is no file is neither followed nor waited for, on both sides.
func TestNoFile(t *testing.T) {
	for name, make := range map[string]func(d *database) error{
		"link": func(d *database) error { return os.Symlink(d.path, d.share()) },
		"pipe": func(d *database) error { return unix.Mkfifo(d.share(), 0o600) },
		"dir":  func(d *database) error { return os.Mkdir(d.share(), 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDatabase(t)
			must(t, os.Mkdir(d.dir, 0o755))
			must(t, make(d))
			_, err := Create(d.dir, d.id, d.opened(t, os.O_RDWR), State{}, Options{})
			if err == nil {
				t.Error("a share was made over it")
			}
			if _, err = Open(d.dir, d.id, d.opened(t, os.O_RDONLY)); err == nil {
				t.Error("it was opened")
			}
			if list, err := List(d.dir); len(list) != 0 || err != nil {
				t.Errorf("it is listed: %v (%v)", list, err)
			}
			if b, err := os.ReadFile(d.path); err != nil || len(b) != pagesBytes || bytes.ContainsAny(b, "H") {
				t.Error("the database was written to")
			}
		})
	}
}

// A file with another head is not used, though its first byte is locked.
func TestForeign(t *testing.T) {
	d := newDatabase(t)
	o := d.owner(t)
	file := d.opened(t, os.O_RDONLY)
	for _, word := range []int{wordMagic, wordVersion, wordSize, wordBoot, wordBoot + 1, wordDev, wordInode, wordPages} {
		before := o.words.Load(word)
		o.words.Store(word, before+1)
		_, err := Open(d.dir, d.id, file)
		wants(t, fmt.Sprintf("Open with another word %d", word), err, ErrForeign)
		if _, err := List(d.dir); word != wordPages {
			wants(t, fmt.Sprintf("List with another word %d", word), err, ErrForeign)
		}
		o.words.Store(word, before)
	}
	o.words.Store(wordNonce, 1)
	_, err := Open(d.dir, d.id, file)
	wants(t, "Open of a tenure that there is not", err, ErrNoOwner)
	for _, size := range []int64{0, 1, fileSize - 1, fileSize + 1} {
		must(t, os.Truncate(d.share(), size))
		_, err := Open(d.dir, d.id, file)
		wants(t, fmt.Sprintf("Open of %d bytes", size), err, ErrForeign)
	}
}

// A process that cannot write the database cannot pretend to own it.
func TestTenureNeedsWriting(t *testing.T) {
	d := newDatabase(t)
	if _, err := Create(d.dir, d.id, d.opened(t, os.O_RDONLY), State{}, Options{}); !errors.Is(err, unix.EBADF) {
		t.Fatalf("a database that is open for reading was shared (%v)", err)
	}
	if left, err := os.ReadDir(d.dir); err != nil || len(left) != 0 {
		t.Errorf("%v is left (%v)", left, err)
	}
}

// A process that could only read the database locked bytes of it, and the owner was told of another one that shares it.
func TestTenureLocked(t *testing.T) {
	d := newDatabase(t)
	file, err := os.Open(d.path)
	must(t, err)
	defer file.Close()
	lock := unix.Flock_t{Type: unix.F_RDLCK, Start: tenureByte(0)}
	must(t, unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &lock))
	_, err = Create(d.dir, d.id, d.opened(t, os.O_RDWR), State{}, Options{})
	wants(t, "an owner", err, errLocked)
	if left, err := os.ReadDir(d.dir); err != nil || len(left) != 0 {
		t.Errorf("%v is left (%v)", left, err)
	}
}

func TestFigures(t *testing.T) {
	impatient(t)
	d := newDatabase(t)
	o := d.owner(t)
	v, err := Attach(d.dir, d.id)
	must(t, err)
	defer v.Close()
	for _, document := range []string{"", `{"commits":7}`, strings.Repeat("x", MaxFigures), "{}", "12345678"} {
		must(t, o.Figures([]byte(document)))
		got, err := v.Figures()
		if must(t, err); string(got) != document {
			t.Fatalf("%d bytes of figures, and not the %d that were given", len(got), len(document))
		}
	}
	if o.Figures(make([]byte, MaxFigures+1)) == nil {
		t.Error("longer figures than there is room for")
	}
	o.words.Store(wordFigures+1, 1<<63) // whatever stands there
	got, err := v.Figures()
	if must(t, err); len(got) != MaxFigures {
		t.Errorf("%d bytes", len(got))
	}
	o.words.Store(wordFigures, 1)
	_, err = v.Figures()
	wants(t, "Figures that are being written", err, ErrBusy)
}

func TestList(t *testing.T) {
	a, b := newDatabase(t), newDatabase(t)
	b.dir = a.dir
	list, err := List(a.dir)
	if must(t, err); len(list) != 0 {
		t.Fatal(list)
	}
	oa, ob := a.owner(t), b.owner(t)
	a.reader(t)
	a.reader(t)
	must(t, os.WriteFile(filepath.Join(a.dir, "notes"), []byte("of a person"), 0o600))
	list, err = List(a.dir)
	must(t, err)
	readers := map[Identity]int{a.id: 2, b.id: 0}
	for _, info := range list {
		want, ok := readers[info.Identity]
		if !ok || info.Readers != want || info.PID != uint64(os.Getpid()) || info.Since.IsZero() {
			t.Errorf("%+v", info)
		}
	}
	if len(list) != 2 {
		t.Errorf("%d shares", len(list))
	}
	v, err := Attach(a.dir, a.id)
	must(t, err)
	if s, err := v.State(); err != nil || s.Tx != 1 {
		t.Errorf("transaction %d (%v)", s.Tx, err)
	}
	must(t, v.Close())
	must(t, oa.Close())
	must(t, ob.Close())
	list, err = List(a.dir)
	if must(t, err); len(list) != 0 {
		t.Error(list)
	}
}

// The owner pays nothing that grows, in the path of each commit.
func TestCost(t *testing.T) {
	d := newDatabase(t)
	o, r := d.owner(t), d.reader(t)
	begin(t, r)
	room := make([]uint64, 0, Slots)
	for name, call := range map[string]func(){
		"Publish":         func() { o.Publish(State{Tx: 2}) },
		"PublishThenPins": func() { _, _ = o.PublishThenPins(State{Tx: 3}, room) },
		"Pins":            func() { _, _ = o.Pins(room) },
	} {
		if n := testing.AllocsPerRun(100, call); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}

func BenchmarkPublish(b *testing.B) {
	o := newDatabase(b).owner(b)
	for i := 0; b.Loop(); i++ {
		o.Publish(State{Tx: uint64(i)})
	}
}

func BenchmarkPins(b *testing.B) {
	d := newDatabase(b)
	o := d.owner(b)
	room := make([]uint64, 0, Slots)
	b.Run("none", func(b *testing.B) {
		for b.Loop() {
			_, _ = o.Pins(room)
		}
	})
	r := d.reader(b)
	begin(b, r)
	b.Run("one", func(b *testing.B) {
		for b.Loop() {
			_, _ = o.Pins(room)
		}
	})
	b.Run("confirm", func(b *testing.B) {
		for b.Loop() {
			must(b, r.Confirm())
		}
	})
	must(b, r.End())
	b.Run("begin-end", func(b *testing.B) {
		for b.Loop() {
			begin(b, r)
			must(b, r.End())
		}
	})
}

// A share whose owner has closed the database is not there; that of one that died, or has given up, is and says so.
func TestOwnerDied(t *testing.T) {
	for _, closed := range []bool{true, false} {
		d := newDatabase(t)
		o := d.owner(t)
		v, err := Attach(d.dir, d.id)
		must(t, err)
		must(t, v.Owned())
		if closed {
			must(t, o.Close())
		} else {
			must(t, o.release())
		}
		wants(t, "an owner", v.Owned(), ErrOwnerGone)
		must(t, v.Close())
		_, err = Attach(d.dir, d.id)
		wants(t, "attach", err, ErrNoOwner)
		if errors.Is(err, ErrOwnerDied) == closed {
			t.Errorf("closed: %v, and attach: %v", closed, err)
		}
	}
}
