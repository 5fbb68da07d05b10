package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"holdfast"
	"holdfast/internal/bridge"
	"holdfast/internal/extension"
	"holdfast/internal/page"
	"holdfast/internal/vfs"
)

func openedBy(t *testing.T, db *holdfast.DB, want holdfast.OpenPath) {
	t.Helper()
	if got := db.Stats().OpenPath; got != want {
		t.Errorf("opened by %s, want by %s", got, want)
	}
}

// What commits record of free pages is found at the next opening, also after a
// crash, through thousands of commits: inline, in log runs, in snapshots. Each
// opening is checked: every page is used, free or part of the record.
func TestRecordsOfFreePages(t *testing.T) {
	for _, pageSize := range []int{512, 4096} {
		t.Run(fmt.Sprint(pageSize), func(t *testing.T) {
			t.Parallel()
			rng := random(t)
			mem := vfs.NewMem("mem")
			db, err := bridge.Open(mem.Open(), &holdfast.Options{PageSize: pageSize})
			must(t, err)
			openedBy(t, db, holdfast.OpenedByFreelist) // of its creation
			for session := range 8 {
				db.NoSync = true
				for range 1 + rng.IntN(600) {
					update(t, db, func(tx *holdfast.Tx) {
						b, err := tx.CreateBucketIfNotExists([]byte("b"))
						must(t, err)
						for range 1 + rng.IntN(6) {
							key := fmt.Appendf(nil, "%04d", rng.IntN(3000))
							if rng.IntN(3) == 0 {
								must(t, b.Delete(key))
							} else {
								must(t, b.Put(key, randomBytes(rng, rng.IntN(pageSize))))
							}
						}
					})
				}
				checkDB(t, db)
				next := vfs.NewMem("mem") // as after kill -9
				if session%3 == 2 {
					must(t, db.Close())
				}
				file := next.Open()
				_, err := file.WriteAt(mem.Bytes(), 0)
				must(t, err)
				must(t, file.Close())
				if session%3 != 2 {
					must(t, db.Close())
				}
				mem = next
				db, err = bridge.Open(mem.Open(), nil)
				must(t, err)
				openedBy(t, db, holdfast.OpenedByRecord)
				checkDB(t, db)
			}
			must(t, db.Close())
		})
	}
}

// manyCommits makes a file whose free pages are recorded in runs as well, and
// leaves it as a process does that is killed. It gives the file's bytes.
func manyCommits(t *testing.T) []byte {
	mem := vfs.NewMem("mem")
	options := &holdfast.Options{PageSize: 512, NoSync: true}
	db, err := bridge.Open(sized(t, mem.Open(), options), options)
	must(t, err)
	var data []byte
	for i := range 2000 {
		update(t, db, func(tx *holdfast.Tx) {
			b, err := tx.CreateBucketIfNotExists([]byte("b"))
			must(t, err)
			must(t, b.Put(fmt.Append(nil, i*7919%300), make([]byte, i%300)))
		})
		if data = slices.Clone(mem.Bytes()); i >= 800 {
			if _, _, ext := winner(t, data); len(ext.Free.Logs) > 1 && ext.Free.Snapshot.Pages > 0 {
				break
			}
		}
	}
	must(t, db.Close())
	return data
}

func openRecorded(t *testing.T, data []byte) *holdfast.DB {
	t.Helper()
	file := vfs.NewMem("mem").Open()
	_, err := file.WriteAt(data, 0)
	must(t, err)
	db, err := bridge.Open(file, nil)
	must(t, err)
	return db
}

// winner is the slot that is opened, its meta, and its extension.
func winner(t *testing.T, data []byte) (int, page.Meta, *extension.Extension) {
	t.Helper()
	slots := page.DecodeSlots(data[:512], data[512:1024])
	best, err := slots.Best()
	must(t, err)
	ext, err := extension.Decode(data[best*512:][:512])
	must(t, err)
	return best, slots.Meta[best], ext
}

// A record of which a byte is wrong is not believed: the file is scanned.
func TestDamagedRecords(t *testing.T) {
	data := manyCommits(t)
	best, _, ext := winner(t, data)
	db := openRecorded(t, data)
	openedBy(t, db, holdfast.OpenedByRecord)
	must(t, db.Close())
	at := []int{best*512 + 80 + 56, best*512 + 80 + 120} // in the extension
	runs := ext.Free.Logs
	if ext.Free.Snapshot.Pages > 0 {
		runs = append(runs, ext.Free.Snapshot)
	}
	if len(runs) < 2 {
		t.Fatalf("%d runs: the test tests little", len(runs))
	}
	for _, r := range runs {
		at = append(at, int(r.Start)*512+5, int(r.Start)*512+int(r.Bytes)-1)
	}
	for _, i := range at {
		damaged := slices.Clone(data)
		damaged[i] ^= 1
		db := openRecorded(t, damaged)
		openedBy(t, db, holdfast.OpenedByScan)
		checkDB(t, db)
		update(t, db, func(tx *holdfast.Tx) { put(t, tx.Bucket([]byte("b")), "k", "v") })
		checkDB(t, db)
		must(t, db.Close())
	}
}

// An extension counts only in the slot that wins, under a label of its own: after
// `surgery revert-meta-page` of bbolt both metas carry one label.
func TestRevertedMeta(t *testing.T) {
	data := manyCommits(t)
	best, m, ext := winner(t, data)
	_, err := extension.Decode(data[(1-best)*512:][:512])
	must(t, err)
	for _, label := range []page.Label{m.Label, m.Label + 1} { // both slots the same; the wrong parity
		reverted := slices.Clone(data)
		changed := m
		changed.Label = label
		slot := best
		if label == m.Label {
			slot = 1 - best
		}
		buf := reverted[slot*512:][:512]
		page.EncodeMeta(buf, page.ID(slot), changed, nil)
		h, err := extension.NewHasher(ext.Key)
		must(t, err)
		must(t, extension.Encode(buf, ext, h))
		db := openRecorded(t, reverted)
		openedBy(t, db, holdfast.OpenedByScan)
		view(t, db, func(tx *holdfast.Tx) { // or that one's free pages could be taken for those of this one
			if page.TxID(tx.ID()) <= ext.Tx {
				t.Errorf("label %d: it has the number %d, and another state has had %d", label, tx.ID(), ext.Tx)
			}
		})
		checkDB(t, db)
		must(t, db.Close())
	}
}

// A reader's check took the pages of a newer commit's record for those of its own
// state, past whose end they lay.
func TestCheckOfOlderStateThanRecord(t *testing.T) {
	options := &holdfast.Options{PageSize: 512, NoSync: true}
	db, err := bridge.Open(sized(t, vfs.NewMem("mem").Open(), options), options)
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	old := begin(t, db, false)
	for i := range 400 { // until there are runs
		fill(t, db, i, 10)
		checkTx(t, old)
	}
	must(t, old.Rollback())
}

// Opening replays the logs of free pages, which were up to 2 MiB long: after some ten
// thousand commits it took 40 ms.
func TestLogsOfFreePagesAreShort(t *testing.T) {
	mem := vfs.NewMem("mem")
	options := &holdfast.Options{PageSize: 512, NoSync: true}
	db, err := bridge.Open(sized(t, mem.Open(), options), options)
	must(t, err)
	defer db.Close()
	fill(t, db, 2000, 100)
	longest, turns, before := 0, 0, 0
	for i := range 20_000 {
		update(t, db, func(tx *holdfast.Tx) {
			must(t, tx.Bucket([]byte("b")).Put(binary.BigEndian.AppendUint64(nil, uint64(i*7919%2000)), make([]byte, 100)))
		})
		_, _, ext := winner(t, mem.Bytes())
		logged := 0
		for _, l := range ext.Free.Logs {
			logged += int(l.Bytes)
		}
		if logged < before {
			turns++
		}
		longest, before = max(longest, logged), logged
	}
	t.Logf("at most %d bytes of logs, %d snapshots", longest, turns)
	if longest > 8*3*512 || turns < 3 {
		t.Errorf("%d bytes of logs are replayed, %d snapshots in 20,000 commits", longest, turns)
	}
}

// A file whose extension is of an earlier version, plain, is opened as one of bbolt's; and
// nothing is said of a flush that may be lost.
func TestEarlierExtension(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "extension-version1.db"))
	must(t, err)
	path := tempPath(t)
	must(t, os.WriteFile(path, data, 0o600))
	for _, want := range []holdfast.OpenPath{holdfast.OpenedByFreelist, holdfast.OpenedByRecord} {
		db := open(t, path, nil)
		if how := db.Stats().OpenPath; how != want {
			t.Errorf("opened by %s, want %s", how, want)
		}
		if db.FileState().Unreadable {
			t.Error("what its meta page says is taken for damage")
		}
		faults, err := db.Verify(t.Context())
		if must(t, err); len(faults) > 0 {
			t.Error(faults)
		}
		must(t, db.Update(func(tx *holdfast.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte("new"))
			if err == nil {
				err = b.Put([]byte("k"), []byte(fmt.Sprint(want)))
			}
			return err
		}))
		must(t, db.Close())
	}
}

// On a full disk nothing could be deleted: now and then the record of free pages wants a
// run of some pages, there was none so long, and each commit that would have
// freed some failed for want of it.
func TestCommitsWithoutRoomForTheRecord(t *testing.T) {
	const pageSize, keys = 1024, 3000
	mem := vfs.NewMem("mem")
	db, err := bridge.Open(mem.Open(), &holdfast.Options{PageSize: pageSize, SettleDelay: -1, NoFreelistSync: true})
	must(t, err)
	put := func(i, size int) error {
		return db.Update(func(tx *holdfast.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte("b"))
			if err == nil && size < 0 {
				return b.Delete(fmt.Appendf(nil, "%05d", i))
			}
			if err == nil {
				err = b.Put(fmt.Appendf(nil, "%05d", i), make([]byte, size))
			}
			return err
		})
	}
	update(t, db, func(tx *holdfast.Tx) {
		b := createBucket(t, tx, "b")
		for i := range keys {
			must(t, b.Put(fmt.Appendf(nil, "%05d", i), make([]byte, 900)))
		}
	})
	must(t, db.Sync())
	db.MaxSize = int(db.Stats().PagesWritten) * pageSize / 2 // no growth from here on
	for i := keys; ; i++ {
		if err := put(i, 900); errors.Is(err, holdfast.ErrMaxSizeReached) {
			break
		} else {
			must(t, err)
		}
	}
	// One page in four becomes free, and none beside another.
	failed := 0
	for i := 0; i < keys; i += 4 {
		err := put(i, -1)
		if errors.Is(err, holdfast.ErrMaxSizeReached) { // its pages come free with the next flush
			failed++
			err = put(i, -1)
		}
		if err != nil {
			t.Fatalf("delete %d: %v", i, err)
		}
	}
	for i := range 3 * keys {
		k := 1 + i*7%(keys-1)
		if k%4 == 0 {
			continue
		}
		err := put(k, 890)
		if errors.Is(err, holdfast.ErrMaxSizeReached) {
			failed++
			err = put(k, 890)
		}
		if err != nil {
			t.Fatalf("put %d: %v", i, err)
		}
	}
	t.Logf("%d of %d commits succeeded the second time only", failed, 3*keys*3/4+keys/4)
	checkDB(t, db)
	must(t, db.Close())
	db, err = bridge.Open(mem.Open(), nil)
	must(t, err)
	checkDB(t, db)
	must(t, db.Close())
}
