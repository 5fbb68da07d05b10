package stores

import "holdfast/bench/age"

// All are the stores that this program was built with: SQLite with cgo, LMDB with the build tag lmdb.
func All() []age.Peer {
	return append(append(append([]age.Peer{}, holdfasts...), stocks...), flats...)
}

// flats are those without buckets. Those that need C add themselves.
var flats = []age.Peer{{Name: "Pebble", Note: "the newest format, batches with Sync; most of its compactions are in the bytes while days are replayed only", Open: openPebble}}

// after is the first key that does not begin with the path of a bucket. Its last byte is not
// 0xff, or there is an earlier one that is not: the length of a name is not.
func after(path []byte) []byte {
	end := append([]byte{}, path...)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i]++; end[i] != 0 {
			return end[:i+1]
		}
	}
	return nil
}
