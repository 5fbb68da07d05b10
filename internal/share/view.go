package share

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"holdfast/internal/vfs"
)

// What is to be read whole is tried so often, with a pause before each try but the first ones.
const (
	quick = 64
	pause = time.Millisecond
)

var tries = 1000 // a test has less patience

// view is an open share: what owners, readers and those who only look have in common.
type view struct {
	file  *vfs.OSFile
	words *vfs.Words
	// step, of tests, is called before the steps of a protocol that have a name.
	step func(name string)
}

func (v *view) at(name string) {
	if v.step != nil {
		v.step(name)
	}
}

// View shows a share to a process that reads no pages. Its methods can be called concurrently, except
// Close, which must be the last call.
type View struct{ view }

// Attach opens the share of a database. Errors wrap ErrNoOwner, ErrOwnerDied, ErrForeign, and errors.ErrUnsupported.
func Attach(dir string, id Identity) (*View, error) {
	v, err := attach(filepath.Join(dir, id.name()))
	if err == nil {
		err = v.check(func(head [headWords]uint64) bool {
			return head[wordDev] == id.Dev && head[wordInode] == id.Ino && (head[wordPages] == id.PageSize || id.PageSize == 0)
		})
	}
	if err != nil {
		return nil, errors.Join(err, v.release())
	}
	return &View{v}, nil
}

// attach opens and maps the share at path, if it has an owner.
func attach(path string) (v view, err error) {
	if v.file, err = openFile(path, 0, nil); errors.Is(err, os.ErrNotExist) {
		return v, fmt.Errorf("%s: %w", path, ErrNoOwner)
	} else if err != nil {
		return v, err
	}
	locked, err := v.file.ByteLocked(ownerByte)
	if err != nil || !locked {
		return v, cmp.Or(err, fmt.Errorf("%s: %w", path, unowned(path)))
	}
	if size, err := v.file.Size(); err != nil || size != fileSize {
		return v, cmp.Or(err, fmt.Errorf("%s has %d bytes: %w", path, size, ErrForeign))
	}
	v.words, err = v.file.MapWords(fileSize)
	return v, err
}

// unowned is the error of a share whose lock no owner has: one that closes the database removes its share first.
func unowned(path string) error {
	if _, err := os.Lstat(path); err == nil {
		return ErrOwnerDied
	}
	return ErrNoOwner
}

// Owned is an error that wraps ErrOwnerGone if the owner has closed the database, or is dead, since Attach.
func (v *View) Owned() error {
	locked, err := v.file.ByteLocked(ownerByte)
	if err != nil || !locked {
		return cmp.Or(err, ErrOwnerGone)
	}
	return nil
}

// check looks at the head before anything else of the file is used.
func (v *view) check(same func(head [headWords]uint64) bool) (err error) {
	defer v.words.CatchFault(debug.SetPanicOnFault(true), v.gone(&err))
	boot, err := bootID()
	if err != nil {
		return err
	}
	head := v.head()
	if head[wordMagic] != magic || head[wordVersion] != version || head[wordSize] != fileSize ||
		[2]uint64(head[wordBoot:wordBoot+2]) != boot || !same(head) {
		return fmt.Errorf("%s: %w", v.file.Name(), ErrForeign)
	}
	return nil
}

// Owner is the process of the owner, as it sees itself, and the database's page size in bytes. Either may be anything.
func (v *view) Owner() (pid, pageSize uint64, err error) {
	defer v.words.CatchFault(debug.SetPanicOnFault(true), v.gone(&err))
	return v.words.Load(wordPID), v.words.Load(wordPages), nil
}

func (v *view) head() (head [headWords]uint64) {
	for i := range head {
		head[i] = v.words.Load(i)
	}
	return head
}

// gone is for CatchFault: a reader cannot tell a share that was shortened from one without an owner.
func (v *view) gone(err *error) func(error) {
	return func(fault error) { *err = fmt.Errorf("%w: %w", ErrOwnerGone, fault) }
}

// whole calls read, which tells whether what it has read is of one piece, until it is. It ends when the
// owner is dead, which may have left the sequence odd.
func (v *view) whole(read func() bool) error {
	for try := range quick + tries {
		if read() {
			return nil
		}
		if try < quick {
			continue
		}
		if locked, err := v.file.ByteLocked(ownerByte); err != nil || !locked {
			return cmp.Or(err, ErrOwnerGone)
		}
		time.Sleep(pause)
	}
	return ErrBusy
}

// state is the newest state.
func (v *view) state() (s State, err error) {
	err = v.whole(func() bool {
		var w [stateFields]uint64
		sequence := v.words.Load(wordState)
		for i := range w {
			w[i] = v.words.Load(wordState + 1 + i)
			v.at("field")
		}
		s = unpack(w)
		return sequence%2 == 0 && v.words.Load(wordState) == sequence
	})
	if err == nil && s.Tx > MaxTx {
		err = fmt.Errorf("transaction %d: %w", s.Tx, ErrForeign)
	}
	return s, err
}

// State is the newest state that the owner has published.
func (v *view) State() (s State, err error) {
	defer v.words.CatchFault(debug.SetPanicOnFault(true), v.gone(&err))
	return v.state()
}

// Figures is the document that the owner has given last; empty if it has given none.
func (v *View) Figures() (document []byte, err error) {
	defer v.words.CatchFault(debug.SetPanicOnFault(true), v.gone(&err))
	err = v.whole(func() bool {
		sequence := v.words.Load(wordFigures)
		length := int(min(v.words.Load(wordFigures+1), MaxFigures)) // it comes from another process
		document = document[:0]
		for i := wordFigures + 2; len(document) < length; i++ {
			document = binary.NativeEndian.AppendUint64(document, v.words.Load(i))
		}
		document = document[:length]
		return sequence%2 == 0 && v.words.Load(wordFigures) == sequence
	})
	return document, err
}

// ReaderInfo is what a reader says of itself. All but Slot may be anything.
type ReaderInfo struct {
	Slot   int
	PID    uint64    // in the reader's own pid namespace
	Opened time.Time // when it opened the share
	Holds  bool      // it is in a transaction
	Tx     uint64    // whose state it holds, and
	Since  time.Time // since when
	Ended  bool
}

// Readers are the living readers, in the order of their slots. It takes a system call for each.
func (v *view) Readers() (list []ReaderInfo, err error) {
	defer v.words.CatchFault(debug.SetPanicOnFault(true), v.gone(&err))
	for i := range Slots {
		if !v.inUse(i) {
			continue
		}
		locked, failed := v.file.ByteLocked(slotByte(i))
		if failed != nil {
			return list, failed
		}
		if !locked {
			continue
		}
		held := v.words.Load(slotWord(i, slotHeld))
		r := ReaderInfo{Slot: i, PID: v.words.Load(slotWord(i, slotPID)), Opened: v.time(slotWord(i, slotOpened)), Ended: held == ended}
		if held != none && held != ended {
			r.Holds, r.Tx, r.Since = true, held-1, v.time(slotWord(i, slotSince))
		}
		list = append(list, r)
	}
	return list, nil
}

func (v *view) time(word int) time.Time { return time.Unix(0, int64(v.words.Load(word))) }

// EndReader ends a reader, if it has its slot still: from then on the slot pins nothing, and the reader can confirm
// nothing more. It tells whether it did: not one that has left, or was ended. If in the same moment that one leaves, another
// one takes its slot and holds the same, the other one ends.
func (v *view) EndReader(r ReaderInfo) (did bool, err error) {
	if r.Slot < 0 || r.Slot >= Slots {
		return false, fmt.Errorf("end the reader in slot %d: slots are 0 to %d", r.Slot, Slots-1)
	}
	defer v.words.CatchFault(debug.SetPanicOnFault(true), v.gone(&err))
	word := slotWord(r.Slot, slotHeld)
	for range endTries {
		held := v.words.Load(word) // before the look at whose slot it is
		if held == ended || !v.inUse(r.Slot) || v.words.Load(slotWord(r.Slot, slotPID)) != r.PID || !v.time(slotWord(r.Slot, slotOpened)).Equal(r.Opened) {
			return false, nil
		}
		v.at("end")
		if v.words.CompareAndSwap(word, held, ended) {
			return true, nil
		}
	}
	v.words.Store(word, ended)
	return true, nil
}

// endTries is how often a reader that begins and ends all the time is waited for.
const endTries = 1000

// inUse tells whether the bit of slot i is set.
func (v *view) inUse(i int) bool { return v.words.Load(wordInUse+i/64)>>(i%64)&1 != 0 }

// vacate clears slot i, and then its bit. The caller has the lock of the slot.
func (v *view) vacate(i int) {
	for field := range slotLastField + 1 {
		v.words.Store(slotWord(i, field), 0)
	}
	v.words.AndNot(wordInUse+i/64, 1<<(i%64))
}

// Close closes the share.
func (v *View) Close() error { return v.release() }

// release gives back what is open, and with it all locks: those of an open file last as long as its mapping.
func (v *view) release() (err error) {
	if v.words != nil {
		err = v.words.Close()
	}
	if v.file != nil {
		err = errors.Join(err, v.file.Close())
	}
	return err
}

// Info is a share in a directory.
type Info struct {
	Identity
	PID     uint64    // of the owner, in its own pid namespace
	Since   time.Time // when the database was shared
	Readers int       // that are there
}

// List is the shares in a directory whose owners live, ordered by name. What cannot be read is left out, and
// the error says why, besides what was found. A directory that is not there has none.
func List(dir string) (list []Info, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	for _, entry := range entries {
		if entry.Name()[0] == '.' || !entry.Type().IsRegular() {
			continue
		}
		info, failed := look(filepath.Join(dir, entry.Name()))
		switch {
		case failed == nil:
			list = append(list, info)
		case !errors.Is(failed, ErrNoOwner) && !errors.Is(failed, ErrOwnerGone):
			err = errors.Join(err, failed)
		}
	}
	return list, err
}

// look is one of List.
func look(path string) (info Info, err error) {
	v, err := attach(path)
	defer func() { err = errors.Join(err, v.release()) }()
	if err != nil {
		return info, err
	}
	var head [headWords]uint64
	err = v.check(func(h [headWords]uint64) bool {
		head = h
		return Identity{Dev: h[wordDev], Ino: h[wordInode]}.name() == filepath.Base(path)
	})
	if err != nil {
		return info, err
	}
	readers, err := v.Readers()
	return Info{Identity: Identity{Dev: head[wordDev], Ino: head[wordInode], PageSize: head[wordPages]},
		PID: head[wordPID], Since: time.Unix(0, int64(head[wordSince])), Readers: len(readers)}, err
}
