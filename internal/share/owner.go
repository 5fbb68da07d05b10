package share

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Database is the open file of a database, as far as tenures need it; *vfs.OSFile is one. The owner's must be open
// for writing, and have the database's exclusive lock from before Create until after Close.
type Database interface {
	TryLockByte(off int64) (bool, error)
	UnlockByte(off int64) error
	ByteLocked(off int64) (bool, error)
}

// Options are those of Create.
type Options struct {
	// Like says whose the share file is to be: the user and the group who may read the database can write it, if
	// it can be given to them, and so read the database through it. See the package's document on what else they can do. nil: its
	// maker's alone.
	Like Access
	// Warn is called at most once, if sharing has ended because the share file cannot be read or
	// written any more. It may be nil.
	Warn func(error)
}

// Access is who may do what with the database; *vfs.OSFile is one.
type Access interface {
	Access() (mode os.FileMode, user, group int, err error)
}

// Owner is the owner's side of a share. Its methods can be called concurrently, except Close, which
// must be the last call; but of Publish, Pins and PublishThenPins the caller makes one call at a time.
type Owner struct {
	view
	path     string
	info     os.FileInfo // of the share's file
	database Database
	nonce    uint64
	warn     func(error)

	figuring        sync.Mutex
	states, figures uint64 // sequences, which are not read back from the file

	clearing sync.Mutex // serializes Reap

	turnOff sync.Once
	off     atomic.Bool // the tenure has ended: no slot counts
	stuck   error       // set before off: the tenure could not be ended
}

// Create shares the database whose open file is given, in directory dir, which is made if it is not there. It
// replaces what a dead owner has left. Readers begin with first.
//
// Errors wrap ErrOwned if another process shares the database, and errors.ErrUnsupported where the system
// cannot.
func Create(dir string, id Identity, database Database, first State, opts Options) (o *Owner, err error) {
	defer func() {
		if err != nil {
			o, err = nil, fmt.Errorf("share the database in %s: %w", dir, err)
		}
	}()
	boot, err := bootID()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, id.name())
	if err := noOtherOwner(path); err != nil {
		return nil, err
	}
	removeTemporary(dir, id)
	removeDead(dir, path)
	o = &Owner{path: path, database: database, nonce: newNonce(), warn: opts.Warn, states: 2}
	temporary := filepath.Join(dir, fmt.Sprintf("%s%016x", temporaryPrefix(id), o.nonce))
	if o.file, err = openFile(temporary, os.O_CREATE|os.O_EXCL, opts.Like); err != nil {
		return nil, err
	}
	words := [wordSlots]uint64{wordMagic: magic, wordVersion: version, wordSize: fileSize, wordNonce: o.nonce,
		wordBoot: boot[0], wordBoot + 1: boot[1], wordDev: id.Dev, wordInode: id.Ino, wordPages: id.PageSize,
		wordPID: uint64(os.Getpid()), wordSince: uint64(time.Now().UnixNano()), wordState: o.states}
	for i, w := range first.pack() {
		words[wordState+1+i] = w
	}
	if err := o.begin(temporary, words[:]); err != nil {
		return nil, errors.Join(err, os.Remove(temporary), database.UnlockByte(tenureByte(o.nonce)), o.release())
	}
	return o, nil
}

func newNonce() uint64 {
	var random [8]byte
	_, _ = rand.Read(random[:]) // it cannot fail
	return binary.NativeEndian.Uint64(random[:])
}

// begin makes the new file a share, and only then gives it its name.
func (o *Owner) begin(temporary string, words []uint64) error {
	// Written, and not only made long: a block that cannot be had must show here and not as a fault.
	content := make([]byte, 0, fileSize)
	for _, w := range words {
		content = binary.NativeEndian.AppendUint64(content, w)
	}
	if _, err := o.file.WriteAt(content[:fileSize], 0); err != nil {
		return err
	}
	var err error
	if o.words, err = o.file.MapWords(fileSize); err != nil {
		return err
	}
	if o.info, err = os.Lstat(temporary); err != nil {
		return err
	}
	if ok, err := o.database.TryLockByte(tenureByte(o.nonce)); err != nil || !ok {
		return cmp.Or(err, errLocked)
	}
	if ok, err := o.file.TryLockByte(ownerByte); err != nil || !ok {
		return cmp.Or(err, ErrOwned)
	}
	return os.Rename(temporary, o.path)
}

// errLocked is the error of an owner who cannot begin a tenure. Who may only read the database can cause it, see the package's document.
var errLocked = errors.New("another program has locked bytes of the database beyond its end (see /proc/locks)")

// dying is how often noOtherOwner looks.
const dying = 100

// noOtherOwner looks at what has the name of the share. The caller has the exclusive lock of the
// database, so an owner can be there only for as long as it takes to die.
func noOtherOwner(path string) error {
	for range dying {
		file, err := openFile(path, 0, nil)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		locked, err := file.ByteLocked(ownerByte)
		if err = errors.Join(err, file.Close()); err != nil || !locked {
			return err
		}
		time.Sleep(pause)
	}
	return fmt.Errorf("%s: %w", path, ErrOwned)
}

// removeTemporary removes what owners left that died while they made a share. The caller has the
// exclusive lock of the database, so none is being made.
func removeTemporary(dir string, id Identity) {
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), temporaryPrefix(id)) {
			_ = os.Remove(filepath.Join(dir, entry.Name())) // a file that stays does no harm
		}
	}
}

// temporaryPrefix begins the names of what is not a share yet.
func temporaryPrefix(id Identity) string { return "." + id.name() + "." }

// Publish makes s the state with which readers begin. It takes no system call and no memory.
// A state must be published before what it freed is reused, and after all that it needs can be read in the
// database's file.
func (o *Owner) Publish(s State) {
	if o.off.Load() {
		return
	}
	defer o.words.CatchFault(debug.SetPanicOnFault(true), o.lost)
	o.publish(&s)
}

func (o *Owner) publish(s *State) {
	o.at("publish")
	o.words.Store(wordState, o.states+1)
	for i, w := range s.pack() {
		if o.words.Load(wordState+1+i) != w { // a store takes ten times as long as a look
			o.at("field")
			o.words.Store(wordState+1+i, w)
		}
	}
	o.states += 2
	o.words.Store(wordState, o.states)
}

// Pins appends to dst the transactions whose states readers hold: with t among them, no page may
// be reused, nor be cut off the file, that t can reach. What the transactions up to f freed may be reused, as
// far as readers of the share go, if a call that began after f was published does not name a state
// that reaches it. The numbers come from readers and can be any.
//
// An error says that the share cannot be read, and its tenure not be ended: nothing may be reused
// until Close. While no reader is there it is two loads.
func (o *Owner) Pins(dst []uint64) ([]uint64, error) { return o.pinsAfter(nil, dst) }

// PublishThenPins is Publish, then Pins, in less time.
func (o *Owner) PublishThenPins(s State, dst []uint64) ([]uint64, error) { return o.pinsAfter(&s, dst) }

// pinsAfter publishes s, if there is one, and appends to dst what readers hold then.
func (o *Owner) pinsAfter(s *State, dst []uint64) (pins []uint64, err error) {
	if o.off.Load() {
		return dst, o.stuck
	}
	before := len(dst)
	pins = dst
	defer o.words.CatchFault(debug.SetPanicOnFault(true), func(fault error) {
		o.lost(fault)
		pins, err = dst[:before], o.stuck
	})
	if s != nil {
		o.publish(s)
	}
	for word, mask := range inUseMasks {
		for used := o.words.Load(wordInUse+word) & mask; used != 0; used &= used - 1 {
			held := o.words.Load(slotWord(word*64+bits.TrailingZeros64(used), slotHeld))
			if held != none && held != ended {
				pins = append(pins, held-1)
			}
		}
	}
	return pins, nil
}

// inUseMasks have the bits of the slots that there are.
var inUseMasks = [2]uint64{1<<64 - 1, 1<<(Slots-64) - 1}

// Reap clears the slots of readers that are dead, and returns how many. It takes a system call for each slot that is
// or was used; call it about once in a second while Pins names a transaction, or slots are short.
func (o *Owner) Reap() (cleared int, err error) {
	o.clearing.Lock()
	defer o.clearing.Unlock()
	if o.off.Load() {
		return 0, nil
	}
	defer o.words.CatchFault(debug.SetPanicOnFault(true), o.lost)
	for i := range Slots {
		if o.words.Load(slotWord(i, slotHeld)) == none && !o.inUse(i) {
			continue
		}
		ok, failed := o.file.TryLockByte(slotByte(i))
		if failed != nil {
			return cleared, failed
		}
		if !ok {
			continue // its reader lives
		}
		o.at("locked")
		o.vacate(i)
		if err := o.file.UnlockByte(slotByte(i)); err != nil {
			return cleared, err
		}
		cleared++
	}
	return cleared, nil
}

// Stop says that writing has stopped at a durable transaction: readers of later ones can confirm
// nothing more. Publish the state of that transaction next, so that readers can go on.
func (o *Owner) Stop(durable uint64) {
	if o.off.Load() {
		return
	}
	defer o.words.CatchFault(debug.SetPanicOnFault(true), o.lost)
	o.words.Store(wordStoppedAt, durable)
	o.words.Store(wordStopped, 1)
}

// Figures replaces the owner's figures, a JSON document that watchers read. It can have
// MaxFigures bytes.
func (o *Owner) Figures(document []byte) error {
	if len(document) > MaxFigures {
		return fmt.Errorf("figures of %d bytes: a share has room for %d", len(document), MaxFigures)
	}
	if o.off.Load() {
		return nil
	}
	o.figuring.Lock()
	defer o.figuring.Unlock()
	defer o.words.CatchFault(debug.SetPanicOnFault(true), o.lost)
	o.words.Store(wordFigures, o.figures+1)
	o.words.Store(wordFigures+1, uint64(len(document)))
	var last [8]byte
	for i := wordFigures + 2; len(document) > 0; i++ {
		n := copy(last[:], document)
		document = document[n:]
		o.words.Store(i, binary.NativeEndian.Uint64(last[:]))
	}
	o.figures += 2
	o.words.Store(wordFigures, o.figures)
	return nil
}

// lost ends the tenure after a fault, and only then lets pages go that slots hold.
func (o *Owner) lost(fault error) {
	o.turnOff.Do(func() {
		o.at("fault")
		o.stuck = o.database.UnlockByte(tenureByte(o.nonce))
		o.off.Store(true)
		_ = o.file.UnlockByte(ownerByte) // the tenure is over, so readers can do no wrong
		if o.warn != nil {
			o.warn(fmt.Errorf("the database is no longer shared with other processes: %w", errors.Join(fault, o.stuck)))
		}
	})
}

// Close ends the tenure and removes the share. The database's exclusive lock must be given back after it.
func (o *Owner) Close() error {
	err := o.database.UnlockByte(tenureByte(o.nonce))
	o.at("tenure ended")
	if there, failed := os.Lstat(o.path); failed == nil && os.SameFile(there, o.info) {
		err = errors.Join(err, os.Remove(o.path))
	}
	return errors.Join(err, o.release())
}
