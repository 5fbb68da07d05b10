package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"holdfast"
	"holdfast/internal/page"
)

// left is a copy of the file at path as the end of its process would leave it.
func left(t *testing.T, path string) string {
	t.Helper()
	copied := filepath.Join(t.TempDir(), "left")
	must(t, os.WriteFile(copied, readFile(t, path), 0o600))
	return copied
}

// newestOf is the newest state of the file at path: a hash of what it holds, and
// what was found.
func newestOf(t *testing.T, path string) (hash uint64, found holdfast.FileState) {
	t.Helper()
	db := open(t, path, &holdfast.Options{ReadOnly: true})
	faults, err := db.Verify(context.Background())
	if err != nil || len(faults) > 0 {
		t.Errorf("%v, %v", faults, err)
	}
	view(t, db, func(tx *holdfast.Tx) { hash = hashOf(tx) })
	found = db.FileState()
	must(t, db.Close())
	return hash, found
}

// bboltFinds tells whether the meta that bbolt would open is of the newest state.
func bboltFinds(t *testing.T, path string, pageSize int) bool {
	t.Helper()
	data := readFile(t, path)
	slots := page.DecodeSlots(data, data[pageSize:])
	best, err := slots.Best()
	must(t, err)
	finds := false
	db := open(t, path, &holdfast.Options{ReadOnly: true})
	view(t, db, func(tx *holdfast.Tx) {
		root := tx.Cursor().Bucket()
		m := slots.Meta[best]
		finds = m.Root == root.RootPage() && m.Sequence == root.Sequence() && int64(m.HighWater)*int64(pageSize) == tx.Size()
	})
	must(t, db.Close())
	return finds
}

// settled runs Settle on the file at path and sees that it has done no more and no
// less than it says.
func settled(t *testing.T, where, path string, pageSize int) holdfast.FileState {
	t.Helper()
	hash, expect := newestOf(t, path)
	before := readFile(t, path)
	found, err := holdfast.Settle(path, holdfast.SettleOptions{})
	if err != nil || found != expect {
		t.Errorf("%s: Settle has found %+v, %v, want %+v", where, found, err, expect)
	}
	after := readFile(t, path)
	changed := 0
	for slot := range 2 {
		if !bytes.Equal(before[slot*pageSize:][:pageSize], after[slot*pageSize:][:pageSize]) {
			changed++
		}
	}
	// The one that counts from now on, and with it the other, which is to say the same.
	if (changed > 0) != (found.BboltBehind || found.Unfinished) || !bytes.Equal(before[2*pageSize:], after[2*pageSize:]) {
		t.Errorf("%s: found %+v, %d metas have changed, and the rest perhaps, from %d to %d bytes", where, found, changed, len(before), len(after))
	}
	now, state := newestOf(t, path)
	if now != hash || state.Tx != found.Tx || state.BboltBehind || state.Unfinished || state.FreeRecorded != found.FreeRecorded || state.FreePages != found.FreePages {
		t.Errorf("%s: %+v, afterwards %+v; hashes %x and %x", where, found, state, hash, now)
	}
	if !bboltFinds(t, path, pageSize) {
		t.Errorf("%s: bbolt does not find the newest state", where)
	}
	if again, err := holdfast.Settle(path, holdfast.SettleOptions{}); err != nil || again != state || !bytes.Equal(readFile(t, path), after) {
		t.Errorf("%s: the second time it finds %+v, %v, want %+v, and no byte to change", where, again, err, state)
	}
	return found
}

// Settle makes the newest state of a file that was left in mid use the one that
// bbolt finds, and leaves alone what bbolt finds already.
func TestSettle(t *testing.T) {
	const pageSize = 1024
	rng := random(t)
	for _, options := range []holdfast.Options{
		{}, {Durability: holdfast.Periodic, PeriodicDelay: time.Hour}, {StrictCompat: true}, {NoSync: true},
	} {
		options.PageSize, options.SettleDelay = pageSize, -1
		path := tempPath(t)
		behind, even := 0, 0
		for session := range 3 {
			db := open(t, path, &options)
			for commit := range 12 {
				update(t, db, func(tx *holdfast.Tx) { must(t, churn(tx, rng)) })
				where := fmt.Sprintf("%s, session %d, commit %d", &options, session, commit)
				killed := left(t, path)
				finds := bboltFinds(t, killed, pageSize)
				found := settled(t, where, killed, pageSize)
				if found.BboltBehind == finds || !found.FreeRecorded {
					t.Errorf("%s: bbolt finds the newest state: %t, and %+v", where, finds, found)
				}
				if found.BboltBehind {
					behind++
				} else {
					even++
				}
			}
			must(t, db.Sync())
			if settled(t, "after Sync", left(t, path), pageSize).BboltBehind {
				t.Errorf("%s: bbolt is behind after Sync", &options)
			}
			must(t, db.Close())
			closed := left(t, path)
			if settled(t, "after Close", closed, pageSize).BboltBehind {
				t.Errorf("%s: bbolt is behind after Close", &options)
			}
		}
		if plain := options.StrictCompat || options.NoSync; plain != (behind == 0) || !plain && even > behind {
			t.Errorf("%s: of the files left, bbolt was behind in %d and not in %d", &options, behind, even)
		}
	}
}

// A flush that was not finished: bbolt finds what we find, and Settle takes away
// what says that there was more.
func TestSettleUnfinished(t *testing.T) {
	const pageSize = 1024
	rng := random(t)
	path := tempPath(t)
	db := open(t, path, &holdfast.Options{PageSize: pageSize, SettleDelay: -1})
	for range 10 {
		update(t, db, func(tx *holdfast.Tx) { must(t, churn(tx, rng)) })
	}
	before, wanted := readFile(t, path), db.FileState().Tx
	view(t, db, func(tx *holdfast.Tx) { wanted = tx.ID() })
	update(t, db, func(tx *holdfast.Tx) { must(t, churn(tx, rng)) })
	after := readFile(t, path)
	must(t, db.Close())
	// The meta of the last commit has come to the disk, and of its pages none.
	torn := bytes.Clone(after)
	copy(torn[2*pageSize:], before[2*pageSize:])
	killed := tempPath(t)
	must(t, os.WriteFile(killed, torn, 0o600))
	found := settled(t, "unfinished", killed, pageSize)
	if !found.Unfinished || found.BboltBehind || found.Tx != wanted {
		t.Errorf("found %+v, want transaction %d", found, wanted)
	}
}

// What is not a database, or cannot be had, stays as it is.
func TestSettleRefuses(t *testing.T) {
	sound := newSample(t).data
	for name, c := range map[string]struct {
		data []byte
		want error
	}{
		"empty":              {[]byte{}, holdfast.ErrInvalid},
		"text":               {bytes.Repeat([]byte("text "), 5000), holdfast.ErrInvalid},
		"zeros":              {make([]byte, 4*os.Getpagesize()), holdfast.ErrInvalid},
		"missing":            {nil, os.ErrNotExist},
		"metas cut off":      {sound[:samplePageSize], holdfast.ErrInvalid},
		"both metas damaged": {tornMetas(sound), holdfast.ErrChecksum},
	} {
		path := tempPath(t)
		if c.data != nil {
			must(t, os.WriteFile(path, c.data, 0o600))
		}
		found, err := holdfast.Settle(path, holdfast.SettleOptions{})
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if found != (holdfast.FileState{}) || !sameBytes(readFile(t, path), c.data) {
			t.Errorf("%s: found %+v, or the file has changed", name, found)
		}
	}
	path := tempPath(t)
	must(t, os.WriteFile(path, sound, 0o600))
	reader := open(t, path, &holdfast.Options{ReadOnly: true})
	_, err := holdfast.Settle(path, holdfast.SettleOptions{Timeout: time.Millisecond})
	if err != holdfast.ErrTimeout {
		t.Errorf("in use: %v", err)
	}
	must(t, reader.Close())
	if _, err := holdfast.Settle(path, holdfast.SettleOptions{}); err != nil {
		t.Errorf("not in use any more: %v", err)
	}
}

// tornMetas is data with both metas changed.
func tornMetas(data []byte) []byte {
	torn := bytes.Clone(data)
	for slot := range 2 {
		torn[slot*samplePageSize+40]++
	}
	return torn
}
