package command_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"os"
	"strings"
	"testing"

	"holdfast"
	"holdfast/command/cli"
	"holdfast/internal/page"
)

// makeSized makes the database name with pages of any size, as bbolt does.
func makeSized(t *testing.T, name string, pageSize int) {
	t.Helper()
	check(t, os.WriteFile(name, page.NewFile(pageSize, false), 0o600))
	db, err := holdfast.Open(name, 0o600, &holdfast.Options{NoSync: true, NoSeals: true})
	check(t, err)
	defer db.Close()
	if got := db.Info().PageSize; got != pageSize {
		t.Fatalf("pages of %d bytes, not of %d", got, pageSize)
	}
	for round := range 4 {
		check(t, db.Update(func(tx *holdfast.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte("values"))
			for i := 0; i < 100 && err == nil; i++ {
				err = b.Put(fmt.Appendf(nil, "%03d", round*100+i), bytes.Repeat([]byte("v"), 7*i))
			}
			return err
		}))
	}
}

// Of a database whose page size is not a power of two, or below 1,024, salvage said that nothing
// is lost and wrote a copy that nothing opened: the copy's pages had another size than the
// source's, and it was cut off by the source's.
func TestSalvageAnyPageSize(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, size := range []int{512, 1000, 1001, 1152, 1536, 3000, 4096, 5000, 20000} {
		makeSized(t, "odd.db", size)
		want := content(t, "odd.db")
		wantIn(t, run(t, "salvage", "odd.db", "-o", "out.db", "--force"), 0, "Nothing is lost", "")
		if content(t, "out.db") != want {
			t.Errorf("pages of %d bytes: the copy holds something else", size)
		}
		for gone := range 4 { // of the metas; both, and the page size is not known
			makeSized(t, "odd.db", size)
			damage(t, "odd.db", func(b []byte) []byte {
				for slot := range 2 {
					if gone>>slot&1 != 0 {
						clear(b[slot*size:][:size])
					}
				}
				return b
			})
			r := run(t, "salvage", "odd.db", "-o", "out.db", "--force")
			if code := map[bool]int{true: 0, false: 3}[gone == 0]; r.code != code || !strings.Contains(r.out, fmt.Sprintf(" of %s, ", cli.SizeExactly(int64(size)))) {
				t.Errorf("pages of %d bytes, metas %b gone: %s", size, gone, r)
			}
			if content(t, "out.db") != want {
				t.Errorf("pages of %d bytes, metas %b gone: the copy holds something else", size, gone)
			}
		}
	}
}

// sayPageSize has a meta page say another page size, with a right checksum.
func sayPageSize(meta []byte, size int) {
	m := meta[page.HeaderSize:page.ExtensionOffset]
	binary.NativeEndian.PutUint32(m[8:], uint32(size))
	h := fnv.New64a()
	_, _ = h.Write(m[:56])
	binary.NativeEndian.PutUint64(m[56:], h.Sum64())
}

// A meta page 0 that gave another page size, with a right checksum, was believed: nothing was saved,
// although all other pages were as they should be.
func TestSalvageWrongPageSize(t *testing.T) {
	withSample(t)
	want := content(t, "sample.db")
	sample, err := os.ReadFile("sample.db")
	check(t, err)
	for _, size := range []int{512, 1000, 1152, 1536, 2048, 3000, 4096, 16 << 20} {
		for both := range 2 {
			check(t, os.WriteFile("sample.db", sample, 0o600))
			damage(t, "sample.db", func(b []byte) []byte {
				for slot := range both + 1 {
					sayPageSize(b[slot*samplePage:], size)
				}
				return b
			})
			wantIn(t, run(t, "salvage", "sample.db", "-o", "out.db", "--force"), 3, " of 1.0 KiB (1,024 bytes), ", "")
			if got := content(t, "out.db"); got != want {
				t.Errorf("%d bytes, both %d: the copy holds\n%.500s", size, both, got)
			}
		}
	}
	r := run(t, "salvage", "sample.db", "-o", "out.db", "--force", "--page-size", "4096")
	wantIn(t, r, 3, " of 4.0 KiB (4,096 bytes), ", "")
	wantIn(t, run(t, "salvage", "sample.db", "--list", "--page-size", "1023"), 0, "", "")
	wantIn(t, run(t, "salvage", "sample.db", "-o", "o9", "--page-size", "100"), 2, "", "--page-size: 100 is outside of 512 to 16777216")
}
