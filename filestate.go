package holdfast

// FileState is what Open has found in a file.
type FileState struct {
	Tx    int // number of the newest transaction that is whole
	Slot  int // meta page that says so
	Label int // its transaction id as bbolt sees it

	// BboltBehind says that bbolt would have found the state before the last flush. A
	// writable Open has mended that since (see Options.StrictCompat).
	BboltBehind bool

	// Unfinished says that not all pages of the last flush are there. It was cut short
	// by a crash, and then no commit that had waited for it has returned (with Periodic
	// some had, which are lost if the power failed); or one of its pages was damaged
	// later, and its commits are lost.
	Unfinished bool

	// Unreadable says that what the newest meta page has besides bbolt's fields cannot be
	// read, or that the other meta page is not whole: either may have named a newer state.
	// The reasons are the same, or a tool changed the page.
	Unreadable bool

	// Unflushed says that the database was opened for reading, and that the file could not
	// be flushed before it was read, as on a read-only file system or without the right to:
	// a power failure may take back the last that was found. (A flush that failed is in the
	// log.)
	Unflushed bool

	// FreeRecorded says that the file records its free pages, so that opening it
	// scans nothing, whatever its size. (If pages of the record are damaged, which
	// shows when they are needed, they are found as if there were none: see
	// Stats.OpenPath.)
	FreeRecorded bool

	// FreePages is the number of free pages that the record gives; 0 if there is
	// none. Stats.FreePageN has those of a database that was opened for writing.
	FreePages int
}

// FileState is what was found when the database was opened.
func (db *DB) FileState() FileState {
	if db.pager == nil {
		return FileState{}
	}
	f := db.pager.Finding()
	return FileState{
		Tx: int(f.Tx), Slot: f.Slot, Label: int(f.Label),
		BboltBehind: f.Trailing && !f.Unfinished, Unfinished: f.Unfinished, Unreadable: f.Unreadable, Unflushed: f.Unflushed,
		FreeRecorded: f.Recorded, FreePages: int(f.FreePages),
	}
}
