// Package suite compares Holdfast with its peers: the same workload, interleaved,
// in one process.
package suite

import (
	fork "github.com/nspcc-dev/bbolt"
	"go.etcd.io/bbolt"

	"holdfast"
)

// Engine opens databases of one kind, with one set of options.
type Engine struct {
	Name string
	// Open opens the database at path. noSync leaves out the flushes of commits.
	Open func(path string, noSync bool) (Store, error)
}

// StockDefault is bbolt v1.5.0 as it is.
var StockDefault = Engine{"stock", func(path string, noSync bool) (Store, error) {
	return openStock(path, &bbolt.Options{NoSync: noSync, FreelistType: bbolt.FreelistArrayType})
}}

// StockMap is bbolt v1.5.0 with NoFreelistSync and FreelistMapType, with which
// its commits are fast and opening a file takes a scan.
var StockMap = Engine{"stock NoFreelistSync+map", func(path string, noSync bool) (Store, error) {
	return openStock(path, &bbolt.Options{NoSync: noSync, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType})
}}

// StockNoStatistics is bbolt v1.5.0 without the locks of its statistics.
var StockNoStatistics = Engine{"stock NoStatistics", func(path string, noSync bool) (Store, error) {
	return openStock(path, &bbolt.Options{NoSync: noSync, NoStatistics: true})
}}

// Fork is a fork of bbolt whose readers take fewer locks.
var Fork = Engine{"nspcc-dev fork", func(path string, noSync bool) (Store, error) {
	db, err := fork.Open(path, 0o600, &fork.Options{NoSync: noSync, FreelistType: fork.FreelistMapType})
	if err != nil {
		return nil, err
	}
	return &store[*fork.DB, *fork.Tx, *fork.Bucket, *fork.Cursor]{
		db: db, fill: func(b *fork.Bucket, percent float64) { b.FillPercent = percent },
	}, nil
}}

// Holdfast is Holdfast as it is.
var Holdfast = Engine{"holdfast", func(path string, noSync bool) (Store, error) {
	return openHoldfast(path, &holdfast.Options{NoSync: noSync})
}}

// Engines are those that every workload runs on.
var Engines = []Engine{StockDefault, StockMap, Holdfast}

func openStock(path string, o *bbolt.Options) (Store, error) {
	db, err := bbolt.Open(path, 0o600, o)
	if err != nil {
		return nil, err
	}
	return &store[*bbolt.DB, *bbolt.Tx, *bbolt.Bucket, *bbolt.Cursor]{
		db: db, fill: func(b *bbolt.Bucket, percent float64) { b.FillPercent = percent },
	}, nil
}

func openHoldfast(path string, o *holdfast.Options) (Store, error) {
	db, err := holdfast.Open(path, 0o600, o)
	if err != nil {
		return nil, err
	}
	return &store[*holdfast.DB, *holdfast.Tx, *holdfast.Bucket, *holdfast.Cursor]{
		db: db, fill: func(b *holdfast.Bucket, percent float64) { b.FillPercent = percent },
	}, nil
}
