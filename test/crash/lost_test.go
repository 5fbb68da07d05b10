package crash

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"holdfast"
	"holdfast/test/soak"
)

// After commits without a flush, a flush that fails may leave any mixture of
// old and new pages on the disk, and a page cache that shows none of it. What
// the file holds is not known then (run.unsure). What has to hold: once the
// database has been closed, or an Open has failed, the next opening is told of
// damage, by Open or by Check; or what it finds is what the disk has, and what
// is committed on top is as durable as ever. Of a process that is killed before
// it closes the file (run.lying), nothing is asked.

// adopt goes on with whatever the database holds, if it is sound, and with a new
// file else.
func (r *run) adopt() error {
	content, lost, err := viewed(r.db, r.leaks)
	if err != nil {
		r.tally.Add("damage found after a lost flush")
		_ = r.db.Close() // it may not be able to leave a freelist page
		r.startAnew()
		return nil
	}
	var state *node
	err = r.db.View(func(tx *holdfast.Tx) (err error) {
		state, err = nodeOf(tx)
		return err
	})
	if err != nil {
		return errors.Join(err, r.db.Close())
	}
	if state.content() != content || !state.usual("b") { // a mixture of states that looks sound
		r.tally.Add("strange after a lost flush")
		_ = r.db.Close()
		r.startAnew()
		return nil
	}
	r.tally.Add("sound after a lost flush")
	r.leaks = lost
	r.set(func() {
		r.version, r.pending, r.torn = version{state: state, acked: content}, nil, nil
		r.settles()
		r.unsure, r.past.adopted = false, true
	})
	return nil
}

// usual tells whether all names below n are such as scripts give: buckets of
// this letter and then n, keys k.
func (n *node) usual(letter string) bool {
	for k := range n.values {
		if letter == "b" || !strings.HasPrefix(k, "k") {
			return false
		}
	}
	for name, b := range n.buckets {
		if !strings.HasPrefix(name, letter) || !b.usual("n") {
			return false
		}
	}
	return true
}

// startAnew goes on with an empty file.
func (r *run) startAnew() {
	r.db, r.leaks = nil, leaks{}
	r.set(func() {
		r.newDisk()
		r.version, r.pending, r.torn, r.chosen = version{state: newNode(), acked: emptyContent}, nil, nil, nil
		r.settles()
		r.exposed, r.unsure, r.lying = false, false, false
	})
}

// lostFlush is a script in which a flush fails after a number of commits without
// any. How says where that happens.
func lostFlush(how string, seed uint64, commits int) string {
	var s strings.Builder
	fmt.Fprintf(&s, "pagesize 1024\nopen seed=%d\ntx seed=%d\n put b0 k0 n=200 40a\nnosync nosync\n", seed, seed)
	for i := range commits {
		if how == "open" && i == commits-1 {
			fmt.Fprintf(&s, "tx seed=%d kill=2\n put b0 k%d n=1 40b\n", seed, i*37%200)
			break
		}
		fmt.Fprintf(&s, "tx seed=%d\n put b0 k%d n=1 40%c\n", seed, i*37%200, 'b'+i%20)
	}
	switch how {
	case "sync":
		fmt.Fprintf(&s, "sync seed=%d failsync=1\nnosync\n", seed)
	case "commit":
		fmt.Fprintf(&s, "nosync\ntx seed=%d failsync=1\n put b0 k7 n=1 40x\n", seed)
	case "close":
		fmt.Fprintf(&s, "nosync\nclose seed=%d failsync=1\nopen seed=%d\n", seed, seed)
	case "open":
		fmt.Fprintf(&s, "open seed=%d failsync=1\nopen seed=%d\n", seed, seed)
	}
	for i := range 3 {
		fmt.Fprintf(&s, "tx seed=%d\n put b0 k%d n=1 40%c\n", seed, 50*i, 'y'+i%2)
	}
	s.WriteString("close\nopen\nclose\n")
	return s.String()
}

// TestLostFlush runs histories in which a flush fails after one to thirty
// commits without any.
func TestLostFlush(t *testing.T) {
	for i, how := range []string{"sync", "commit", "close", "open"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			tally := &soak.Tally{}
			for seed := range uint64(24) {
				text := lostFlush(how, 1+seed+uint64(100*i), []int{1, 2, 5, 30}[seed%4])
				script, err := Parse(text)
				if err != nil {
					t.Fatal(err)
				}
				if fail := runScript(t.TempDir(), script, tally); fail != nil {
					t.Fatalf("%v\n\nin this script (HOLDFAST_SCRIPT=file runs it again):\n\n%s", fail, text)
				}
			}
			for feature, least := range map[string]int{
				"damage found after a lost flush": 3, "sound after a lost flush": 1, "after a lost flush": 40,
			} {
				if n := tally.Get(feature); n < least {
					t.Errorf("%s: %d, want %d at least", feature, n, least)
				}
			}
			t.Log(tally)
		})
	}
}
