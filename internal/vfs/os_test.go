package vfs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestOSOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	if _, err := OpenOS(path, os.O_RDWR, 0, nil); !os.IsNotExist(err) {
		t.Errorf("%v, want one for os.IsNotExist", err)
	}
	broken := errors.New("broken")
	var gotFlag int
	var gotPerm os.FileMode
	file, err := OpenOS(path, os.O_RDWR|os.O_CREATE, 0o640, func(p string, flag int, perm os.FileMode) (*os.File, error) {
		gotFlag, gotPerm = flag, perm
		return os.OpenFile(p, flag, perm)
	})
	must(t, err)
	closeAfter(t, file)
	if file.Name() != path || gotFlag != os.O_RDWR|os.O_CREATE || gotPerm != 0o640 {
		t.Errorf("opened %q with %#x, %v", file.Name(), gotFlag, gotPerm)
	}
	_, err = OpenOS(path, 0, 0, func(string, int, os.FileMode) (*os.File, error) { return nil, broken })
	if err != broken {
		t.Errorf("%v, want the error as it is", err)
	}
}

func TestOSReadOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	content := pattern(3*testPage, 1)
	must(t, os.WriteFile(path, content, 0o400))
	open := func() File {
		file, err := OpenOS(path, os.O_RDONLY, 0, nil)
		must(t, err)
		return file
	}
	file := opened(t, open)
	wantContent(t, file, content)
	wantBytes(t, mapped(t, file, int64(len(content))).Data(), content)
	must(t, file.Lock(false, time.Second))
	must(t, opened(t, open).Lock(false, time.Second))

	_, err := file.WriteAt([]byte{1}, 0)
	for doing, err := range map[string]error{
		"write":    err,
		"vector":   file.WriteVec([][]byte{{1}, {2}}, 0),
		"truncate": file.Truncate(1),
		"grow":     file.Grow(1 << 20),
	} {
		if err == nil {
			t.Errorf("%s succeeds", doing)
		} else if strings.Count(err.Error(), path) != 1 || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v is not one error that names the file once", doing, err)
		}
	}
	wantContent(t, file, content)
}

func TestOSErrorsNameFile(t *testing.T) {
	open := osOpener(t)
	file := open()
	must(t, file.Grow(testPage))
	mapping := mapped(t, file, testPage)
	must(t, file.Close())
	_, mapErr := file.Map(1, MapOptions{})
	_, sizeErr := file.Size()
	_, readErr := file.ReadAt(make([]byte, 1), 0)
	for start, err := range map[string]error{
		"read ":        readErr,
		"write ":       file.WriteVec([][]byte{{1}, {2}}, 0),
		"seek ":        sizeErr,
		"truncate ":    file.Truncate(0),
		"flush ":       file.Sync(),
		"map 1 bytes ": mapErr,
		"lock ":        file.Lock(true, 0),
		"unlock ":      file.Unlock(),
		"close ":       file.Close(),
		"mlock ":       mapping.Lock(-1),
	} {
		if err == nil || !strings.HasPrefix(err.Error(), start) || strings.Count(err.Error(), file.Name()) != 1 {
			t.Errorf("error %q, want one that begins with %q and names %s once", err, start, file.Name())
		}
	}
}
