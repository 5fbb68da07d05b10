package holdfast

import (
	"os"
	"path/filepath"
	"time"

	"holdfast/internal/statsfile"
)

// Snapshot is what a database that is open for writing shows in Options.StatsDir, as JSON
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

// StatsInterval is how often the figures in Options.StatsDir are replaced. Those that are
// much older are of a process that was killed, or stopped.
const StatsInterval = time.Second

// StatsFile is the name of the file in dir with the figures of the database at path. It is
// the same for all processes that see the same files.
func StatsFile(dir, path string) (string, error) { return statsfile.Name(dir, path) }

// showStats begins to show the figures of db in dir. It returns nil if they cannot be shown.
func (db *DB) showStats(dir string) *statsfile.File {
	path, err := statsfile.RealPath(db.path)
	if err == nil {
		dir, err = filepath.Abs(dir) // the program may go elsewhere
	}
	shown := Snapshot{Path: path, PID: os.Getpid(), Program: os.Args[0], Opened: time.Now(), PageSize: db.pager.PageSize()}
	if program, err := os.Executable(); err == nil {
		shown.Program = program
	}
	figures := func() any {
		shown.Taken, shown.Stats = time.Now(), db.Stats()
		if info, err := os.Stat(path); err == nil {
			shown.FileSize = info.Size()
		}
		return &shown
	}
	var f *statsfile.File
	if err == nil {
		f, err = statsfile.Start(dir, db.path, StatsInterval, figures, db.logger.Warningf)
	}
	if err != nil {
		db.logger.Warningf("the figures of %s are not shown in %s: %v", db.path, dir, err)
		return nil
	}
	return f
}
