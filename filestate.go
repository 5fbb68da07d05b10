package holdfast

// FileState is what Open has found in a file.
type FileState struct {
	Tx    int // number of the newest transaction that is whole
	Slot  int // meta page that says so
	Label int // its transaction id as bbolt sees it

	// BboltBehind says that bbolt would have found the state before the last flush. A
	// writable Open has mended that since (see Options.StrictCompat).
	BboltBehind bool

	// Unfinished says that the file was left in the middle of a flush, of which
	// nothing is left.
	Unfinished bool

	// FreeRecorded says that the file records its free pages, so that opening it
	// takes the same time whatever its size.
	FreeRecorded bool
}

// FileState is what was found when the database was opened.
func (db *DB) FileState() FileState {
	if db.pager == nil {
		return FileState{}
	}
	f := db.pager.Finding()
	return FileState{
		Tx: int(f.Tx), Slot: f.Slot, Label: int(f.Label),
		BboltBehind: f.Trailing && !f.Unfinished, Unfinished: f.Unfinished, FreeRecorded: f.Recorded,
	}
}
