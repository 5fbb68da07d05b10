package engine

import (
	"slices"
	"testing"

	"holdfast"
	"holdfast/internal/bridge"
	"holdfast/internal/vfs"
)

// A process that is killed leaves a file in which bbolt finds the state before the
// last flush; the next that opens it for writing mends that, and one that only
// reads sees the newest state all the same.
func TestFileState(t *testing.T) {
	mem := vfs.NewMem("mem")
	options := &holdfast.Options{SettleDelay: -1}
	db, err := bridge.Open(mem.Open(), options)
	must(t, err)
	fill(t, db, 0, 10)
	fill(t, db, 1, 10)
	killed := vfs.NewMem("killed")
	file := killed.Open()
	_, err = file.WriteAt(mem.Bytes(), 0)
	must(t, err)
	must(t, file.Close())
	must(t, db.Close())
	tx := 0
	for i, c := range []struct {
		readOnly, behind bool
	}{{true, true}, {true, true}, {false, true}, {false, false}, {true, false}} {
		db, err := bridge.Open(killed.Open(), &holdfast.Options{ReadOnly: c.readOnly, NoFreelistSync: true})
		must(t, err)
		s := db.FileState()
		if i == 0 {
			tx = s.Tx
		}
		if s.BboltBehind != c.behind || s.Tx != tx || s.Unfinished || !s.FreeRecorded {
			t.Errorf("opening %d: %+v", i, s)
		}
		view(t, db, func(tx *holdfast.Tx) {
			if tx.ID() != s.Tx {
				t.Errorf("opening %d: transaction %d, found %d", i, tx.ID(), s.Tx)
			}
		})
		must(t, db.Close())
	}
}

// A bit changed in what Holdfast writes behind bbolt's meta, and the commits of the last
// flush were gone without a word: the state before was opened, and check said OK.
func TestUnreadableMetaIsTold(t *testing.T) {
	const pageSize = 1024
	mem := vfs.NewMem("mem")
	db, err := bridge.Open(mem.Open(), &holdfast.Options{PageSize: pageSize, SettleDelay: -1})
	must(t, err)
	fill(t, db, 0, 10)
	fill(t, db, 1, 10)
	left := slices.Clone(mem.Bytes())
	must(t, db.Close())
	slot := 0
	if string(left[pageSize+80:][:8]) == "HOLDFAST" && left[pageSize+80+10]&1 != 0 { // a trailing one
		slot = 1
	}
	for _, at := range []int{80, 84, 90, 100, 150, 200, 260} {
		file := vfs.NewMem("damaged").Open()
		damaged := slices.Clone(left)
		damaged[slot*pageSize+at] ^= 1
		_, err := file.WriteAt(damaged, 0)
		must(t, err)
		log := &memoryLogger{}
		db, err := bridge.Open(file, &holdfast.Options{ReadOnly: true, Logger: log})
		must(t, err)
		if s := db.FileState(); !s.Unreadable && !s.Unfinished {
			t.Errorf("byte %d: %+v", at, s)
		}
		log.has(t, "or its commits are lost by damage")
		must(t, db.Close())
	}
	for what, data := range map[string][]byte{"left": left, "closed": mem.Bytes()} {
		file := vfs.NewMem("sound").Open()
		_, err := file.WriteAt(data, 0)
		must(t, err)
		db, err := bridge.Open(file, &holdfast.Options{ReadOnly: true})
		must(t, err)
		if s := db.FileState(); s.Unreadable || s.Unfinished {
			t.Errorf("%s: %+v", what, s)
		}
		must(t, db.Close())
	}
}
