package blob

import (
	"context"
	"errors"
	"iter"
	"testing"
	"time"

	"holdfast"
)

// Calls on a store whose transaction had ended said that there is no such blob, lease or ingest,
// or that there is nothing at all.
func TestAfterTheTransactionNothingIsFound(t *testing.T) {
	for _, writable := range []bool{false, true} {
		db := newStore(t, small[0])
		var ref Ref
		data := random(1, 5000)
		sum := SHA256.sum(data)
		update(t, db, func(s *Store) {
			w := s.Writer()
			w.Digest(true)
			must2(w.Write(data))
			ref = must2(w.Commit())
			must(t, must2(s.Lease("lease", time.Now().Add(time.Hour))).Add(ref))
			in := must2(s.Ingest("ingest", IngestOptions{}))
			must2(in.Write(data))
			must(t, in.Save())
		})
		tx, err := db.Begin(writable)
		must(t, err)
		s := openIn(tx)
		if !must2(s.Has(ref)) {
			t.Fatal("the blob is not there")
		}
		must(t, tx.Rollback())
		for name, call := range map[string]func() error{
			"Open":        func() error { _, err := Open(s.bucket); return err },
			"Create":      func() error { _, err := Create(s.bucket, Options{}); return err },
			"Has":         func() error { _, err := s.Has(ref); return err },
			"Stat":        func() error { _, err := s.Stat(ref); return err },
			"Users":       func() error { _, err := s.Users(ref); return err },
			"DigestOf":    func() error { _, _, err := s.DigestOf(ref); return err },
			"ByDigest":    func() error { _, err := s.ByDigest(sum); return err },
			"Find":        func() error { _, err := s.Find(ref.Address().String()); return err },
			"Find some":   func() error { _, err := s.Find("ab"); return err },
			"Usage":       func() error { _, err := s.Usage(); return err },
			"Reclaimable": func() error { _, _, err := s.Reclaimable([]Ref{ref}); return err },
			"Reader":      func() error { _, err := s.Reader(ref); return err },
			"Diff":        func() error { return s.Diff(ref, Ref{}, func(Range) error { return nil }) },
			"Check":       func() error { _, err := s.Check(context.Background(), CheckOptions{}, nil); return err },
			"Roots":       func() error { return lastError(s.Roots()) },
			"Leased":      func() error { return lastError(s.Leased("lease")) },
			"Leases":      func() error { return lastError(s.Leases()) },
			"Ingests":     func() error { return lastError(s.Ingests()) },
			"Ingest":      func() error { _, err := s.Ingest("ingest", IngestOptions{}); return err },
			"Lease":       func() error { _, err := s.Lease("lease", time.Now()); return err },
			"Retain":      func() error { return s.Retain(ref) },
			"Delete":      func() error { return s.Delete(ref) },
			"Collect":     func() error { _, _, err := s.Collect(0); return err },
		} {
			if err := call(); !errors.Is(err, holdfast.ErrTxClosed) {
				t.Errorf("%s after the end (writable %t): %v", name, writable, err)
			}
		}
	}
}

// lastError is the last error that an iterator gives.
func lastError[V any](all iter.Seq2[V, error]) (last error) {
	for _, err := range all {
		last = err
	}
	return last
}
