package age_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"holdfast/bench/age"
	"holdfast/bench/age/stores"
	"holdfast/bench/age/trace"
)

func traces() ([]*trace.Trace, error) { return []*trace.Trace{age.Synthetic()}, nil }

// bad is a store that does something else than it should once it has committed often enough.
type bad struct {
	age.Store
	commits, after int
	do             func(tx []age.Op) ([]age.Op, error)
}

func (b *bad) Apply(tx []age.Op) error {
	if b.commits++; b.commits > b.after {
		var err error
		if tx, err = b.do(tx); err != nil {
			return err
		}
	}
	return b.Store.Apply(tx)
}

// without is the transaction without its operations of a kind.
func without(kind trace.Op) func(tx []age.Op) ([]age.Op, error) {
	return func(tx []age.Op) (kept []age.Op, err error) {
		for _, op := range tx {
			if op.Do != kind {
				kept = append(kept, op)
			}
		}
		return kept, nil
	}
}

func badPeer(name string, do func(tx []age.Op) ([]age.Op, error)) age.Peer {
	return age.Peer{Name: name, Open: func(dir string, noSync bool) (age.Store, error) {
		s, err := stores.All()[0].Open(dir, noSync)
		return &bad{Store: s, after: 10, do: do}, err
	}}
}

var badPeers = []age.Peer{
	badPeer("loses a key", without(trace.Put)),
	badPeer("keeps a bucket", without(trace.Drop)),
	badPeer("changes a value", func(tx []age.Op) ([]age.Op, error) {
		for i := range tx {
			if tx[i].Do == trace.Put {
				tx[i].Value = make([]byte, len(tx[i].Value))
			}
		}
		return tx, nil
	}),
	badPeer("fails", func([]age.Op) ([]age.Op, error) { return nil, errors.New("the disk is on fire") }),
	badPeer("ends", func([]age.Op) ([]age.Op, error) {
		os.Exit(7)
		return nil, nil
	}),
	badPeer("says nothing", func([]age.Op) ([]age.Op, error) {
		os.Exit(0)
		return nil, nil
	}),
	badPeer("panics", func([]age.Op) ([]age.Op, error) { panic("no space left on device") }),
	badPeer("kills itself", func([]age.Op) ([]age.Op, error) {
		if p, err := os.FindProcess(os.Getpid()); err == nil {
			_ = p.Kill()
		}
		select {}
	}),
}

func TestMain(m *testing.M) {
	age.RunChild(badPeers, traces)
	os.Exit(m.Run())
}

func nameOf(p age.Peer) string { return p.Name }

var small = age.Config{Schedule: age.Schedule{Days: 2, Stretches: 1, Cycles: 2, Retention: 3, Prune: 50, Opens: 1, Rounds: 1}, Commits: 5, Gets: 10}

var quiet = age.Watcher{Say: func(string) {}, Measured: func(*age.Result) error { return nil }}

// TestBadStores: a store that does not hold what it should, or a process that dies, fails the run, and the
// error says which, on which day, and what it was.
func TestBadStores(t *testing.T) {
	for name, wants := range map[string][]string{
		"loses a key":     {"day 1: to measure it: after day 1 it holds ", " keys (checksum ", "; the life leaves 681 "},
		"keeps a bucket":  {"day 2: to measure it: after day 2 it holds ", "; the life leaves 1001 "},
		"changes a value": {"day 1: to measure it: after day 1 it holds 681 keys"},
		"fails":           {"day 1: to age it: day 1, cycle 0, transaction 10 of synthetic: the disk is on fire"},
		"ends":            {"day 1: the process to age it ended: exit status 7"},
		"says nothing":    {"day 1: the process to age it said \"\""},
		"panics":          {"day 1: the process to age it ended: exit status 2", "no space left on device", "give a -dir with more space"},
		"kills itself":    {"day 1: the process to age it ended: "},
	} {
		t.Run(name, func(t *testing.T) {
			peers, err := age.Select(badPeers, nameOf, name)
			if err != nil {
				t.Fatal(err)
			}
			all, err := traces()
			if err != nil {
				t.Fatal(err)
			}
			err = age.Run(context.Background(), t.TempDir(), small, peers, all, &age.Result{}, quiet)
			for _, want := range append(wants, name+", ") {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%v; want %q", err, want)
				}
			}
		})
	}
}

// TestUnknown: a peer that this program was not built with is named, and so are those that there are.
func TestUnknown(t *testing.T) {
	_, err := age.Select(badPeers, nameOf, "fails,LMDB 7")
	if err == nil || !strings.Contains(err.Error(), `no peer "LMDB 7"`) || !strings.Contains(err.Error(), `"keeps a bucket"`) {
		t.Error(err)
	}
	all, _ := traces()
	stranger := []age.Peer{{Name: "stranger"}}
	if err := age.Run(context.Background(), t.TempDir(), small, stranger, all, &age.Result{}, quiet); err == nil || !strings.Contains(err.Error(), `no peer "stranger"`) {
		t.Error(err)
	}
}

// TestCancelled: a run ends when it is told to, with that error.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	all, _ := traces()
	said := 0
	watcher := quiet
	watcher.Say = func(string) {
		said++
		cancel()
	}
	err := age.Run(ctx, t.TempDir(), small, badPeers[1:2], all, &age.Result{}, watcher)
	if !errors.Is(err, context.Canceled) || said != 1 {
		t.Error(said, err)
	}
}
