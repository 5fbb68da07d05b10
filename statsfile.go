package holdfast

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
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
func StatsFile(dir, path string) (string, error) {
	path, err := realPath(path)
	if err != nil {
		return "", err
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(path))
	name := filepath.Base(path)
	name = name[:min(len(name), maxStatsName)]
	return filepath.Join(dir, fmt.Sprintf("%s-%016x.json", name, h.Sum64())), nil
}

// maxStatsName is how many bytes of a database's name are in that of the file with its
// figures, so that there is room for the rest in the 255 of most file systems.
const maxStatsName = 200

func realPath(path string) (string, error) {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	return filepath.Abs(path)
}

// statsFile shows the figures of a database in a file, once a second, by a timer and no
// goroutine. A failure is told once in the log, and the database goes on.
type statsFile struct {
	db     *DB
	file   string
	shown  Snapshot
	mu     sync.Mutex
	timer  *time.Timer
	closed bool
	failed bool
}

// newStatsFile begins to show the figures of db. nil: they cannot be shown.
func newStatsFile(db *DB, dir string) *statsFile {
	s := &statsFile{db: db}
	dir, err := filepath.Abs(dir) // the program may go elsewhere
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		s.file, err = StatsFile(dir, db.path)
	}
	if err == nil {
		s.shown.Path, err = realPath(db.path)
	}
	if err != nil {
		db.logger.Warningf("the figures of %s are not shown in %s: %v", db.path, dir, err)
		return nil
	}
	s.shown.PID, s.shown.Opened, s.shown.PageSize = os.Getpid(), time.Now(), db.pager.PageSize()
	if s.shown.Program, err = os.Executable(); err != nil {
		s.shown.Program = os.Args[0]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = time.AfterFunc(StatsInterval, s.show)
	s.write()
	return s
}

func (s *statsFile) show() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.write()
	s.timer.Reset(StatsInterval)
}

// write replaces the file as a whole: who reads it sees figures that belong together. The
// caller holds mu.
func (s *statsFile) write() {
	s.shown.Taken, s.shown.Stats = time.Now(), s.db.Stats()
	if info, err := os.Stat(s.shown.Path); err == nil {
		s.shown.FileSize = info.Size()
	}
	data, err := json.Marshal(&s.shown)
	if err == nil {
		temp := s.file + ".tmp" // one a process killed here is replaced by the next
		if err = writeNew(temp, append(data, '\n')); err == nil {
			err = os.Rename(temp, s.file)
		}
		if err != nil {
			_ = os.Remove(temp)
		}
	}
	if err != nil && !s.failed {
		s.db.logger.Warningf("the figures of %s are not shown: %v", s.db.path, err)
	}
	s.failed = err != nil
}

// writeNew writes a file that it makes. In a directory to which others can write a link of
// theirs may stand under its name, or a file of a process that was killed: it is removed.
func writeNew(path string, data []byte) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// stop ends it and removes the file. It does nothing on a nil statsFile.
func (s *statsFile) stop() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.timer.Stop()
	if err := os.Remove(s.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.db.logger.Warningf("remove the figures of %s: %v", s.db.path, err)
	}
}
