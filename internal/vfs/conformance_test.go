package vfs

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestConformance runs what every File promises on each implementation. An
// opener opens the same file every time; its files are closed by the test.
func TestConformance(t *testing.T) {
	openers := map[string]func(t *testing.T) func() File{
		"OS":  osOpener,
		"Mem": memOpener,
		"Inject": func(t *testing.T) func() File {
			open := osOpener(t)
			return func() File { return NewInject(open(), nil) }
		},
	}
	tests := map[string]func(t *testing.T, open func() File){
		"ReadWrite":       testReadWrite,
		"WriteVec":        testWriteVec,
		"Truncate":        testTruncate,
		"Grow":            testGrow,
		"BadArguments":    testBadArguments,
		"Map":             testMap,
		"MapBeyondEnd":    testMapBeyondEnd,
		"MapGenerations":  testMapGenerations,
		"MapAfterClose":   testMapAfterClose,
		"MapWhileWriting": testMapWhileWriting,
		"Mlock":           testMlock,
		"Prefetch":        testPrefetch,
		"LockExcludes":    testLockExcludes,
		"LockTimeout":     testLockTimeout,
		"LockWaits":       testLockWaits,
		"Closed":          testClosed,
	}
	for implementation, opener := range openers {
		t.Run(implementation, func(t *testing.T) {
			for name, test := range tests {
				t.Run(name, func(t *testing.T) { test(t, opener(t)) })
			}
		})
	}
}

func osOpener(t *testing.T) func() File {
	path := filepath.Join(t.TempDir(), "db")
	return func() File {
		t.Helper()
		file, err := OpenOS(path, os.O_RDWR|os.O_CREATE, 0o600, nil)
		must(t, err)
		return file
	}
}

func memOpener(*testing.T) func() File { return NewMem("db").Open }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantError(t *testing.T, doing string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got error %v, want %v", doing, err, want)
	}
}

func wantSize(t *testing.T, file File, want int64) {
	t.Helper()
	size, err := file.Size()
	must(t, err)
	if size != want {
		t.Fatalf("size %d, want %d", size, want)
	}
}

func wantContent(t *testing.T, file File, want []byte) {
	t.Helper()
	wantSize(t, file, int64(len(want)))
	got := make([]byte, len(want))
	if n, err := file.ReadAt(got, 0); n != len(want) || (err != nil && err != io.EOF) {
		t.Fatalf("read %d of %d bytes: %v", n, len(want), err)
	}
	wantBytes(t, got, want)
}

func wantBytes(t *testing.T, got, want []byte) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d bytes, want %d", len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("byte %d is %#x, want %#x", i, got[i], want[i])
		}
	}
}

func write(t *testing.T, file File, p []byte, off int64) {
	t.Helper()
	if n, err := file.WriteAt(p, off); n != len(p) || err != nil {
		t.Fatalf("wrote %d of %d bytes at %d: %v", n, len(p), off, err)
	}
}

func closeAfter(t *testing.T, file io.Closer) {
	t.Cleanup(func() {
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	})
}

func opened(t *testing.T, open func() File) File {
	file := open()
	closeAfter(t, file)
	return file
}

func mapped(t *testing.T, file File, length int64) Mapping {
	t.Helper()
	mapping, err := file.Map(length, MapOptions{})
	must(t, err)
	closeAfter(t, mapping)
	if len(mapping.Data()) != int(length) {
		t.Fatalf("mapped %d bytes, want %d", len(mapping.Data()), length)
	}
	return mapping
}

func pattern(n int, seed uint64) []byte {
	random := rand.New(rand.NewPCG(seed, 0))
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(random.Uint32()%255) + 1
	}
	return p
}

func testReadWrite(t *testing.T, open func() File) {
	file := opened(t, open)
	if filepath.Base(file.Name()) != "db" {
		t.Errorf("name %q", file.Name())
	}
	wantSize(t, file, 0)
	write(t, file, []byte("world"), 10000)
	write(t, file, []byte("hello"), 0)
	write(t, file, nil, 20000)
	want := append(make([]byte, 10000), "world"...)
	copy(want, "hello")
	wantContent(t, file, want)
	must(t, file.Sync())
	wantContent(t, opened(t, open), want)

	p := make([]byte, 8)
	for _, read := range []struct {
		length, n int
		off       int64
	}{{8, 5, 10000}, {1, 0, 10005}, {1, 0, 1 << 40}} {
		n, err := file.ReadAt(p[:read.length], read.off)
		if n != read.n || err != io.EOF {
			t.Errorf("read of %d at %d: %d, %v; want %d, EOF", read.length, read.off, n, err, read.n)
		}
	}
	if n, err := file.ReadAt(p[:5], 10000); n != 5 || (err != nil && err != io.EOF) {
		t.Errorf("read up to the end: %d, %v", n, err)
	}
}

func testWriteVec(t *testing.T, open func() File) {
	file := opened(t, open)
	const count = 3000
	random := rand.New(rand.NewPCG(1, 1))
	var bufs [][]byte
	var want []byte
	for i := range count {
		var buf []byte // every fourth is nil, some others are empty
		if i%4 != 0 {
			buf = pattern(random.IntN(200), uint64(i))
		}
		bufs = append(bufs, buf)
		want = append(want, buf...)
	}
	before := bytes.Join(bufs, nil)
	must(t, file.WriteVec(bufs, 123))
	wantBytes(t, bytes.Join(bufs, nil), before)
	wantContent(t, file, append(make([]byte, 123), want...))

	// Large buffers do not fit into a copy, one buffer is not a vector, and
	// nothing at all writes nothing, also far behind the end.
	large := [][]byte{pattern(300<<10, 1), pattern(1, 2), pattern(1<<20, 3), pattern(100, 4)}
	must(t, file.Truncate(0))
	must(t, file.WriteVec(large, 0))
	must(t, file.WriteVec([][]byte{{'x'}}, 5))
	for _, nothing := range [][][]byte{nil, {}, {nil}, {nil, {}}, make([][]byte, 2000)} {
		must(t, file.WriteVec(nothing, 1<<29))
	}
	want = bytes.Join(large, nil)
	want[5] = 'x'
	wantContent(t, file, want)
}

func testTruncate(t *testing.T, open func() File) {
	file := opened(t, open)
	content := pattern(10000, 1)
	write(t, file, content, 0)
	must(t, file.Truncate(5000))
	wantContent(t, file, content[:5000])
	must(t, file.Truncate(20000))
	wantContent(t, file, append(content[:5000:5000], make([]byte, 15000)...))
	must(t, file.Truncate(0))
	wantSize(t, file, 0)
}

func testGrow(t *testing.T, open func() File) {
	file := opened(t, open)
	must(t, file.Grow(0))
	wantSize(t, file, 0)
	content := pattern(5000, 1)
	write(t, file, content, 0)
	must(t, file.Grow(1<<20+1))
	wantContent(t, file, append(content, make([]byte, 1<<20+1-5000)...))
	for _, size := range []int64{-1, 0, 4999, 1 << 20, 1<<20 + 1} {
		must(t, file.Grow(size))
		wantSize(t, file, 1<<20+1)
	}
}

func testBadArguments(t *testing.T, open func() File) {
	file := opened(t, open)
	write(t, file, pattern(100, 1), 0)
	if n, err := file.ReadAt(make([]byte, 1), -1); n != 0 || err == nil || err == io.EOF {
		t.Errorf("read at -1: %d, %v", n, err)
	}
	if n, err := file.WriteAt(make([]byte, 1), -1); n != 0 || err == nil {
		t.Errorf("write at -1: %d, %v", n, err)
	}
	wantError(t, "vector at -1", file.WriteVec([][]byte{{1}, {2}}, -1), syscall.EINVAL)
	wantError(t, "truncate to -1", file.Truncate(-1), syscall.EINVAL)
	if err := file.Grow(1 << 62); err == nil {
		t.Error("grew to 4 EiB")
	}
	for _, length := range []int64{-1, 0, 1 << 62} {
		_, err := file.Map(length, MapOptions{})
		wantError(t, "map", err, ErrMapping)
		var system syscall.Errno
		if !errors.As(err, &system) {
			t.Errorf("map %d bytes: no system error in %v", length, err)
		}
	}
	wantSize(t, file, 100)
}

func testClosed(t *testing.T, open func() File) {
	file := open()
	write(t, file, pattern(100, 1), 0)
	must(t, file.Lock(true, time.Second))
	must(t, file.Close())

	p := make([]byte, 1)
	_, err := file.ReadAt(p, 0)
	wantError(t, "read", err, os.ErrClosed)
	_, err = file.WriteAt(p, 0)
	wantError(t, "write", err, os.ErrClosed)
	wantError(t, "vector", file.WriteVec([][]byte{p, p}, 0), os.ErrClosed)
	_, err = file.Size()
	wantError(t, "size", err, os.ErrClosed)
	wantError(t, "truncate", file.Truncate(1), os.ErrClosed)
	wantError(t, "grow", file.Grow(1000), os.ErrClosed)
	wantError(t, "flush", file.Sync(), os.ErrClosed)
	_, err = file.Map(100, MapOptions{})
	wantError(t, "map", err, os.ErrClosed)
	wantError(t, "map", err, ErrMapping)
	wantError(t, "lock", file.Lock(true, time.Second), os.ErrClosed)
	wantError(t, "unlock", file.Unlock(), os.ErrClosed)
	wantError(t, "close", file.Close(), os.ErrClosed)

	// Closing has given the lock back.
	must(t, opened(t, open).Lock(true, time.Nanosecond))
}
