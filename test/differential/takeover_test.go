package differential

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"

	"holdfast"
	"holdfast/internal/bridge"
	"holdfast/internal/vfs"
	"holdfast/test/soak"
)

// takeover is a file that Holdfast and bbolt write by turns, of which Holdfast never
// closes it: what bbolt gets is what a killed process leaves.
type takeover struct {
	t      *testing.T
	rand   *rand.Rand
	path   string
	size   int // of a page
	data   []byte
	states map[uint64]map[string]string // by number of the last commit
	next   uint64
	newest uint64 // in the file, for Holdfast
	stock  uint64 // for bbolt
	tally  *soak.Tally
}

// bucketLike is a bucket of either engine.
type bucketLike interface {
	Put(key, value []byte) error
	Delete(key []byte) error
	ForEach(fn func(k, v []byte) error) error
}

// edit makes a commit's changes, on top of a state, and knows what they give.
func (o *takeover) edit(b bucketLike, on uint64) (number uint64, err error) {
	o.next++
	content := map[string]string{}
	for k, v := range o.states[on] {
		content[k] = v
	}
	for range 1 + o.rand.IntN(12) {
		k := fmt.Sprintf("key %d", o.rand.IntN(300))
		if o.rand.IntN(3) == 0 {
			delete(content, k)
			err = b.Delete([]byte(k))
		} else {
			content[k] = string(bytes.Repeat([]byte{byte(o.next)}, o.rand.IntN(600)))
			err = b.Put([]byte(k), []byte(content[k]))
		}
		if err != nil {
			return 0, err
		}
	}
	content["number"] = fmt.Sprint(o.next)
	o.states[o.next] = content
	return o.next, b.Put([]byte("number"), []byte(content["number"]))
}

// look wants a bucket to be that of a state.
func (o *takeover) look(who string, b bucketLike, want uint64) {
	o.t.Helper()
	content := map[string]string{}
	must(o.t, b.ForEach(func(k, v []byte) error {
		content[string(k)] = string(v)
		return nil
	}))
	if len(content) != len(o.states[want]) {
		o.t.Fatalf("%s finds %d keys of commit %s, want %d of commit %d", who, len(content), content["number"], len(o.states[want]), want)
	}
	for k, v := range o.states[want] {
		if content[k] != v {
			o.t.Fatalf("%s: %s is that of commit %s, want commit %d", who, k, content["number"], want)
		}
	}
}

var bucketName = []byte("b")

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ours has Holdfast commit, and takes the file away while it is open.
func (o *takeover) ours() {
	mem := vfs.NewMem("mem")
	_, err := mem.Open().WriteAt(o.data, 0)
	must(o.t, err)
	strict := o.rand.IntN(4) == 0
	db, err := bridge.Open(mem.Open(), &holdfast.Options{PageSize: o.size, StrictCompat: strict, SettleDelay: -1})
	must(o.t, err)
	must(o.t, db.View(func(tx *holdfast.Tx) error {
		for err := range tx.Check() {
			o.t.Errorf("Holdfast's check: %v", err)
		}
		if b := tx.Bucket(bucketName); b != nil {
			o.look("Holdfast", b, o.newest)
		}
		return nil
	}))
	o.tally.Add("Holdfast opened by " + string(db.Stats().OpenPath))
	o.stock = o.newest
	for range o.rand.IntN(5) {
		must(o.t, db.Update(func(tx *holdfast.Tx) error {
			b, err := tx.CreateBucketIfNotExists(bucketName)
			if err != nil {
				return err
			}
			n, err := o.edit(b, o.newest)
			o.stock, o.newest = o.newest, n
			return err
		}))
		if strict {
			o.stock = o.newest
		}
		if o.rand.IntN(5) == 0 {
			must(o.t, db.Sync())
			o.stock = o.newest
		}
	}
	o.data = bytes.Clone(mem.Bytes())
	must(o.t, db.Close())
}

// bbolts has bbolt go on from what it finds.
func (o *takeover) bbolts() {
	if o.stock < o.newest {
		o.tally.Add("bbolt goes on from an older state")
	} else {
		o.tally.Add("bbolt goes on from the newest state")
	}
	must(o.t, os.WriteFile(o.path, o.data, 0o600))
	db, err := bbolt.Open(o.path, 0o600, &bbolt.Options{NoSync: true, NoFreelistSync: o.rand.IntN(2) == 0})
	must(o.t, err)
	must(o.t, db.View(func(tx *bbolt.Tx) error {
		for err := range tx.Check() {
			o.t.Errorf("bbolt's check: %v", err)
		}
		if b := tx.Bucket(bucketName); b != nil {
			o.look("bbolt", b, o.stock)
		}
		return nil
	}))
	commits := o.rand.IntN(4)
	if commits == 0 {
		o.tally.Add("bbolt only opens the file")
	}
	on := o.stock
	for range commits {
		must(o.t, db.Update(func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists(bucketName)
			if err != nil {
				return err
			}
			n, err := o.edit(b, on)
			on = n
			return err
		}))
	}
	synced := !db.NoFreelistSync // then opening may have committed, too
	must(o.t, db.Close())
	if commits > 0 || synced && o.readBy(o.path) != o.newest {
		o.newest, o.stock = on, on
	}
	o.data, err = os.ReadFile(o.path)
	must(o.t, err)
}

// readBy is the commit that Holdfast finds, without changing the file.
func (o *takeover) readBy(path string) (n uint64) {
	db, err := holdfast.Open(path, 0, &holdfast.Options{ReadOnly: true})
	must(o.t, err)
	must(o.t, db.View(func(tx *holdfast.Tx) error {
		if b := tx.Bucket(bucketName); b != nil {
			_, err := fmt.Sscan(string(b.Get([]byte("number"))), &n)
			return err
		}
		return nil
	}))
	must(o.t, db.Close())
	return n
}

// TestTakeover has bbolt go on where a killed Holdfast has stopped, and Holdfast
// where bbolt has closed the file, again and again. bbolt finds the last commit,
// or the one before; Holdfast finds the last of whoever wrote last.
func TestTakeover(t *testing.T) {
	tally := histories(t, takeoverKind)
	t.Log(tally)
	if _, chosen := soak.Seeds(t, 1, 1); chosen {
		return
	}
	for what, least := range map[string]int{
		"bbolt goes on from an older state": 20, "bbolt goes on from the newest state": 20, "bbolt only opens the file": 20,
		"Holdfast opened by record": 20, "Holdfast opened by freelist": 5, "Holdfast opened by scan": 20,
	} {
		if n := tally.Get(what); n < least {
			t.Errorf("%s: %d times, want %d at least", what, n, least)
		}
	}
}

var takeoverKind = kind{"takeover", 8, func(t *testing.T, seed uint64, tally *soak.Tally) {
	o := &takeover{
		t: t, tally: tally, rand: rand.New(rand.NewPCG(seed, 0)), path: filepath.Join(t.TempDir(), "db"),
		size: pageSize(seed), states: map[uint64]map[string]string{},
	}
	for range 40 {
		o.ours()
		if o.rand.IntN(3) > 0 {
			o.bbolts()
		}
	}
}}
