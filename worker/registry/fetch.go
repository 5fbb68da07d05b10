package registry

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"syscall"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"holdfast/worker/image"
)

// download is a blob that is being downloaded to a file. What is there of it already is gone on with.
type download struct {
	client *Client
	blob   v1.Descriptor
	moved  func(int64) // is told of bytes that are there, or not any more
	file   *os.File
	hash   hash.Hash // of the bytes that are there
	at     int64     // how many these are
	best   int64     // how many these were at most
	fresh  bool      // all of them are of this source
}

// fetch downloads a blob from the first source that has it, and returns the file, which is open.
func (c *Client) fetch(ctx context.Context, sources []*source, d v1.Descriptor, moved func(int64)) (_ *os.File, err error) {
	path := c.blobPath(d.Digest)
	end, err := inUse.Lock(ctx, path)
	if err != nil {
		return nil, err
	}
	defer end()
	l := &download{client: c, blob: d, moved: moved}
	if f, err := l.whole(ctx, path); f != nil || err != nil {
		return f, err
	}
	if err := l.begin(ctx, path+partial); err != nil {
		return nil, errors.Join(err, l.close())
	}
	var errs []error
	for _, s := range sources {
		err = s.retry(ctx, func() (gained int64, err error) {
			before := l.best // what is downloaded once more is no progress
			err = l.from(ctx, s)
			return l.best - before, err
		})
		if err == nil {
			break
		}
		errs = append(errs, err)
		if ctx.Err() != nil || isFull(err) {
			break
		}
		l.fresh = false
	}
	if err == nil {
		err = os.Rename(path+partial, path)
	} else {
		err = errors.Join(errs...)
	}
	if err == nil {
		_, err = l.file.Seek(0, io.SeekStart)
	}
	if err != nil {
		if isFull(err) || l.best == 0 { // what is left of it is in the way of others, or nothing
			err = errors.Join(err, os.Remove(path+partial))
		}
		return nil, errors.Join(err, l.close())
	}
	return l.file, nil
}

func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

func (l *download) close() error {
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}

// whole is the file of a blob that was downloaded before, nil if there is none, or it is damaged: it was not flushed.
func (l *download) whole(ctx context.Context, path string) (*os.File, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	verifier := l.blob.Digest.Algorithm().Hash()
	n, err := io.Copy(verifier, &ending{ctx, f})
	if err == nil && n == l.blob.Size && digest.NewDigest(l.blob.Digest.Algorithm(), verifier) == l.blob.Digest {
		l.moved(n)
		_, err = f.Seek(0, io.SeekStart)
		if err == nil {
			return f, nil
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return nil, errors.Join(f.Close(), os.Remove(path))
}

// ending reads until a context ends.
type ending struct {
	ctx context.Context
	r   io.Reader
}

func (e *ending) Read(p []byte) (int, error) {
	if err := e.ctx.Err(); err != nil {
		return 0, err
	}
	return e.r.Read(p)
}

// begin opens the file of a blob that is not whole, and reads what is there.
func (l *download) begin(ctx context.Context, path string) (err error) {
	if l.file, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return err
	}
	l.hash = l.blob.Digest.Algorithm().Hash()
	n, err := io.Copy(l.hash, &ending{ctx, l.file})
	if err != nil {
		return err
	}
	l.at, l.best = n, n
	l.moved(n)
	if n > l.blob.Size {
		return l.restart()
	}
	return nil
}

// restart drops what is there.
func (l *download) restart() error {
	l.moved(-l.at)
	l.at, l.fresh = 0, true
	l.hash.Reset()
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	_, err := l.file.Seek(0, io.SeekStart)
	return err
}

// from downloads what is missing from a source, and verifies all of it.
func (l *download) from(ctx context.Context, s *source) error {
	if l.at == 0 {
		l.fresh = true
	}
	if l.at < l.blob.Size || l.blob.Size == 0 {
		if err := l.rest(ctx, s); err != nil {
			return err
		}
	}
	got := digest.NewDigest(l.blob.Digest.Algorithm(), l.hash)
	if got == l.blob.Digest {
		return nil
	}
	fresh := l.fresh
	if err := l.restart(); err != nil {
		return err
	}
	if !fresh { // it may be what was there before that is wrong
		return l.from(ctx, s)
	}
	return fmt.Errorf("%s: blob %s: %w: its digest is %s", s.repo, l.blob.Digest, image.ErrDigest, got)
}

// rest downloads what is missing.
func (l *download) rest(ctx context.Context, s *source) error {
	header := http.Header{}
	if l.at > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-%d", l.at, l.blob.Size-1)) // some registries do not take one without an end
	}
	ctx = context.WithValue(ctx, anyLength{}, true)
	resp, err := s.get(ctx, "blobs/"+l.blob.Digest.String(), header, http.StatusOK, http.StatusPartialContent, http.StatusRequestedRangeNotSatisfiable)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lied := func(format string, args ...any) error {
		return fmt.Errorf("%s: blob %s: %w: %s", s.repo, l.blob.Digest, image.ErrDigest, fmt.Sprintf(format, args...))
	}
	switch resp.StatusCode {
	case http.StatusPartialContent:
		if from, size := contentRange(resp.Header.Get("Content-Range")); from != l.at || size >= 0 && size != l.blob.Size {
			return lied("it was asked for the bytes from %d of %d, and sends %.60q", l.at, l.blob.Size, resp.Header.Get("Content-Range"))
		}
	case http.StatusRequestedRangeNotSatisfiable:
		if l.at == 0 {
			return lied("nothing of it can be had")
		}
		if err := l.restart(); err != nil {
			return err
		}
		return l.rest(ctx, s)
	default: // all of it, whatever it was asked for
		if l.at > 0 {
			if err := l.restart(); err != nil {
				return err
			}
		}
	}
	if n := resp.ContentLength; n >= 0 && l.at+n != l.blob.Size {
		return lied("it has %d bytes, and its descriptor says %d", l.at+n, l.blob.Size)
	}
	err = l.copy(resp.Body)
	switch {
	case err != nil:
		return err
	case l.at > l.blob.Size:
		return errors.Join(lied("longer than the %d bytes that its descriptor says", l.blob.Size), l.restart())
	case l.at < l.blob.Size:
		return lied("it ends after %d bytes, and its descriptor says %d", l.at, l.blob.Size)
	}
	return nil
}

// copy appends what is read to the file, at most a byte more than there should be.
func (l *download) copy(r io.Reader) error {
	r = io.LimitReader(r, l.blob.Size-l.at+1)
	for buffer := make([]byte, 256<<10); ; {
		n, err := r.Read(buffer)
		if n > 0 {
			if _, err := l.file.Write(buffer[:n]); err != nil {
				return errors.Join(err, l.restart())
			}
			l.hash.Write(buffer[:n])
			l.at += int64(n)
			l.best = max(l.best, l.at)
			l.moved(int64(n))
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

var rangeFormat = regexp.MustCompile(`^bytes (\d{1,18})-\d{1,18}/(\d{1,18}|\*)$`)

// contentRange reads a header: where the range begins, and the size of all; -1: not known.
func contentRange(text string) (from, size int64) {
	m := rangeFormat.FindStringSubmatch(text)
	if m == nil {
		return -1, -1
	}
	from, _ = strconv.ParseInt(m[1], 10, 64) // digits only
	size, err := strconv.ParseInt(m[2], 10, 64)
	if err != nil {
		size = -1
	}
	return from, size
}
