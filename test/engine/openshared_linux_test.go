package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"holdfast"
	"holdfast/internal/bridge"
	"holdfast/internal/page"
	"holdfast/internal/share"
	"holdfast/internal/vfs"
)

// sharedDir is where a test's database is shared.
func sharedDir(path string) string { return filepath.Join(filepath.Dir(path), "share") }

// openOwner opens a database that is shared.
func openOwner(t testing.TB, path string, options holdfast.Options) *holdfast.DB {
	t.Helper()
	options.Share = sharedDir(path)
	return open(t, path, &options)
}

// openReader opens a database through its owner, as another process does: the locks are those of open files.
func openReader(t testing.TB, path string, options holdfast.Options) *holdfast.DB {
	t.Helper()
	options.Share = sharedDir(path)
	db, err := holdfast.OpenShared(path, &options)
	must(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

// beginShared begins a transaction that ends with the test, at the latest: Close waits for it.
func beginShared(t testing.TB, db *holdfast.DB) *holdfast.Tx {
	t.Helper()
	tx, err := db.Begin(false)
	must(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// fillShared writes n keys whose values have the same number.
func fillShared(t testing.TB, db *holdfast.DB, n int, number byte) {
	t.Helper()
	must(t, db.Update(func(tx *holdfast.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte("b"))
		if err != nil {
			return err
		}
		for i := range n {
			if err := b.Put(fmt.Appendf(nil, "key-%05d", i), bytes.Repeat([]byte{number}, 100)); err != nil {
				return err
			}
		}
		return nil
	}))
}

// sees returns an error unless all values of the transaction have the number.
func sees(tx *holdfast.Tx, n int, number byte) error {
	got, b := 0, tx.Bucket([]byte("b"))
	if b == nil {
		return fmt.Errorf("no bucket: %w", tx.Err())
	}
	err := b.ForEach(func(k, v []byte) error {
		if got++; len(v) != 100 || v[0] != number || v[99] != number {
			return fmt.Errorf("%s is %d, and not %d", k, v, number)
		}
		return nil
	})
	if err == nil && got != n {
		err = fmt.Errorf("%d keys, and not %d", got, n)
	}
	return err
}

func wantsError(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: %v, and not: %v", what, err, want)
	}
}

// A reader in another process keeps its state while the owner commits, grows, vacuums and cuts the file off; what it held is free
// when it has ended.
func TestOpenShared(t *testing.T) {
	path := tempPath(t)
	owner := openOwner(t, path, holdfast.Options{NoSync: true})
	fillShared(t, owner, 2000, 1)
	reader := openReader(t, path, holdfast.Options{})
	if pid, shared := reader.SharedBy(); !shared || pid != os.Getpid() {
		t.Errorf("shared by %d, %t", pid, shared)
	}
	if !reader.IsReadOnly() || reader.Path() != path || reader.FileState().Tx < 1 {
		t.Errorf("it is %v, %+v", reader, reader.FileState())
	}
	tx := beginShared(t, reader)
	for i := range 20 {
		fillShared(t, owner, 2000+1000*i, byte(2+i))
	}
	must(t, owner.Update(func(tx *holdfast.Tx) error { return tx.DeleteBucket([]byte("b")) }))
	fillShared(t, owner, 10, 99)
	size := func() int64 {
		info, err := os.Stat(path)
		must(t, err)
		return info.Size()
	}
	grown := size()
	_, err := owner.Vacuum(context.Background(), holdfast.VacuumOptions{})
	must(t, err)
	must(t, sees(tx, 2000, 1))
	must(t, tx.Err())
	s := owner.Stats()
	if s.OldestReader.Behind < 22 || s.OldestReader.Tx != uint64(tx.ID()) || s.PendingPageN == 0 {
		t.Errorf("the owner does not know of the reader: %v", s)
	}
	if size() < tx.Size() {
		t.Errorf("the file has %d bytes, the reader's state %d", size(), tx.Size())
	}
	must(t, tx.Rollback())
	must(t, reader.View(func(tx *holdfast.Tx) error { return sees(tx, 10, 99) }))
	_, err = owner.Vacuum(context.Background(), holdfast.VacuumOptions{})
	must(t, err)
	if size() >= grown/4 {
		t.Errorf("the file has %d bytes, and had %d", size(), grown)
	}
	if s := owner.Stats(); s.PendingPageN > 4 || s.OldestReader.Behind > 1 {
		t.Errorf("what the reader held is not free: %v", s)
	}
	must(t, reader.View(func(tx *holdfast.Tx) error { return sees(tx, 10, 99) }))
}

// What reads all of a database works on one of another process.
func TestOpenSharedWhole(t *testing.T) {
	path := tempPath(t)
	owner := openOwner(t, path, holdfast.Options{NoSync: true})
	fillShared(t, owner, 3000, 1)
	fillShared(t, owner, 3000, 2)
	reader := openReader(t, path, holdfast.Options{})
	faults, err := reader.Verify(context.Background())
	if must(t, err); len(faults) > 0 {
		t.Errorf("Verify: %v", faults)
	}
	must(t, reader.View(func(tx *holdfast.Tx) error {
		for err := range tx.Check() {
			t.Errorf("Check: %v", err)
		}
		fillShared(t, owner, 3000, 3) // which changes what is free, and not what this state uses
		pages, free := int64(0), int64(0)
		err := tx.ForEachPage(func(r holdfast.PageRun) error {
			pages += int64(r.Pages)
			if r.Kind == holdfast.PageFree {
				free += int64(r.Pages)
			}
			if r.Err != nil {
				return r.Err
			}
			return nil
		})
		extents, failed := tx.FreeExtents()
		if failed != nil {
			return failed
		}
		for _, n := range extents {
			free -= int64(n)
		}
		if pages != tx.Size()/4096 || free != 0 {
			t.Errorf("%d pages of %d, %d free ones more than in extents", pages, tx.Size()/4096, free)
		}
		return err
	}))
	copied := filepath.Join(t.TempDir(), "copy")
	must(t, reader.View(func(tx *holdfast.Tx) error { return tx.CopyFile(copied, 0o600) }))
	must(t, open(t, copied, nil).View(func(tx *holdfast.Tx) error { return sees(tx, 3000, 3) }))
	if s := reader.Stats(); s.TxN == 0 || s.OpenTxN != 0 || s.FreePageN == 0 || s.Commits != 0 {
		t.Errorf("Stats: %v", s)
	}
	if err := reader.Update(func(*holdfast.Tx) error { return nil }); !errors.Is(err, holdfast.ErrDatabaseReadOnly) {
		t.Errorf("Update: %v", err)
	}
	must(t, reader.Sync())
	must(t, reader.Close())
	if _, err := reader.Begin(false); !errors.Is(err, holdfast.ErrDatabaseNotOpen) {
		t.Errorf("Begin after Close: %v", err)
	}
}

// A transaction that goes on when its owner has closed the database ends with an error, in calls too; the next one reads through the
// next owner, or says that there is none.
func TestOpenSharedOwnerGone(t *testing.T) {
	path := tempPath(t)
	owner := openOwner(t, path, holdfast.Options{NoSync: true})
	fillShared(t, owner, 2000, 1)
	reader := openReader(t, path, holdfast.Options{OnDamage: holdfast.DamagePanics})
	tx := beginShared(t, reader)
	err := reader.View(func(inner *holdfast.Tx) error {
		must(t, sees(inner, 2000, 1))
		done := make(chan error)
		go func() { done <- owner.Close() }()
		return <-done // it waits for no reader of another process
	})
	wantsError(t, "View across the end of the owner", err, holdfast.ErrOwnerGone)
	time.Sleep(60 * time.Millisecond) // what was confirmed is old now
	if v := tx.Bucket([]byte("b")); v != nil && v.Get([]byte("key-00001")) != nil {
		t.Error("Get answers though its owner is gone")
	}
	wantsError(t, "Err", tx.Err(), holdfast.ErrOwnerGone)
	wantsError(t, "WriteTo", func() error { _, err := tx.WriteTo(io.Discard); return err }(), holdfast.ErrOwnerGone)
	for err := range tx.Check() {
		wantsError(t, "Check", err, holdfast.ErrOwnerGone)
	}
	wantsError(t, "Rollback", tx.Rollback(), holdfast.ErrOwnerGone)
	_, err = reader.Begin(false)
	wantsError(t, "Begin without an owner", err, holdfast.ErrNotShared)
	_, err = holdfast.OpenShared(path, &holdfast.Options{Share: sharedDir(path)})
	wantsError(t, "OpenShared without an owner", err, holdfast.ErrNotShared)
	_, err = holdfast.OpenShared(path, &holdfast.Options{Share: "off"})
	wantsError(t, "OpenShared with off", err, holdfast.ErrNotShared)

	owner = openOwner(t, path, holdfast.Options{NoSync: true})
	fillShared(t, owner, 2000, 2)
	must(t, reader.View(func(tx *holdfast.Tx) error { return sees(tx, 2000, 2) }))
}

// A person ends a reader: it is told, its pages are free at once, and its next transaction is as any other.
func TestOpenSharedEnded(t *testing.T) {
	path := tempPath(t)
	owner := openOwner(t, path, holdfast.Options{NoSync: true})
	fillShared(t, owner, 2000, 1)
	reader := openReader(t, path, holdfast.Options{})
	list, err := share.List(sharedDir(path))
	if must(t, err); len(list) != 1 {
		t.Fatalf("the shares are %v", list)
	}
	view, err := share.Attach(sharedDir(path), list[0].Identity)
	must(t, err)
	defer view.Close()
	err = reader.View(func(tx *holdfast.Tx) error {
		fillShared(t, owner, 2000, 2)
		readers, err := view.Readers()
		if must(t, err); len(readers) != 1 || !readers[0].Holds || readers[0].Tx != uint64(tx.ID()) || readers[0].PID != uint64(os.Getpid()) {
			t.Errorf("the readers are %+v", readers)
		}
		if did, err := view.EndReader(readers[0]); err != nil || !did {
			t.Errorf("ended: %t, %v", did, err)
		}
		fillShared(t, owner, 2000, 3)
		if s := owner.Stats(); s.OldestReader.Behind > 1 {
			t.Errorf("it holds pages: %v", s)
		}
		_ = sees(tx, 2000, 1) // anything
		return nil
	})
	wantsError(t, "View", err, holdfast.ErrReaderEnded)
	must(t, reader.View(func(tx *holdfast.Tx) error { return sees(tx, 2000, 3) }))
}

// As many transactions as there are slots, and not one more; each ends as it should.
func TestOpenSharedCrowded(t *testing.T) {
	path := tempPath(t)
	owner := openOwner(t, path, holdfast.Options{NoSync: true})
	fillShared(t, owner, 10, 1)
	reader := openReader(t, path, holdfast.Options{})
	var all []*holdfast.Tx
	for {
		tx, err := reader.Begin(false)
		if err != nil {
			wantsError(t, "Begin", err, holdfast.ErrTooManyReaders)
			break
		}
		all = append(all, tx)
	}
	if len(all) != share.Slots {
		t.Errorf("%d transactions", len(all))
	}
	fillShared(t, owner, 10, 2)
	for _, tx := range all {
		must(t, sees(tx, 10, 1))
		must(t, tx.Rollback())
	}
	must(t, reader.View(func(tx *holdfast.Tx) error { return sees(tx, 10, 2) }))
}

// Damage is damage, and its page named, as long as the owner lives. What is remembered of a page's checksum does not outlive the
// state: another process writes the page anew.
func TestOpenSharedDamage(t *testing.T) {
	path := tempPath(t)
	owner := openOwner(t, path, holdfast.Options{NoSync: true})
	fillShared(t, owner, 1, 1)
	reader := openReader(t, path, holdfast.Options{})
	roots := map[page.ID]bool{}
	for i := range 40 { // the owner uses few pages in turn
		fillShared(t, owner, 1, byte(i))
		var root page.ID
		must(t, reader.View(func(tx *holdfast.Tx) error {
			root = tx.Cursor().Bucket().RootPage()
			return sees(tx, 1, byte(i))
		}))
		if !roots[root] {
			roots[root] = true
			continue
		}
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		must(t, err)
		defer file.Close()
		_, err = file.WriteAt([]byte{0xff}, int64(root)*4096+4096-100)
		must(t, err)
		fresh := openReader(t, path, holdfast.Options{})
		var damage *holdfast.CorruptError
		err = fresh.View(func(tx *holdfast.Tx) error { return sees(tx, 1, byte(i)) })
		if !errors.As(err, &damage) || errors.Is(err, holdfast.ErrOwnerGone) {
			t.Fatalf("a page with a wrong checksum: %v", err)
		}
		// The old reader has verified this state's page: it is written anew by the next commits, and damaged once more.
		for n := 0; ; n++ {
			fillShared(t, owner, 1, byte(n))
			var now page.ID
			must(t, owner.View(func(tx *holdfast.Tx) error { now = tx.Cursor().Bucket().RootPage(); return nil }))
			if now != root {
				continue
			}
			_, err = file.WriteAt([]byte{0xff}, int64(root)*4096+4096-100)
			must(t, err)
			err = reader.View(func(tx *holdfast.Tx) error { return sees(tx, 1, byte(n)) })
			if !errors.As(err, &damage) || damage.Page != root {
				t.Fatalf("a page that was verified in a state before: %v", err)
			}
			return
		}
	}
	t.Fatal("the owner never used a page twice")
}

// failingFlush fails its flushes from some moment on.
type failingFlush struct {
	*vfs.OSFile
	mu  sync.Mutex
	err error
}

func (f *failingFlush) Sync() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return f.err
	}
	return f.OSFile.Sync()
}

// What was visible and did not become durable is told to readers in other processes too; the next transaction sees what is durable.
func TestOpenSharedStopped(t *testing.T) {
	path := tempPath(t)
	file, err := vfs.OpenOS(path, os.O_RDWR|os.O_CREATE, 0o600, nil)
	must(t, err)
	f := &failingFlush{OSFile: file.(*vfs.OSFile)}
	owner, err := bridge.Open(f, &holdfast.Options{Durability: holdfast.Periodic, PeriodicDelay: time.Hour, Share: sharedDir(path)})
	must(t, err)
	defer owner.Close()
	fillShared(t, owner, 100, 1)
	must(t, owner.Sync())
	reader := openReader(t, path, holdfast.Options{})
	before := beginShared(t, reader)
	fillShared(t, owner, 100, 2)
	err = reader.View(func(tx *holdfast.Tx) error {
		must(t, sees(tx, 100, 2))
		f.mu.Lock()
		f.err = errors.New("the disk is gone")
		f.mu.Unlock()
		if err := owner.Sync(); !errors.Is(err, holdfast.ErrStopped) {
			t.Errorf("Sync: %v", err)
		}
		return nil
	})
	wantsError(t, "View of what did not become durable", err, holdfast.ErrStopped)
	must(t, reader.View(func(tx *holdfast.Tx) error { return sees(tx, 100, 1) }))
	must(t, sees(before, 100, 1))
	must(t, before.Rollback())
}

// Options that can never be what was meant are errors before a file is made, and a directory in which nothing can be made is told to the log.
func TestShareOptions(t *testing.T) {
	path := tempPath(t)
	if _, err := holdfast.Open(path, 0o600, &holdfast.Options{Share: "share"}); err == nil {
		t.Error("a relative directory passed")
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("a file was made")
	}
	must(t, os.WriteFile(sharedDir(path), nil, 0o600))
	var text bytes.Buffer
	db := open(t, path, &holdfast.Options{Share: sharedDir(path), Logger: &holdfast.DefaultLogger{Logger: log.New(&text, "", 0)}})
	fillShared(t, db, 10, 1)
	must(t, db.Close())
	if !bytes.Contains(text.Bytes(), []byte("not shared")) {
		t.Errorf("the log says %s", &text)
	}
	t.Setenv("HOLDFAST_SHARE", "share")
	if _, err := holdfast.Open(path, 0o600, nil); err == nil {
		t.Error("a relative directory in the environment passed")
	}
	t.Setenv("HOLDFAST_SHARE", filepath.Dir(path)+"/there,*.other=off")
	owner := open(t, path, nil)
	fillShared(t, owner, 10, 2)
	reader, err := holdfast.OpenShared(path, nil)
	must(t, err)
	must(t, reader.View(func(tx *holdfast.Tx) error { return sees(tx, 10, 2) }))
	must(t, reader.Close())
}

// A share whose owner says anything at all is read without a panic, and gives errors or the bytes of the file.
func TestOpenSharedHostile(t *testing.T) {
	path := tempPath(t)
	db := open(t, path, nil)
	fillShared(t, db, 1000, 1)
	must(t, db.Close())
	file, err := vfs.OpenOS(path, os.O_RDWR, 0, nil)
	must(t, err)
	defer file.Close()
	own := file.(*vfs.OSFile)
	random := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		id := share.Identity{PageSize: 4096}
		id.Dev, id.Ino, err = own.Inode()
		must(t, err)
		word := func() uint64 {
			return []uint64{0, 1, 2, 3, 5, 1 << 40, 1<<63 - 1, 1<<64 - 1, random.Uint64() % 64, random.Uint64()}[random.IntN(10)]
		}
		if random.IntN(8) == 0 {
			id.PageSize = word()
		}
		state := share.State{Tx: word() >> 2, Root: word(), Sequence: word(), HighWater: word(), Free: word(), Slot: word(), Label: word()}
		o, err := share.Create(sharedDir(path), id, own, state, share.Options{})
		must(t, err)
		reader, err := holdfast.OpenShared(path, &holdfast.Options{Share: sharedDir(path), OnDamage: holdfast.DamageIsError})
		if err == nil {
			_ = reader.View(func(tx *holdfast.Tx) error {
				for range tx.Check() {
				}
				_, err := tx.WriteTo(io.Discard)
				return errors.Join(err, walkAll(tx))
			})
			_ = reader.FileState()
			must(t, reader.Close())
		}
		must(t, o.Close())
	}
}

// walkAll reads all buckets and keys.
func walkAll(tx *holdfast.Tx) error {
	return tx.ForEach(func(_ []byte, b *holdfast.Bucket) error {
		if b == nil { // a key
			return nil
		}
		return b.ForEach(func(k, v []byte) error { return nil })
	})
}

// Many goroutines read while the owner commits and is opened anew: for the race detector.
func TestOpenSharedConcurrent(t *testing.T) {
	path := tempPath(t)
	owner := openOwner(t, path, holdfast.Options{NoSync: true})
	fillShared(t, owner, 500, 0)
	reader := openReader(t, path, holdfast.Options{})
	stop := make(chan struct{})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				err := reader.View(func(tx *holdfast.Tx) error {
					b := tx.Bucket([]byte("b"))
					if b == nil {
						return tx.Err()
					}
					first := b.Get([]byte("key-00000"))
					if len(first) == 0 {
						return tx.Err()
					}
					return sees(tx, 500, first[0])
				})
				if err != nil && !errors.Is(err, holdfast.ErrOwnerGone) && !errors.Is(err, holdfast.ErrNotShared) {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := range 150 {
		fillShared(t, owner, 500, byte(i))
		if i%30 == 29 {
			must(t, owner.Close())
			owner = openOwner(t, path, holdfast.Options{NoSync: true})
		}
	}
	close(stop)
	all.Wait()
	must(t, reader.Close())
}
