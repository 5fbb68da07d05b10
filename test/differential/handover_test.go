package differential

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"holdfast/test/soak"
	"holdfast/test/stock/ops"
)

// helpers builds the programs that run other versions of bbolt.
var helpers = sync.OnceValues(func() (map[string]string, error) {
	dir, err := os.MkdirTemp("", "holdfast-stock")
	if err != nil {
		return nil, err
	}
	programs := map[string]string{}
	for _, version := range []string{"v1.4.3", "v1.3.12"} {
		programs[version] = filepath.Join(dir, "stock-"+version)
		cmd := exec.Command("go", "build", "-modfile="+version+".mod", "-o", programs[version], ".")
		cmd.Dir = filepath.Join("..", "stock")
		cmd.Env = append(os.Environ(), "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build the helper for bbolt %s: %w\n%s", version, err, out)
		}
	}
	return programs, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if programs, err := helpers(); err == nil {
		os.RemoveAll(filepath.Dir(programs["v1.4.3"]))
	}
	os.Exit(code)
}

// other is a follower that runs another version of bbolt.
func other(t *testing.T, version string) *Follower {
	t.Helper()
	programs, err := helpers()
	if err != nil {
		t.Fatal(err)
	}
	remote, err := ops.Start(programs[version], os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := remote.Stop(); err != nil {
			t.Errorf("bbolt %s: %v", version, err)
		}
	})
	return &Follower{Name: "bbolt " + version, Stock: true, Moves: version != "v1.3.12", Do: remote.Do}
}

// TestHandover passes one file between Holdfast and versions of bbolt in the
// middle of a history. After each turn Holdfast and bbolt check the file and
// compare its content with the model.
func TestHandover(t *testing.T) { histories(t, handoverKind) }

var handoverKind = kind{"handover", 40, func(t *testing.T, seed uint64, tally *soak.Tally) {
	engines := []*Follower{Holdfast(), Stock(), other(t, "v1.4.3"), other(t, "v1.3.12")}
	handover(t, seed, tally, engines, func(h *History) int { return max(0, h.rand.IntN(6)-2) })
}}

var versions = []string{"v1.5.0", "v1.4.3", "v1.3.12"}

// TestReturn passes a file between Holdfast and one other version, by turns.
func TestReturn(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) { histories(t, returnKind(version)) })
	}
}

func returnKind(version string) kind {
	return kind{"return " + version, 15, func(t *testing.T, seed uint64, tally *soak.Tally) {
		engines := []*Follower{Holdfast(), Stock()}
		if version != "v1.5.0" {
			engines[1] = other(t, version)
		}
		turn := int(seed % 2)
		handover(t, seed, tally, engines, func(*History) int {
			turn++
			return turn % 2
		})
	}}
}

func handover(t *testing.T, seed uint64, tally *soak.Tally, engines []*Follower, choose func(*History) int) {
	h := New(seed, pageSize(seed))
	r := newRun(t, h, tally)
	file := filepath.Join(t.TempDir(), "db")
	var turns []string
	vacuums := rand.New(rand.NewPCG(seed, 7))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("turns: %v", turns)
		}
	})
	for range 3 + h.rand.IntN(6) {
		f := engines[choose(h)]
		o := h.options()
		turns = append(turns, fmt.Sprintf("%s %+v", f.Name, o))
		h.Stock = f.Stock
		r.followers, r.files = []*Follower{f}, []string{file}
		before := metas(t, file, pageSize(seed))
		r.session(o, h.rand.IntN(8))
		if h.chance(4) {
			r.copied(f, file, engines)
		}
		committed := !f.Stock || before != metas(t, file, pageSize(seed))
		r.handOver(f, file, engines, committed)
		if vacuums.IntN(3) == 0 {
			turns = append(turns, "vacuum")
			r.vacuumed(file, engines, vacuums)
		}
	}
}

// metas is what bbolt has of the two meta pages of the file; "" if there is no file yet.
func metas(t *testing.T, file string, pageSize int) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(data[:80]) + string(data[pageSize:pageSize+80])
}

// handOver has all engines look at the file that f left. committed: f is Holdfast, or has written a meta page.
func (r *run) handOver(f *Follower, file string, engines []*Follower, committed bool) {
	r.t.Helper()
	leaks := r.inspect(engines[0], file)
	for _, e := range engines[1:] {
		seen := r.inspect(e, file)
		if len(seen) == 0 && (!f.Stock || !committed) && !syncedFreelist(r.t, file, pageSize(r.h.Seed)) {
			// bbolt, which has no freelist then, scans, and finds what it had lost. What happened: the test failed with seeds
			// 1795697920967391514 and 1795697920966715106, in which bbolt opened a file of Holdfast and committed nothing, so
			// that Holdfast went on from its record.
			continue
		}
		if fmt.Sprint(seen) != fmt.Sprint(leaks) {
			r.t.Fatalf("seed %d, step %d, after %s: holdfast finds lost pages %v, %s finds %v", r.h.Seed, r.steps, f.Name, leaks, e.Name, seen)
		}
	}
	if !f.Stock || !committed {
		for id := range leaks {
			if !r.leaks[id] {
				r.t.Fatalf("seed %d, step %d: %s lost page %s", r.h.Seed, r.steps, f.Name, id)
			}
		}
	}
	r.leaks = leaks
}

// copied copies the file while f has it open, between two transactions, and has
// the engines look at the copy.
func (r *run) copied(f *Follower, file string, engines []*Follower) {
	r.t.Helper()
	o := r.h.options()
	o.Strict = false // it would panic about what bbolt has lost
	if !f.Stock {
		o.NoSync = true // else others find the state before the last flush, which TestTakeover is about
	}
	r.do(ops.Op{Kind: ops.Open, Options: o})
	r.transaction()
	data, err := os.ReadFile(file)
	if err != nil {
		r.t.Fatal(err)
	}
	snapshot := file + ".copy"
	if err := os.WriteFile(snapshot, data, 0o600); err != nil {
		r.t.Fatal(err)
	}
	for _, e := range engines {
		if e != f {
			r.inspect(e, snapshot)
		}
	}
	r.do(ops.Op{Kind: ops.Close})
}

// syncedFreelist tells whether the file's newest meta names a freelist page.
func syncedFreelist(t *testing.T, file string, pageSize int) bool {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	newest, synced := uint64(0), false
	for _, at := range []int{16, pageSize + 16} {
		meta := data[at : at+64]
		hash := fnv.New64a()
		hash.Write(meta[:56])
		if binary.NativeEndian.Uint64(meta[56:]) != hash.Sum64() {
			continue
		}
		if txid := binary.NativeEndian.Uint64(meta[48:]); txid >= newest {
			newest, synced = txid, binary.NativeEndian.Uint64(meta[32:]) != 1<<64-1
		}
	}
	return synced
}
