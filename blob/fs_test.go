package blob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"holdfast"
)

var rowsName = []byte("rows")

func rowsOf(tx *holdfast.Tx) (*holdfast.Bucket, error) { return tx.Bucket(rowsName), nil }

// newFS makes a file system with files of these names, each of which has the content contentOf.
func newFS(t *testing.T, names ...string) (*holdfast.DB, fs.FS) {
	t.Helper()
	db := newStore(t, small[0])
	must(t, db.Update(func(tx *holdfast.Tx) error {
		s, rows := openIn(tx), must2(tx.CreateBucket(rowsName))
		for _, name := range names {
			must(t, rows.Put([]byte(name), must2(putInline(s, contentOf(name)).MarshalBinary())))
		}
		return nil
	}))
	return db, FS(context.Background(), db, openStoreOf, rowsOf)
}

// contentOf is what a file of that name has: inline, a leaf, or a tree.
func contentOf(name string) []byte { return bytes.Repeat([]byte(name), len(name)%5*300+1) }

func TestFS(t *testing.T) {
	names := []string{"a", "ab", "b/c", "b/d/e", "b/d/f g", "b-c", "b0", "longer name", "z/\xff", "z/y", "z/..", "ä/ö", "x", "x-", "x/1"}
	db, fsys := newFS(t, append(names, ".", "..", "/r", "q//", "q//r", "q/./r", "q/", "b/d/", "b/d//e", "\xff", "c/../d")...)
	must(t, db.Update(func(tx *holdfast.Tx) error {
		_, err := must2(tx.CreateBucket([]byte("nested"))).CreateBucket([]byte("deeper"))
		must2(tx.Bucket(rowsName).CreateBucket([]byte("nested")))
		must2(tx.Bucket(rowsName).CreateBucket([]byte("nested/b")))
		return err
	}))
	paths := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !fs.ValidPath(name) || name == "x" })
	must(t, fstest.TestFS(fsys, paths...))
	var got, dirs []string
	must(t, fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		must(t, err)
		info, err := d.Info()
		must(t, err)
		if d.IsDir() {
			dirs = append(dirs, name)
			return nil
		}
		got = append(got, name)
		content := must2(fs.ReadFile(fsys, name))
		if !bytes.Equal(content, contentOf(name)) || info.Size() != int64(len(content)) || info.Sys().(Ref).Size() != info.Size() {
			t.Errorf("%s has %d bytes, %d", name, len(content), info.Size())
		}
		return nil
	}))
	slices.Sort(paths)
	slices.Sort(got)
	if !slices.Equal(got, paths) || !slices.Equal(dirs, []string{".", "b", "b/d", "x", "z", "ä"}) {
		t.Errorf("files %q\nwant  %q\ndirectories %q", got, paths, dirs)
	}
	if n := db.Stats().OpenTxN; n != 0 {
		t.Errorf("%d transactions are open", n)
	}
}

func TestEmptyFS(t *testing.T) {
	_, fsys := newFS(t)
	must(t, fstest.TestFS(fsys))
}

// Names that lead nowhere, rows that are no references, and what was removed.
func TestFSErrors(t *testing.T) {
	db, fsys := newFS(t, "file", "dir/file", "gone-long-enough-to-be-stored-x")
	must(t, db.Update(func(tx *holdfast.Tx) error {
		rows := tx.Bucket(rowsName)
		must(t, rows.Put([]byte("bad"), []byte("no reference")))
		must(t, rows.Put([]byte("empty"), nil))
		ref := Ref{algorithm: SHA256, size: 5, addr: Address{1}}
		return rows.Put([]byte("lost"), must2(ref.MarshalBinary()))
	}))
	says := func(op, name string, err, want error) {
		t.Helper()
		var p *fs.PathError
		if !errors.Is(err, want) || !errors.As(err, &p) || p.Op != op || p.Path != name {
			t.Errorf("%s %q: %v, want %v", op, name, err, want)
		}
	}
	for name, want := range map[string]error{
		"none": fs.ErrNotExist, "file/x": fs.ErrNotExist, "dir/none": fs.ErrNotExist, "fil": fs.ErrNotExist, "di": fs.ErrNotExist,
		"/file": fs.ErrInvalid, "": fs.ErrInvalid, "dir/": fs.ErrInvalid, "../file": fs.ErrInvalid,
		"bad": ErrInvalidRef, "empty": ErrInvalidRef, "lost": ErrNotFound,
	} {
		f, err := fsys.Open(name)
		says("open", name, err, want)
		if f != nil {
			t.Errorf("%q is open", name)
		}
		if want == ErrNotFound {
			continue // the row is there
		}
		info, err := fs.Stat(fsys, name)
		says("stat", name, err, want)
		if info != nil {
			t.Errorf("%q is described", name)
		}
		if want == ErrInvalidRef {
			want = errNotDirectory
		}
		_, err = fs.ReadDir(fsys, name)
		says("readdir", name, err, want)
	}
	_, err := fs.ReadDir(fsys, "file")
	says("readdir", "file", err, errNotDirectory)
	list := must2(fs.ReadDir(fsys, "."))
	if got := fmt.Sprint(list); strings.Count(got, "- bad") != 1 || len(list) != 6 {
		t.Error(got)
	}
	if _, err := list[0].Info(); !errors.Is(err, ErrInvalidRef) {
		t.Errorf("%s: %v", list[0].Name(), err)
	}

	// A file that is open has its content although its row is another's.
	f := must2(fsys.Open("file"))
	dir := must2(fsys.Open("dir")).(fs.ReadDirFile)
	must(t, db.Update(func(tx *holdfast.Tx) error {
		must(t, tx.Bucket(rowsName).Delete([]byte("file")))
		return tx.Bucket(rowsName).Delete([]byte("dir/file"))
	}))
	if got, err := io.ReadAll(f); err != nil || !bytes.Equal(got, contentOf("file")) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	_, err = dir.ReadDir(-1)
	says("readdir", "dir", err, fs.ErrNotExist)
	_, err = dir.Read(nil)
	says("read", "dir", err, errDirectory)
	must(t, errors.Join(dir.Close(), f.Close()))
	_, err = dir.ReadDir(-1)
	says("readdir", "dir", err, fs.ErrClosed)
	if _, err := f.Read(make([]byte, 1)); !errors.Is(err, fs.ErrClosed) {
		t.Error(err)
	}

	_, err = FS(context.Background(), db, openStoreOf, func(*holdfast.Tx) (*holdfast.Bucket, error) { return nil, errPlanted }).Open("x")
	says("open", "x", err, errPlanted)
	_, err = FS(context.Background(), db, openStoreOf, func(*holdfast.Tx) (*holdfast.Bucket, error) { return nil, nil }).Open("x")
	says("open", "x", err, errNoRows)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = FS(ctx, db, openStoreOf, rowsOf).Open("x")
	says("open", "x", err, context.Canceled)
}

// Damage is not taken for a name that is not there.
func TestFSDamage(t *testing.T) {
	var names []string
	for i := range 2000 {
		names = append(names, fmt.Sprintf("dir/%06d", i))
	}
	db, _ := newFS(t, names...)
	db = changedFile(t, db, func(file []byte) { file[bytes.Index(file, []byte("dir/001000"))+2] ^= 1 })
	fsys := FS(context.Background(), db, openStoreOf, rowsOf)
	for name, look := range map[string]func() error{
		"Stat":    func() error { _, err := fs.Stat(fsys, "dir/001000"); return err },
		"Open":    func() error { _, err := fsys.Open("dir/001000"); return err },
		"ReadDir": func() error { _, err := fs.ReadDir(fsys, "dir"); return err },
	} {
		var page *holdfast.CorruptError
		if err := look(); !errors.As(err, &page) || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An HTTP server serves it.
func TestFSOverHTTP(t *testing.T) {
	_, fsys := newFS(t, "some/file of several hundred kinds")
	server := http.FileServerFS(fsys)
	get := func(path, byteRange string) *httptest.ResponseRecorder {
		request := httptest.NewRequest(http.MethodGet, path, nil)
		if byteRange != "" {
			request.Header.Set("Range", byteRange)
		}
		answer := httptest.NewRecorder()
		server.ServeHTTP(answer, request)
		return answer
	}
	name := "some/file of several hundred kinds"
	if a := get("/some/file%20of%20several%20hundred%20kinds", "bytes=100-200"); a.Code != http.StatusPartialContent || !bytes.Equal(a.Body.Bytes(), contentOf(name)[100:201]) {
		t.Errorf("%d, %d bytes", a.Code, a.Body.Len())
	}
	if a := get("/some/", ""); a.Code != http.StatusOK || !strings.Contains(a.Body.String(), "file of several") {
		t.Errorf("%d, %s", a.Code, a.Body)
	}
	if a := get("/none", ""); a.Code != http.StatusNotFound {
		t.Errorf("%d", a.Code)
	}
}
