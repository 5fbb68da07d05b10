package differential

import (
	"errors"

	"go.etcd.io/bbolt"

	"holdfast"
	"holdfast/test/stock/ops"
)

// OpenHoldfast opens a Holdfast database.
func OpenHoldfast(path string, o ops.Options) (*holdfast.DB, error) {
	freelist := holdfast.FreelistArrayType
	if o.MapFreelist {
		freelist = holdfast.FreelistMapType
	}
	db, err := holdfast.Open(path, 0o600, &holdfast.Options{
		NoFreelistSync:  o.NoFreelistSync,
		FreelistType:    freelist,
		Mlock:           o.Mlock,
		NoSync:          o.NoSync,
		NoGrowSync:      o.NoGrowSync,
		ReadOnly:        o.ReadOnly,
		PreLoadFreelist: o.PreLoadFreelist,
		PageSize:        o.PageSize,
		InitialMmapSize: o.InitialMmapSize,
	})
	if err != nil {
		return nil, err
	}
	db.StrictMode = o.Strict
	if o.AllocSize > 0 {
		db.AllocSize = o.AllocSize
	}
	return db, nil
}

// compactHoldfast copies db to a new file.
func compactHoldfast(db *holdfast.DB, path string, max int64) error {
	dst, err := OpenHoldfast(path, ops.Options{NoSync: true, PageSize: db.Info().PageSize})
	if err != nil {
		return err
	}
	return errors.Join(holdfast.Compact(dst, db, max), dst.Close())
}

// compactStock copies db to a new file.
func compactStock(db *bbolt.DB, path string, max int64) error {
	dst, err := OpenStock(path, ops.Options{NoSync: true, PageSize: db.Info().PageSize})
	if err != nil {
		return err
	}
	return errors.Join(bbolt.Compact(dst, db, max), dst.Close())
}

// OpenStock opens a bbolt database. It takes no Strict, because it would panic
// about the pages that it loses, and no Mlock, which would pin all that is mapped.
func OpenStock(path string, o ops.Options) (*bbolt.DB, error) {
	freelist := bbolt.FreelistArrayType
	if o.MapFreelist {
		freelist = bbolt.FreelistMapType
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{
		NoFreelistSync:  o.NoFreelistSync,
		FreelistType:    freelist,
		NoSync:          o.NoSync,
		NoGrowSync:      o.NoGrowSync,
		ReadOnly:        o.ReadOnly,
		PreLoadFreelist: o.PreLoadFreelist,
		PageSize:        o.PageSize,
		InitialMmapSize: o.InitialMmapSize,
	})
	if err == nil && o.AllocSize > 0 {
		db.AllocSize = o.AllocSize
	}
	return db, err
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
		Compact: compactHoldfast,
	})
	return &Follower{Name: "holdfast", Moves: true, Do: r.Do}
}

// Stock is a follower that runs the bbolt that is linked into this program.
func Stock() *Follower {
	r := ops.NewRunner(ops.Engine[*bbolt.DB, *bbolt.Tx, *bbolt.Bucket, *bbolt.Cursor]{
		Open:    OpenStock,
		Check:   func(tx *bbolt.Tx) <-chan error { return tx.Check() },
		SetFill: func(b *bbolt.Bucket, percent float64) { b.FillPercent = percent },
		Compact: compactStock,
	})
	return &Follower{Name: "bbolt v1.5.0", Stock: true, Moves: true, Do: r.Do}
}
