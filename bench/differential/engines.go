package differential

import (
	"go.etcd.io/bbolt"

	"holdfast"
	"holdfast/bench/stock/ops"
)

// OpenHoldfast opens a Holdfast database.
func OpenHoldfast(path string, o ops.Options) (*holdfast.DB, error) {
	return holdfast.Open(path, 0o600, &holdfast.Options{
		NoFreelistSync:  o.NoFreelistSync,
		NoSync:          o.NoSync,
		NoGrowSync:      o.NoGrowSync,
		ReadOnly:        o.ReadOnly,
		PreLoadFreelist: o.PreLoadFreelist,
		PageSize:        o.PageSize,
		InitialMmapSize: o.InitialMmapSize,
	})
}

// OpenStock opens a bbolt database.
func OpenStock(path string, o ops.Options) (*bbolt.DB, error) {
	freelist := bbolt.FreelistArrayType
	if o.MapFreelist {
		freelist = bbolt.FreelistMapType
	}
	return bbolt.Open(path, 0o600, &bbolt.Options{
		NoFreelistSync:  o.NoFreelistSync,
		FreelistType:    freelist,
		NoSync:          o.NoSync,
		NoGrowSync:      o.NoGrowSync,
		ReadOnly:        o.ReadOnly,
		PreLoadFreelist: o.PreLoadFreelist,
		PageSize:        o.PageSize,
		InitialMmapSize: o.InitialMmapSize,
	})
}

// Follower is an engine that follows a history.
type Follower struct {
	Name  string
	Stock bool // it is a bbolt
	Moves bool // it can move buckets
	Do    func(ops.Op) ops.Result
}

// Holdfast is a follower that runs Holdfast.
func Holdfast() *Follower {
	r := ops.NewRunner(ops.Engine[*holdfast.DB, *holdfast.Tx, *holdfast.Bucket, *holdfast.Cursor]{
		Open:    OpenHoldfast,
		Check:   func(tx *holdfast.Tx) <-chan error { return tx.Check() },
		SetFill: func(b *holdfast.Bucket, percent float64) { b.FillPercent = percent },
	})
	return &Follower{Name: "holdfast", Moves: true, Do: r.Do}
}

// Stock is a follower that runs the bbolt that is linked into this program.
func Stock() *Follower {
	r := ops.NewRunner(ops.Engine[*bbolt.DB, *bbolt.Tx, *bbolt.Bucket, *bbolt.Cursor]{
		Open:    OpenStock,
		Check:   func(tx *bbolt.Tx) <-chan error { return tx.Check() },
		SetFill: func(b *bbolt.Bucket, percent float64) { b.FillPercent = percent },
	})
	return &Follower{Name: "bbolt v1.5.0", Stock: true, Moves: true, Do: r.Do}
}
