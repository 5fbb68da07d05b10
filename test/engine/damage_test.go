package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"holdfast"
	"holdfast/internal/bridge"
)

// raftStore does as raft-boltdb: reading transactions of its own, whose Rollback is deferred
// and its error dropped.
type raftStore struct{ db *holdfast.DB }

func (s *raftStore) lastIndex() (uint64, error) {
	tx, err := s.db.Begin(false)
	if err != nil {
		return 0, err
	}
	defer tx.Rollback()
	if last, _ := tx.Bucket([]byte("logs")).Cursor().Last(); last != nil {
		return binary.BigEndian.Uint64(last), nil
	}
	return 0, nil
}

func (s *raftStore) store(index uint64, log []byte) error {
	tx, err := s.db.Begin(true)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	b, err := tx.CreateBucketIfNotExists([]byte("logs"))
	if err != nil {
		return err
	}
	if err := b.Put(binary.BigEndian.AppendUint64(nil, index), log); err != nil {
		return err
	}
	return tx.Commit()
}

// flipped changes a bit of each place in the file at path where content stands.
func flipped(t testing.TB, path string, content []byte) {
	t.Helper()
	data := readFile(t, path)
	n := 0
	for at := 0; ; n++ {
		next := bytes.Index(data[at:], content)
		if next < 0 {
			break
		}
		at += next
		data[at] ^= 1
	}
	if n == 0 {
		t.Fatalf("the file has no %q", content)
	}
	must(t, os.WriteFile(path, data, 0o600))
}

// One flipped bit in a leaf made LastIndex of raft-boltdb 0 instead of 1000, and the next entry
// that was stored took the number, and the place, of one that had been acknowledged.
func TestRaftStoreAfterAFlippedBit(t *testing.T) {
	for _, onDamage := range []holdfast.OnDamage{holdfast.DamagePanics, holdfast.DamageIsError} {
		path := tempPath(t)
		db := open(t, path, nil)
		s := &raftStore{db}
		for i := range uint64(1000) {
			if i == 0 {
				db.NoSync = true
			}
			must(t, s.store(i+1, fmt.Appendf(nil, "entry %d.", i+1)))
		}
		must(t, db.Close())
		flipped(t, path, []byte("entry 1000."))

		s.db = open(t, path, &holdfast.Options{OnDamage: onDamage})
		if onDamage == holdfast.DamageIsError { // as a program says that asks Tx.Err
			if last, err := s.lastIndex(); last != 0 || err != nil {
				t.Errorf("with DamageIsError: %d, %v", last, err)
			}
			continue
		}
		var last uint64
		value := mustPanic(t, func() { last, _ = s.lastIndex() })
		mustNameDamage(t, value, path)
		if value == nil {
			must(t, s.store(last+1, []byte("another entry")))
			t.Fatalf("LastIndex is %d, and entry %d is another now", last, last+1)
		}
		if n := s.db.Stats().OpenTxN; n != 0 {
			t.Errorf("%d transactions are open", n)
		}
	}
}

// mustNameDamage looks at what a call has panicked with.
func mustNameDamage(t testing.TB, value any, path string) {
	t.Helper()
	damage, ok := value.(*holdfast.CorruptError)
	if !ok {
		t.Errorf("the panic is %T: %v", value, value)
		return
	}
	for _, want := range []string{path, fmt.Sprint("page ", damage.Page), damage.Reason, "holdfast doctor"} {
		if !strings.Contains(damage.Error(), want) {
			t.Errorf("the panic does not say %q: %v", want, damage)
		}
	}
	if damage.Page < 2 || damage.File != path {
		t.Errorf("page %d of %q", damage.Page, damage.File)
	}
}

// damagedSample opens a file whose bucket "keys" has a damaged first leaf.
func damagedSample(t testing.TB, options *holdfast.Options) (db *holdfast.DB, path string) {
	t.Helper()
	s := newSample(t)
	s.set16(s.leaf(s.keys), offFlags, 0)
	path = tempPath(t)
	must(t, os.WriteFile(path, s.data, 0o600))
	return open(t, path, options), path
}

var errOwn = errors.New("an error of the program's own")

// A function of View, Update or Batch that made an error of its own of a nil from Get hid the
// damage: errors.As did not find it.
func TestDamageIsJoined(t *testing.T) {
	read := func(tx *holdfast.Tx) { tx.Bucket([]byte("keys")).Get(sampleKey(0)) }
	own := func(tx *holdfast.Tx) error { read(tx); return errOwn }
	wrapped := func(tx *holdfast.Tx) error { read(tx); return fmt.Errorf("reading: %w", tx.Err()) }
	quiet := func(tx *holdfast.Tx) error { read(tx); return nil }
	sound := func(*holdfast.Tx) error { return errOwn }
	for _, options := range []*holdfast.Options{nil, {OnDamage: holdfast.DamageIsError}} {
		db, path := damagedSample(t, options)
		commit := func(fn func(*holdfast.Tx) error) error {
			tx := begin(t, db, true)
			tx.BeforeCommit(func() error { return fn(tx) })
			return tx.Commit()
		}
		rollback := func(fn func(*holdfast.Tx) error) error {
			tx := begin(t, db, true)
			_ = fn(tx)
			return tx.Rollback()
		}
		for name, run := range map[string]func(func(*holdfast.Tx) error) error{
			"View": db.View, "Update": db.Update, "Batch": db.Batch, "Commit": commit, "Rollback": rollback,
		} {
			if err := run(own); !says(err, path) || !errors.Is(err, errOwn) && name != "Rollback" {
				t.Errorf("%s: %v", name, err)
			}
			if err := run(quiet); !says(err, path) || strings.Count(err.Error(), "is damaged") != 1 {
				t.Errorf("%s of a function that says nothing: %v", name, err)
			}
			if err := run(wrapped); !says(err, path) || strings.Count(err.Error(), "is damaged") != 1 {
				t.Errorf("%s of a function that returns the damage: %v", name, err)
			}
			if err := run(sound); err != errOwn && name != "Rollback" {
				t.Errorf("%s without damage: %v", name, err)
			}
		}
	}
}

// says tells whether err has the damage of the file at path.
func says(err error, path string) bool {
	var damage *holdfast.CorruptError
	return errors.As(err, &damage) && strings.Contains(err.Error(), path+" is damaged: page ")
}

// A function of Batch that met damage and returned nil made the calls fail that were joined
// with it.
func TestDamageInABatchIsOfWhoMetIt(t *testing.T) {
	db, path := damagedSample(t, nil)
	const calls = 8
	db.MaxBatchSize, db.MaxBatchDelay = calls, watchdog
	errs := make([]error, calls)
	var wg sync.WaitGroup
	for i := range calls {
		wg.Go(func() {
			errs[i] = db.Batch(func(tx *holdfast.Tx) error {
				if i == 3 {
					tx.Bucket([]byte("keys")).Get(sampleKey(0))
					return nil
				}
				return tx.Bucket([]byte("small")).Put(fmt.Appendf(nil, "batched %d", i), nil)
			})
		})
	}
	wg.Wait()
	for i, err := range errs {
		if i == 3 && !says(err, path) || i != 3 && err != nil {
			t.Errorf("call %d: %v", i, err)
		}
	}
}

// silentReads are the calls that have no error to return, each of which meets the damage of
// damagedSample.
var silentReads = map[string]func(tx *holdfast.Tx, b *holdfast.Bucket){
	"Get":         func(_ *holdfast.Tx, b *holdfast.Bucket) { b.Get(sampleKey(0)) },
	"AppendValue": func(_ *holdfast.Tx, b *holdfast.Bucket) { b.AppendValue(nil, sampleKey(0)) },
	"Bucket":      func(_ *holdfast.Tx, b *holdfast.Bucket) { b.Bucket(sampleKey(0)) },
	"First":       func(_ *holdfast.Tx, b *holdfast.Bucket) { b.Cursor().First() },
	"Seek":        func(_ *holdfast.Tx, b *holdfast.Bucket) { b.Cursor().Seek(sampleKey(0)) },
	"Next": func(_ *holdfast.Tx, b *holdfast.Bucket) {
		c := b.Cursor()
		c.Seek(sampleKey(2999))
		for k, _ := c.Prev(); k != nil; k, _ = c.Prev() {
		}
	},
	"All":         func(_ *holdfast.Tx, b *holdfast.Bucket) { drain(b.All()) },
	"Range":       func(_ *holdfast.Tx, b *holdfast.Bucket) { drain(b.Range(nil, sampleKey(5))) },
	"Backward":    func(_ *holdfast.Tx, b *holdfast.Bucket) { drain(b.Backward()) },
	"Stats":       func(_ *holdfast.Tx, b *holdfast.Bucket) { b.Stats() },
	"Prefix":      func(_ *holdfast.Tx, b *holdfast.Bucket) { drain(b.Prefix(nil)) },
	"Inspect":     func(_ *holdfast.Tx, b *holdfast.Bucket) { b.Inspect() },
	"Tx.Inspect":  func(tx *holdfast.Tx, _ *holdfast.Bucket) { tx.Inspect() },
	"KeepDamage?": func(_ *holdfast.Tx, b *holdfast.Bucket) { b.Tx().Bucket([]byte("keys")).Cursor().First() },
	"in ForEach": func(tx *holdfast.Tx, b *holdfast.Bucket) {
		_ = tx.ForEach(func(name []byte, each *holdfast.Bucket) error {
			if string(name) == "keys" {
				each.Get(sampleKey(0))
			}
			return nil
		})
	},
}

// Calls that have no error to return panic on damage in a reading transaction that the program
// began itself, and in no other; with DamageIsError in none.
func TestDamagePanics(t *testing.T) {
	for _, options := range []holdfast.Options{{}, {ReadOnly: true}, {OnDamage: holdfast.DamageIsError}} {
		db, path := damagedSample(t, &options)
		for name, read := range silentReads {
			use := func(tx *holdfast.Tx) error {
				read(tx, tx.Bucket([]byte("keys")))
				if !says(tx.Err(), path) {
					t.Errorf("%+v: %s in a transaction that does not panic: Err is %v", options, name, tx.Err())
				}
				return nil
			}
			if err := db.View(use); !says(err, path) {
				t.Errorf("%+v: View with %s: %v", options, name, err)
			}
			if !options.ReadOnly {
				if err := db.Update(use); !says(err, path) {
					t.Errorf("%+v: Update with %s: %v", options, name, err)
				}
				tx := begin(t, db, true)
				_ = use(tx)
				if err := tx.Commit(); !says(err, path) {
					t.Errorf("%+v: Commit after %s: %v", options, name, err)
				}
			}
			tx := begin(t, db, false)
			if options.OnDamage == holdfast.DamageIsError {
				_ = use(tx)
			} else {
				b := tx.Bucket([]byte("keys"))
				for range 2 { // recovering helps once
					mustNameDamage(t, mustPanic(t, func() { read(tx, b) }), path)
				}
				if v := b.Get(sampleKey(2999)); v == nil {
					t.Errorf("%s: what is sound cannot be read after the panic", name)
				}
			}
			if err := tx.Rollback(); !says(err, path) {
				t.Errorf("%+v: Rollback after %s: %v", options, name, err)
			}
		}
	}
}

// Calls that can fail return damage, and do not panic, in any transaction; nor do Probe and
// what is read through KeepDamage.
func TestDamageIsReturned(t *testing.T) {
	db, path := damagedSample(t, nil)
	none := func(_, _ []byte) error { return nil }
	for name, call := range map[string]func(tx *holdfast.Tx, b *holdfast.Bucket) error{
		"ForEach":       func(_ *holdfast.Tx, b *holdfast.Bucket) error { return b.ForEach(none) },
		"ForEachBucket": func(_ *holdfast.Tx, b *holdfast.Bucket) error { return b.ForEachBucket(nil) },
		"Scan": func(_ *holdfast.Tx, b *holdfast.Bucket) error {
			return b.Scan(nil, func(_, _ []byte) bool { return true })
		},
		"GetUnsealed": func(_ *holdfast.Tx, b *holdfast.Bucket) error {
			_, err := bridge.GetUnsealed(b, sampleKey(0), 0)
			return err
		},
		"Find": func(tx *holdfast.Tx, b *holdfast.Bucket) error {
			_, found, err := bridge.Find(b, sampleKey(0))
			if found || tx.Err() != nil {
				t.Errorf("Find: found %t, and noted %v", found, tx.Err())
			}
			return err
		},
		"Probe": func(tx *holdfast.Tx, b *holdfast.Bucket) error {
			return bridge.Probe(tx, func() { b.Cursor().First() })
		},
	} {
		tx := begin(t, db, false)
		if err := call(tx, tx.Bucket([]byte("keys"))); !says(err, path) {
			t.Errorf("%s: %v", name, err)
		}
		_ = tx.Rollback()
	}
	for name, read := range silentReads {
		if slices.Contains([]string{"Tx.Inspect", "KeepDamage?", "in ForEach"}, name) { // not through b
			continue
		}
		tx := begin(t, db, false)
		if read(tx, tx.Bucket([]byte("keys")).KeepDamage()); !says(tx.Err(), path) {
			t.Errorf("%s: Err is %v", name, tx.Err())
		}
		if err := tx.Rollback(); !says(err, path) {
			t.Errorf("Rollback after %s: %v", name, err)
		}
	}
	tx := begin(t, db, false)
	nested := tx.Bucket([]byte("nest")).KeepDamage()
	if again := nested.KeepDamage(); again != nested {
		t.Error("KeepDamage of a bucket that keeps it makes another")
	}
	if tx = begin(t, db, true); tx.Bucket([]byte("keys")).KeepDamage() != tx.Bucket([]byte("keys")) {
		t.Error("in a writing transaction a bucket is there twice")
	}
}

// A bucket whose own element, or the root page of all, is damaged.
func TestDamagePanicsAboveTheBucket(t *testing.T) {
	s := newSample(t)
	path := tempPath(t)
	must(t, os.WriteFile(path, s.data, 0o600))
	db := open(t, path, &holdfast.Options{ReadOnly: true})
	s.set16(s.meta.Root, offFlags, 0)
	must(t, overwrite(path, s.data)) // after it was opened: damaged like this it would not be
	tx := begin(t, db, false)
	mustNameDamage(t, mustPanic(t, func() { tx.Bucket([]byte("keys")) }), path)
	mustNameDamage(t, mustPanic(t, func() { tx.Cursor().First() }), path)
	if err := tx.ForEach(func([]byte, *holdfast.Bucket) error { return nil }); !says(err, path) {
		t.Errorf("ForEach: %v", err)
	}
}

// Several goroutines meet damage in one transaction at the same time.
func TestDamagePanicsInEachGoroutine(t *testing.T) {
	db, path := damagedSample(t, nil)
	tx := begin(t, db, false)
	b := tx.Bucket([]byte("keys"))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			kept := b.KeepDamage()
			for range 50 {
				mustNameDamage(t, mustPanic(t, func() { b.Cursor().First() }), path)
				kept.Cursor().First()
				if b.Get(sampleKey(2999)) == nil || kept.Get(sampleKey(2999)) == nil {
					t.Error("a sound key is not there")
				}
			}
		})
	}
	wg.Wait()
	if err := tx.Rollback(); !says(err, path) {
		t.Error(err)
	}
}

// HOLDFAST_DAMAGE=error is for a program that looks at Tx.Err and cannot be given options;
// panic is how it is anyway, and takes back nothing.
func TestEnvironmentDamage(t *testing.T) {
	for _, c := range []struct {
		value   string
		options holdfast.Options
		panics  bool
	}{
		{"", holdfast.Options{}, true},
		{"panic", holdfast.Options{}, true},
		{"error", holdfast.Options{}, false},
		{"", holdfast.Options{OnDamage: holdfast.DamageIsError}, false},
		{"panic", holdfast.Options{OnDamage: holdfast.DamageIsError}, false},
	} {
		t.Setenv("HOLDFAST_DAMAGE", c.value)
		db, path := damagedSample(t, &c.options)
		tx := begin(t, db, false)
		read := func() { tx.Bucket([]byte("keys")).Get(sampleKey(0)) }
		if c.panics {
			mustNameDamage(t, mustPanic(t, read), path)
		} else {
			read()
		}
		if !says(tx.Err(), path) {
			t.Errorf("%+v: Err is %v", c, tx.Err())
		}
		_ = tx.Rollback()
	}
	t.Setenv("HOLDFAST_DAMAGE", "stop")
	if _, err := holdfast.Open(tempPath(t), 0o600, nil); err == nil || !strings.Contains(err.Error(), `it can be "error" or "panic"`) {
		t.Errorf("an unknown value: %v", err)
	}
}

// overwrite writes a file again in place, so that a mapping of it has the new bytes.
func overwrite(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	return errors.Join(err, f.Close())
}
