package image

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"
)

// ArchiveLayout writes an image layout that is a directory, such as one of Export, as a tar archive that Import
// reads. The same layout gives the same bytes.
func ArchiveLayout(ctx context.Context, w io.Writer, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	archive := tar.NewWriter(w)
	err = fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error { // in the order of names
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		return archiveFile(ctx, archive, root, name)
	})
	return errors.Join(err, archive.Close())
}

func archiveFile(ctx context.Context, w *tar.Writer, root *os.Root, name string) error {
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: info.Size(), ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.Copy(w, &source{ctx: ctx, r: f})
	return err
}
