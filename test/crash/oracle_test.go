package crash

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast"
	"holdfast/internal/bridge"
	"holdfast/internal/vfs"
	"holdfast/test/soak"
)

// TestForgetfulDisk runs histories on a disk that forgets to flush. They fail,
// and are cut down to one commit.
func TestForgetfulDisk(t *testing.T) {
	dir := t.TempDir()
	lying := func(s Script) *failure {
		return (&run{script: s, tally: &soak.Tally{}, dir: dir, lies: true}).do()
	}
	for _, seed := range []uint64{1, 2, 3, 5} { // 0 and 4 begin with a file that bbolt has made, which is lost with a second commit only
		s := generate(seed)
		fail := lying(s)
		if fail == nil {
			t.Errorf("seed %d: nothing is noticed", seed)
			continue
		}
		short, how := shrink(s, fail, 20*time.Second, lying)
		edits := 0
		for _, step := range short.Steps {
			edits += len(step.Edits)
		}
		if how == nil || len(short.Steps) > 3 || edits > 1 {
			t.Errorf("seed %d: cut down to\n%s%v", seed, short, how)
		}
		again, err := Parse(short.String())
		if err != nil {
			t.Fatal(err)
		}
		if lying(again) == nil {
			t.Errorf("seed %d: run again from its text, this does not fail:\n%s", seed, short)
		}
		if fail := runScript(dir, short, &soak.Tally{}); fail != nil {
			t.Errorf("seed %d: on a disk that flushes:\n%s%v", seed, short, fail)
		}
	}
}

// freelistOf is the freelist page that a clean file's better meta names, as the
// list of its numbers and a way to replace it.
func freelistOf(t *testing.T, file []byte, pageSize int) (pages []uint64, replace func([]uint64)) {
	t.Helper()
	var newest, list uint64
	for slot := range 2 {
		meta := file[slot*pageSize+16:][:64]
		hash := fnv.New64a()
		hash.Write(meta[:56])
		if binary.NativeEndian.Uint64(meta[56:]) != hash.Sum64() {
			continue
		}
		if txid := binary.NativeEndian.Uint64(meta[48:]); txid >= newest {
			newest, list = txid, binary.NativeEndian.Uint64(meta[32:])
		}
	}
	if list == 1<<64-1 {
		t.Fatal("the file has no freelist page")
	}
	header := file[int(list)*pageSize:]
	for i := range binary.NativeEndian.Uint16(header[10:]) {
		pages = append(pages, binary.NativeEndian.Uint64(header[16+8*int(i):]))
	}
	return pages, func(pages []uint64) {
		binary.NativeEndian.PutUint16(header[10:], uint16(len(pages)))
		for i, id := range pages {
			binary.NativeEndian.PutUint64(header[16+8*i:], id)
		}
		clear(header[pageSize-8 : pageSize]) // the seal of what was there
	}
}

// TestOracleSeesSpace plants a lost page and one that is used and free into a
// closed file, and mixes up its content. The oracle has to see each, also on a
// disk to which it has committed.
func TestOracleSeesSpace(t *testing.T) {
	script, err := Parse("pagesize 1024\nopen\ntx\n put b0 k1 n=200 30a\ntx\n del b0 k1 n=150\nclose\n")
	if err != nil {
		t.Fatal(err)
	}
	r := &run{script: script, tally: &soak.Tally{}, dir: t.TempDir()}
	if fail := r.do(); fail != nil {
		t.Fatal(fail)
	}
	clean := r.disk.Bytes()
	for slot := range 2 { // the freelist page is to be believed
		clear(clean[slot*1024+80 : (slot+1)*1024])
	}
	verify := func(file []byte) error {
		for n := range uint64(10) { // it looks at some disks in more ways than at others
			rng := rand.New(rand.NewPCG(1, n))
			if err := r.verify(slices.Clone(file), rng); err != nil {
				return err
			}
		}
		return nil
	}
	if err := verify(clean); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		change func(pages []uint64, used uint64) []uint64
		want   string
	}{
		{"lost", func(pages []uint64, _ uint64) []uint64 { return pages[:len(pages)-1] }, "unreachable unfreed"},
		{"used and free", func(pages []uint64, used uint64) []uint64 {
			pages = append(slices.Clone(pages), used)
			slices.Sort(pages)
			return pages
		}, "reachable freed"},
	} {
		file := slices.Clone(clean)
		pages, replace := freelistOf(t, file, 1024)
		replace(test.change(pages, usedLeaf(t, file, pages)))
		err := verify(file)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: the oracle says %v", test.name, err)
		}
	}
	older, err := Parse("pagesize 1024\nopen\ntx\n put b0 k1 n=200 30a\nclose\n")
	if err != nil {
		t.Fatal(err)
	}
	before := &run{script: older, tally: &soak.Tally{}, dir: t.TempDir()}
	if fail := before.do(); fail != nil {
		t.Fatal(fail)
	}
	if err := verify(before.disk.Bytes()); err == nil || !strings.Contains(err.Error(), "neither that of the last acknowledged") {
		t.Errorf("an older state: the oracle says %v", err)
	}
}

// usedLeaf is a leaf that is in use, and is not the root.
func usedLeaf(t *testing.T, file []byte, free []uint64) uint64 {
	t.Helper()
	db, err := bridge.Open(vfs.NewCrash("db", file, nil).Open(), &holdfast.Options{ReadOnly: true, PreLoadFreelist: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var id uint64
	err = db.View(func(tx *holdfast.Tx) error {
		root := uint64(tx.Bucket([]byte("b0")).Root())
		for p := uint64(2); id == 0 && p < uint64(len(file)/1024); p++ {
			info, err := tx.Page(int(p))
			if err != nil {
				return err
			}
			if info == nil {
				break
			}
			if info.Type == "leaf" && p != root && info.Count > 5 && !slices.Contains(free, p) {
				id = p
			}
		}
		if id == 0 {
			return fmt.Errorf("no leaf is in use")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// Of two transactions at once one failed and the other was committed without a flush:
// an oracle that took it for flushed, as what was before both of them, blamed the engine
// when it was lost with the next flush.
func TestUnflushedBesideAFailedOne(t *testing.T) {
	script, err := Parse(`pagesize 2048
plain
open seed=1 strict
nosync seed=1 nosync
tx seed=1 fail=5 together
 put b1 k1 n=1 0c
tx seed=1 together
 put b1 k42 n=1 2576k
nosync seed=1
tx seed=1 fail=1
 put b0 k1 n=0 23s
`)
	if err != nil {
		t.Fatal(err)
	}
	tally := &soak.Tally{}
	for range 20 { // whose order differs
		if fail := runScript(t.TempDir(), script, tally); fail != nil {
			t.Fatal(fail)
		}
	}
	if n := tally.Get("lost for want of a flush"); n < 20 {
		t.Errorf("%d disks without a flush: the step is not what it was", n)
	}
}

// A vacuum with NoSync flushed at its beginning, committed some transactions without a flush, and failed in another: an
// oracle that took all that was committed for flushed blamed the engine when the next flush lost it.
func TestUnflushedBeforeAFailedStepOfVacuum(t *testing.T) {
	const script = `pagesize 512
open seed=1
nosync seed=1 nosync
tx seed=1
 bucket b0/n0/n1
 put b0 k1 n=19 28k
tx seed=1
 put b2 k1 n=67 94o
vacuum seed=1 fail=18 pages=3
`
	for _, test := range []struct{ end, feature string }{
		{"sync seed=1 fail=1\nclose\n", "lost flush"},
		{"sync seed=1 kill=1\nopen\nclose\n", "goes on after a kill"},
		{"tx seed=1 kill=1\n put b0 k1 n=1 28m\nopen\nclose\n", "goes on after a kill"},
		{"sync seed=1\nnosync\ntx seed=1\n put b0 k1 n=1 28m\nclose\n", "durable after NoSync"},
	} {
		s, err := Parse(script + test.end)
		if err != nil {
			t.Fatal(err)
		}
		tally := &soak.Tally{}
		if fail := runScript(t.TempDir(), s, tally); fail != nil {
			t.Errorf("%v\n\nin this script:\n\n%s", fail, s)
		} else if tally.Get(test.feature) == 0 {
			t.Errorf("%s: no disk in this script:\n\n%s", test.feature, s)
		}
	}
}

// Beside a vacuum the power went when a transaction had been written and not flushed. The engine was told
// that the write had failed, the next transaction was given the same number, and the oracle forgot the
// first, which the disk may hold.
func TestWrittenWhenThePowerWent(t *testing.T) {
	r := &run{script: Script{PageSize: 4096}, tally: &soak.Tally{}, dir: t.TempDir()}
	r.start()
	defer r.end()
	if err := r.one([]Step{{Kind: "open"}}); err != nil {
		t.Fatal(err)
	}
	edits := []Edit{{Op: "put", Path: "b0", Key: 1, N: 1, Size: 20, Letter: 'a'}}
	written := version{nth: 1, state: r.state, acked: "written"}
	if err := r.db.View(func(tx *holdfast.Tx) error { written.id = tx.ID() + 1; return nil }); err != nil {
		t.Fatal(err)
	}
	r.set(func() { r.pending, r.file.dead = []version{written}, true })
	for range 2 {
		if err := r.beside(Step{Kind: "tx", Edits: edits}); err == nil {
			t.Fatal("a commit with the power off")
		}
		if _, err := r.expected("written", false, true); err != nil {
			t.Error(err)
		}
	}
	if err := r.beside(Step{Kind: "tx"}); err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(r.acks, func(v version) bool { return v.acked == "written" }) {
		t.Error("a transaction that changes nothing, and succeeds, has made one that failed acknowledged")
	}
}
