// Package stores opens embedded stores for package age: bbolt and Holdfast, with
// the buckets that the programs made, and others, which have none, with the path
// of the bucket before the key, and a delete of all that begins with the path
// where a program removes a bucket. Each is used as its documentation recommends,
// with its own defaults elsewhere.
package stores

import "holdfast/bench/age"

// All are the stores that this program was built with. LMDB takes part with the build tag lmdb.
func All() []age.Peer {
	return append(append(append([]age.Peer{}, holdfasts...), stocks...), flats...)
}

// flats are those without buckets.
var flats = []age.Peer{
	{Name: "SQLite WAL", Note: sqliteVersion() + ", journal_mode=WAL, synchronous=FULL, a table WITHOUT ROWID, prepared statements", Open: openSQLite},
	{Name: "Pebble", Note: "the newest format, batches with Sync", Open: openPebble},
}
