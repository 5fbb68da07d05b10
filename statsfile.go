package holdfast

import (
	"os"
	"path/filepath"
	"time"

	"holdfast/internal/statsfile"
)

// Snapshot is what a database that is shared shows (Options.Share, Options.StatsDir), as JSON
// with the names of the fields. Times in Stats are nanoseconds.
type Snapshot struct {
	Path     string    // of the database, absolute and without symbolic links
	PID      int       // of the process that has it open
	Program  string    // that it runs
	Opened   time.Time // the database
	Taken    time.Time // the figures
	PageSize int       // bytes
	FileSize int64     // bytes
	Stats    Stats
}

// StatsInterval is how often the figures of a Snapshot are replaced. Those that are
// much older are of a process that was killed, or stopped.
const StatsInterval = time.Second

// StatsFile is the name of the file in dir with the figures of the database at path, on systems where databases
// cannot be shared. It is the same for all processes that see the same files.
func StatsFile(dir, path string) (string, error) { return statsfile.Name(dir, path) }

// showFile begins to show the figures of db in a file of their own in dir.
func (db *DB) showFile(dir string) {
	dir, err := filepath.Abs(dir) // the program may go elsewhere
	var file string
	if err == nil {
		file, err = statsfile.Make(dir, db.path)
	}
	if err != nil {
		db.logger.Warningf("the figures of %s are not shown in %s: %v", db.path, dir, err)
		return
	}
	db.show(func(document []byte) error { return statsfile.Replace(file, document) }, func() error { return statsfile.Remove(file) })
}

// show begins to show the figures of db: put is given them, and remove called at the end.
func (db *DB) show(put func(document []byte) error, remove func() error) {
	path, err := statsfile.RealPath(db.path)
	if err != nil {
		path = db.path
	}
	shown := Snapshot{Path: path, PID: os.Getpid(), Program: os.Args[0], Opened: time.Now(), PageSize: db.pager.PageSize()}
	if program, err := os.Executable(); err == nil {
		shown.Program = program
	}
	figures := func() any {
		shown.Taken, shown.Stats = time.Now(), db.figures()
		if info, err := os.Stat(path); err == nil {
			shown.FileSize = info.Size()
		}
		return &shown
	}
	warn := func(err error) { db.logger.Warningf("the figures of %s are not shown: %v", db.path, err) }
	db.shown = statsfile.Start(StatsInterval, figures, put, remove, warn)
}
