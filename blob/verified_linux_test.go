package blob

import (
	"bytes"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"holdfast"
)

// A process that reads the database of another one does not see what is written: it verifies in each transaction.
func TestVerifiedThroughAnotherProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	share := filepath.Join(filepath.Dir(path), "share")
	db := must2(holdfast.Open(path, 0o600, &holdfast.Options{NoSync: true, PageSize: 4096, Share: share}))
	defer db.Close()
	r := rewriter{t: t, db: db, right: random(1, 65488), rng: rand.New(rand.NewPCG(1, 1)), verified: map[uintptr]bool{}}
	must(t, db.Update(func(tx *holdfast.Tx) error {
		r.ref = must2(must2(Create(must2(tx.CreateBucket(storeName)), Options{})).Put(r.right))
		return nil
	}))
	reader := must2(holdfast.OpenShared(path, &holdfast.Options{Share: share}))
	defer reader.Close()
	r.read(reader, true)
	for range 60 {
		right, p := r.rng.IntN(2) == 0, bytes.Clone(r.right)
		if !right {
			flip(p)
		}
		must(t, db.Update(func(tx *holdfast.Tx) error { r.rewrite(tx, p, false); return nil }))
		r.read(reader, right)
	}
	if r.again < 5 {
		t.Errorf("other bytes lay %d times where the right ones had been verified", r.again)
	}
}
