package disk

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
)

// EmergencyName is what the emergency file is called in the directory of a Space.
const EmergencyName = "emergency"

const partSuffix = ".new" // of the file while it is made

// emergency is a file that takes room for one purpose: to be deleted when there is none.
type emergency struct {
	path string
	size int64

	mu   sync.Mutex
	have bool
	gone bool // it was given up
}

// init finds out whether an earlier process has left it.
func (e *emergency) init(dir string, size int64) {
	e.path, e.size = filepath.Join(dir, EmergencyName), size
	_ = os.Remove(e.path + partSuffix) // of a process that was killed; what cannot be deleted now is overwritten later
	info, err := os.Lstat(e.path)
	if e.have = err == nil && info.Mode().IsRegular() && info.Size() == size && size > 0; e.have || err != nil {
		return
	}
	e.gone = os.Remove(e.path) == nil && size > 0 // an earlier process had one of another size: that is room to try with
}

// held is its size, 0 if it is not there.
func (e *emergency) held() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.have {
		return 0
	}
	return e.size
}

// GiveUp deletes the emergency file, and tells whether what failed should be tried again: if it was deleted now, or
// before and not made anew, as it is then not known which was earlier. It is for snapshot.Options.Full.
func (s *Space) GiveUp() bool {
	e := &s.emergency
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.have {
		return e.gone
	}
	if err := os.Remove(e.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		s.log.Error("the disk is full, and the emergency file cannot be deleted", "error", err)
		return false
	}
	e.have, e.gone = false, true
	s.log.Warn("the disk is full: the emergency file is given up, so that metadata can be written", "directory", s.dir, "bytes", e.size)
	return true
}

// Restore makes the emergency file anew, if it was given up and there is room for it twice, and what is to be
// kept; otherwise it is ErrFull. Reserve calls it; who does not reserve should, now and then.
func (s *Space) Restore() error {
	e := &s.emergency
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.have || e.size == 0 {
		return nil
	}
	fs, err := s.measure(s.dir)
	if err != nil {
		return fmt.Errorf("make the emergency file: %w", err)
	}
	if need := add(add(e.size, e.size), s.opts.Keep); fs.Free < need {
		return fmt.Errorf("make the emergency file: %w: %d bytes are free, it is made when there are %d", ErrFull, fs.Free, need)
	}
	if err := e.make(); err != nil {
		return fmt.Errorf("make the emergency file: %w", err)
	}
	e.have, e.gone = true, false
	s.log.Info("there is an emergency file", "directory", s.dir, "bytes", e.size)
	return nil
}

// make makes the file under another name first, so that what is called so has its whole size.
func (e *emergency) make() (err error) {
	part := e.path + partSuffix
	f, err := os.OpenFile(part, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = allocate(f, e.size)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(part, e.path)
	}
	if err != nil {
		_ = os.Remove(part)
	}
	return err
}

// writeZeroes allocates where there is no call for it.
func writeZeroes(f *os.File, size int64) error {
	_, err := io.CopyN(f, zeroes{}, size)
	if err == nil {
		err = f.Sync()
	}
	return err
}

// zeroes is an endless reader of what does not compress to a hole on ordinary file systems.
type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
