package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing"

	"holdfast"
	"holdfast/internal/bridge"
	"holdfast/internal/extension"
	"holdfast/internal/page"
	"holdfast/internal/vfs"
)

// In steps of one page the root page alone was a step. Where no free page lay before
// it, each piece of the walk ended after it and the next began there, until the walk
// had met more pages than the file has: a *CorruptError of a sound file.
func TestVacuumInSmallSteps(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), watchdog/6)
	defer cancel()
	for pages := 1; pages <= 4; pages++ {
		for _, n := range []int{30, 300, 3000} {
			t.Run(fmt.Sprint(pages, n), func(t *testing.T) {
				db := open(t, tempPath(t), &holdfast.Options{NoSync: true, PageSize: 1024})
				all := func(int) bool { return true }
				fillAndDelete(t, db, "b", n, 300, all)
				_, err := db.Vacuum(context.Background(), holdfast.VacuumOptions{})
				must(t, err)
				reader := begin(t, db, false) // of whose pages none can be used
				fillAndDelete(t, db, "b", n, 300, all)
				want := content(t, db)
				for range 2 {
					_, err = db.Vacuum(ctx, holdfast.VacuumOptions{StepPages: pages})
					must(t, err)
				}
				must(t, reader.Rollback())
				if content(t, db) != want {
					t.Error("the content is another")
				}
				checkDB(t, db)
			})
		}
	}
}

// A freelist that lists a page in use was believed: a vacuum moved another page there. The bucket that lost
// its page became one that holds itself, and the walk took 3 GB of memory for its names. The vacuum reads
// all pages in use before it writes, and now sees it; so does a dry run, and doctor with it.
func TestVacuumOfUsedPagesThatAreFree(t *testing.T) {
	for name, harm := range map[string]func(f *hostileSpace, used page.ID) []byte{
		"freelist": func(f *hostileSpace, used page.ID) []byte { return f.freelist(false, 1, 0, uint64(used)) },
		"record": func(f *hostileSpace, used page.ID) []byte {
			f.record(extension.FreeSet{Count: 1, Inline: extension.AppendChange(nil, nil, []page.Extent{{Start: used, N: 1}})})
			return f.file(nil)
		},
		"run of the record": func(f *hostileSpace, used page.ID) []byte {
			content := f.data[int(used)*hostilePage:][:0]
			f.record(extension.FreeSet{Logs: []extension.Run{{Start: used, Pages: 1, Hash: f.sum.Sum(extension.OfLog, used, content)}}})
			return f.file(nil)
		},
	} {
		for _, dry := range []bool{false, true} {
			f := newHostileSpace(t)
			var used page.ID
			leaf := page.HeaderSize + page.LeafElementSize
			for id := page.FirstDataPage; used == 0; id++ { // the page of bucket b, whose element is of key k
				if at := int(id) * hostilePage; page.DecodeHeader(f.data[at:]).ID == id && string(f.data[at+leaf:][:2]) == "kv" {
					used = id
				}
			}
			path := tempPath(t)
			data := harm(f, used)
			must(t, os.WriteFile(path, data, 0o600))
			db, err := holdfast.Open(path, 0o600, &holdfast.Options{ReadOnly: dry})
			must(t, err)
			if want := map[bool]holdfast.OpenPath{true: holdfast.OpenedByFreelist, false: holdfast.OpenedByRecord}[name == "freelist"]; !dry && db.Stats().OpenPath != want {
				t.Fatalf("%s: opened by %s", name, db.Stats().OpenPath)
			}
			_, err = db.Vacuum(context.Background(), holdfast.VacuumOptions{DryRun: dry})
			var damage *holdfast.CorruptError
			if !errors.As(err, &damage) || damage.Page != used {
				t.Errorf("%s, dry %v: %v; want damage of page %d", name, dry, err, used)
			}
			view(t, db, func(tx *holdfast.Tx) {
				if got := tx.Bucket([]byte("b")).Get([]byte("k")); string(got) != "v" {
					t.Errorf("%s, dry %v: the value is %q", name, dry, got)
				}
			})
			must(t, db.Close())
		}
	}
}

// A walk over buckets that are nested made the path of each: of n buckets in each other it took n*n names.
func TestVacuumOfNestedBuckets(t *testing.T) {
	const deep = 3000
	db := open(t, tempPath(t), &holdfast.Options{NoSync: true, PageSize: 1024})
	update(t, db, func(tx *holdfast.Tx) {
		b := createBucket(t, tx, "b")
		for range deep {
			must(t, b.Put([]byte("a"), make([]byte, 400))) // so that it is not inline
			var err error
			b, err = b.CreateBucket([]byte("b"))
			must(t, err)
		}
	})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := db.Vacuum(context.Background(), holdfast.VacuumOptions{DryRun: true})
	must(t, err)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > deep*4000 { // 12 MB; it took 110
		t.Errorf("it took %d MB of memory", took/1e6)
	}
}

// pagesOf are the pages of a kind that are in use and have so many elements at least.
func pagesOf(t *testing.T, db *holdfast.DB, kind string, count int) (ids []int) {
	t.Helper()
	view(t, db, func(tx *holdfast.Tx) {
		for id := 2; ; id++ {
			info, err := tx.Page(id)
			must(t, err)
			if info == nil {
				return
			}
			if info.Type == kind && info.Count >= count {
				ids = append(ids, id)
			}
			id += info.OverflowCount
		}
	})
	return ids
}

// Pages that are damaged in ways that a walk over all trees meets: vacuum names the page, and
// has not changed a byte.
func TestVacuumOfDamage(t *testing.T) {
	const size = 1024
	le := binary.LittleEndian
	for _, test := range []struct {
		name   string
		sealed bool
		damage func(t *testing.T, db *holdfast.DB, file []byte) (page int, change func(file vfs.File))
	}{
		{"a bit of a value", true, func(t *testing.T, db *holdfast.DB, file []byte) (int, func(vfs.File)) {
			leaves := pagesOf(t, db, "leaf", 3)
			id := leaves[len(leaves)/2]
			at := id*size + 16 + 16 // the second element
			at += 8 + int(le.Uint32(file[at+4:])) + int(le.Uint32(file[at+8:])) - 4
			return id, func(f vfs.File) { write(t, f, []byte{file[at] ^ 1}, int64(at)) }
		}},
		{"a branch below itself", false, func(t *testing.T, db *holdfast.DB, file []byte) (int, func(vfs.File)) {
			id := pagesOf(t, db, "branch", 3)[0]
			return id, func(f vfs.File) { write(t, f, le.AppendUint64(nil, uint64(id)), int64(id*size+16+16+8)) }
		}},
		{"a child that does not exist", false, func(t *testing.T, db *holdfast.DB, _ []byte) (int, func(vfs.File)) {
			id := pagesOf(t, db, "branch", 3)[0]
			return 1 << 30, func(f vfs.File) { write(t, f, le.AppendUint64(nil, 1<<30), int64(id*size+16+16+8)) }
		}},
		{"a bucket in itself", false, func(t *testing.T, db *holdfast.DB, file []byte) (int, func(vfs.File)) {
			var outer, inner holdfast.Pgid
			view(t, db, func(tx *holdfast.Tx) {
				b := tx.Bucket([]byte("outer"))
				outer, inner = b.Root(), b.Bucket([]byte("inner")).Root()
			})
			header := le.AppendUint64(le.AppendUint64(nil, uint64(inner)), 7) // its root and its sequence
			at := bytes.LastIndex(file, header)
			if at < 0 || bytes.Count(file, header) != 1 {
				t.Fatal("the bucket is not found in the file, or twice")
			}
			return 0, func(f vfs.File) { write(t, f, le.AppendUint64(nil, uint64(outer)), int64(at)) }
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			mem := vfs.NewMem("mem")
			f := mem.Open()
			options := &holdfast.Options{PageSize: size, NoSync: true, NoSeals: !test.sealed}
			db, err := bridge.Open(f, options)
			must(t, err)
			fillAndDelete(t, db, "flat", 2000, 100, func(i int) bool { return i%3 == 0 })
			update(t, db, func(tx *holdfast.Tx) {
				in := createBucket(t, createBucket(t, tx, "outer"), "inner")
				must(t, in.SetSequence(7))
				for i := range 60 {
					put(t, in, fmt.Sprint(i), string(make([]byte, 100)))
				}
			})
			must(t, db.Close())
			db, err = bridge.Open(mem.Open(), options)
			must(t, err)
			page, change := test.damage(t, db, mem.Bytes())
			must(t, db.Close())
			db, err = bridge.Open(mem.Open(), options)
			must(t, err)
			change(mem.Open())
			before := mem.Bytes()
			var start, end runtime.MemStats
			runtime.ReadMemStats(&start)
			for range 2 {
				err = within(t, "vacuum", func() error {
					_, err := db.Vacuum(context.Background(), holdfast.VacuumOptions{StepPages: 4})
					return err
				})
				var damage *holdfast.CorruptError
				if !errors.As(err, &damage) || damage.Page == 0 || page != 0 && damage.Page != holdfast.Pgid(page) {
					t.Errorf("vacuum says %v, the damage is at page %d", err, page)
				}
				if !bytes.Equal(mem.Bytes(), before) {
					t.Error("vacuum has changed the file")
				}
			}
			// Of a bucket in itself a walk 100,000 deep took 732 MiB, whatever the size of the file.
			if runtime.ReadMemStats(&end); end.TotalAlloc-start.TotalAlloc > 32<<20 {
				t.Errorf("vacuum of a file of %d bytes has allocated %d", len(before), end.TotalAlloc-start.TotalAlloc)
			}
			_ = db.Close()
		})
	}
}

// write writes to a file behind the database's back.
func write(t *testing.T, f vfs.File, b []byte, at int64) {
	t.Helper()
	_, err := f.WriteAt(b, at)
	must(t, err)
}

// A database that was opened for reading is not made shorter, and can be looked at.
func TestVacuumReadOnly(t *testing.T) {
	db := sparse(t, holdfast.Options{PageSize: 1024}, 2000, 100)
	path := db.Path()
	must(t, db.Close())
	before := readFile(t, path)
	db = open(t, path, &holdfast.Options{ReadOnly: true, PreLoadFreelist: true})
	if _, err := db.Vacuum(context.Background(), holdfast.VacuumOptions{}); err != holdfast.ErrDatabaseReadOnly {
		t.Errorf("vacuum of what is open for reading: %v", err)
	}
	r, err := db.Vacuum(context.Background(), holdfast.VacuumOptions{DryRun: true})
	if err != nil || r.Expected == 0 || r.Expected > r.SizeBefore/2 || r.PagesWritten+int64(r.Steps) > 0 {
		t.Errorf("a look: %+v, %v", r, err)
	}
	must(t, db.Close())
	if !bytes.Equal(readFile(t, path), before) {
		t.Error("the file has changed")
	}
}

// However little is in a file, it stays as long as bbolt wants one to be that has one
// torn meta.
func TestVacuumOfAlmostNothing(t *testing.T) {
	db := openSized(t, tempPath(t), &holdfast.Options{PageSize: 512})
	update(t, db, func(tx *holdfast.Tx) { createBucket(t, tx, "b") })
	for range 3 {
		_, err := db.Vacuum(context.Background(), holdfast.VacuumOptions{})
		must(t, err)
		if size := length(t, db); size != 4096 {
			t.Errorf("the file has %d bytes", size)
		}
	}
	checkDB(t, db)
}
