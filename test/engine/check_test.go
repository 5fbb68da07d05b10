package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"holdfast"
	"holdfast/internal/page"
)

// upper writes keys in capitals.
type upper struct{}

func (upper) KeyToString(k []byte) string   { return strings.ToUpper(string(k)) }
func (upper) ValueToString(v []byte) string { return "value" }

func faultsOf(t *testing.T, s *sample, options ...holdfast.CheckOption) []string {
	t.Helper()
	path := tempPath(t)
	must(t, os.WriteFile(path, s.data, 0o600))
	db := open(t, path, &holdfast.Options{ReadOnly: true})
	var faults []string
	view(t, db, func(tx *holdfast.Tx) {
		for err := range tx.Check(options...) {
			var damage *holdfast.CorruptError
			if !errors.As(err, &damage) {
				t.Errorf("%v is not a CorruptError", err)
			}
			faults = append(faults, err.Error())
		}
	})
	return faults
}

// Check's options choose how keys are written, and where it begins. Its channel
// has all faults and is closed, so the caller need not drain it.
func TestCheckOptions(t *testing.T) {
	s := newSample(t)
	leaf := s.leaf(s.keys)
	e, err := s.parse(leaf).Leaf(1)
	must(t, err)
	e.Key[0] = 'a'
	hex := faultsOf(t, s)
	if len(hex) == 0 || !strings.Contains(hex[0], "key 616579303030303031 of element 1 is not above key 6b6579303030303030 before it (in bucket 6b657973)") {
		t.Errorf("with keys in hexadecimal: %q", hex)
	}
	text := faultsOf(t, s, holdfast.WithKVStringer(upper{}))
	if len(text) != len(hex) || !strings.Contains(text[0], "key AEY000001 of element 1 is not above key KEY000000 before it (in bucket KEYS)") {
		t.Errorf("with keys as text: %q", text)
	}
	if part := faultsOf(t, s, holdfast.WithPageId(uint64(leaf))); len(part) == 0 {
		t.Error("beginning at the damaged leaf: no fault")
	}
	if part := faultsOf(t, s, holdfast.WithPageId(uint64(s.deep))); len(part) != 0 {
		t.Errorf("beginning elsewhere: %q", part)
	}
	if kv := holdfast.HexKVStringer(); kv.KeyToString([]byte("k")) != "6b" || kv.ValueToString([]byte{0xAB}) != "ab" {
		t.Error("HexKVStringer writes something else")
	}
}

// However much is damaged, the faults that Check returns are bounded.
func TestCheckIsBounded(t *testing.T) {
	s := newSample(t)
	setFreelist(s, func(ids []page.ID) []page.ID { return nil })
	// Each page of a very large, very empty file is a fault.
	s.setMetas(func(m *page.Meta) { m.HighWater = 20_000 })
	s.data = append(s.data, make([]byte, 20_000*samplePageSize-len(s.data))...)
	if n := len(faultsOf(t, s)); n != 10_000 {
		t.Errorf("%d faults, want 10000", n)
	}
}

// Check is of the state that its transaction sees; what is free is left out
// when others have committed since. A writing transaction may check, too.
func TestCheckBesideWriters(t *testing.T) {
	db := openNew(t, 1024)
	fill(t, db, 2000, 50)
	old := begin(t, db, false)
	defer old.Rollback()
	for i := range 5 {
		fill(t, db, 300*i, 10*i)
		checkTx(t, old)
	}
	w := begin(t, db, true)
	defer w.Rollback()
	must(t, w.Bucket([]byte("b")).Put([]byte("k"), make([]byte, 10_000)))
	checkTx(t, w)
	checkTx(t, old)
	checkDB(t, db)
	must(t, w.Commit())
	checkTx(t, old)
	checkDB(t, db)
	if got := fmt.Sprint(len(w.Check())); got != "1" {
		t.Errorf("a transaction that has ended has %s faults, want 1: ErrTxClosed", got)
	}
}

func TestVerify(t *testing.T) {
	db := openNew(t, 0)
	fill(t, db, 5000, 100)
	var last, total uint64
	faults, err := db.Verify(context.Background(), holdfast.WithProgress(func(done, of uint64) {
		if done <= last || done > of {
			t.Fatalf("%d pages of %d after %d", done, of, last)
		}
		last, total = done, of
	}))
	if err != nil || len(faults) != 0 || last < total/2 {
		t.Errorf("faults %v, %v; %d pages of %d looked at", faults, err, last, total)
	}

	ctx, cancel := context.WithCancelCause(context.Background())
	stop, calls := errors.New("enough"), 0
	_, err = db.Verify(ctx, holdfast.WithProgress(func(uint64, uint64) {
		if calls++; calls == 3 {
			cancel(stop)
		}
	}))
	if err != stop || calls != 3 {
		t.Errorf("cancelled: %v after %d pages", err, calls)
	}
	if n := db.Stats().OpenTxN; n != 0 {
		t.Errorf("%d transactions are open", n)
	}
	must(t, db.Close())
	if _, err := db.Verify(context.Background()); err != holdfast.ErrDatabaseNotOpen {
		t.Errorf("closed: %v", err)
	}
}
