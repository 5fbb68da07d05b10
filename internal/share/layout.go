package share

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
)

// Slots is how many readers a share can have at a time.
const Slots = 126

// MaxFigures is the length of the longest figures, in bytes.
const MaxFigures = 56 << 10

// Errors of readers. They come wrapped.
var (
	// ErrNoOwner is wrapped when no process shares the database.
	ErrNoOwner = errors.New("no process shares the database")
	// ErrOwnerDied is wrapped, besides ErrNoOwner, when the last process that shared the database ended without closing it, or
	// could not go on to share it.
	ErrOwnerDied = fmt.Errorf("%w: the one that did ended without closing it, or can share it no more", ErrNoOwner)
	// ErrOwned is wrapped when another process shares the database.
	ErrOwned = errors.New("another process shares the database")
	// ErrNoSlot is wrapped when as many readers as a share can have are there.
	ErrNoSlot = fmt.Errorf("all %d slots for readers are taken", Slots)
	// ErrOwnerGone is wrapped when the tenure of the owner has ended: what was read since the
	// last Confirm may be wrong. Open the database, or the share, again.
	ErrOwnerGone = errors.New("the process that shared the database is gone: what was read may be wrong; open it again")
	// ErrEnded is wrapped when a person has ended the reader: what was read since the last Confirm may be wrong.
	ErrEnded = errors.New("the reader was ended: what was read may be wrong; open the share again")
	// ErrStopped is wrapped when the owner could not make durable what the reader reads. Begin again.
	ErrStopped = errors.New("the state that was read did not become durable; begin again")
	// ErrBusy is wrapped when the state, or the figures, could not be read whole in a second.
	ErrBusy = errors.New("the share changes faster than it can be read, or its owner stands still")
	// ErrForeign is wrapped when a file is no share of this database, version and machine.
	ErrForeign = errors.New("not a share of this database on this machine")
)

// DefaultDirMeaning says what DefaultDir is.
const DefaultDirMeaning = "/run/holdfast/share, or holdfast/share in XDG_RUNTIME_DIR for a user who is not root"

// DefaultDir is where databases are shared that are given no directory.
func DefaultDir() string {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" && os.Geteuid() != 0 {
		return filepath.Join(dir, "holdfast", "share")
	}
	return "/run/holdfast/share"
}

// Identity says of which database a share is.
type Identity struct {
	Dev, Ino uint64 // of its file
	PageSize uint64 // in bytes; 0, of one that is looked for: any
}

// name is the name of the share's file.
func (id Identity) name() string { return fmt.Sprintf("%x-%x", id.Dev, id.Ino) }

// ParseName is of which database a file in a directory of shares can be the share, by its name.
func ParseName(name string) (id Identity, ok bool) {
	_, err := fmt.Sscanf(name, "%x-%x", &id.Dev, &id.Ino)
	return id, err == nil && id.name() == name
}

// State is what a reader needs to read the database as one transaction left it.
type State struct {
	Tx        uint64 // number of the transaction, at most MaxTx
	Root      uint64 // page
	Sequence  uint64 // of the root bucket
	HighWater uint64 // the first page never used
	Free      uint64 // number of free pages
	Slot      uint64 // of the meta that describes it
	Label     uint64 // of that meta
	Visible   bool   // not durable yet
	Durable   uint64 // the newest transaction that is known to be durable
}

// MaxTx is the highest number of a transaction that can be shared.
const MaxTx = math.MaxUint64 - 2

// What a slot can hold besides the number of a transaction, to which one is added.
const (
	none  = 0
	ended = math.MaxUint64
)

// The file, in words of 64 bits. Parts that different processes write lie on cache lines of
// their own.
const (
	// The head. It does not change.
	wordMagic   = 0
	wordVersion = 1
	wordSize    = 2 // of the file, in bytes
	wordNonce   = 3
	wordBoot    = 4 // 2 words: which boot of which machine
	wordDev     = 6
	wordInode   = 7
	wordPages   = 8  // page size
	wordPID     = 9  // of the owner, as it sees it
	wordSince   = 10 // when the share was made, in ns since 1970
	headWords   = 11

	// The state: a sequence, odd while the rest is written, and the fields of State.
	wordState   = 16
	stateFields = 9

	// Whether, and at which durable transaction, writing has stopped.
	wordStopped   = 32
	wordStoppedAt = 33

	// A bit for each slot in use.
	wordInUse = 48

	// The slots.
	wordSlots     = 64
	slotWords     = 8
	slotHeld      = 0 // transaction + 1, none or ended
	slotSince     = 1 // when it began, in ns since 1970
	slotPID       = 2 // of the reader, as it sees it
	slotOpened    = 3 // when it opened the share, in ns since 1970
	slotLastField = slotOpened

	// The figures: a sequence, a length in bytes, and as many bytes.
	wordFigures = wordSlots + Slots*slotWords
	fileWords   = wordFigures + 2 + MaxFigures/8

	fileSize = fileWords * 8

	magic   = 0x31657261_68536448 // "HdShare1" where the lowest byte comes first
	version = 2
)

// slotWord is the place of a field of slot i.
func slotWord(i, field int) int { return wordSlots + i*slotWords + field }

// Locks of bytes of the share file. The owner has that of byte 0.
const ownerByte = 0

// slotByte is the byte whose lock gives slot i to a reader.
func slotByte(i int) int64 { return int64(slotWord(i, 0)) * 8 }

// tenureByte is the byte of the database whose lock is the tenure with that nonce: far beyond where
// a file can end.
func tenureByte(nonce uint64) int64 { return int64(1<<62 | nonce>>3) }

// pack and unpack are the words of a state.
func (s State) pack() [stateFields]uint64 {
	w := [stateFields]uint64{s.Tx, s.Root, s.Sequence, s.HighWater, s.Free, s.Slot, s.Label, 0, s.Durable}
	if s.Visible {
		w[7] = 1
	}
	return w
}

func unpack(w [stateFields]uint64) State {
	return State{Tx: w[0], Root: w[1], Sequence: w[2], HighWater: w[3], Free: w[4], Slot: w[5], Label: w[6], Visible: w[7] != 0, Durable: w[8]}
}
