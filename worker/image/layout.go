package image

import (
	"archive/tar"
	"bytes"
	"context"
	_ "crypto/sha256" // digests of blobs
	_ "crypto/sha512" // digests of blobs
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// This file reads OCI image layouts. google/go-containerregistry does not serve: it reads an index, a manifest and a
// config whole, however long they are, and without comparing them with their descriptors; it looks at no version, and
// reads a layout from no archive.

// layout is an OCI image layout, a directory or a tar archive of one, or what is read in the same way of a Source.
type layout struct {
	open  func(name string) (io.ReadCloser, error) // a regular file in it
	close func() error
	read  int64 // bytes of documents

	// Of a Source, in place of open.
	root *v1.Index
	get  func(v1.Descriptor) (io.ReadCloser, error)
	need func(context.Context, []v1.Descriptor) error
}

// Bounds on JSON documents. A value takes more memory than bytes.
const (
	maxDocument  = 8 << 20  // bytes of one
	maxDocuments = 64 << 20 // and of all that are read, those that are read again included
	maxValues    = 100_000  // in one
)

// openLayout opens a layout that is a directory.
func openLayout(dir string) (*layout, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	l := &layout{close: root.Close, open: func(name string) (io.ReadCloser, error) {
		info, err := root.Stat(name)
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() { // opening a pipe would wait
			return nil, fmt.Errorf("%s: %w: not a regular file", name, ErrFormat)
		}
		return root.Open(name)
	}}
	if err := l.check(); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return l, nil
}

// maxMembers is how many files of a tar archive are looked at.
const maxMembers = 100_000

// openLayoutTar opens a layout in a tar archive that is not compressed. It reads all headers, and contents when they
// are asked for. It closes f when it is closed; with fs.ErrNotExist f is not a layout, and stays open.
func openLayoutTar(f *os.File) (*layout, error) {
	type place struct{ at, size int64 }
	members := map[string]place{}
	archive := tar.NewReader(f)
	for n := 0; n < maxMembers; n++ {
		h, err := archive.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			if _, ok := members[v1.ImageLayoutFile]; ok {
				return nil, malformed(err)
			}
			return nil, fs.ErrNotExist
		}
		name, err := cleanName(h.Name, DefaultPath)
		if err != nil || h.Typeflag != tar.TypeReg || h.PAXRecords["GNU.sparse.major"] != "" || h.PAXRecords["GNU.sparse.map"] != "" {
			continue // nothing that is read
		}
		at, err := f.Seek(0, io.SeekCurrent)
		if err != nil {
			return nil, err
		}
		if _, again := members[name]; again {
			at = -1
		}
		members[name] = place{at, h.Size}
	}
	l := &layout{close: f.Close, open: func(name string) (io.ReadCloser, error) {
		m, ok := members[name]
		if !ok {
			return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		}
		if m.at < 0 {
			return nil, fmt.Errorf("%s: %w: it is in the archive twice", name, ErrFormat)
		}
		return io.NopCloser(io.NewSectionReader(f, m.at, m.size)), nil
	}}
	if _, ok := members[v1.ImageLayoutFile]; !ok {
		return nil, fs.ErrNotExist
	}
	return l, l.check()
}

// check reads the file that makes a directory a layout.
func (l *layout) check() error {
	var header v1.ImageLayout
	b, err := l.file(v1.ImageLayoutFile)
	if err != nil {
		return fmt.Errorf("not an OCI image layout: %w", err)
	}
	if err := decode(b, &header); err != nil {
		return fmt.Errorf("%s: %w", v1.ImageLayoutFile, err)
	}
	if header.Version != v1.ImageLayoutVersion {
		return fmt.Errorf("%w: image layout version %q; %s is read", ErrFormat, shorten(header.Version), v1.ImageLayoutVersion)
	}
	return nil
}

// file reads a short file whole.
func (l *layout) file(name string) ([]byte, error) {
	r, err := l.open(name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, maxDocument+1))
	if err == nil && len(b) > maxDocument {
		err = fmt.Errorf("%s: %w: more than %d bytes", name, ErrLimit, maxDocument)
	}
	return b, errors.Join(err, l.count(len(b)))
}

// count counts the bytes of a document.
func (l *layout) count(n int) error {
	if l.read += int64(n); l.read > maxDocuments {
		return fmt.Errorf("%w: its documents have more than %d bytes", ErrLimit, maxDocuments)
	}
	return nil
}

func decode(b []byte, v any) error {
	tokens := json.NewDecoder(bytes.NewReader(b))
	for n := 0; ; n++ {
		if _, err := tokens.Token(); err == io.EOF {
			break
		} else if err != nil {
			return fmt.Errorf("%w: %w", ErrFormat, err)
		}
		if n == maxValues {
			return fmt.Errorf("%w: a document with more than %d values", ErrLimit, maxValues)
		}
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return nil
}

// blob opens what a descriptor is of. The digest is checked by who reads it.
func (l *layout) blob(d v1.Descriptor) (io.ReadCloser, error) {
	if err := d.Digest.Validate(); err != nil { // so it can be part of a path
		return nil, fmt.Errorf("%w: digest %q: %w", ErrFormat, shorten(string(d.Digest)), err)
	}
	if d.Size < 0 {
		return nil, fmt.Errorf("%w: a size of %d bytes", ErrFormat, d.Size)
	}
	if l.get != nil {
		return l.get(d)
	}
	r, err := l.open(v1.ImageBlobsDir + "/" + d.Digest.Algorithm().String() + "/" + d.Digest.Encoded())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s is not in the layout: %w", ErrFormat, d.Digest, err)
	}
	return r, err
}

// document reads a JSON document and verifies it.
func (l *layout) document(d v1.Descriptor, v any) error {
	if d.Size > maxDocument {
		return fmt.Errorf("%s: %w: %d bytes, %d are allowed", d.Digest, ErrLimit, d.Size, maxDocument)
	}
	r, err := l.blob(d)
	if err != nil {
		return err
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, d.Size+1))
	if err != nil {
		return err
	}
	if err := verify(d, int64(len(b)), d.Digest.Algorithm().FromBytes(b)); err != nil {
		return err
	}
	if err := l.count(len(b)); err != nil {
		return err
	}
	if err := decode(b, v); err != nil {
		return fmt.Errorf("%s: %w", d.Digest, err)
	}
	return nil
}

// verify compares what was read with what was promised.
func verify(d v1.Descriptor, size int64, got digest.Digest) error {
	switch {
	case size > d.Size:
		return fmt.Errorf("%s: %w: longer than the %d bytes that its descriptor says", d.Digest, ErrDigest, d.Size)
	case size != d.Size:
		return fmt.Errorf("%s: %w: %d bytes, and its descriptor says %d", d.Digest, ErrDigest, size, d.Size)
	case got != d.Digest:
		return fmt.Errorf("%s: %w: its digest is %s", d.Digest, ErrDigest, got)
	}
	return nil
}
