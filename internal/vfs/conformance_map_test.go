package vfs

import (
	"bytes"
	"sync"
	"syscall"
	"testing"
	"time"
)

const testPage = 4096

func testMap(t *testing.T, open func() File) {
	file := opened(t, open)
	content := pattern(3*testPage, 1)
	write(t, file, content, 0)
	mapping := mapped(t, file, int64(len(content)))
	wantBytes(t, mapping.Data(), content)

	write(t, file, []byte("alone"), 10)
	copy(content[10:], "alone")
	must(t, file.WriteVec([][]byte{[]byte("to"), nil, []byte("gether")}, testPage+10))
	copy(content[testPage+10:], "together")
	write(t, opened(t, open), []byte("other handle"), 100)
	copy(content[100:], "other handle")
	wantBytes(t, mapping.Data(), content)

	// A mapping need not be whole pages, nor the whole file.
	short := mapped(t, file, testPage+11)
	wantBytes(t, short.Data(), content[:testPage+11])
}

func testMapBeyondEnd(t *testing.T, open func() File) {
	file := opened(t, open)
	if !file.MapBeyondEnd() {
		write(t, file, []byte{1}, 0)
		_, err := file.Map(2, MapOptions{})
		wantError(t, "map beyond the end", err, ErrMapping)
		return
	}
	const reserve = 64 << 20
	mapping := mapped(t, file, reserve)
	content := pattern(2*testPage, 1)
	write(t, file, content, 0)
	wantBytes(t, mapping.Data()[:len(content)], content)
	must(t, file.Grow(1<<20))
	wantBytes(t, mapping.Data()[:1<<20], append(content, make([]byte, 1<<20-len(content))...))
	must(t, file.Truncate(reserve+testPage))
	write(t, file, content[:testPage], reserve-testPage)
	wantBytes(t, mapping.Data()[reserve-testPage:], content[:testPage])

	// Cut and grown again, the mapping shows the new bytes and no old ones.
	must(t, file.Truncate(testPage))
	must(t, file.Truncate(3*testPage))
	write(t, file, content[:testPage], 2*testPage)
	wantBytes(t, mapping.Data()[:testPage], content[:testPage])
	wantBytes(t, mapping.Data()[testPage:2*testPage], make([]byte, testPage))
	wantBytes(t, mapping.Data()[2*testPage:3*testPage], content[:testPage])
}

// testMapGenerations: mappings made at different lengths all show the present.
func testMapGenerations(t *testing.T, open func() File) {
	file := opened(t, open)
	var mappings []Mapping
	for pages := 1; pages <= 64; pages *= 2 {
		length := int64(pages * testPage)
		must(t, file.Grow(length))
		mapping, err := file.Map(length, MapOptions{})
		must(t, err)
		mappings = append(mappings, mapping)
	}
	content := pattern(64*testPage, 1)
	write(t, file, content, 0)
	check := func() {
		t.Helper()
		for _, mapping := range mappings {
			wantBytes(t, mapping.Data(), content[:len(mapping.Data())])
		}
	}
	check()

	// Close some, the newest among them, and write on.
	for _, closed := range []int{6, 2, 0} {
		must(t, mappings[closed].Close())
		mappings = append(mappings[:closed], mappings[closed+1:]...)
		content = pattern(len(content), uint64(closed))
		must(t, file.WriteVec([][]byte{content[:100], content[100:]}, 0))
		check()
		wantContent(t, file, content)
	}
	for _, mapping := range mappings {
		must(t, mapping.Close())
		must(t, mapping.Close())
		if mapping.Data() != nil {
			t.Error("a closed mapping has data")
		}
	}
	wantContent(t, file, content)
}

func testMapAfterClose(t *testing.T, open func() File) {
	file := open()
	content := pattern(testPage, 1)
	write(t, file, content, 0)
	mapping := mapped(t, file, testPage)
	must(t, file.Close())
	wantBytes(t, mapping.Data(), content)
	must(t, mapping.Lock(10))
	write(t, opened(t, open), []byte("late"), 0)
	copy(content, "late")
	wantBytes(t, mapping.Data(), content)
}

// testMapWhileWriting lets the race detector see a reader of one page while
// others are written, the file grows and is mapped again.
func testMapWhileWriting(t *testing.T, open func() File) {
	file := opened(t, open)
	content := pattern(testPage, 1)
	write(t, file, content, 0)
	mapping := mapped(t, file, testPage)
	stop := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if !bytes.Equal(mapping.Data(), content) {
				t.Error("the mapped page has changed")
				return
			}
		}
	})
	defer reader.Wait() // before the mapping is closed, even if the test fails
	defer close(stop)
	for i := range 200 {
		end := int64(i+2) * testPage
		must(t, file.Grow(end))
		write(t, file, content, end-testPage)
		if i%20 == 0 {
			longer, err := file.Map(end, MapOptions{})
			must(t, err)
			if !bytes.Equal(longer.Data()[end-testPage:], content) {
				t.Error("a write does not show")
			}
			must(t, longer.Close())
		}
		if i == 100 && file.MapBeyondEnd() { // Windows refuses to shorten a mapped file
			must(t, file.Truncate(testPage))
		}
	}
	time.Sleep(time.Millisecond)
}

func testMlock(t *testing.T, open func() File) {
	file := opened(t, open)
	must(t, file.Grow(8*testPage))
	mapping := mapped(t, file, 8*testPage)
	for _, n := range []int64{0, 1, testPage + 5, testPage, 5*testPage + 1, 8 * testPage} {
		must(t, mapping.Lock(n))
	}
	for _, n := range []int64{-1, 8*testPage + 1} {
		wantError(t, "mlock", mapping.Lock(n), syscall.EINVAL)
	}
	// Pinned memory can be unmapped.
	must(t, mapping.Close())
	wantError(t, "mlock of a closed mapping", mapping.Lock(1), syscall.EINVAL)
}

// testPrefetch: a hint changes nothing, whatever its range.
func testPrefetch(t *testing.T, open func() File) {
	file := open()
	content := pattern(40*testPage, 1)
	write(t, file, content, 0)
	length := int64(len(content))
	if file.MapBeyondEnd() {
		length += 40 * testPage
	}
	mapping := mapped(t, file, length)
	hints := func() {
		for _, off := range []int64{-1 << 62, -1, 0, 1, testPage - 1, testPage, 39 * testPage, 40 * testPage, 41 * testPage, length - 1, length, 1 << 62} {
			for _, n := range []int64{-1 << 62, -1, 0, 1, testPage, 7*testPage + 5, 40 * testPage, length, 1 << 62} {
				mapping.Prefetch(off, n)
			}
		}
	}
	hints()
	wantBytes(t, mapping.Data()[:len(content)], content)
	must(t, file.Close())
	hints()
	wantBytes(t, mapping.Data()[:len(content)], content)
	must(t, mapping.Close())
	hints()
}
