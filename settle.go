package holdfast

import (
	"os"
	"time"
)

// SettleOptions say how Settle opens the file.
type SettleOptions struct {
	// Timeout is how long to wait for the file's lock; 0 waits for ever.
	Timeout time.Duration

	// OpenFile opens the file in place of os.OpenFile.
	OpenFile func(string, int, os.FileMode) (*os.File, error)
}

// Settle makes the newest state of the database at path the one that stock bbolt
// finds. After a crash, or in a copy of a file that was in use, bbolt would find the
// state before the last flush (see Options.StrictCompat); Settle writes the meta
// pages and changes nothing else: no other page, not the size of the file.
// A database that bbolt finds as it is stays as it is, to the byte.
//
// Opening the database with Holdfast for writing does the same. Settle is for those
// who go back to bbolt without that.
//
// It returns what it found: with BboltBehind or Unfinished there was something to do,
// and it is done if the error is nil. It takes the file's lock as for writing. If it
// is interrupted, also by a power failure, it can be run again. The errors are those
// of Open; a file that is empty, or in which nothing was ever stored because its
// creation was interrupted, is ErrInvalid, and one that is missing is not created.
func Settle(path string, options SettleOptions) (FileState, error) {
	// Opening settles. Close has nothing to write: nothing is committed, and no freelist wanted, which bbolt, and so we,
	// may have left where there is nothing to settle. Seals are for those who read pages.
	db, err := openExisting(path, &Options{
		Timeout: options.Timeout, OpenFile: options.OpenFile, NoSeals: true, NoFreelistSync: true,
	})
	if err != nil {
		return FileState{}, err
	}
	found := db.FileState()
	return found, db.Close()
}
