package engine

import (
	"errors"
	"io"
	"testing"
	"time"

	"holdfast"
	"holdfast/internal/bridge"
	"holdfast/internal/share"
)

// endReaders ends all readers of a database in other processes, as holdfast readers --end does.
func endReaders(t testing.TB, path string) {
	t.Helper()
	list, err := share.List(sharedDir(path))
	if must(t, err); len(list) != 1 {
		t.Fatalf("the shares are %v", list)
	}
	view, err := share.Attach(sharedDir(path), list[0].Identity)
	must(t, err)
	defer view.Close()
	readers, err := view.Readers()
	must(t, err)
	for _, r := range readers {
		if did, err := view.EndReader(r); err != nil || !did && !r.Ended {
			t.Errorf("ended: %t, %v", did, err)
		}
	}
}

// Newest of a transaction that had ended used its reader: that of the next transaction, or one whose mapping was gone, which was
// a panic. No call on a transaction that has ended, with a reader that lives or one that was ended, looks at its reader.
func TestOpenSharedAfterEnd(t *testing.T) {
	path := tempPath(t)
	owner := openOwner(t, path, holdfast.Options{NoSync: true})
	fillShared(t, owner, 2000, 1)
	reader := openReader(t, path, holdfast.Options{})
	for _, ended := range []bool{false, true} {
		tx := beginShared(t, reader)
		b := tx.Bucket([]byte("b"))
		c := b.Cursor()
		c.First()
		if _, _, err := bridge.Newest(tx); err != nil {
			t.Fatal(err)
		}
		if ended {
			endReaders(t, path)
			wantsError(t, "Rollback", tx.Rollback(), holdfast.ErrReaderEnded)
		} else {
			must(t, tx.Rollback())
		}
		if _, _, err := bridge.Newest(tx); err == nil {
			t.Error("Newest of a transaction that has ended")
		}
		if v := b.Get([]byte("key-00001")); v != nil || tx.Bucket([]byte("b")) != nil {
			t.Errorf("read %q", v)
		}
		for _, move := range []func() ([]byte, []byte){c.First, c.Next, c.Last} {
			if k, _ := move(); k != nil {
				t.Errorf("the cursor is at %q", k)
			}
		}
		_, written := tx.WriteTo(io.Discard)
		_, free := tx.FreeExtents()
		for what, err := range map[string]error{"WriteTo": written, "FreeExtents": free, "Err": tx.Err(), "Rollback": tx.Rollback()} {
			wantsError(t, what, err, holdfast.ErrTxClosed)
		}
	}
}

// What pages are used for was told without a look at whether it counts, and ForEachPage went on through the whole file after its reader
// was ended.
func TestOpenSharedPagesEnded(t *testing.T) {
	path := tempPath(t)
	owner := openOwner(t, path, holdfast.Options{NoSync: true})
	fillShared(t, owner, 20000, 1)
	reader := openReader(t, path, holdfast.Options{})
	tx := beginShared(t, reader)
	if _, err := tx.FreeExtents(); err != nil {
		t.Fatal(err)
	}
	runs := 0
	count := func(holdfast.PageRun) error { runs++; return nil }
	must(t, tx.ForEachPage(count))
	if runs < 2 {
		t.Fatalf("%d runs of pages", runs)
	}
	endReaders(t, path)
	_, err := tx.FreeExtents()
	wantsError(t, "FreeExtents", err, holdfast.ErrReaderEnded)
	runs = 0
	wantsError(t, "ForEachPage", tx.ForEachPage(count), holdfast.ErrReaderEnded)
	if runs > 0 {
		t.Errorf("%d runs of pages after that", runs)
	}
	wantsError(t, "Rollback", tx.Rollback(), holdfast.ErrReaderEnded)

	tx = beginShared(t, reader)
	wantsError(t, "ForEachPage whose reader is ended meanwhile", tx.ForEachPage(func(holdfast.PageRun) error {
		if runs++; runs == 1 {
			endReaders(t, path)
		}
		return nil
	}), holdfast.ErrReaderEnded)
	if err := tx.Rollback(); !errors.Is(err, holdfast.ErrReaderEnded) {
		t.Errorf("Rollback: %v", err)
	}
}

// What a database keeps for its next transaction counts no more once its owner has closed, or it was ended, between two of them: nothing
// is wrong with the next one. No test had none open then.
func TestOpenSharedIdle(t *testing.T) {
	path := tempPath(t)
	owner := openOwner(t, path, holdfast.Options{NoSync: true})
	fillShared(t, owner, 10, 1)
	reader := openReader(t, path, holdfast.Options{})
	must(t, reader.View(func(tx *holdfast.Tx) error { return sees(tx, 10, 1) }))
	endReaders(t, path)
	must(t, reader.View(func(tx *holdfast.Tx) error { return sees(tx, 10, 1) }))
	must(t, owner.Close())
	owner = openOwner(t, path, holdfast.Options{NoSync: true})
	fillShared(t, owner, 10, 2)
	must(t, reader.View(func(tx *holdfast.Tx) error { return sees(tx, 10, 2) }))
}

// That a state has become durable is told though no transaction follows it.
func TestOpenSharedDurable(t *testing.T) {
	path := tempPath(t)
	owner := openOwner(t, path, holdfast.Options{Durability: holdfast.Periodic, PeriodicDelay: time.Hour})
	fillShared(t, owner, 10, 1)
	must(t, owner.Sync())
	reader := openReader(t, path, holdfast.Options{})
	tx := beginShared(t, reader)
	fillShared(t, owner, 10, 2)
	for _, want := range []int{0, 1} {
		newest, durable, err := bridge.Newest(tx)
		if must(t, err); newest != tx.ID()+1 || durable != tx.ID()+want {
			t.Errorf("the newest is %d, and %d durable, of one after %d", newest, durable, tx.ID())
		}
		must(t, owner.Sync())
	}
	must(t, tx.Rollback())
}
