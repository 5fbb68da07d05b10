package command_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"holdfast"
	"holdfast/internal/page"
	"holdfast/internal/salvage"
)

// TestSalvageStray: a branch page without a seal that names a page of another bucket
// does not bring that bucket's keys along, and both buckets keep theirs.
func TestSalvageStray(t *testing.T) {
	f := salvageFiles[7]
	whole := f.make(t)
	s, err := salvageBytes(whole, false)
	check(t, err)
	want := oracleOf(whole, f.pageSize, s.Root)
	lastRun := func(path string) page.ID {
		way := want[path].pages
		return way[len(way)-1][0]
	}
	way := want["/deep/d-00300"].pages
	branch, mine, other := way[len(way)-2][0], way[len(way)-1][0], lastRun("/plain/p-00020")
	p, err := page.Parse(at(whole, f.pageSize, branch), branch)
	check(t, err)
	strayed := false
	for i := range p.Count() {
		if p.Child(i) == mine {
			binary.NativeEndian.PutUint64(p.Bytes()[page.HeaderSize+i*page.BranchElementSize+8:], uint64(other))
			strayed = true
		}
	}
	if !strayed {
		t.Fatalf("page %d does not name page %d", branch, mine)
	}
	if s, err = salvageBytes(whole, false); err != nil || s.Sound() {
		t.Fatalf("%v, %+v", err, s.Report)
	}
	for path, value := range s.held {
		if e, was := want[path]; !was || e.value != value {
			t.Errorf("%q was never there", path)
		}
	}
	for path, e := range want {
		_, there := s.held[path]
		if _, found := s.found[path[strings.LastIndex(path, "/"):]+"\x00"+e.value]; !there && (!found || e.pages[len(e.pages)-1][0] != mine) {
			t.Errorf("%q is not saved", path)
		}
	}
}

// counting is a sink that keeps nothing and looks at the memory that is in use.
type counting struct {
	keys        int
	begun, most uint64 // bytes
}

func inUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func (c *counting) Begin(int) error { c.begun = inUse(); return nil }

func (c *counting) Bucket(*salvage.Place) (bool, error) { return true, nil }

func (c *counting) Put(*salvage.Place, []byte, []byte) (salvage.Outcome, error) {
	if c.keys%10_000 == 0 {
		c.most = max(c.most, inUse())
	}
	c.keys++
	return salvage.Saved, nil
}

func (c *counting) Fresh(name string) (string, error) { return name, nil }

// TestSalvageMemory: where the page is damaged that all others are below, it is not known of
// many where they belong, and they are not held in memory.
func TestSalvageMemory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	smallPages(t, path, 512)
	db, err := holdfast.Open(path, 0o600, &holdfast.Options{NoSync: true})
	check(t, err)
	var root page.ID
	const n = 60_000
	check(t, db.Update(func(tx *holdfast.Tx) error {
		b := bucketAt(t, tx, "b")
		for i := range n {
			must0(t, b.Put(fmt.Appendf(nil, "%0100d", i), []byte("v")))
		}
		return nil
	}))
	check(t, db.View(func(tx *holdfast.Tx) error { root = tx.Bucket([]byte("b")).RootPage(); return nil }))
	check(t, db.Close())
	data, err := os.ReadFile(path)
	check(t, err)
	clear(at(data, 512, root))
	file, err := os.Create(path)
	check(t, err)
	defer file.Close()
	_, err = file.Write(data)
	check(t, err)
	size := int64(len(data))
	var c counting
	_, err = salvage.Run(context.Background(), file, size, &c, salvage.Options{})
	check(t, err)
	pages := size / 512
	if held := int64(c.most) - int64(c.begun); c.keys != n || held > 4<<20 {
		t.Errorf("of %d pages %d keys, with %d bytes held", pages, c.keys, held)
	}
}
