package mount

import (
	"os"
	"path/filepath"
	"testing"
)

// A bind that was idle, or that another had, was given for a path at which there was another directory by then.
func TestOwn(t *testing.T) {
	s := newStand(t, Options{})
	a, b := s.layer("a"), s.layer("b")
	spec := bind(a, "rbind", "ro")
	spec.Own = true
	one := s.get(spec)
	must(t, os.Rename(a, filepath.Join(filepath.Dir(a), "old")))
	must(t, os.Rename(b, a))
	two := s.get(spec)
	if x, y := read(t, one.Path()+"/who"), read(t, two.Path()+"/who"); x != "a" || y != "b" {
		t.Errorf("%q and %q", x, y)
	}
	one.Release()
	two.Release()
	s.settle()
	if st := s.Stats(); st.Mounts+st.Idle != 0 || st.Made != 2 || st.Shared != 0 {
		t.Errorf("%+v", st)
	}
}
