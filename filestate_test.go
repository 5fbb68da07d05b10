package holdfast_test

import (
	"testing"

	"holdfast"
	"holdfast/internal/vfs"
)

// A process that is killed leaves a file in which bbolt finds the state before the
// last flush; the next that opens it for writing mends that, and one that only
// reads sees the newest state all the same.
func TestFileState(t *testing.T) {
	mem := vfs.NewMem("mem")
	options := &holdfast.Options{SettleDelay: -1}
	db, err := holdfast.OpenVFS(mem.Open(), options)
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
		db, err := holdfast.OpenVFS(killed.Open(), &holdfast.Options{ReadOnly: c.readOnly, NoFreelistSync: true})
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
