package engine

import (
	"context"
	"testing"

	"holdfast"
	"holdfast/internal/bridge"
	"holdfast/internal/vfs"
)

// Windows cannot shorten a file that is mapped: there the end is cut off by Close.
func TestVacuumWhereAMappedFileStays(t *testing.T) {
	mem := vfs.NewMem("db")
	db, err := bridge.Open(exactFile{mem.Open()}, nil)
	must(t, err)
	defer db.Close()
	bloat(t, db)
	want := content(t, db)
	size := func() int64 {
		file := mem.Open()
		defer file.Close()
		n, err := file.Size()
		must(t, err)
		return n
	}
	before := size()
	r, err := db.Vacuum(context.Background(), holdfast.VacuumOptions{})
	must(t, err)
	if size() != before || r.SizeAfter != before {
		t.Errorf("the file has %d bytes, before %d; %+v", size(), before, r)
	}
	bloat(t, db) // again: nothing is cut off of what is in use
	bloated := content(t, db)
	must(t, db.Close())
	db, err = bridge.Open(exactFile{mem.Open()}, nil)
	must(t, err)
	if content(t, db) != bloated || bloated != want {
		t.Error("the content is another")
	}
	_, err = db.Vacuum(context.Background(), holdfast.VacuumOptions{})
	must(t, err)
	must(t, db.Close())
	if size() > 512<<10 {
		t.Errorf("the closed file has %d bytes", size())
	}
	db, err = bridge.Open(exactFile{mem.Open()}, nil)
	must(t, err)
	if content(t, db) != want {
		t.Error("the content is another")
	}
	checkDB(t, db)
	must(t, db.Close())
}
