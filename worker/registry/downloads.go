package registry

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"holdfast/worker/internal/keylock"
)

// What is in the directory of downloads: blobs by their digests; with the ending .part those that are not whole;
// directories of images that are being made.
const (
	partial    = ".part"
	making     = "image-"
	downloaded = 24 * time.Hour // how long an interrupted download stays
)

// inUse are the paths of downloads and of directories that this process has in use. Other processes do not have the
// store.
var inUse keylock.Locks[string]

// blobPath is where a blob is downloaded to. The digest is one in form.
func (c *Client) blobPath(d digest.Digest) string {
	return filepath.Join(c.Downloads, d.Algorithm().String()+"-"+d.Encoded())
}

// Clean removes what interrupted downloads have left longer than a day ago, and the oldest of it that is more than Keep.
func (c *Client) Clean(ctx context.Context) error {
	entries, err := os.ReadDir(c.Downloads)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var left []fs.FileInfo
	for _, e := range entries {
		info, err := e.Info()
		if err == nil {
			left = append(left, info)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	slices.SortFunc(left, func(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) }) // newest first
	kept, now := int64(0), time.Now()
	for _, info := range left {
		if err := ctx.Err(); err != nil {
			return err
		}
		// A time to come is that of a clock that was wrong.
		if age := now.Sub(info.ModTime()); !info.IsDir() && age < downloaded && age > -downloaded && kept+info.Size() <= c.keep() {
			kept += info.Size()
			continue
		}
		if err := remove(filepath.Join(c.Downloads, info.Name())); err != nil {
			return err
		}
	}
	return nil
}

// remove removes a download, or a directory, unless it is in use.
func remove(path string) error {
	end, _ := inUse.Try(cmp.Or(trimPartial(path), path))
	if end == nil {
		return nil
	}
	defer end()
	return os.RemoveAll(path)
}

func trimPartial(path string) string {
	if filepath.Ext(path) == partial {
		return path[:len(path)-len(partial)]
	}
	return ""
}

// Temporary makes a directory among the downloads for an image that is being made, and a function that removes it. One
// of a process that was killed is removed by Clean.
func (c *Client) Temporary() (dir string, done func() error, err error) {
	if err := os.MkdirAll(c.Downloads, 0o700); err != nil {
		return "", nil, err
	}
	dir = filepath.Join(c.Downloads, making+rand.Text())
	end, err := inUse.Lock(context.Background(), dir) // before it is there: Clean removes what is not in use
	if err != nil {
		return "", nil, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		end()
		return "", nil, err
	}
	return dir, func() error { defer end(); return os.RemoveAll(dir) }, nil
}
