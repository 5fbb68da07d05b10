// Package statsfile shows figures of an open database at intervals, and has the files in which they are shown where databases
// cannot be shared (internal/share).
package statsfile

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

// Name is the name of the file in dir with the figures of the database at path. It is
// the same for all processes that see the same files.
func Name(dir, path string) (string, error) {
	path, err := RealPath(path)
	if err != nil {
		return "", err
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(path))
	name := filepath.Base(path)
	name = name[:min(len(name), maxName)]
	return filepath.Join(dir, fmt.Sprintf("%s-%016x.json", name, h.Sum64())), nil
}

// maxName is how many bytes of a database's name are in that of the file with its
// figures, so that there is room for the rest in the 255 of most file systems.
const maxName = 200

// RealPath is path, absolute and without symbolic links.
func RealPath(path string) (string, error) {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	return filepath.Abs(path)
}

// Shown shows figures by a timer and no goroutine. A failure is told once, and
// the database goes on.
type Shown struct {
	interval time.Duration
	figures  func() any
	put      func(document []byte) error
	remove   func() error
	warn     func(error)

	mu     sync.Mutex
	timer  *time.Timer
	closed bool
	failed bool
}

// Start begins to give put what figures returns, as JSON. remove is called at the end. None of them is called twice at a time.
func Start(interval time.Duration, figures func() any, put func(document []byte) error, remove func() error, warn func(error)) *Shown {
	s := &Shown{interval: interval, figures: figures, put: put, remove: remove, warn: warn}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = time.AfterFunc(interval, s.next)
	s.show()
	return s
}

func (s *Shown) next() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.show()
	s.timer.Reset(s.interval)
}

// show is called with mu.
func (s *Shown) show() {
	document, err := json.Marshal(s.figures())
	if err == nil {
		err = s.put(append(document, '\n'))
	}
	if err != nil && !s.failed {
		s.warn(err)
	}
	s.failed = err != nil
}

// Stop ends it. It does nothing on nil.
func (s *Shown) Stop() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.timer.Stop()
	if err := s.remove(); err != nil {
		s.warn(err)
	}
}

// Make makes dir if there is none, and returns the file in it with the figures of the database at path.
func Make(dir, path string) (file string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	return Name(dir, path)
}

// Replace replaces a file as a whole: a reader sees figures that belong together.
func Replace(file string, document []byte) error {
	temp := file + ".tmp" // one that a killed process has left is replaced by the next
	err := writeNew(temp, document)
	if err == nil {
		err = os.Rename(temp, file)
	}
	if err != nil {
		_ = os.Remove(temp)
	}
	return err
}

// writeNew writes a file that it makes. In a directory to which others can write a link of
// theirs may stand under its name, or a file of a process that was killed: it is removed.
func writeNew(path string, data []byte) error {
	if err := Remove(path); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// Remove removes a file, if it is there.
func Remove(file string) error {
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
