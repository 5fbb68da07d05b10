package differential

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"holdfast"
	"holdfast/command"
)

// operate runs surgery on the file at path, which has to stay as it is, and returns the
// file that it made.
func operate(t *testing.T, path string, args ...string) string {
	t.Helper()
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "out")
	root := command.NewRootCommand()
	root.SetArgs(append(append([]string{"surgery"}, args...), path, "--output", out))
	root.SetOut(io.Discard)
	if err := root.Execute(); err != nil {
		t.Fatalf("surgery %v: %v", args, err)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, before) {
		t.Errorf("surgery %v changed the source: %v", args, err)
	}
	return out
}

// holdfastReads is what Holdfast finds in the file at path, which it checks.
func holdfastReads(t *testing.T, path string) contents {
	t.Helper()
	db, err := holdfast.Open(path, 0o600, &holdfast.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	all := contents{}
	err = db.View(func(tx *holdfast.Tx) error {
		for err := range tx.Check() {
			t.Errorf("holdfast: %v", err)
		}
		if tx.Bucket([]byte("b")) == nil {
			return nil
		}
		return tx.Bucket([]byte("b")).ForEach(func(k, v []byte) error {
			all[string(k)] = string(v)
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// bothRead sees that both engines find want in the file at path, and go on from there.
func bothRead(t *testing.T, what, path string, want contents, rng *rand.Rand) {
	t.Helper()
	if !maps.Equal(holdfastReads(t, path), want) {
		t.Fatalf("%s: Holdfast reads something else", what)
	}
	if !maps.Equal(stockReads(t, path), want) {
		t.Fatalf("%s: bbolt reads something else", what)
	}
	other := left(t, path)
	db, err := holdfast.Open(other, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	state := maps.Clone(want)
	for range 3 {
		if err := db.Update(func(tx *holdfast.Tx) error { return follow(tx, rng, state) }); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(holdfastReads(t, other), state) || !maps.Equal(stockReads(t, other), state) {
		t.Errorf("%s: after commits of Holdfast something else is there", what)
	}
	goOn(t, path, want, rng)
}

// leafPage is one of the leaf pages of the file at path with more than two elements, and
// a page that is free; 0 if there is none.
func leafPage(t *testing.T, path string, rng *rand.Rand) (leaf, free uint64, elements int) {
	t.Helper()
	var out bytes.Buffer
	root := command.NewRootCommand()
	root.SetArgs([]string{"pages", path, "--json"})
	root.SetOut(&out)
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	var all []struct {
		Page     uint64
		Type     string
		Pages    uint64
		Elements int
	}
	if err := json.Unmarshal(out.Bytes(), &all); err != nil {
		t.Fatal(err)
	}
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, p := range all {
		switch {
		case p.Type == "leaf" && p.Pages == 1 && p.Elements > 2:
			leaf, elements = p.Page, p.Elements
		case p.Type == "free":
			free = p.Page
		}
	}
	return leaf, free, elements
}

// operated runs each kind of surgery on the file at path, whose newest state is the last of
// states. It returns how many states revert-meta-page went back.
func operated(t *testing.T, path string, states []contents, pageSize int, rng *rand.Rand) int {
	t.Helper()
	newest := states[len(states)-1]
	abandoned := operate(t, path, "freelist", "abandon")
	if syncedFreelist(t, abandoned, pageSize) {
		t.Error("abandon leaves a freelist")
	}
	rebuilt := operate(t, abandoned, "freelist", "rebuild")
	if !syncedFreelist(t, rebuilt, pageSize) {
		t.Error("rebuild leaves no freelist")
	}
	bothRead(t, "abandon", abandoned, newest, rng)
	bothRead(t, "rebuild", rebuilt, newest, rng)

	leaf, free, elements := leafPage(t, path, rng)
	if leaf != 0 && free != 0 {
		copied := operate(t, path, "copy-page", "--from-page", fmt.Sprint(leaf), "--to-page", fmt.Sprint(free))
		bothRead(t, "copy-page", copied, newest, rng)
	}
	if leaf != 0 {
		cut := operate(t, path, "clear-page-elements", "--pageId", fmt.Sprint(leaf), "--from-index", "1", "--to-index", "-1")
		rest := holdfastReads(t, cut)
		for key, value := range rest {
			if newest[key] != value {
				t.Errorf("clear-page-elements: key %s has another value", key)
			}
		}
		if len(rest) != len(newest)-elements+1 {
			t.Errorf("clear-page-elements: %d keys are left of %d, %d were removed", len(rest), len(newest), elements-1)
		}
		bothRead(t, "clear-page-elements", cut, rest, rng)
	}

	out := filepath.Join(t.TempDir(), "reverted")
	root := command.NewBboltCommand()
	root.SetArgs([]string{"surgery", "revert-meta-page", path, "--output", out})
	root.SetOut(io.Discard)
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	sees := stockReads(t, out)
	at := slices.IndexFunc(states, func(s contents) bool { return maps.Equal(s, sees) })
	if at < 0 {
		t.Fatal("revert-meta-page: bbolt reads what was never committed")
	}
	if at > 0 { // else there is no bucket
		bothRead(t, "revert-meta-page", out, states[at], rng)
	}
	return len(states) - 1 - at
}

// After surgery both engines find the same, and go on from there: on files that Holdfast
// was killed in, that it closed, and that bbolt wrote.
func TestSurgeryForBoth(t *testing.T) {
	for _, c := range []struct {
		name     string
		options  holdfast.Options
		pageSize int
		begun    bool // by bbolt
		back     int  // states that revert-meta-page goes back by, of a file that was left
	}{
		{"Full", holdfast.Options{}, 4096, false, 1},
		{"Full, small pages", holdfast.Options{}, 1024, false, 1},
		{"Full, begun by bbolt", holdfast.Options{}, 4096, true, 1},
		{"Periodic", holdfast.Options{Durability: holdfast.Periodic, PeriodicDelay: time.Hour}, 4096, true, -1},
		{"StrictCompat", holdfast.Options{StrictCompat: true}, 4096, true, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(c.pageSize), 10))
			path := filepath.Join(t.TempDir(), "db")
			c.options.PageSize, c.options.SettleDelay = c.pageSize, -1
			states := []contents{{}}
			if c.begun {
				begunByStock(t, path, c.pageSize, rng)
				// Its last transaction follows states that are not known here.
				states = append(states, stockReads(t, path))
				stock := operate(t, path, "freelist", "abandon")
				bothRead(t, "abandon, of bbolt's file", stock, states[1], rng)
			}
			db, err := holdfast.Open(path, 0o600, &c.options)
			if err != nil {
				t.Fatal(err)
			}
			for commit := range 12 {
				states = append(states, maps.Clone(states[len(states)-1]))
				if err := db.Update(func(tx *holdfast.Tx) error { return follow(tx, rng, states[len(states)-1]) }); err != nil {
					t.Fatal(err)
				}
				if commit%4 == 3 {
					if back := operated(t, left(t, path), states, c.pageSize, rng); c.back >= 0 && back != c.back || back == 0 {
						t.Errorf("revert-meta-page went back by %d states", back)
					}
				}
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			operated(t, path, states, c.pageSize, rng)
		})
	}
}
