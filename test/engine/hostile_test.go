package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"holdfast"
	"holdfast/internal/page"
)

// hostileBytes is about how long the files are.
const hostileBytes = 2 << 20

// hostileRun makes a database whose bucket "b" holds a value of 2 MB, and gives the file and the page run
// in which that lies, to be made something else.
func hostileRun(t *testing.T) (file, run []byte, id page.ID) {
	t.Helper()
	path := tempPath(t)
	db := open(t, path, &holdfast.Options{PageSize: 4096, NoSync: true, NoSeals: true})
	update(t, db, func(tx *holdfast.Tx) {
		b := createBucket(t, tx, "b")
		must(t, b.Put([]byte("a"), make([]byte, 5000)))
		must(t, b.Put([]byte("k"), make([]byte, hostileBytes)))
	})
	must(t, db.Close())
	file = readFile(t, path)
	for at := 2 * 4096; at < len(file); at += 4096 {
		h := page.DecodeHeader(file[at:])
		if h.ID == page.ID(at/4096) && h.Flags == page.FlagLeaf && h.Overflow > hostileBytes/4096-2 {
			return file, file[at : at+int(h.Overflow+1)*4096], h.ID
		}
	}
	t.Fatal("no long leaf")
	return nil, nil, 0
}

// hostileElement writes the head of element i of a run whose content is to begin at start.
func hostileElement(run []byte, i int, flags uint32, start, ksize, vsize int) {
	at := page.HeaderSize + i*page.LeafElementSize
	order := binary.NativeEndian
	order.PutUint32(run[at:], flags)
	order.PutUint32(run[at+4:], uint32(start-at))
	order.PutUint32(run[at+8:], uint32(ksize))
	order.PutUint32(run[at+12:], uint32(vsize))
}

const hostileCount = 1000

// hostileLeaf builds a leaf whose elements share their bytes. The content of each begins with an
// own key of 8 bytes, each bytes after the one before; element fills in what is to follow the key
// and says how the element describes it.
func hostileLeaf(each int, element func(run []byte, start int) (flags uint32, ksize, vsize int)) func(t *testing.T) []byte {
	return func(t *testing.T) []byte {
		t.Helper()
		file, run, id := hostileRun(t)
		page.EncodeHeader(run, page.Header{ID: id, Flags: page.FlagLeaf, Count: hostileCount, Overflow: uint32(len(run)/4096 - 1)})
		start := page.HeaderSize + hostileCount*page.LeafElementSize
		for i := range hostileCount {
			copy(run[start:], fmt.Sprintf("k%07d", i))
			flags, ksize, vsize := element(run, start)
			hostileElement(run, i, flags, start, ksize, vsize)
			start += each
		}
		return file
	}
}

const inlineBucket = page.BucketHeaderSize + page.HeaderSize // bytes of an inline bucket without keys

// hostileFiles are files whose elements share their bytes.
var hostileFiles = map[string]func(t *testing.T) []byte{
	// Values that all reach to the end of the run.
	"values": hostileLeaf(8, func(run []byte, start int) (uint32, int, int) { return 0, 8, len(run) - start - 8 }),
	// Keys that do so.
	"keys": hostileLeaf(8, func(run []byte, start int) (uint32, int, int) { return 0, len(run) - start - 1, 0 }),
	// Names of buckets that do so, but for a header of a bucket that all have.
	"names": hostileLeaf(8, func(run []byte, start int) (uint32, int, int) {
		end := len(run) - 64
		clear(run[end:])
		page.EncodeHeader(run[end+page.BucketHeaderSize:], page.Header{Flags: page.FlagLeaf})
		return page.BucketFlag, end - start, inlineBucket
	}),
	// Inline buckets that lie in each other.
	"inline": hostileLeaf(8+inlineBucket, func(run []byte, start int) (uint32, int, int) {
		clear(run[start+8 : start+8+inlineBucket])
		page.EncodeHeader(run[start+8+page.BucketHeaderSize:], page.Header{Flags: page.FlagLeaf})
		return page.BucketFlag, 8, len(run) - start - 8
	}),
	// A branch whose keys reach to the end of its run, above one leaf.
	"branch": func(t *testing.T) []byte {
		file, run, id := hostileRun(t)
		last := run[len(run)-4096:]
		leaf := id + page.ID(len(run)/4096-1)
		run = run[:len(run)-4096]
		page.EncodeHeader(run, page.Header{ID: id, Flags: page.FlagBranch, Count: hostileCount, Overflow: uint32(len(run)/4096 - 1)})
		start := page.HeaderSize + hostileCount*page.BranchElementSize
		for i := range hostileCount {
			copy(run[start:], fmt.Sprintf("k%07d", i))
			at := page.HeaderSize + i*page.BranchElementSize
			binary.NativeEndian.PutUint32(run[at:], uint32(start-at))
			binary.NativeEndian.PutUint32(run[at+4:], uint32(len(run)-start))
			binary.NativeEndian.PutUint64(run[at+8:], uint64(leaf))
			start += 8
		}
		clear(last)
		page.EncodeHeader(last, page.Header{ID: leaf, Flags: page.FlagLeaf, Count: 1})
		hostileElement(last, 0, 0, 100, 8, 8)
		copy(last[100:], "k0000000")
		return file
	},
}

// hostileUses are what programs do with a file.
var hostileUses = map[string]func(t *testing.T, db *holdfast.DB) error{
	"put": func(_ *testing.T, db *holdfast.DB) error {
		return db.Update(func(tx *holdfast.Tx) error { return tx.Bucket([]byte("b")).Put([]byte("k0000000+"), []byte("v")) })
	},
	"put last": func(_ *testing.T, db *holdfast.DB) error {
		return db.Update(func(tx *holdfast.Tx) error { return tx.Bucket([]byte("b")).Put([]byte("z"), []byte("v")) })
	},
	"append": func(_ *testing.T, db *holdfast.DB) error {
		return db.Update(func(tx *holdfast.Tx) error { return tx.Bucket([]byte("b")).Append([]byte("z"), []byte("v")) })
	},
	"delete": func(_ *testing.T, db *holdfast.DB) error {
		return db.Update(func(tx *holdfast.Tx) error {
			c := tx.Bucket([]byte("b")).Cursor()
			for k, _ := c.First(); k != nil; k, _ = c.First() {
				if err := c.Delete(); err != nil {
					return err
				}
			}
			return nil
		})
	},
	"delete bucket": func(_ *testing.T, db *holdfast.DB) error {
		return db.Update(func(tx *holdfast.Tx) error { return tx.DeleteBucket([]byte("b")) })
	},
	"move and put": func(_ *testing.T, db *holdfast.DB) error {
		return db.Update(func(tx *holdfast.Tx) error {
			in, err := tx.CreateBucket([]byte("in"))
			if err != nil {
				return err
			}
			if err := tx.MoveBucket([]byte("b"), nil, in); err != nil {
				return err
			}
			return in.Bucket([]byte("b")).Put([]byte("k0000000+"), []byte("v"))
		})
	},
	"spill": func(_ *testing.T, db *holdfast.DB) error {
		return db.Update(func(tx *holdfast.Tx) error {
			if err := tx.Bucket([]byte("b")).Put([]byte("k0000000+"), []byte("v")); err != nil {
				return err
			}
			_, err := tx.Spill(0)
			return err
		})
	},
	"open buckets": func(_ *testing.T, db *holdfast.DB) error {
		return db.Update(func(tx *holdfast.Tx) error {
			b := tx.Bucket([]byte("b"))
			return b.ForEachBucket(func(k []byte) error {
				if child := b.Bucket(k); child != nil {
					return child.Put([]byte("x"), []byte("y"))
				}
				return tx.Err()
			})
		})
	},
	"stats": func(_ *testing.T, db *holdfast.DB) error {
		return db.View(func(tx *holdfast.Tx) error { tx.Bucket([]byte("b")).Stats(); return nil })
	},
	"inspect": func(_ *testing.T, db *holdfast.DB) error {
		return db.View(func(tx *holdfast.Tx) error { tx.Inspect(); return nil })
	},
	"write to": func(_ *testing.T, db *holdfast.DB) error {
		return db.View(func(tx *holdfast.Tx) error { _, err := tx.WriteTo(io.Discard); return err })
	},
	"foreach": func(_ *testing.T, db *holdfast.DB) error {
		return db.View(func(tx *holdfast.Tx) error {
			return tx.ForEach(func(_ []byte, b *holdfast.Bucket) error {
				return b.ForEach(func(_, _ []byte) error { return nil })
			})
		})
	},
	"compact": func(t *testing.T, db *holdfast.DB) error {
		path := tempPath(t)
		dst := open(t, path, &holdfast.Options{NoSync: true})
		err := errors.Join(holdfast.Compact(dst, db, 0), dst.Close())
		if size := fileSize(t, path); size > 8*hostileBytes {
			t.Errorf("the compacted file has %d bytes", size)
		}
		return err
	},
	"check": func(t *testing.T, db *holdfast.DB) error {
		faults, err := db.Verify(context.Background())
		if err == nil && len(faults) == 0 {
			t.Error("nothing was found")
		}
		return err
	},
	"vacuum": func(_ *testing.T, db *holdfast.DB) error {
		_, err := db.Vacuum(context.Background(), holdfast.VacuumOptions{})
		return err
	},
}

// Elements of one page that share their bytes made a file of 2 MB allocate 1.9 GB in one Put, and grow by as
// much: each element counted, and was written, by itself. Whatever is done with such a file takes
// memory in proportion to the file, and what it writes is as well.
func TestHostileFiles(t *testing.T) {
	for file, build := range hostileFiles {
		data := build(t)
		for use, do := range hostileUses {
			t.Run(file+"/"+use, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "db")
				must(t, os.WriteFile(path, data, 0o600))
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				db, err := holdfast.Open(path, 0o600, &holdfast.Options{NoSync: true})
				if err == nil {
					err = errors.Join(do(t, db), db.Close())
				}
				runtime.ReadMemStats(&after)
				if took := after.TotalAlloc - before.TotalAlloc; took > 16*hostileBytes {
					t.Errorf("it took %d MiB of memory: %.200v", took>>20, err)
				}
				if size := fileSize(t, path); size > 32*hostileBytes {
					t.Errorf("the file has %d bytes afterwards: %v", size, err)
				}
				if use == "put" || use == "stats" || use == "delete" && file != "names" && file != "inline" {
					var damage *holdfast.CorruptError
					if !errors.As(err, &damage) {
						t.Errorf("error %v, want damage", err)
					}
				}
			})
		}
	}
}
