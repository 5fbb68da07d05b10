package vfs

import (
	"syscall"
	"testing"
)

func TestMemClone(t *testing.T) {
	mem := NewMem("db")
	file := opened(t, mem.Open)
	content := pattern(10000, 1)
	write(t, file, content, 0)
	mapping := mapped(t, file, 20000)
	must(t, file.Lock(true, 0))

	clone := mem.Clone()
	copied := opened(t, clone.Open)
	must(t, copied.Lock(true, 1))
	wantContent(t, copied, content)
	if copied.Name() != "db" {
		t.Errorf("name %q", copied.Name())
	}
	write(t, copied, []byte("clone"), 0)
	write(t, file, []byte("original"), 5000)
	wantBytes(t, mapping.Data()[:5000], content[:5000])
	wantBytes(t, clone.Bytes()[5000:], content[5000:])
	copy(content[5000:], "original")
	wantBytes(t, mem.Bytes(), content)

	// What Bytes returned is the caller's.
	clear(mem.Bytes())
	wantBytes(t, mem.Bytes(), content)
}

func TestMemLimit(t *testing.T) {
	file := opened(t, NewMem("db").Open)
	write(t, file, []byte{1}, 0)
	_, err := file.WriteAt([]byte{1}, memMax)
	wantError(t, "write", err, syscall.EFBIG)
	_, err = file.WriteAt([]byte{1}, 1<<63-1)
	wantError(t, "write", err, syscall.EFBIG)
	wantError(t, "vector", file.WriteVec([][]byte{{1}, {1}}, memMax-1), syscall.EFBIG)
	wantError(t, "truncate", file.Truncate(memMax+1), syscall.EFBIG)
	wantError(t, "grow", file.Grow(memMax+1), syscall.EFBIG)
	_, err = file.Map(memMax+1, MapOptions{})
	wantError(t, "map", err, ErrMapping)
	wantContent(t, file, []byte{1})
}

// TestMemArrays: arrays that nobody maps any more are not kept.
func TestMemArrays(t *testing.T) {
	mem := NewMem("db")
	file := opened(t, mem.Open)
	for page := range int64(50) {
		write(t, file, pattern(10, 1), page*testPage)
	}
	if len(mem.arrays) != 1 {
		t.Errorf("%d arrays of a file that was never mapped, want 1", len(mem.arrays))
	}
	for _, pages := range []int64{100, 1000, 10000} {
		var mappings []Mapping
		for i := range int64(5) {
			mappings = append(mappings, mapped(t, file, (pages+i+1)*testPage))
		}
		write(t, file, pattern(10, 1), (pages+8)*testPage)
		if len(mem.arrays) < 3 {
			t.Errorf("%d arrays, the test is worth nothing", len(mem.arrays))
		}
		for _, mapping := range mappings {
			must(t, mapping.Close())
		}
		if len(mem.arrays) != 1 {
			t.Errorf("%d arrays left, want 1", len(mem.arrays))
		}
	}
}
