// Package statsfile shows figures of an open database in a file that is replaced at
// intervals.
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

// File shows figures by a timer and no goroutine. A failure is told once in the log, and
// the database goes on.
type File struct {
	file     string
	path     string // of the database
	interval time.Duration
	figures  func() any
	warn     func(format string, args ...any)

	mu     sync.Mutex
	timer  *time.Timer
	closed bool
	failed bool
}

// Start begins to show in dir, which it makes if there is none, what figures returns, as
// JSON. figures is not called twice at a time.
func Start(dir, path string, interval time.Duration, figures func() any, warn func(format string, args ...any)) (*File, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	name, err := Name(dir, path)
	if err != nil {
		return nil, err
	}
	f := &File{file: name, path: path, interval: interval, figures: figures, warn: warn}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.timer = time.AfterFunc(interval, f.show)
	f.write()
	return f, nil
}

func (f *File) show() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	f.write()
	f.timer.Reset(f.interval)
}

// write replaces the file as a whole: a reader sees figures that belong together. The
// caller holds mu.
func (f *File) write() {
	data, err := json.Marshal(f.figures())
	if err == nil {
		temp := f.file + ".tmp" // one that a killed process has left is replaced by the next
		if err = writeNew(temp, append(data, '\n')); err == nil {
			err = os.Rename(temp, f.file)
		}
		if err != nil {
			_ = os.Remove(temp)
		}
	}
	if err != nil && !f.failed {
		f.warn("the figures of %s are not shown: %v", f.path, err)
	}
	f.failed = err != nil
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

// Stop ends it and removes the file. It does nothing on a nil File.
func (f *File) Stop() {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.timer.Stop()
	if err := os.Remove(f.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.warn("remove the figures of %s: %v", f.path, err)
	}
}
