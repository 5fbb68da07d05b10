package suite

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"holdfast"
)

// Files that have too much room, for vacuum.

var bigName = []byte("big")

// Of the file that is thinned out: one value of thinned stays.
const (
	bigValue = 900
	thinned  = 5
)

// bigKey is key i of the bucket that Fill makes.
func bigKey(i int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(i)) }

// buildThinned makes a file of about so many bytes with large values, of which four of
// five are deleted, in random order, and returns the keys of the others. Nothing but the
// seed decides which.
func buildThinned(path string, size int64) (left [][]byte, err error) {
	// There are three values to a page, and the deletes make the file longer by an eighth.
	const aValue, transactionSize = 1536, 20_000
	n := int(size / aValue)
	s, err := Holdfast.Open(path, true)
	if err != nil {
		return nil, err
	}
	for i := 0; i < n && err == nil; i += transactionSize {
		err = s.Fill(bigName, i, min(transactionSize, n-i), noise[:bigValue])
	}
	if err := errors.Join(err, s.Close()); err != nil {
		return nil, err
	}
	order := rand.New(rand.NewPCG(10, 11)).Perm(n)
	for _, i := range order[:n/thinned] {
		left = append(left, bigKey(i))
	}
	return left, deleteAll(path, order[n/thinned:], transactionSize)
}

// looseValue is the size of the values of a loose file.
const looseValue = 100

// buildLoose makes a file of about so many bytes whose pages are half full, and next to
// none of them free, and returns all keys.
func buildLoose(path string, size int64) (keys [][]byte, err error) {
	// The default, 0.5, would fill pages to which keys are appended.
	const fill, aValue, transactionSize = 0.45, 375, 20_000
	db, err := holdfast.Open(path, 0o600, &holdfast.Options{NoSync: true})
	if err != nil {
		return nil, err
	}
	n := int(size / aValue)
	for i := 0; i < n && err == nil; i += transactionSize {
		err = db.Update(func(tx *holdfast.Tx) error {
			b, err := tx.CreateBucketIfNotExists(bigName)
			if err != nil {
				return err
			}
			b.FillPercent = fill
			for k := i; k < min(n, i+transactionSize); k++ {
				keys = append(keys, bigKey(k))
				if err := b.Put(bigKey(k), noise[:looseValue]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err == nil {
		err = db.Sync()
	}
	return keys, errors.Join(err, db.Close())
}

// deleteAll deletes keys that Fill put, some at a time, and closes the file again.
func deleteAll(path string, order []int, atOnce int) error {
	db, err := holdfast.Open(path, 0o600, &holdfast.Options{NoSync: true})
	if err != nil {
		return err
	}
	for len(order) > 0 && err == nil {
		part := order[:min(atOnce, len(order))]
		order = order[len(part):]
		err = db.Update(func(tx *holdfast.Tx) error {
			b := tx.Bucket(bigName)
			for _, i := range part {
				if err := b.Delete(bigKey(i)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err == nil {
		err = db.Sync()
	}
	return errors.Join(err, db.Close())
}

// diskUse watches how many bytes of the disk the files in a directory take.
type diskUse struct {
	dir  string
	stop chan struct{}
	done sync.WaitGroup

	first, most int64
	err         error
}

// watchDisk begins to watch. The files must be there already that stay.
func watchDisk(dir string) (*diskUse, error) {
	u := &diskUse{dir: dir, stop: make(chan struct{})}
	var err error
	if u.first, err = u.look(); err != nil {
		return nil, err
	}
	u.most = u.first
	u.done.Go(func() {
		const every = time.Millisecond
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-u.stop:
				return
			case <-tick.C:
			}
			now, err := u.look()
			if u.most = max(u.most, now); err != nil {
				u.err = err
			}
		}
	})
	return u, nil
}

func (u *diskUse) look() (sum int64, err error) {
	entries, err := os.ReadDir(u.dir)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		info, err := os.Lstat(filepath.Join(u.dir, e.Name()))
		switch {
		case err == nil:
			sum += DiskBytes(info)
		case !errors.Is(err, os.ErrNotExist): // removed in between
			return 0, err
		}
	}
	return sum, nil
}

// end stops watching and tells by how much the files took more than at first, at most.
func (u *diskUse) end() (int64, error) {
	close(u.stop)
	u.done.Wait()
	return u.most - u.first, u.err
}

func sizeOf(path string) (int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// fileOf is a path for a database in a directory of its own, with room for so many bytes.
func (c *Config) fileOf(name string, bytes int64) (string, error) {
	if err := c.needs(bytes); err != nil {
		return "", err
	}
	path, err := c.path("vacuum", name)
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return path, nil
}
