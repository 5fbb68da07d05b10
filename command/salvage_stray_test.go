package command_test

import (
	"encoding/binary"
	"strings"
	"testing"

	"holdfast/internal/page"
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
