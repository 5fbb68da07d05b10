// Command stock runs operations on the version of bbolt that it was built with.
//
// One program can link one version of bbolt, so histories in which several
// versions take part run the others in processes of their own. The file
// vX.Y.Z.mod selects the version: go build -modfile=v1.4.3.mod.
package main

import (
	"errors"
	"fmt"
	"os"

	"go.etcd.io/bbolt"

	"holdfast/test/stock/ops"
)

func main() {
	runner := ops.NewRunner(ops.Engine[*bbolt.DB, *bbolt.Tx, *bbolt.Bucket, *bbolt.Cursor]{
		Open:    open,
		Check:   func(tx *bbolt.Tx) <-chan error { return tx.Check() },
		SetFill: func(b *bbolt.Bucket, percent float64) { b.FillPercent = percent },
		Compact: compact,
	})
	if err := ops.Serve(os.Stdin, os.Stdout, runner.Do); err != nil {
		fmt.Fprintln(os.Stderr, "stock:", err)
		os.Exit(1)
	}
}

func open(path string, o ops.Options) (*bbolt.DB, error) {
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

// compact copies db to a new file.
func compact(db *bbolt.DB, path string, max int64) error {
	dst, err := bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true, PageSize: db.Info().PageSize})
	if err != nil {
		return err
	}
	return errors.Join(bbolt.Compact(dst, db, max), dst.Close())
}
