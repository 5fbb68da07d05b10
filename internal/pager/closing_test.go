package pager

import (
	"testing"

	"holdfast/internal/page"
	"holdfast/internal/vfs"
)

// While Close waits for a reader there is no current state. A check by that
// reader asked for one, to count pages or, read-only, to find the free ones,
// and panicked.
func TestAccountWhileClosing(t *testing.T) {
	mem := vfs.NewMem("mem")
	for _, readOnly := range []bool{false, true} {
		p, err := Open(mem.Open(), Options{PageSize: 1024, ReadOnly: readOnly, Scan: func(*State, func(page.Extent) error) error { return nil }})
		if err != nil {
			t.Fatal(err)
		}
		held, err := p.Begin()
		if err != nil {
			t.Fatal(err)
		}
		wait := p.states.Close() // what Close does, up to where it waits
		if _, err := p.Begin(); err != ErrDatabaseNotOpen {
			t.Errorf("read-only %t: a new reader gets %v", readOnly, err)
		}
		if err := p.LoadFree(held.Value()); err != nil {
			t.Errorf("read-only %t: LoadFree: %v", readOnly, err)
		}
		if a, err := p.Account(held.Value()); err != nil || !a.Exact {
			t.Errorf("read-only %t: Account: %+v, %v", readOnly, a, err)
		}
		held.Release()
		wait()
		_ = p.gen.mapping.Close()
		_ = p.file.Close()
	}
}
