package prune

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"holdfast/worker/disk"
)

// TestInodes: a step had taken all inodes of the disk with empty files. Everything that was pruned counted bytes, of
// which more than enough were free and less than reservedSpace used, so that nothing went, and each further step
// failed.
func TestInodes(t *testing.T) {
	s := newStand(t)
	a := s.namespace("a")
	for i := range 4 {
		s.driver.inodes.Store([]int64{10, 900, 10, 10}[i])
		s.layer(a, fmt.Sprint(i), "", 10)
	}
	s.fs = disk.FS{Size: 1e6, Free: 9e5, Inodes: 1000, FreeInodes: 20}
	p := s.pruner(time.Hour, Default().Policies...)
	list, r := s.dry(p)
	if !slices.Equal(namesOf(list), []string{"a/0", "a/1"}) || r.After.FreeInodes != 930 || r.After.UsedInodes != 20 {
		t.Errorf("%v goes; after %+v", namesOf(list), r.After)
	}
	if got := list[1].Reason(p.Policies()); got != "policy 2: 30 of 1000 inodes free, minFreeSpace = 20% (200 kB)" {
		t.Error(got)
	}
	room := s.pruner(time.Hour, Policy{All: true})
	fs, err := room.Room(ctx, 3e4) // 30 inodes
	if err != nil || fs.FreeInodes != 30 || len(s.all()) != 4 {
		t.Errorf("%+v, %v", fs, err)
	}
	s.must(room.MakeRoom(ctx, 2e4))
	if len(s.all()) != 4 {
		t.Errorf("left: %v", s.all())
	}
	s.fs.Inodes, s.fs.FreeInodes = 0, 0 // they are not counted
	if list, _ := s.dry(p); len(list) != 0 {
		t.Errorf("%v goes where inodes are not counted", namesOf(list))
	}
	s.must(room.MakeRoom(ctx, 3e4))
	if len(s.all()) != 4 {
		t.Errorf("left: %v", s.all())
	}
	s.fs.Inodes, s.fs.FreeInodes = 1000, 20
	s.driver.delete = make(chan struct{})
	s.must(a.Remove(ctx, "1"))
	if list, r := s.dry(p); len(list) != 0 || r.After.FreeInodes != 920 {
		t.Errorf("%v goes, and another is being deleted; after %+v", namesOf(list), r.After)
	}
	close(s.driver.delete)
}
