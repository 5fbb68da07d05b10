package command_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"holdfast"
	"holdfast/internal/page"
)

// sharedNames makes a database whose bucket "b" has a leaf of 2 MB with a thousand elements, whose keys all reach to
// the end of it; buckets makes them names of buckets.
func sharedNames(t *testing.T, buckets bool) {
	t.Helper()
	const size, count, long = 4096, 1000, 2 << 20
	db, err := holdfast.Open("shared.db", 0o600, &holdfast.Options{PageSize: size, NoSync: true, NoSeals: true})
	check(t, err)
	check(t, db.Update(func(tx *holdfast.Tx) error {
		b, err := tx.CreateBucket([]byte("b"))
		check(t, err)
		return b.Put([]byte("k"), make([]byte, long))
	}))
	check(t, db.Close())
	damage(t, "shared.db", func(file []byte) []byte {
		for at := 2 * size; at < len(file); at += size {
			h := page.DecodeHeader(file[at:])
			if h.ID != page.ID(at/size) || h.Flags != page.FlagLeaf || h.Overflow < long/size {
				continue
			}
			run := file[at:][:int(h.Overflow+1)*size]
			h.Count = count
			page.EncodeHeader(run, h)
			start, end := page.HeaderSize+count*page.LeafElementSize, len(run)-64
			clear(run[end:])
			page.EncodeHeader(run[end+page.BucketHeaderSize:], page.Header{Flags: page.FlagLeaf})
			for i := range count {
				copy(run[start:], fmt.Sprintf("k%07d", i))
				head, vsize, flags := page.HeaderSize+i*page.LeafElementSize, 0, uint32(0)
				if buckets {
					vsize, flags = page.BucketHeaderSize+page.HeaderSize, page.BucketFlag
				}
				for j, v := range []uint32{flags, uint32(start - head), uint32(end - start), uint32(vsize)} {
					binary.NativeEndian.PutUint32(run[head+4*j:], v)
				}
				start += 8
			}
			return file
		}
		t.Fatal("no long leaf")
		return nil
	})
}

// TestNamesThatShareBytes: of a damaged file of 2 MB "buckets --json" took 9 GB of memory, the suggestions for a key
// that is not there 2 GB, and "keys" printed 4 GB.
func TestNamesThatShareBytes(t *testing.T) {
	for _, buckets := range []bool{true, false} {
		workdir(t)
		sharedNames(t, buckets)
		info, err := os.Stat("shared.db")
		check(t, err)
		for _, line := range []string{
			"buckets shared.db b", "buckets shared.db b --json", "keys shared.db b", "keys shared.db b --json", "keys shared.db b --count",
			"inspect shared.db", "inspect shared.db --json", "get shared.db b gone", "get shared.db b gone key", "keys shared.db b/gone",
			"export shared.db", "stats shared.db", "doctor shared.db", "pages shared.db", "__complete keys shared.db b/",
		} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			r := run(t, strings.Fields(line)...)
			runtime.ReadMemStats(&after)
			took := int64(after.TotalAlloc - before.TotalAlloc)
			t.Logf("%s: %d MB of memory, %d bytes, exit code %d, %.100s", line, took/1e6, len(r.out), r.code, r.errOut)
			if took > 64*info.Size() || int64(len(r.out)) > 8*info.Size() {
				t.Errorf("%s: %d MB of memory, %d bytes printed, of a file of %d: %.300s", line, took/1e6, len(r.out), info.Size(), r.errOut)
			}
		}
	}
}
