package differential

import (
	"bytes"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"holdfast"
	"holdfast/test/soak"
	"holdfast/test/stock/ops"
)

// ledger are the digests of all states that were ever committed, in order.
type ledger struct {
	sync.Mutex
	digests [][]byte // the last may not be committed yet
	done    int      // states that are committed
}

func (l *ledger) add(digest []byte) {
	l.Lock()
	defer l.Unlock()
	l.digests = append(l.digests, digest)
}

func (l *ledger) commit() {
	l.Lock()
	defer l.Unlock()
	l.done = len(l.digests)
}

func (l *ledger) committed() int {
	l.Lock()
	defer l.Unlock()
	return l.done
}

// holds tells whether digest is that of a state that is not older than the
// from-th commit.
func (l *ledger) holds(digest []byte, from int) bool {
	l.Lock()
	defer l.Unlock()
	for _, d := range l.digests[max(0, from-1):] {
		if bytes.Equal(d, digest) {
			return true
		}
	}
	return false
}

// TestReadersBesideWriter lets readers look at everything, over and over, while
// a history goes on: each sees one committed state, not older than the last
// commit before it began, and sees the same again when it looks twice.
func TestReadersBesideWriter(t *testing.T) { histories(t, readersKind) }

var readersKind = kind{"readers beside writer", 6, func(t *testing.T, seed uint64, tally *soak.Tally) {
	h := New(seed, pageSize(seed))
	h.universe, h.bulk, h.large = 300, 60, 60
	db, err := OpenHoldfast(filepath.Join(t.TempDir(), "db"), ops.Options{NoSync: true, PageSize: h.page})
	if err != nil {
		t.Fatal(err)
	}
	states := &ledger{}
	states.add(h.model.committed.content().Digest())
	states.commit()
	var stop, readers = make(chan struct{}), sync.WaitGroup{}
	for range 3 {
		readers.Go(func() { readStates(t, seed, db, states, stop) })
	}
	r := newRun(t, h, tally)
	r.follow(shared(db), "")
	for range 60 {
		r.commitTo(states)
	}
	close(stop)
	readers.Wait()
	r.check()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}}

// shared is a follower on a database that is open already.
func shared(db *holdfast.DB) *Follower {
	r := ops.NewRunner(ops.Engine[*holdfast.DB, *holdfast.Tx, *holdfast.Bucket, *holdfast.Cursor]{
		Open:    func(string, ops.Options) (*holdfast.DB, error) { return db, nil },
		Check:   func(tx *holdfast.Tx) <-chan error { return tx.Check() },
		SetFill: func(b *holdfast.Bucket, percent float64) { b.FillPercent = percent },
		Compact: compactHoldfast,
	})
	r.Do(ops.Op{Kind: ops.Open})
	return &Follower{Name: "holdfast", Moves: true, Do: r.Do}
}

// commitTo runs a writing transaction and notes the state that it commits.
func (r *run) commitTo(states *ledger) {
	h := r.h
	begin := h.begin(true)
	r.do(begin)
	for n := 1 << h.rand.IntN(7); n > 0 || len(h.queue) > 0; n-- {
		r.do(h.next(begin.Tx))
	}
	end := h.endWriter()
	if end.Kind == ops.Commit {
		states.add(h.model.txs[begin.Tx].root.content().Digest())
	}
	r.do(end)
	if end.Kind == ops.Commit {
		states.commit()
	}
}

func readStates(t *testing.T, seed uint64, db *holdfast.DB, states *ledger, stop chan struct{}) {
	f := shared(db)
	for {
		select {
		case <-stop:
			return
		default:
		}
		if err := readState(f, states); err != nil {
			t.Errorf("seed %d: %v", seed, err)
			f.Do(ops.Op{Kind: ops.Rollback}) // or Close would wait for it
			return
		}
	}
}

func readState(f *Follower, states *ledger) error {
	from := states.committed()
	for _, op := range []ops.Op{{Kind: ops.Begin}, {Kind: ops.Dump}, {Kind: ops.Dump}, {Kind: ops.Check}, {Kind: ops.Rollback}} {
		got := f.Do(op)
		if got.Err != "" {
			return fmt.Errorf("%v: %s", op.Kind, got.Err)
		}
		if op.Kind == ops.Dump && !states.holds(got.Value, from) {
			return fmt.Errorf("a reader that began after commit %d sees no state since then", from)
		}
		if len(got.Lines) > 0 {
			return fmt.Errorf("a reader's check finds %q", got.Lines)
		}
	}
	return nil
}
